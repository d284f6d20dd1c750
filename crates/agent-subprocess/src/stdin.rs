//! The agent's standard input, closable from two sides.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::io::AsyncWrite;
use tokio::net::unix::pipe::Sender;

/// Writes to the agent's standard input. Dropping it closes that, as [`Agent::close_stdin`](crate::Agent::close_stdin)
/// and a stop do; writing then fails with [`io::ErrorKind::BrokenPipe`], also where it was waiting.
#[derive(Debug)]
#[must_use = "dropping it closes the standard input of the agent"]
pub struct Stdin(Input);

/// A handle that can close what a [`Stdin`] writes to.
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
        // Closing a pipe does not wake who waits for room in it.
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
