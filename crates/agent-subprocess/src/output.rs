//! Reading ahead of what the agent writes, in bounded memory, until it ends or is cut after the agent's exit.

use crate::keeper::Progress;
use crate::tail::Tail;
use crate::{Line, Lines};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, timeout_at};

/// How much standard output is read ahead of the caller: some agents lose output when a pipe is full at their exit.
const AHEAD: u32 = 4 << 20;
/// How much standard error is kept for a caller that streams it; beyond, lines are left out of the stream.
const AHEAD_STDERR: u32 = 2 << 20;
/// How long after the exit of the main process a pipe is read that something else holds open.
pub(crate) const DRAIN: Duration = Duration::from_millis(500);
/// What a queued line costs besides its bytes.
const OVERHEAD: usize = 128;
/// How many lines are queued at once.
const BATCH: usize = 4096;
/// How much of a pipe is read at once.
const READ: usize = 256 << 10;

/// Which stream a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// One line and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Which stream it came from.
    pub stream: Stream,
    /// The line.
    pub line: Line,
}

/// How many streams are still read, and how many were given up although somebody holds them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Draining {
    pub(crate) open: u8,
    pub(crate) cut: u8,
}

/// Lines of one read, and the room that they take until the last of them is handed out.
#[derive(Debug)]
struct Batch {
    stream: Stream,
    lines: std::vec::IntoIter<Line>,
    _room: OwnedSemaphorePermit,
}

/// The caller's end of both streams. Dropping it ends the reading.
#[derive(Debug)]
pub(crate) struct Outputs {
    queue: mpsc::UnboundedReceiver<Batch>,
    current: Option<Batch>,
    rooms: [Arc<Semaphore>; 2],
    tail: Arc<Mutex<Tail>>,
    pub(crate) draining: watch::Receiver<Draining>,
}

impl Outputs {
    /// Starts to read both streams in tasks of their own.
    pub(crate) fn read(
        stdout: Receiver,
        stderr: Receiver,
        max_line: usize,
        progress: &watch::Receiver<Progress>,
    ) -> Self {
        let (sender, queue) = mpsc::unbounded_channel();
        let (draining, drained) = watch::channel(Draining { open: 2, cut: 0 });
        let rooms = [AHEAD, AHEAD_STDERR].map(|room| Arc::new(Semaphore::new(room as usize)));
        let tail = Arc::<Mutex<Tail>>::default();
        let draining = Arc::new(draining);
        for (stream, pipe, room) in [
            (Stream::Stdout, stdout, &rooms[0]),
            (Stream::Stderr, stderr, &rooms[1]),
        ] {
            let (room, sender, tail) = (room.clone(), sender.clone(), tail.clone());
            let mut reader = Reader {
                stream,
                pipe,
                lines: Lines::new(max_line),
                room,
                sender,
                tail,
            };
            let (progress, draining) = (progress.clone(), draining.clone());
            tokio::spawn(async move {
                let to_the_end = reader.run(progress).await;
                draining.send_modify(|draining| {
                    draining.open -= 1;
                    draining.cut += u8::from(!to_the_end);
                });
                if !to_the_end {
                    reader.discard().await;
                }
            });
        }
        Outputs {
            queue,
            current: None,
            rooms,
            tail,
            draining: drained,
        }
    }

    pub(crate) async fn next(&mut self) -> Option<Output> {
        loop {
            if let Some(batch) = &mut self.current
                && let Some(line) = batch.lines.next()
            {
                let stream = batch.stream;
                return Some(Output { stream, line });
            }
            // The room is given back before more is waited for.
            self.current = None;
            self.current = Some(self.queue.recv().await?);
        }
    }

    pub(crate) fn tail(&self) -> String {
        self.tail
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .text()
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        self.rooms.iter().for_each(|room| room.close());
    }
}

struct Reader {
    stream: Stream,
    pipe: Receiver,
    lines: Lines,
    room: Arc<Semaphore>,
    sender: mpsc::UnboundedSender<Batch>,
    tail: Arc<Mutex<Tail>>,
}

impl Reader {
    /// Reads to the end of the stream (`true`), or to where it stood [`DRAIN`] after the exit of the main process.
    async fn run(&mut self, mut progress: watch::Receiver<Progress>) -> bool {
        let mut deadline = None;
        loop {
            // The end and the deadline come first: somebody who is left may write faster than is read here.
            let ready = match deadline {
                Some(deadline) if Instant::now() >= deadline => return self.cut().await,
                Some(deadline) => match timeout_at(deadline, self.pipe.readable()).await {
                    Ok(ready) => ready,
                    Err(_) => continue,
                },
                None => tokio::select! {
                    biased;
                    _exited_or_lost = progress.wait_for(|progress| progress.exit.is_some()) => {
                        deadline = Some(Instant::now() + DRAIN);
                        continue;
                    }
                    ready = self.pipe.readable() => ready,
                },
            };
            match ready.and_then(|()| self.read()) {
                Ok(0) => {
                    let rest = self.lines.finish();
                    return self.hand_out(rest.into_iter().collect()).await;
                }
                Ok(_) => {
                    if !self.hand_out_read().await {
                        return false;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return self.cut().await,
            }
        }
    }

    fn read(&mut self) -> io::Result<usize> {
        let buffer = self.lines.buffer();
        let before = buffer.len();
        buffer.reserve(READ);
        let read = self.pipe.try_read_buf(buffer)?;
        if self.stream == Stream::Stderr {
            let new = &self.lines.buffer()[before..];
            self.tail
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(new);
        }
        Ok(read)
    }

    /// Takes what is in the pipe now, which is all that the main process can have left there, and no more.
    async fn cut(&mut self) -> bool {
        let mut left = rustix::io::ioctl_fionread(&self.pipe).unwrap_or(0);
        while left > 0
            && let Ok(read @ 1..) = self.read()
        {
            left = left.saturating_sub(read as u64);
            if !self.hand_out_read().await {
                return false;
            }
        }
        let rest = self.lines.finish();
        self.hand_out(rest.into_iter().collect()).await;
        false
    }

    /// Reads on for nobody, so that what was left running neither blocks nor dies when it writes.
    async fn discard(self) {
        let Reader {
            pipe, room, sender, ..
        } = self;
        // The queue ends for its reader now.
        drop(sender);
        let mut nowhere = vec![0; 16 << 10];
        // More than there ever is: granted to nobody, and refused when the caller's end is dropped.
        let dropped = room.acquire_many(u32::MAX);
        tokio::pin!(dropped);
        loop {
            tokio::select! {
                biased;
                _ = &mut dropped => return,
                ready = pipe.readable() => match ready.and_then(|()| pipe.try_read(&mut nowhere)) {
                    Ok(1..) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    _ => return,
                },
            }
        }
    }

    /// Queues the lines of one read, a batch for most: only very short lines make more.
    async fn hand_out_read(&mut self) -> bool {
        loop {
            let next = std::iter::from_fn(|| self.lines.next_line());
            let lines: Vec<Line> = next.take(BATCH).collect();
            let more = lines.len() == BATCH;
            if !self.hand_out(lines).await {
                return false;
            } else if !more {
                return true;
            }
        }
    }

    /// Queues lines as soon as there is room; `false` if nobody wants lines any more. Standard error never waits.
    async fn hand_out(&self, lines: Vec<Line>) -> bool {
        if lines.is_empty() {
            return true;
        }
        let limit = if self.stream == Stream::Stdout {
            AHEAD
        } else {
            AHEAD_STDERR
        };
        let cost: usize = lines.iter().map(|line| line.bytes.len() + OVERHEAD).sum();
        let cost = u32::try_from(cost).map_or(limit, |cost| cost.min(limit));
        let room = self.room.clone();
        let permit = match self.stream {
            Stream::Stdout => room.acquire_many_owned(cost).await.ok(),
            Stream::Stderr => match room.try_acquire_many_owned(cost) {
                Err(tokio::sync::TryAcquireError::NoPermits) => return true,
                permit => permit.ok(),
            },
        };
        let Some(_room) = permit else { return false };
        let batch = Batch {
            stream: self.stream,
            lines: lines.into_iter(),
            _room,
        };
        self.sender.send(batch).is_ok()
    }
}
