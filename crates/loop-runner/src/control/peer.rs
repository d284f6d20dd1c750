//! The connection to a client: its permission, its request, the responses, and whether the client is still connected.

use std::io;
use std::time::Duration;

use loop_state::times;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use crate::control::protocol::{self, EndReport, MAX_LINE, Response};
use rlm_store::deadline::sleep_until;

/// The interval at which the run checks whether a peer that sends nothing is still connected.
const POLL: Duration = Duration::from_secs(1);

/// The end of the run, once it has ended.
pub(super) type RunEndWatch = watch::Receiver<Option<EndReport>>;

/// A connected client.
pub(super) enum Peer<'a> {
    /// A client at the control socket.
    Socket(&'a mut OwnedWriteHalf),
    /// A client on another machine.
    Remote(&'a mpsc::Sender<Vec<u8>>),
}

impl<'a> Peer<'a> {
    pub(super) fn new(to: &'a mut OwnedWriteHalf) -> Self {
        Self::Socket(to)
    }

    pub(super) async fn send(&mut self, response: &Response) -> io::Result<()> {
        self.send_line(&protocol::line(response)).await
    }

    pub(super) async fn send_line(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            Self::Socket(to) => timeout(times::CONTROL_PEER, to.write_all(line)).await?,
            Self::Remote(to) => { timeout(times::CONTROL_PEER, to.send(line.to_vec())).await? }
                .map_err(|_| io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Waits for the end of the run and sends it. The end can be earlier than the first call.
    pub(super) async fn send_end(&mut self, over: &mut RunEndWatch) -> io::Result<()> {
        let ended = over.wait_for(Option::is_some).await;
        let ended = ended.ok().and_then(|ended| ended.clone());
        match ended {
            Some(ended) => self.send(&Response::RunEnded(ended)).await,
            None => Ok(()),
        }
    }
}

/// Waits until a peer sends more or closes the connection. A peer that closed only its sending half still listens.
pub(super) async fn wait_until_closed(from: &mut BufReader<OwnedReadHalf>) {
    let mut more = [0];
    if !matches!(from.read(&mut more).await, Ok(0)) {
        return;
    }
    let stream: &UnixStream = from.get_ref().as_ref();
    while !has_hung_up(stream) {
        sleep_until(Instant::now() + POLL).await;
    }
}

fn has_hung_up(stream: &UnixStream) -> bool {
    let mut descriptors = [PollFd::new(stream, PollFlags::empty())];
    let polled = poll(&mut descriptors, Some(&Timespec::default()));
    polled.is_err() || !descriptors[0].revents().is_empty()
}

/// Reads the request: one line, or the allowed part of a longer one.
pub(super) async fn read_line(from: &mut BufReader<OwnedReadHalf>) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut from = from.take(MAX_LINE as u64);
    timeout(times::CONTROL_PEER, from.read_until(b'\n', &mut line)).await??;
    Ok(line)
}

/// Returns whether a peer with this user id may send requests. The socket is private; this check is for a descriptor or a directory with too wide
/// permissions. Root may kill the run, so root may also send requests.
pub(super) fn is_same_user(peer: u32, own: u32) -> bool {
    peer == own || peer == 0
}

pub(super) fn current_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::is_same_user;

    #[test]
    fn x118f_socket_accepts_only_its_user_and_root() {
        assert!(is_same_user(1000, 1000) && is_same_user(0, 1000));
        assert!(!is_same_user(1001, 1000) && !is_same_user(1000, 0));
    }
}
