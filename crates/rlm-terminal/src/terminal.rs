//! Where a user can be reached: the controlling terminal, if there is one, and where the log goes.

use std::sync::Arc;

use rustix::fs::FileType;

use crate::tty::{self, Tty};
use crate::wrap;

/// Breaks lines that are printed before a run so that they fit the terminal, if they go to one; what is behind the first row begins below the column
/// `indent`.
#[must_use]
pub fn fitted(line: &str, indent: usize) -> String {
    match tty::width_of_stdout() {
        Some(width) => wrap::wrap_below(line, width - 1, usize::MAX, indent),
        None => line.to_owned(),
    }
}

/// Where a person can be reached, if anywhere.
#[derive(Clone, Debug)]
pub struct Terminal {
    pub(crate) tty: Option<Arc<Tty>>,
    /// The terminal of a person who wants nothing asked: its keys are not read, and its Ctrl-C is a press.
    pub(crate) unread: Option<Arc<Tty>>,
    /// Why the terminal that there is can't be used.
    pub(crate) broken: Option<String>,
    pub(crate) log: LogPlace,
}

/// Where the log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogPlace {
    /// To the person's terminal.
    Here,
    /// To a program, whose own output may well go to the terminal.
    Program,
    /// To a file, or nowhere.
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
    /// Finds the controlling terminal, unless the person wants nothing asked.
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
            log: LogPlace::of_stdout(),
        }
    }

    /// Whether somebody is there who can answer.
    #[must_use]
    pub fn can_ask(&self) -> bool {
        self.tty.as_ref().is_some_and(|tty| tty.is_foreground())
    }

    /// Tells the person something when all is over that the log can't tell them: it is `gone`, or a file.
    pub fn tell_at_the_end(&self, text: &str, gone: bool) {
        if let Some(tty) = self.tty.as_ref().filter(|tty| tty.is_foreground())
            && (self.log == LogPlace::File || (gone && self.log == LogPlace::Program))
        {
            tty.tell(text);
        }
    }

    /// Rings the bell, if the person looks at the terminal now or comes back to it as it is.
    pub fn ring(&self) {
        if let Some(tty) = self.tty.as_ref().filter(|tty| tty.is_foreground()) {
            tty.ring();
        }
    }
}

impl LogPlace {
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
