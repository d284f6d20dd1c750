//! Finds the controlling terminal, if there is one, and the destination of the log.

use std::sync::Arc;

use rustix::fs::FileType;

use crate::tty::{self, Tty};
use crate::wrap;

/// Wraps a line that is printed before a run to the width of the terminal, if the standard output is one. The rows after the first are indented by
/// `indent` columns.
#[must_use]
pub fn fitted(line: &str, indent: usize) -> String {
    match tty::width_of_stdout() {
        Some(width) => wrap::wrap_below(line, width - 1, usize::MAX, indent),
        None => line.to_owned(),
    }
}

/// The terminal of a run, if there is one.
#[derive(Clone, Debug)]
pub struct Terminal {
    pub(crate) tty: Option<Arc<Tty>>,
    /// The terminal with `--no-input`: its keys are not read, but Ctrl-C is a press.
    pub(crate) unread: Option<Arc<Tty>>,
    /// Why the existing terminal can't be used.
    pub(crate) broken: Option<String>,
    pub(crate) log: LogTarget,
}

/// The destination of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogTarget {
    /// The person's terminal.
    Here,
    /// Another program, which may print on the terminal itself.
    Program,
    /// A file or a device such as `/dev/null`.
    File,
}

/// Returns how many columns the standard output has, if it is a terminal.
#[must_use]
pub fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(match size.ws_col {
        0 => 80,
        columns => columns.into(),
    })
}

impl Terminal {
    /// Finds the controlling terminal. With `no_input`, rlm asks nothing on it.
    #[must_use]
    pub fn find(no_input: bool) -> Self {
        let opened = Tty::open();
        let unread = opened.as_ref().ok().filter(|_| no_input).cloned().flatten();
        let (tty, broken) = match opened {
            _ if no_input => (None, None),
            Ok(tty) => (tty, None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self {
            tty,
            unread,
            broken,
            log: LogTarget::of_stdout(),
        }
    }

    /// Whether a person can answer questions now.
    #[must_use]
    pub fn can_ask(&self) -> bool {
        self.tty.as_ref().is_some_and(|tty| tty.is_foreground())
    }

    /// Prints a text on the terminal after the end of the run, if the log can't show the text. That is so if
    /// the log is a file, or if the reader of the log is `gone`.
    pub fn print_at_end(&self, text: &str, gone: bool) {
        if let Some(tty) = self.tty.as_ref().filter(|tty| tty.is_foreground())
            && (self.log == LogTarget::File || (gone && self.log == LogTarget::Program))
        {
            tty.print_line(text);
        }
    }

    /// Rings the bell, if this process is in the foreground of the terminal.
    pub fn ring(&self) {
        if let Some(tty) = self.tty.as_ref().filter(|tty| tty.is_foreground()) {
            tty.ring();
        }
    }
}

impl LogTarget {
    fn of_stdout() -> Self {
        let stdout = std::io::stdout();
        if tty::is_controlling(&stdout) {
            return Self::Here;
        }
        let kind = rustix::fs::fstat(&stdout).map(|stat| FileType::from_raw_mode(stat.st_mode));
        match kind {
            Ok(FileType::RegularFile | FileType::CharacterDevice) => Self::File,
            _ => Self::Program,
        }
    }
}
