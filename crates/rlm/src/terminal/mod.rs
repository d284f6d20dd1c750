//! The terminal of a run in the foreground: one owner of the screen, the keys, the menu.
//!
//! `ui` is the machine: what is typed, pressed and reported goes in, effects come out; `keys`, `line`, `command`, `menu`, `status`, `talk`, `hold`,
//! `rows` and `paint` are its pure parts. `console` is the thread that drives it, `tty`, `sink` and `editor` touch the world.
//!
//! The terminal keeps editing lines itself while nothing prompts, so what is typed ahead is harmless. While something prompts, keys come one by one,
//! but the signals of Ctrl-C, Ctrl-Z and Ctrl-\\ stay switched on: a press is one whatever state this thread is in. A key library would bring its
//! own reader of the terminal, which could not be kept from it in the background, nor stopped at the end.

mod bar;
mod calm;
mod command;
mod console;
mod editor;
mod hold;
mod keys;
mod line;
mod menu;
mod paint;
mod review;
mod rows;
mod scene;
mod sink;
#[cfg(test)]
mod stage;
mod status;
mod talk;
mod tty;
mod ui;
mod wrap;

use std::sync::Arc;
use std::thread::JoinHandle;

use crate::command::detach::Output;
use loop_runner::NewsReceiver;
use rustix::fs::FileType;
use tty::Tty;

pub(crate) use console::Shown;
pub(crate) use editor::Subject;
pub(crate) use review::Review;
pub(crate) use rows::{cut, width};
pub(crate) use scene::Scene;
pub(crate) use tty::{block_terminal_signals, restore, restore_on_panic};

/// Breaks lines that are printed before a run so that they fit the terminal, if they go to one; what is behind the first row begins below the column
/// `indent`.
pub(crate) fn fitted(line: &str, indent: usize) -> String {
    match tty::width_of_stdout() {
        Some(width) => wrap::wrap_below(line, width - 1, usize::MAX, indent),
        None => line.to_owned(),
    }
}

/// Where a person can be reached, if anywhere.
#[derive(Clone, Debug)]
pub(crate) struct Terminal {
    tty: Option<Arc<Tty>>,
    /// The terminal of a person who wants nothing asked: its keys are not read, and its Ctrl-C is a press.
    unread: Option<Arc<Tty>>,
    /// Why the terminal that there is can't be used.
    broken: Option<String>,
    log: LogPlace,
    /// The file of a detached run.
    pub(crate) output: Option<Output>,
}

/// Where the log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogPlace {
    /// To the person's terminal.
    Here,
    /// To a program, whose own output may well go to the terminal.
    Program,
    /// To a file, or nowhere.
    File,
}

/// Returns how many columns the standard output has, if it is a terminal.
pub(crate) fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(match size.ws_col {
        0 => 80,
        columns => columns.into(),
    })
}

impl Terminal {
    /// Finds the controlling terminal, unless the person wants nothing asked.
    pub(crate) fn find(no_input: bool) -> Self {
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
            output: None,
        }
    }

    /// Whether somebody is there who can answer.
    pub(crate) fn can_ask(&self) -> bool {
        self.tty.as_ref().is_some_and(|tty| tty.is_foreground())
    }

    /// Tells the person something when all is over that the log can't tell them: it is `gone`, or a file.
    pub(crate) fn tell_at_the_end(&self, text: &str, gone: bool) {
        if let Some(tty) = self.tty.as_ref().filter(|tty| tty.is_foreground())
            && (self.log == LogPlace::File || (gone && self.log == LogPlace::Program))
        {
            tty.tell(text);
        }
    }

    /// Rings the bell, if the person looks at the terminal now or comes back to it as it is.
    pub(crate) fn ring(&self) {
        if let Some(tty) = self.tty.as_ref().filter(|tty| tty.is_foreground()) {
            tty.ring();
        }
    }

    /// Shows a run on a thread of its own, which ends when the run is over and all is printed.
    pub(crate) fn show(&self, shown: Shown, news: NewsReceiver) -> JoinHandle<()> {
        // Before anything is started, so that a press always finds the menu.
        let answers = self.tty.is_some() || self.broken.is_some() || shown.presses.is_fixed();
        let handler = answers.then(|| shown.interrupts.push("run"));
        let (terminal, caller) = (self.clone(), std::thread::current());
        std::thread::spawn(move || {
            console::show(shown, news, &terminal, handler);
            caller.unpark();
        })
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
