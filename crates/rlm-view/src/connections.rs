//! The connections of the server: how many there are, and which are dropped first.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rlm_store::deadline::sleep_until;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;

/// The time in which a connection is encrypted, and in which the header of a request must arrive.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a failed accept.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// The largest number of ports that are tried until one is free on both addresses.
const MAX_TRIES: usize = 20;
/// The largest number of connections.
const MAX_CONNECTIONS: usize = 256;

/// A connection, as its requests see it.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    number: u64,
    all: Arc<Mutex<Connections>>,
}

impl Connection {
    /// Keeps the connection when there are too many: it belongs to a logged-in browser.
    pub(crate) fn trust(&self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = all
            .unknown
            .iter()
            .position(|(number, _)| *number == self.number)
        {
            let known = all.unknown.remove(at);
            all.trusted.extend(known);
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut all = self.0.all.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.0.number;
        all.unknown.retain(|(it, _)| *it != number);
        all.trusted.retain(|(it, _)| *it != number);
    }
}

/// Removes the connection from the list when its task ends.
struct OpenConnection(Connection);

/// The open connections, the oldest first.
#[derive(Debug, Default)]
struct Connections {
    unknown: VecDeque<(u64, AbortHandle)>,
    trusted: VecDeque<(u64, AbortHandle)>,
    next: u64,
}

impl Connections {
    /// Makes room for a new connection: drops the oldest one, and first those without a session.
    fn make_room(&mut self) {
        if self.unknown.len() + self.trusted.len() < MAX_CONNECTIONS {
            return;
        }
        let oldest = self
            .unknown
            .pop_front()
            .or_else(|| self.trusted.pop_front());
        if let Some((_, task)) = oldest {
            task.abort();
        }
    }
}

/// Ends the connections of a server that ends.
struct EndAll(Arc<Mutex<Connections>>);

impl Drop for EndAll {
    fn drop(&mut self) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Connections {
            unknown, trusted, ..
        } = &mut *all;
        for (_, task) in unknown.drain(..).chain(trusted.drain(..)) {
            task.abort();
        }
    }
}

/// Listens on a port of both addresses of this machine, and returns the port. A browser tries both for a name such as `x.localhost`: on the other one,
/// another user could wait for its login.
pub(crate) async fn bind(port: u16) -> io::Result<(Vec<TcpListener>, u16)> {
    let mut tries = if port == 0 { MAX_TRIES } else { 1 };
    loop {
        tries -= 1;
        let first = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let chosen = first.local_addr()?.port();
        match TcpListener::bind((Ipv6Addr::LOCALHOST, chosen)).await {
            Ok(second) => return Ok((vec![first, second], chosen)),
            Err(e) if e.kind() != io::ErrorKind::AddrInUse => {
                // This machine has no IPv6, so a browser can't reach such an address either.
                return Ok((vec![first], chosen));
            }
            Err(e) if tries == 0 => return Err(e),
            Err(_) => {}
        }
    }
}

/// Waits for a connection to any of the listeners.
async fn accept(listeners: &[TcpListener]) -> io::Result<TcpStream> {
    let accepted = match listeners {
        [one, two] => tokio::select! {
            accepted = one.accept() => accepted,
            accepted = two.accept() => accepted,
        },
        [one, ..] => one.accept().await,
        [] => std::future::pending().await,
    };
    Ok(accepted?.0)
}

/// The first step of a connection.
#[derive(Clone)]
pub(crate) enum Acceptor {
    Plain,
    Encrypted(TlsAcceptor),
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor").finish_non_exhaustive()
    }
}

impl Acceptor {
    pub(crate) fn encrypting(config: Arc<ServerConfig>) -> Self {
        Self::Encrypted(config.into())
    }
}

/// Serves connections until the future is dropped.
pub(crate) async fn serve(listeners: Vec<TcpListener>, acceptor: Acceptor, router: Router) {
    let connections = Arc::new(Mutex::new(Connections::default()));
    let _end = EndAll(Arc::clone(&connections));
    loop {
        let Ok(stream) = accept(&listeners).await else {
            // The process has no free descriptor; connections end within seconds.
            sleep_until(Instant::now() + ACCEPT_AGAIN).await;
            continue;
        };
        let connection = {
            let mut all = connections.lock().unwrap_or_else(PoisonError::into_inner);
            all.make_room();
            all.next += 1;
            Connection {
                number: all.next,
                all: Arc::clone(&connections),
            }
        };
        let number = connection.number;
        let (acceptor, router) = (acceptor.clone(), router.clone());
        // While this holds the lock, the task can't remove itself from the list before it is in there.
        let mut all = connections.lock().unwrap_or_else(PoisonError::into_inner);
        let task = tokio::spawn(accepted(
            stream,
            acceptor,
            router,
            OpenConnection(connection),
        ));
        all.unknown.push_back((number, task.abort_handle()));
    }
}

/// Encrypts a connection if necessary, and serves it.
async fn accepted(stream: TcpStream, acceptor: Acceptor, router: Router, open: OpenConnection) {
    // Small messages must not wait for more.
    let _delayed = stream.set_nodelay(true);
    match acceptor {
        Acceptor::Plain => serve_connection(stream, router, open).await,
        Acceptor::Encrypted(acceptor) => {
            // A peer that doesn't speak TLS, or is too slow, gets no answer.
            if let Ok(Ok(stream)) = timeout(HEADER_TIMEOUT, acceptor.accept(stream)).await {
                serve_connection(stream, router, open).await;
            }
        }
    }
}

async fn serve_connection<S>(stream: S, router: Router, open: OpenConnection)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(open.0.clone());
        router.call(request)
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_headers(64)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    // The browser closed the connection, or sent something that is not HTTP.
    drop(served);
}
