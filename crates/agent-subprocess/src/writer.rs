//! Writing to an agent that may not be reading: whole lines, in order, in bounded memory and time.

use crate::Stdin;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncWrite as _, AsyncWriteExt as _};
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
pub(crate) enum Unwritten {
    /// Nobody reads, and enough is waiting.
    Full,
    /// The other end is closed.
    Closed,
}

/// The pipe, and who has it.
#[derive(Debug)]
struct Pipe {
    /// `None` while the task writes.
    stdin: Option<Stdin>,
    /// How many lines wait for the task, or are being written by it.
    waiting: usize,
}

/// The writing end. What the pipe takes at once is written at once; the rest is written by a task, so that a line comes to
/// its end whoever gives up on it.
#[derive(Debug)]
pub(crate) struct Writer {
    pipe: Arc<Mutex<Pipe>>,
    lines: mpsc::UnboundedSender<Line>,
    room: Arc<Semaphore>,
}

fn lock(pipe: &Mutex<Pipe>) -> MutexGuard<'_, Pipe> {
    pipe.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Writer {
    pub(crate) fn new(stdin: Stdin) -> Self {
        let (lines, mut queue) = mpsc::unbounded_channel::<Line>();
        let room = Arc::new(Semaphore::new(AHEAD));
        let (stdin, waiting) = (Some(stdin), 0);
        let pipe = Arc::new(Mutex::new(Pipe { stdin, waiting }));
        let (closing, theirs) = (room.clone(), pipe.clone());
        tokio::spawn(async move {
            while let Some(line) = queue.recv().await {
                let Some(mut stdin) = lock(&theirs).stdin.take() else {
                    break;
                };
                if stdin.write_all(&line.bytes).await.is_err() {
                    break;
                }
                let mut pipe = lock(&theirs);
                pipe.stdin = Some(stdin);
                pipe.waiting -= 1;
                drop(pipe);
                // Nobody has to wait for it.
                let _unheard = line.written.send(());
            }
            closing.close();
        });
        Writer { pipe, lines, room }
    }

    /// Queues a line if there is room now.
    pub(crate) fn push(&self, bytes: Vec<u8>) -> Result<oneshot::Receiver<()>, Unwritten> {
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
    pub(crate) async fn write(&self, bytes: Vec<u8>) -> Result<(), Unwritten> {
        let room = self.room.clone().acquire_many_owned(cost(&bytes));
        let room = timeout(ROOM, room).await.map_err(|_| Unwritten::Full)?;
        let written = self.queue(bytes, room.map_err(|_| Unwritten::Closed)?)?;
        match timeout(LOOK, written).await {
            Ok(Err(_)) => Err(Unwritten::Closed),
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }

    /// Tells whether a line of about this size would be taken now.
    #[cfg(feature = "codex")]
    pub(crate) fn has_room(&self, size: usize) -> bool {
        self.room.available_permits() >= (size + OVERHEAD).min(AHEAD)
    }

    fn queue(
        &self,
        mut bytes: Vec<u8>,
        room: OwnedSemaphorePermit,
    ) -> Result<oneshot::Receiver<()>, Unwritten> {
        let (written, done) = oneshot::channel();
        let mut pipe = lock(&self.pipe);
        // What waits goes first.
        let is_next = pipe.waiting == 0;
        if let Some(stdin) = pipe.stdin.as_mut().filter(|_| is_next) {
            let begun = begin(stdin, &bytes).inspect_err(|_| self.room.close())?;
            if begun == bytes.len() {
                let _heard = written.send(());
                return Ok(done);
            }
            bytes.drain(..begun);
        }
        let line = Line {
            bytes,
            _room: room,
            written,
        };
        self.lines.send(line).map_err(|_| Unwritten::Closed)?;
        pipe.waiting += 1;
        Ok(done)
    }
}

/// Writes what the pipe takes now, and returns how much that is.
fn begin(stdin: &mut Stdin, bytes: &[u8]) -> Result<usize, Unwritten> {
    // Whoever waits for more room is the task.
    let mut nobody = Context::from_waker(Waker::noop());
    let mut begun = 0;
    while begun < bytes.len() {
        match Pin::new(&mut *stdin).poll_write(&mut nobody, &bytes[begun..]) {
            Poll::Ready(Ok(count)) if count > 0 => begun += count,
            Poll::Ready(_) => return Err(Unwritten::Closed),
            Poll::Pending => break,
        }
    }
    Ok(begun)
}

/// One line passes even if it is larger than all that may wait.
fn cost(bytes: &[u8]) -> u32 {
    u32::try_from((bytes.len() + OVERHEAD).min(AHEAD)).unwrap_or(u32::MAX)
}
