//! Reads the output of the program ahead, in bounded memory, until the output ends or a short time after the program exited.

use crate::lines::{Piece, split_off};
use crate::times;
use crate::tree_handle::TreeProgress;
use crate::{Line, Lines};
use bytes::Bytes;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, timeout_at};

/// The number of bytes of standard output to read ahead of the caller: some programs lose output if a pipe is full at their exit.
const MAX_QUEUED: u32 = 4 << 20;
/// The number of bytes of standard error to keep for a caller that reads it; further lines are left out of the stream.
const AHEAD_STDERR: u32 = 2 << 20;
/// The memory cost of a queued piece besides its bytes.
const OVERHEAD: usize = 128;
/// The room for one read from a pipe, if the last read returned at least [`SMALL_READ`] bytes.
const LARGE_READ: usize = 256 << 10;
/// The room otherwise: most programs write little, and a large buffer for each of their outputs takes time.
const SMALL_READ: usize = 4 << 10;

/// The stream that a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// One line and its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The stream that the line came from.
    pub stream: Stream,
    /// The line.
    pub line: Line,
}

/// The number of streams that are still read, and of those that were abandoned although a process keeps them open.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DrainState {
    pub(crate) open: u8,
    pub(crate) abandoned: u8,
}

/// Lines of one read, and the room that they use until the last of them is returned.
#[derive(Debug)]
struct Batch {
    stream: Stream,
    /// The rest of the block of complete lines.
    block: Bytes,
    pieces: std::vec::IntoIter<Piece>,
    _room: OwnedSemaphorePermit,
}

impl Iterator for Batch {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        loop {
            if let Some(line) = split_off(&mut self.block) {
                return Some(line);
            }
            match self.pieces.next()? {
                Piece::Block(block) => self.block = block,
                Piece::Line(line) => return Some(line),
            }
        }
    }
}

/// The lines of a program, taken out of its [`ProcessTree`](crate::ProcessTree), so that one `select!` can wait for them and for the end of the
/// program. Dropping it closes the streams: the next write of the program fails.
#[derive(Debug)]
#[must_use = "dropping it closes the output of the program"]
pub struct OutputLines {
    queue: mpsc::UnboundedReceiver<Batch>,
    current: Option<Batch>,
    rooms: [Arc<Semaphore>; 2],
}

/// The bytes of one output of a program, see [`OutputMode::Bytes`](crate::OutputMode::Bytes). Dropping it closes the stream.
///
/// A process that the program started can keep the stream open after the program has ended. So wait for the end of the program too.
#[derive(Debug)]
#[must_use = "dropping it closes the output of the program"]
pub struct RawOutput(pub(crate) Receiver);

impl AsyncRead for RawOutput {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

/// The outputs of a program that the caller has not taken yet, and the facts that stay when it has.
#[derive(Debug)]
pub(crate) struct Outputs {
    pub(crate) lines: Option<OutputLines>,
    tail: Arc<Mutex<Tail>>,
    pub(crate) draining: watch::Receiver<DrainState>,
}

impl Outputs {
    /// Starts to read standard output and standard error in separate tasks, as far as their lines are wanted.
    pub(crate) fn read(
        pipes: [Option<Receiver>; 2],
        max_line: usize,
        stderr_waits: bool,
        progress: &watch::Receiver<TreeProgress>,
    ) -> Self {
        let (sender, queue) = mpsc::unbounded_channel();
        let (draining, drained) = watch::channel(DrainState {
            open: pipes.iter().flatten().map(|_| 1).sum(),
            abandoned: 0,
        });
        let rooms = [MAX_QUEUED, AHEAD_STDERR].map(|room| Arc::new(Semaphore::new(room as usize)));
        let tail = Arc::<Mutex<Tail>>::default();
        let draining = Arc::new(draining);
        let streams = [Stream::Stdout, Stream::Stderr];
        for ((stream, pipe), room) in streams.into_iter().zip(pipes).zip(&rooms) {
            let Some(pipe) = pipe else { continue };
            let (room, sender, tail) = (room.clone(), sender.clone(), tail.clone());
            let mut reader = Reader {
                stream,
                pipe,
                lines: Lines::new(max_line),
                next_read: SMALL_READ,
                room,
                waits: stream == Stream::Stdout || stderr_waits,
                sender,
                tail,
            };
            let (progress, draining) = (progress.clone(), draining.clone());
            tokio::spawn(async move {
                let to_the_end = reader.run(progress).await;
                draining.send_modify(|draining| {
                    draining.open -= 1;
                    draining.abandoned += u8::from(!to_the_end);
                });
                if !to_the_end {
                    reader.discard().await;
                }
            });
        }
        Outputs {
            lines: Some(OutputLines {
                queue,
                current: None,
                rooms,
            }),
            tail,
            draining: drained,
        }
    }

    pub(crate) fn tail(&self) -> String {
        self.tail
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .text()
    }
}

impl OutputLines {
    /// Returns the next line without waiting, if it came in the same read as the line before.
    pub fn try_next(&mut self) -> Option<Output> {
        let batch = self.current.as_mut()?;
        let line = batch.next()?;
        let stream = batch.stream;
        Some(Output { stream, line })
    }

    /// Waits for the next line, as [`ProcessTree::next_output`](crate::ProcessTree::next_output) does.
    ///
    /// # Cancel safety
    /// Cancel safe: no line is lost.
    pub async fn next(&mut self) -> Option<Output> {
        loop {
            if let Some(output) = self.try_next() {
                return Some(output);
            }
            // Free the room of the last batch before waiting for more.
            self.current = None;
            self.current = Some(self.queue.recv().await?);
        }
    }
}

impl Drop for OutputLines {
    fn drop(&mut self) {
        self.rooms.iter().for_each(|room| room.close());
    }
}

struct Reader {
    stream: Stream,
    pipe: Receiver,
    lines: Lines,
    /// The least room for the next read.
    next_read: usize,
    room: Arc<Semaphore>,
    /// Whether the program waits while there is no room. Otherwise lines are left out.
    waits: bool,
    sender: mpsc::UnboundedSender<Batch>,
    tail: Arc<Mutex<Tail>>,
}

impl Reader {
    /// Reads to the end of the stream (`true`), or until [`times::DRAIN`] after the exit of the main process (`false`).
    async fn run(&mut self, mut progress: watch::Receiver<TreeProgress>) -> bool {
        let mut deadline = None;
        loop {
            // Check the exit and the deadline before the output: a leftover can write faster than this task reads.
            let read = match deadline {
                Some(deadline) if Instant::now() >= deadline => return self.finish_read().await,
                Some(deadline) => match timeout_at(deadline, self.read()).await {
                    Ok(read) => read,
                    Err(_) => continue,
                },
                None => tokio::select! {
                    biased;
                    _exited_or_lost = progress.wait_for(|progress| progress.exit.is_some()) => {
                        deadline = Some(Instant::now() + times::DRAIN);
                        continue;
                    }
                    read = self.read() => read,
                },
            };
            match read {
                Ok(0) => return self.hand_out_rest().await,
                Ok(_) => {
                    if !self.hand_out_read().await {
                        return false;
                    }
                }
                Err(_) => return self.finish_read().await,
            }
        }
    }

    /// Reads the available bytes as soon as there are any. Cancel safe.
    async fn read(&mut self) -> io::Result<usize> {
        let buffer = self.lines.buffer();
        buffer.reserve(self.next_read);
        // If the pipe returns fewer bytes than there is room for, it is empty, so no second read is needed.
        let read = self.pipe.read_buf(buffer).await?;
        self.next_read = match read {
            SMALL_READ.. => LARGE_READ,
            _ => SMALL_READ,
        };
        self.record_tail(read);
        Ok(read)
    }

    /// Stores the last bytes of standard error.
    fn record_tail(&self, read: usize) {
        if self.stream == Stream::Stderr {
            let new = self.lines.last(read);
            let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
            tail.push(new);
        }
    }

    /// Takes the bytes that are in the pipe now, and no more: the main process can't have left more.
    async fn finish_read(&mut self) -> bool {
        let mut left = rustix::io::ioctl_fionread(&self.pipe).unwrap_or(0);
        while left > 0 {
            let buffer = self.lines.buffer();
            buffer.reserve(LARGE_READ);
            let Ok(read @ 1..) = self.pipe.try_read_buf(buffer) else {
                break;
            };
            self.record_tail(read);
            left = left.saturating_sub(read as u64);
            if !self.hand_out_read().await {
                return false;
            }
        }
        self.hand_out_rest().await;
        false
    }

    /// Continues to read and drops everything, so that a leftover neither blocks nor dies when it writes.
    async fn discard(self) {
        let Reader {
            pipe, room, sender, ..
        } = self;
        // The caller sees the end of the queue now.
        drop(sender);
        let mut nowhere = vec![0; 16 << 10];
        // The semaphore never has so many permits, so this never succeeds. It fails when the caller's end is dropped.
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

    /// Queues the lines of one read.
    async fn hand_out_read(&mut self) -> bool {
        let pieces = std::iter::from_fn(|| self.lines.next_piece()).collect();
        self.hand_out(pieces).await
    }

    /// Queues the rest at the end of the stream.
    async fn hand_out_rest(&mut self) -> bool {
        let rest = self.lines.finish().map(Piece::Line);
        self.hand_out(rest.into_iter().collect()).await
    }

    /// Queues lines as soon as there is room; returns `false` if the caller's end is closed.
    async fn hand_out(&self, pieces: Vec<Piece>) -> bool {
        if pieces.is_empty() {
            return true;
        }
        let limit = if self.stream == Stream::Stdout {
            MAX_QUEUED
        } else {
            AHEAD_STDERR
        };
        let cost: usize = pieces.iter().map(|piece| piece.len() + OVERHEAD).sum();
        let cost = u32::try_from(cost).map_or(limit, |cost| cost.min(limit));
        let room = self.room.clone();
        let permit = match self.waits {
            true => room.acquire_many_owned(cost).await.ok(),
            false => match room.try_acquire_many_owned(cost) {
                Err(tokio::sync::TryAcquireError::NoPermits) => return true,
                permit => permit.ok(),
            },
        };
        let Some(_room) = permit else { return false };
        let batch = Batch {
            stream: self.stream,
            block: Bytes::new(),
            pieces: pieces.into_iter(),
            _room,
        };
        self.sender.send(batch).is_ok()
    }
}

/// The number of last bytes of standard error to keep: 64 KiB.
const TAIL_BYTES: usize = 64 << 10;

/// The last bytes of a stream, in bounded memory.
#[derive(Debug, Default)]
struct Tail(Vec<u8>);

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
        // Move the rest only once for each 64 KiB.
        if self.0.len() + bytes.len() > 2 * TAIL_BYTES {
            self.0
                .drain(..self.0.len().saturating_sub(TAIL_BYTES - bytes.len()));
        }
        self.0.extend_from_slice(bytes);
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0[self.0.len().saturating_sub(TAIL_BYTES)..]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_last_bytes_are_kept() {
        for piece in [1, 1000, TAIL_BYTES - 1, TAIL_BYTES, 3 * TAIL_BYTES] {
            let all: Vec<u8> = (0..5 * TAIL_BYTES).map(|n| b'a' + (n % 23) as u8).collect();
            let mut tail = Tail::default();
            all.chunks(piece).for_each(|chunk| tail.push(chunk));
            assert!(tail.0.len() <= 2 * TAIL_BYTES);
            assert_eq!(
                tail.text().as_bytes(),
                &all[4 * TAIL_BYTES..],
                "pieces of {piece}"
            );
        }
    }
}
