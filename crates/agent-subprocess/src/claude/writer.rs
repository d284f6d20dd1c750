//! Writing to an agent that may not be reading: whole lines, in order, in bounded memory and time.

use crate::Stdin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;

/// How much may wait for an agent that does not read.
const AHEAD: usize = 32 << 20;
/// What a waiting line costs besides its bytes.
const OVERHEAD: usize = 128;
/// How long to wait for room.
const ROOM: Duration = Duration::from_secs(2);
/// How long to look whether a line goes through; longer lines take their time behind our back.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Debug)]
struct Line {
    bytes: Vec<u8>,
    _room: OwnedSemaphorePermit,
    written: oneshot::Sender<()>,
}

/// Why a line was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unwritten {
    /// Nobody reads, and enough is waiting.
    Full,
    /// The other end is closed.
    Closed,
}

/// The writing end. A task owns the pipe, so that a line is written to its end whoever gives up on it.
#[derive(Debug)]
pub(super) struct Writer {
    lines: mpsc::UnboundedSender<Line>,
    room: Arc<Semaphore>,
}

impl Writer {
    pub(super) fn new(mut stdin: Stdin) -> Self {
        let (lines, mut queue) = mpsc::unbounded_channel::<Line>();
        let room = Arc::new(Semaphore::new(AHEAD));
        let closing = room.clone();
        tokio::spawn(async move {
            while let Some(line) = queue.recv().await {
                if stdin.write_all(&line.bytes).await.is_err() {
                    break;
                }
                // Nobody has to wait for it.
                let _unheard = line.written.send(());
            }
            closing.close();
        });
        Writer { lines, room }
    }

    /// Queues a line if there is room now.
    pub(super) fn push(&self, bytes: Vec<u8>) -> Result<oneshot::Receiver<()>, Unwritten> {
        let room = self.room.clone().try_acquire_many_owned(cost(&bytes));
        let room = room.map_err(|error| match error {
            tokio::sync::TryAcquireError::Closed => Unwritten::Closed,
            tokio::sync::TryAcquireError::NoPermits => Unwritten::Full,
        })?;
        self.queue(bytes, room)
    }

    /// Queues a line as soon as there is room, and looks whether it goes through.
    ///
    /// # Cancel safety
    /// The line may have been queued when the future is dropped, or not.
    pub(super) async fn write(&self, bytes: Vec<u8>) -> Result<(), Unwritten> {
        let room = self.room.clone().acquire_many_owned(cost(&bytes));
        let room = timeout(ROOM, room).await.map_err(|_| Unwritten::Full)?;
        let written = self.queue(bytes, room.map_err(|_| Unwritten::Closed)?)?;
        match timeout(LOOK, written).await {
            Ok(Err(_)) => Err(Unwritten::Closed),
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }

    fn queue(
        &self,
        bytes: Vec<u8>,
        room: OwnedSemaphorePermit,
    ) -> Result<oneshot::Receiver<()>, Unwritten> {
        let (written, done) = oneshot::channel();
        let line = Line {
            bytes,
            _room: room,
            written,
        };
        self.lines.send(line).map_err(|_| Unwritten::Closed)?;
        Ok(done)
    }
}

/// One line passes even if it is larger than all that may wait.
fn cost(bytes: &[u8]) -> u32 {
    u32::try_from((bytes.len() + OVERHEAD).min(AHEAD)).unwrap_or(u32::MAX)
}
