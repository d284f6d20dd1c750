//! The socket through which other commands of the same user reach the server: they ask for a login link, or end all sessions.
//!
//! A request is one line, and so is the response. The socket is private to the user, and it refuses a process that an agent started: a link of an
//! operator would give the agent control over all runs.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use loop_runner::control;
use rlm_store::deadline::sleep_until;
use rlm_store::state_dir;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::app::App;
use crate::error::ViewError;
use crate::login::Role;

/// The longest line, in bytes.
const MAX_LINE: u64 = 4096;
/// The time for a request and its response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after a failed accept.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// The largest number of requests at a time.
const MAX_OPEN: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
enum ViewRequest {
    Link { read_only: bool },
    Revoke,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "snake_case")]
enum ViewResponse {
    Link { url: String },
    Revoked { sessions: usize },
    Refused { reason: String },
}

/// The socket of this server. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct ViewSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Held while the server lives: it decides which of two servers has the socket.
    _lock: std::fs::File,
}

impl Drop for ViewSocket {
    fn drop(&mut self) {
        let _gone = state_dir::remove_file(&self.path);
    }
}

impl ViewSocket {
    /// Creates the socket in a directory that only the user can enter.
    pub(crate) fn bind(directory: &Path) -> Result<Self, ViewError> {
        let path = directory.join(NAME);
        let failed = |e| ViewError::Socket(path.clone(), e);
        let lock = state_dir::append(&directory.join("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(ViewError::Running),
            Err(std::fs::TryLockError::Error(e)) => return Err(failed(e)),
        }
        // The file of a server that was killed.
        match state_dir::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(failed)?;
        state_dir::make_private_socket(&path).map_err(failed)?;
        Ok(Self {
            listener,
            path,
            _lock: lock,
        })
    }

    /// Answers requests until the future is dropped. A silent peer keeps nobody else waiting.
    pub(crate) async fn serve(&self, app: &Arc<App>) {
        let mut open = JoinSet::new();
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                sleep_until(Instant::now() + ACCEPT_AGAIN).await;
                continue;
            };
            while open.try_join_next().is_some() {}
            if open.len() < MAX_OPEN {
                let app = Arc::clone(app);
                // A peer that sends nothing, or leaves, gets no answer.
                open.spawn(async move { drop(timeout(TIMEOUT, answer(stream, &app)).await) });
            }
        }
    }
}

const NAME: &str = "view.sock";

async fn answer(stream: UnixStream, app: &Arc<App>) -> io::Result<()> {
    let refused = control::refuse_agent(stream.as_fd());
    let (from, mut to) = stream.into_split();
    if let Err(reason) = refused {
        return send(&mut to, &ViewResponse::Refused { reason }).await;
    }
    let mut line = Vec::new();
    let mut from = tokio::io::BufReader::new(from).take(MAX_LINE);
    from.read_until(b'\n', &mut line).await?;
    let response = match serde_json::from_slice(&line) {
        Err(e) => ViewResponse::Refused {
            reason: e.to_string(),
        },
        Ok(ViewRequest::Link { read_only }) => {
            let role = if read_only {
                Role::Viewer
            } else {
                Role::Operator
            };
            let url = app.link(role)?;
            ViewResponse::Link { url }
        }
        Ok(ViewRequest::Revoke) => ViewResponse::Revoked {
            sessions: app.revoke(),
        },
    };
    send(&mut to, &response).await
}

async fn send(to: &mut OwnedWriteHalf, response: &ViewResponse) -> io::Result<()> {
    let mut line = serde_json::to_vec(response)?;
    line.push(b'\n');
    to.write_all(&line).await
}

/// The server of another process.
#[derive(Debug)]
pub struct RunningView {
    path: PathBuf,
}

impl RunningView {
    /// Finds the server that has its socket in this directory; `None` if there is none.
    #[must_use]
    pub fn find(directory: &Path) -> Option<Self> {
        let path = directory.join(NAME);
        StdStream::connect(&path).ok()?;
        Some(Self { path })
    }

    /// Returns a new login link; see [`ViewLogins::link`](crate::ViewLogins::link).
    ///
    /// # Errors
    ///
    /// An error if the server doesn't respond, or refuses the request because this process belongs to an agent.
    pub fn link(&self, role: Role) -> io::Result<String> {
        let read_only = role == Role::Viewer;
        match self.ask(ViewRequest::Link { read_only })? {
            ViewResponse::Link { url } => Ok(url),
            other => Err(unexpected(other)),
        }
    }

    /// Ends all sessions and links, and returns the number of sessions.
    ///
    /// # Errors
    ///
    /// As for [`link`](Self::link).
    pub fn revoke(&self) -> io::Result<usize> {
        match self.ask(ViewRequest::Revoke)? {
            ViewResponse::Revoked { sessions } => Ok(sessions),
            other => Err(unexpected(other)),
        }
    }

    fn ask(&self, request: ViewRequest) -> io::Result<ViewResponse> {
        let mut stream = StdStream::connect(&self.path)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut line = serde_json::to_vec(&request)?;
        line.push(b'\n');
        match stream.write_all(&line) {
            // A server that refuses this process doesn't read the request; its response says why.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
            written => written?,
        }
        let mut response = String::new();
        BufReader::new(io::Read::take(stream, MAX_LINE)).read_line(&mut response)?;
        Ok(serde_json::from_str(&response)?)
    }
}

fn unexpected(response: ViewResponse) -> io::Error {
    io::Error::other(match response {
        ViewResponse::Refused { reason } => reason,
        _ => "the server sent an unexpected response".into(),
    })
}
