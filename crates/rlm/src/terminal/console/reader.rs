//! The thread that reads the terminal, so that nobody else blocks on it.

use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::mpsc;

use crate::terminal::tty::{Tty, Typed};

/// The thread that reads the terminal. Dropping it ends the thread.
pub(super) struct Reader {
    end: Option<std::io::PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    pub(super) fn start(tty: Arc<Tty>, to: mpsc::Sender<Typed>) -> Option<Self> {
        let (ended, end) = std::io::pipe().ok()?;
        let thread = std::thread::spawn(move || tty.read_all(&to, &ended.into()));
        Some(Self {
            end: Some(end),
            thread: Some(thread),
        })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        drop(self.end.take());
        // It waits for the pipe and for the receiver, which is gone; a panic of it has been reported.
        let _panicked = self.thread.take().map(JoinHandle::join);
    }
}
