//! The client's end of the control socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agent_subprocess::{ProcessId, ancestry};
use loop_state::{Request, times};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::Error;
use crate::control::program::OtherVersion;
use crate::control::protocol::{self, ControlMessage, MAX_LINE, Response};
use crate::control::socket_path;

/// The most bytes of all responses to one request.
const MAX_BYTES: usize = 2 * MAX_LINE;

/// Sends a request to the process that works on the run in this directory; the path is absolute.
///
/// Blocks for a few seconds at most, even if that process hangs.
///
/// # Errors
///
/// [`Error::is_not_running`] when no process listens there.
pub fn ask(run_dir: &Path, request: Request) -> Result<Responses, Error> {
    send(run_dir, request)
}

/// Sends a message as [`ask`] does: a request or a query.
pub(crate) fn send(run_dir: &Path, message: impl Into<ControlMessage>) -> Result<Responses, Error> {
    let path = socket_path::socket(run_dir);
    let checked = socket_path::check(run_dir);
    let stream = checked.and_then(|()| socket_path::with_short_path(run_dir, connect_unix));
    let stream = stream.map_err(|e| match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            Error::not_running(path.clone())
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::unresponsive(path.clone()),
        _ => rlm_store::Error::io("can't connect to", path.clone(), e).into(),
    })?;
    // Look up the process at once: if it ends, it can't be found later.
    let peer = ancestry::Peer::of(stream.as_fd()).ok();
    let mut responses = Responses {
        path,
        peer: peer.map(|peer| peer.process()),
        from: BufReader::new(stream),
        line: Vec::new(),
        read: 0,
        unknown: None,
    };
    let sent = responses
        .from
        .get_mut()
        .write_all(&protocol::line(&message.into()));
    match sent {
        Ok(()) => Ok(responses),
        // The run sends its reason before it closes the connection.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(responses),
        Err(e) => Err(responses.failed(e)),
    }
}

/// The flags of a new socket. Apple's systems can't set close-on-exec when they create a socket.
#[cfg(not(target_vendor = "apple"))]
const SOCKET_FLAGS: SocketFlags = SocketFlags::CLOEXEC;
#[cfg(target_vendor = "apple")]
const SOCKET_FLAGS: SocketFlags = SocketFlags::empty();

/// Connects with a time limit: the queue of a process that hangs can be full.
fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SOCKET_FLAGS, None)?;
    fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    set_socket_timeout(&socket, Timeout::Send, Some(times::CONTROL_CLIENT))?;
    connect(&socket, &address)?;
    Ok(socket.into())
}

/// The responses to a request. Dropping them stops listening, and does not cancel the request.
#[derive(Debug)]
pub struct Responses {
    path: PathBuf,
    /// The process that listens there, if the system reports it.
    peer: Option<ProcessId>,
    from: BufReader<UnixStream>,
    /// The beginning of a line that is not complete yet.
    line: Vec<u8>,
    /// The number of bytes of all complete lines.
    read: usize,
    /// The other version that sent an unknown response, until a known response follows.
    unknown: Option<OtherVersion>,
}

impl Responses {
    /// Returns the path of the socket, the process that listens there, and the connection, from which nothing was read yet.
    pub(super) fn into_parts(self) -> (PathBuf, Option<ProcessId>, BufReader<UnixStream>) {
        (self.path, self.peer, self.from)
    }

    /// Returns whether this process sends the responses. An agent can replace the run's socket by its own socket, and send anything there.
    ///
    /// # Platform
    ///
    /// Always `true` outside Linux, where the process is not known.
    pub(crate) fn is_from(&self, process: ProcessId) -> bool {
        !cfg!(target_os = "linux") || self.peer == Some(process)
    }

    /// Waits for the next response; `None` when the run closed the connection.
    ///
    /// # Errors
    ///
    /// [`Error::is_unresponsive`] when `wait` has passed; another call continues to wait. [`Error::is_other_version`] when the run has another version
    /// and doesn't know the request, or its response is not known here. Another error for an invalid response, or more than 2 MiB of responses.
    pub fn next(&mut self, wait: Duration) -> Result<Option<Response>, Error> {
        let by = Instant::now() + wait;
        loop {
            let left = by.saturating_duration_since(Instant::now());
            // A timeout of zero would mean no timeout.
            let left = left.max(Duration::from_millis(1));
            let set = self.from.get_ref().set_read_timeout(Some(left));
            set.map_err(|e| self.failed(e))?;
            let room = (MAX_LINE - self.line.len()) as u64;
            match (&mut self.from)
                .take(room)
                .read_until(b'\n', &mut self.line)
            {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return self.closed(),
                Err(e) => return Err(self.failed(e)),
                Ok(_) if self.line.ends_with(b"\n") => {
                    self.read += self.line.len();
                    if self.read > MAX_BYTES {
                        return Err(Error::bad_response(self.path.clone(), "too many responses"));
                    }
                    let line = std::mem::take(&mut self.line);
                    return self.understand(&line).map(Some);
                }
                Ok(0) if self.line.len() < MAX_LINE => return self.closed(),
                Ok(_) if self.line.len() < MAX_LINE => {}
                Ok(_) => {
                    return Err(Error::bad_response(
                        self.path.clone(),
                        "a line that is too long",
                    ));
                }
            }
        }
    }

    /// Parses a line. A run of another version can send a line that this version doesn't know.
    fn understand(&mut self, line: &[u8]) -> Result<Response, Error> {
        let response = protocol::parse_response(line);
        self.unknown = match &response {
            Ok(Response::Unknown) => protocol::other_version(line),
            Ok(Response::Unsupported { .. } | Response::Malformed { .. }) | Err(_) => {
                match protocol::other_version(line) {
                    Some(other) => return Err(other_version(&other, &self.path, self.peer)),
                    None => None,
                }
            }
            Ok(_) => None,
        };
        response.map_err(|e| Error::bad_response(self.path.clone(), e))
    }

    /// Returns the result of a closed connection.
    fn closed(&self) -> Result<Option<Response>, Error> {
        match &self.unknown {
            Some(other) => Err(other_version(other, &self.path, self.peer)),
            None => Ok(None),
        }
    }

    fn failed(&self, e: io::Error) -> Error {
        match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => match &self.unknown {
                Some(other) => other_version(other, &self.path, self.peer),
                None => Error::unresponsive(self.path.clone()),
            },
            _ => rlm_store::Error::io("can't communicate with", self.path.clone(), e).into(),
        }
    }
}

/// Returns the error for a run of another version. The directory of the socket has the name of the run.
pub(super) fn other_version(other: &OtherVersion, socket: &Path, peer: Option<ProcessId>) -> Error {
    let run = socket.parent().and_then(Path::file_name);
    let run = run.unwrap_or_default().to_string_lossy();
    let pid = peer.map(|peer| peer.pid);
    Error::other_version(other.message(&run, pid, rlm_store::program_title()))
}
