//! Serves all runs of all projects as live pages on a port of this machine.
//!
//! The pages read what `rlm status`, `rlm logs` and `rlm report` read, and send requests through the control socket of a run, as `rlm steer` does. The
//! server has no state of its own except the logins. Its end affects no run, except that nobody answers the questions of a run any more. The crate is a part of `rlm` and makes no promise to other programs; its
//! caller passes the texts and the commands of the program as a [`Program`]. It must not know the command line, exit codes or terminals.
//!
//! Each web page that the user opens can send requests to this port, and so can each user of the machine. So the server answers only on a random host
//! name, refuses requests from other sites, and shows nothing without a login by a one-time link. Everything that an agent wrote is escaped, and the
//! content security policy allows no script but the page's own.
//!
//! Modules in reading order: `origin` (which requests can come from the page) and `login` (links, the password and sessions) are pure. `error` has the errors, and `access`
//! decides how browsers reach the server, and what that requires. `program` is what the caller
//! provides. `row` contains the facts about one run, `runs` finds all runs, `attempts` the attempts of one, `iteration_changes` finds the files that an iteration changed, and `parsed_changes` splits their text. `pages` renders, `actions` sends a person's
//! requests, `export` downloads a run, and `stream` sends changes to open pages. `app` is the state that all requests share, `routes` answers requests, `connections` limits
//! connections, and `socket` lets other commands ask for a login link.

mod access;
mod actions;
mod app;
mod attempts;
mod connections;
mod error;
mod export;
mod iteration_changes;
mod login;
mod origin;
mod pages;
mod parsed_changes;
mod program;
mod routes;
mod row;
mod runs;
mod socket;
mod stream;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

pub use access::{Access, Encryption, PublicUrl};
pub use error::ViewError;
pub use login::Role;
pub use program::{AgentChoice, CommandResult, Program, RunTexts};
pub use socket::RunningView;

use access::Kind;
use app::App;
use connections::Acceptor;
use origin::PageOrigin;
use runs::Runs;
use socket::ViewSocket;
use tokio::net::TcpListener;

/// A server that listens, and serves nothing yet.
#[derive(Debug)]
pub struct ViewServer {
    listeners: Vec<TcpListener>,
    acceptor: Acceptor,
    socket: ViewSocket,
    logins: ViewLogins,
}

/// The logins of a server.
#[derive(Clone, Debug)]
pub struct ViewLogins(Arc<App>);

impl ViewServer {
    /// Listens for browsers as `access` says, and on a socket in `directory`, which only this user may enter. No session allows more than `most`. Must be
    /// called in a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`ViewError::Listen`] if the port can't be used, [`ViewError::Running`] if another process has the socket.
    pub async fn bind(
        access: Access,
        directory: &Path,
        most: Role,
        program: Arc<dyn Program>,
    ) -> Result<Self, ViewError> {
        let socket = ViewSocket::bind(directory)?;
        let here = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let local = async |port| {
            let bound = connections::bind(port).await;
            bound.map_err(|e| ViewError::Listen(here(port), e))
        };
        let (listeners, acceptor, origin, password) = match access.0 {
            Kind::ThisMachine { port } => {
                let (listeners, port) = local(port).await?;
                // Cookies don't depend on the port: on a fixed name, a server of another user would get ours.
                let name = app::new_secret().map_err(ViewError::Random)?.text();
                let host = format!("{}.localhost:{port}", &name[..16]);
                let origin = PageOrigin::ThisMachine { host };
                (listeners, Acceptor::Plain, origin, None)
            }
            Kind::Proxy { port, url } => {
                let (listeners, _) = local(port).await?;
                let origin = PageOrigin::Public { host: url.host };
                (listeners, Acceptor::Plain, origin, None)
            }
            Kind::Encrypted {
                address,
                url,
                encryption,
            } => {
                let listener = TcpListener::bind(address).await;
                let listener = listener.map_err(|e| ViewError::Listen(address, e))?;
                let origin = PageOrigin::Public { host: url.host };
                let acceptor = Acceptor::encrypting(encryption.config);
                (vec![listener], acceptor, origin, Some(encryption.password))
            }
        };
        let app = App::new(Runs::new(program), origin, most, password);
        Ok(Self {
            listeners,
            acceptor,
            socket,
            logins: ViewLogins(Arc::new(app)),
        })
    }

    /// Returns the address that the server listens on.
    ///
    /// # Errors
    ///
    /// An error if the system can't tell it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        let first = self.listeners.first();
        first
            .ok_or_else(|| io::Error::other("no listener"))?
            .local_addr()
    }

    /// Returns the logins.
    #[must_use]
    pub fn logins(&self) -> ViewLogins {
        self.logins.clone()
    }

    /// Serves the pages until the future is dropped. Dropping it closes all connections.
    pub async fn serve(self) {
        let app = self.logins.0;
        tokio::join!(
            Arc::clone(&app.runs).keep_fresh(),
            connections::serve(self.listeners, self.acceptor, routes::router(&app)),
            self.socket.serve(&app)
        );
    }
}

impl ViewLogins {
    /// Returns the address of a page that logs a browser in, once and within five minutes.
    ///
    /// # Errors
    ///
    /// An error if the system has no random numbers.
    pub fn link(&self, role: Role) -> io::Result<String> {
        self.0.link(role)
    }

    /// Ends all sessions and links, and returns the number of sessions.
    #[must_use]
    pub fn revoke(&self) -> usize {
        self.0.revoke()
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
