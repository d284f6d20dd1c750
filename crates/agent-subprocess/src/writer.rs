//! The standard input of a program, which two sides can close. Also a writer for a program that possibly does not read: whole lines, in order, in
//! bounded memory and time.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::net::unix::pipe::Sender;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use crate::times;

/// Writes to the standard input of the program. Dropping it closes that input, as [`ProcessTree::close_stdin`](crate::ProcessTree::close_stdin) and a stop do.
/// Each later write then fails with [`io::ErrorKind::BrokenPipe`], and so does a write that is waiting.
#[derive(Debug)]
#[must_use = "dropping it closes the standard input of the agent"]
pub struct Stdin(Input);

/// A handle that can close the pipe of a [`Stdin`].
#[derive(Clone, Debug)]
pub(crate) struct Input(Arc<Mutex<(Option<Sender>, Option<Waker>)>>);

impl Input {
    pub(crate) fn new(sender: Sender) -> Self {
        Input(Arc::new(Mutex::new((Some(sender), None))))
    }

    pub(crate) fn writer(&self) -> Stdin {
        Stdin(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, (Option<Sender>, Option<Waker>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.lock().0.is_some()
    }

    pub(crate) fn close(&self) {
        let (sender, waker) = std::mem::take(&mut *self.lock());
        drop(sender);
        // Closing a pipe does not wake a writer that waits for room in it.
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        io: impl FnOnce(Pin<&mut Sender>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let (sender, waker) = &mut *self.lock();
        let Some(sender) = sender else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let result = io(Pin::new(sender), cx);
        *waker = result.is_pending().then(|| cx.waker().clone());
        result
    }
}

impl AsyncWrite for Stdin {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll(cx, |sender, cx| sender.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.close();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stdin {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The number of bytes that can wait for a program that does not read.
const MAX_QUEUED: usize = 32 << 20;
/// The memory cost of a waiting line besides its bytes.
const OVERHEAD: usize = 128;
/// The time to wait for a line to be written; the task writes longer lines in the background.
const WRITE_WAIT: Duration = Duration::from_millis(200);

#[derive(Debug)]
struct Line {
    bytes: Vec<u8>,
    _room: OwnedSemaphorePermit,
    written: oneshot::Sender<()>,
}

/// The reason why a line was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The program does not read, and 32 MiB are waiting for it.
    PipeFull,
    /// The program closed its standard input or has ended.
    Closed,
}

/// The pipe, and the lines that wait for it.
#[derive(Debug)]
struct Pipe {
    /// `None` while the task writes.
    stdin: Option<Stdin>,
    /// The number of lines that wait for the task, or that the task writes now.
    waiting: usize,
}

/// Writes whole lines to the standard input of a program, in order, in bounded memory and time.
///
/// It writes as much as the pipe accepts immediately; a task writes the rest. So no line stays half written, even if the caller stops waiting. Up to
/// 32 MiB wait for a program that does not read.
#[derive(Debug)]
pub struct LineWriter {
    pipe: Arc<Mutex<Pipe>>,
    lines: mpsc::UnboundedSender<Line>,
    room: Arc<Semaphore>,
}

fn lock(pipe: &Mutex<Pipe>) -> MutexGuard<'_, Pipe> {
    pipe.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LineWriter {
    /// Takes the standard input of a program and starts the task that writes.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    pub fn new(stdin: Stdin) -> Self {
        let (lines, mut queue) = mpsc::unbounded_channel::<Line>();
        let room = Arc::new(Semaphore::new(MAX_QUEUED));
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
                let _unheard = line.written.send(());
            }
            closing.close();
        });
        LineWriter { pipe, lines, room }
    }

    /// Queues a line if there is room now. The receiver resolves when the line is written, or fails when it can't be.
    ///
    /// # Errors
    /// Fails if there is no room, or the pipe is closed.
    pub fn push(&self, bytes: Vec<u8>) -> Result<oneshot::Receiver<()>, WriteError> {
        let room = self.room.clone().try_acquire_many_owned(cost(&bytes));
        let room = room.map_err(|error| match error {
            tokio::sync::TryAcquireError::Closed => WriteError::Closed,
            tokio::sync::TryAcquireError::NoPermits => WriteError::PipeFull,
        })?;
        self.queue(bytes, room)
    }

    /// Queues a line as soon as there is room, for which it waits up to 2 s. Then it waits up to 0.2 s for the line to be written. The task writes a
    /// line that takes longer.
    ///
    /// # Errors
    /// Fails if there is no room in time, or the pipe is closed.
    ///
    /// # Cancel safety
    /// If the future is dropped, it is unknown whether the line is in the queue.
    pub async fn write(&self, bytes: Vec<u8>) -> Result<(), WriteError> {
        let room = self.room.clone().acquire_many_owned(cost(&bytes));
        let room = timeout(times::ROOM, room)
            .await
            .map_err(|_| WriteError::PipeFull)?;
        let written = self.queue(bytes, room.map_err(|_| WriteError::Closed)?)?;
        match timeout(WRITE_WAIT, written).await {
            Ok(Err(_)) => Err(WriteError::Closed),
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }

    /// Returns whether [`push`](Self::push) would accept a line of this many bytes now.
    pub fn has_room(&self, size: usize) -> bool {
        self.room.available_permits() >= (size + OVERHEAD).min(MAX_QUEUED)
    }

    fn queue(
        &self,
        mut bytes: Vec<u8>,
        room: OwnedSemaphorePermit,
    ) -> Result<oneshot::Receiver<()>, WriteError> {
        let (written, done) = oneshot::channel();
        let mut pipe = lock(&self.pipe);
        // Waiting lines go first.
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
        self.lines.send(line).map_err(|_| WriteError::Closed)?;
        pipe.waiting += 1;
        Ok(done)
    }
}

/// Writes as much as the pipe accepts now, and returns the number of bytes.
fn begin(stdin: &mut Stdin, bytes: &[u8]) -> Result<usize, WriteError> {
    // Only the task waits for more room, so no waker is needed.
    let mut nobody = Context::from_waker(Waker::noop());
    let mut begun = 0;
    while begun < bytes.len() {
        match Pin::new(&mut *stdin).poll_write(&mut nobody, &bytes[begun..]) {
            Poll::Ready(Ok(count)) if count > 0 => begun += count,
            Poll::Ready(_) => return Err(WriteError::Closed),
            Poll::Pending => break,
        }
    }
    Ok(begun)
}

/// Returns the room that a line needs. A line that is larger than the whole queue passes too.
fn cost(bytes: &[u8]) -> u32 {
    u32::try_from((bytes.len() + OVERHEAD).min(MAX_QUEUED)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use proptest::prelude::*;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::unix::pipe;

    use super::*;
    use crate::writer::Input;

    /// Makes a line of some thousands of bytes that contains its number.
    fn line(number: usize, thousands: usize) -> Vec<u8> {
        let mut line = format!("{number}:").into_bytes();
        line.resize(line.len() + thousands * 1000, b'x');
        line.push(b'\n');
        line
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn l96b_l96c_p7_lines_are_written_whole_and_in_order(
            steps in prop::collection::vec((0_usize..200, 0_usize..200_000, any::<bool>(), any::<bool>()), 1..24),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (sender, mut receiver) = pipe::pipe().unwrap();
                let writer = LineWriter::new(Input::new(sender).writer());
                let (mut expected, mut seen) = (Vec::new(), Vec::new());
                for (number, (thousands, read, waits, lets_go_on)) in steps.into_iter().enumerate() {
                    let line = line(number, thousands);
                    expected.extend_from_slice(&line);
                    if waits {
                        // Dropped as soon as it would wait.
                        let mut write = Box::pin(writer.write(line));
                        let mut cx = Context::from_waker(Waker::noop());
                        let looked = write.as_mut().poll(&mut cx);
                        prop_assert!(!matches!(looked, Poll::Ready(Err(_))));
                    } else {
                        prop_assert!(writer.push(line).is_ok());
                    }
                    // The read makes room, possibly before the task has started.
                    let mut some = vec![0; read];
                    let count = receiver.try_read(&mut some).unwrap_or(0);
                    seen.extend_from_slice(&some[..count]);
                    if lets_go_on {
                        tokio::task::yield_now().await;
                    }
                }
                let mut rest = vec![0; expected.len() - seen.len()];
                receiver.read_exact(&mut rest).await.unwrap();
                seen.extend(rest);
                prop_assert!(seen == expected);
                prop_assert_eq!(lock(&writer.pipe).waiting, 0);
                prop_assert_eq!(writer.room.available_permits(), MAX_QUEUED);
                // Nothing comes after the last line.
                drop(writer);
                let mut behind = Vec::new();
                receiver.read_to_end(&mut behind).await.unwrap();
                prop_assert!(behind.is_empty(), "{behind:?}");
                Ok(())
            })?;
        }
    }

    #[tokio::test]
    async fn l96b_queued_line_is_written_first() {
        let (sender, mut receiver) = pipe::pipe().unwrap();
        let writer = LineWriter::new(Input::new(sender).writer());
        writer.write(line(0, 0)).await.unwrap();
        // Now there is room. But a task that has used up its tokio budget can't write, so use up the budget.
        let mut nobody = Context::from_waker(Waker::noop());
        while pin!(tokio::task::consume_budget())
            .poll(&mut nobody)
            .is_ready()
        {}
        drop(writer.push(line(1, 0)).unwrap());
        assert_eq!(lock(&writer.pipe).waiting, 1);
        let another = async { drop(writer.push(line(2, 0)).unwrap()) };
        tokio::task::unconstrained(another).await;
        let mut seen = [0; 9];
        receiver.read_exact(&mut seen).await.unwrap();
        assert_eq!(seen, *b"0:\n1:\n2:\n");
    }

    /// The clock is paused: it advances when nothing else can happen.
    #[tokio::test(start_paused = true)]
    async fn p8c_blocked_write_fails_after_its_timeout() {
        let (sender, _nobody_reads) = pipe::pipe().unwrap();
        let writer = LineWriter::new(Input::new(sender).writer());
        while writer.push(line(0, 8000)).is_ok() {}
        let write = writer.write(line(1, 8000));
        let written = timeout(10 * times::ROOM, write).await;
        assert_eq!(written, Ok(Err(WriteError::PipeFull)));
    }

    #[tokio::test]
    async fn p9a_p9b_pipe_without_reader_is_closed_for_all_lines() {
        let (sender, receiver) = pipe::pipe().unwrap();
        let writer = LineWriter::new(Input::new(sender).writer());
        let waits = writer.push(line(0, 1000)).unwrap();
        drop(receiver);
        waits.await.unwrap_err();
        for _ in 0..3 {
            assert_eq!(writer.push(line(1, 0)).err(), Some(WriteError::Closed));
            assert_eq!(writer.write(line(2, 0)).await, Err(WriteError::Closed));
        }
        let (sender, receiver) = pipe::pipe().unwrap();
        let writer = LineWriter::new(Input::new(sender).writer());
        drop(receiver);
        assert_eq!(writer.write(line(0, 0)).await, Err(WriteError::Closed));
        assert_eq!(writer.push(line(1, 0)).err(), Some(WriteError::Closed));
    }
}
