//! The connection to a client: its permission, its request, the responses, and whether the client is still connected.

use std::io;
use std::time::Duration;

use loop_state::times;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::control::protocol::{self, Answer, Ended, MAX_LINE};
use rlm_store::deadline::until;

/// The interval at which the run checks whether a peer that sends nothing is still connected.
const LOOK: Duration = Duration::from_secs(1);

/// The end of the run, once it has ended.
pub(super) type Over = watch::Receiver<Option<Ended>>;

/// A connected client.
pub(super) struct Peer<'a>(&'a mut OwnedWriteHalf);

impl<'a> Peer<'a> {
    pub(super) fn new(to: &'a mut OwnedWriteHalf) -> Self {
        Self(to)
    }

    pub(super) async fn tell(&mut self, answer: &Answer) -> io::Result<()> {
        self.say(&protocol::line(answer)).await
    }

    pub(super) async fn say(&mut self, line: &[u8]) -> io::Result<()> {
        timeout(times::CONTROL_PEER, self.0.write_all(line)).await?
    }

    /// Waits for the end of the run and sends it. The end may have happened before the first call.
    pub(super) async fn tell_end(&mut self, over: &mut Over) -> io::Result<()> {
        let ended = over.wait_for(Option::is_some).await;
        let ended = ended.ok().and_then(|ended| ended.clone());
        match ended {
            Some(ended) => self.tell(&Answer::Ended(ended)).await,
            None => Ok(()),
        }
    }
}

/// Waits until a peer sends more or closes the connection. A peer that closed only its sending half still listens.
pub(super) async fn left(from: &mut BufReader<OwnedReadHalf>) {
    let mut more = [0];
    if !matches!(from.read(&mut more).await, Ok(0)) {
        return;
    }
    let stream: &UnixStream = from.get_ref().as_ref();
    while !has_hung_up(stream) {
        until(Instant::now() + LOOK).await;
    }
}

fn has_hung_up(stream: &UnixStream) -> bool {
    let mut look = [PollFd::new(stream, PollFlags::empty())];
    let looked = poll(&mut look, Some(&Timespec::default()));
    looked.is_err() || !look[0].revents().is_empty()
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
pub(super) fn may_ask(peer: u32, own: u32) -> bool {
    peer == own || peer == 0
}

pub(super) fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::may_ask;

    #[test]
    fn x118f_only_its_user_and_root_may_ask() {
        assert!(may_ask(1000, 1000) && may_ask(0, 1000));
        assert!(!may_ask(1001, 1000) && !may_ask(1000, 0));
    }
}
