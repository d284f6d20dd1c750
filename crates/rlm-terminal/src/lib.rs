//! The terminal of a run in the foreground: one owner of the screen, the keys and the menu.
//!
//! Run events, keys and presses of Ctrl-C go in; printed lines and requests come out. This crate must not install signal handlers or decide anything
//! about a run. It doesn't know the command line or the texts of run events: its caller passes them in [`ForegroundRun`]. The crate is a part of
//! `rlm` and promises nothing to other programs.
//!
//! Modules in reading order:
//!
//! - `terminal` finds the terminal.
//! - `ui` is the state machine: inputs in, effects out, no I/O and no clock. It uses `run_snapshot` (the run at one moment), `scope` (the meaning of
//!   a press, and the actions that a project configures for presses), `keys`, `line`, `command`, `menu`, `review`, `collapse` and
//!   `message_stream`.
//! - `rows`, `wrap`, `bar`, `status`, `paint`, `style` and `table` lay text out.
//! - `console` is the thread that drives the state machine.
//! - `tty`, `sink` and `editor` do the I/O.
//!
//! While nothing prompts, the terminal edits lines itself, so a single key that is typed ahead decides nothing. While something prompts, keys arrive
//! one by one. The signals of Ctrl-C, Ctrl-Z and Ctrl-\\ stay enabled, so a press works even if the console thread is busy. The crate uses no key
//! library, because such a library starts its own reader of the terminal. That reader can't be stopped, and it reads even while the program is in
//! the background.

mod bar;
mod collapse;
mod command;
mod console;
mod editor;
mod keys;
mod line;
mod menu;
mod message_stream;
mod paint;
mod review;
mod rows;
mod run_snapshot;
mod scope;
mod sink;
mod status;
pub mod style;
pub mod table;
mod terminal;
#[cfg(test)]
mod test_run;
mod tty;
mod ui;
mod wrap;

pub use console::{ForegroundRun, FormatEvent, FormatResponse, LogOutput, TerminalSignals};
pub use editor::EditTarget;
pub use message_stream::format_steer;
pub use review::ReviewPrompt;
pub use scope::{PressAction, PressActions};
pub use status::{attempt_label, background};
pub use terminal::{Terminal, columns, fitted};
pub use tty::{block_terminal_signals, restore, restore_on_panic};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
