//! The thread that reads the terminal, so that nobody else blocks on it.

use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::mpsc;

use crate::terminal::Terminal;
use crate::tty::{Tty, Typed};

/// What the person is told, once.
pub(super) const REARMED: &str = "another process turned Ctrl-C off on this terminal, perhaps the agent; rlm turned it on again. To stop the run from elsewhere: rlm stop";

/// The thread that reads the terminal. Dropping it ends the thread.
pub(super) struct Reader {
    end: Option<std::io::PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// Reads the terminal, or only guards the one of a person who wants nothing asked.
    pub(super) fn of(terminal: &Terminal, to: mpsc::Sender<Typed>) -> Option<Self> {
        match (terminal.tty.clone(), terminal.unread.clone()) {
            (Some(tty), _) => Self::start(tty, to),
            (None, Some(tty)) => Self::guard(tty),
            (None, None) => None,
        }
    }

    fn start(tty: Arc<Tty>, to: mpsc::Sender<Typed>) -> Option<Self> {
        let (ended, end) = std::io::pipe().ok()?;
        let thread = std::thread::spawn(move || tty.read_all(&to, &ended.into()));
        Some(Self {
            end: Some(end),
            thread: Some(thread),
        })
    }

    /// Reads nothing, and only keeps the signals of the keys switched on.
    fn guard(tty: Arc<Tty>) -> Option<Self> {
        let (ended, end) = std::io::pipe().ok()?;
        let mut told = false;
        let rearmed = move || {
            if !std::mem::replace(&mut told, true) {
                anstream::eprintln!("rlm: {REARMED}");
            }
        };
        let thread = std::thread::spawn(move || tty.guard(&ended.into(), rearmed));
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
