//! The terminal of a run in the foreground: one owner of the screen, the keys and the menu.
//!
//! Run events, keys and presses go in; printed lines and requests come out. This crate must not install signal handlers, decide anything about a run, or
//! know the command line and the words of an event: its caller hands them over in [`Shown`]. A part of `rlm`: it promises nothing to other programs.
//!
//! Modules in reading order: `terminal` finds the terminal; `ui` is the machine (inputs in, effects out, no I/O and no clock), over `scene` (the run at
//! one moment), `scope` (what a press meets, and what a project fixes for it), `keys`, `line`, `command`, `menu`, `review`, `calm` and `talk`; `rows`, `wrap`, `bar`, `status`, `paint`, `style` and
//! `table` lay text out; `console` is the thread that drives the machine; `tty`, `sink` and `editor` do the I/O.
//!
//! The terminal keeps editing lines itself while nothing prompts, so what is typed ahead is harmless. While something prompts, keys come one by one, but
//! the signals of Ctrl-C, Ctrl-Z and Ctrl-\\ stay switched on, so that a press works whatever state this thread is in. A key library would bring its
//! own reader of the terminal, which could not be stopped, nor kept away from the terminal while the program is in the background.

mod bar;
mod calm;
mod command;
mod console;
mod editor;
mod keys;
mod line;
mod menu;
mod paint;
mod review;
mod rows;
mod scene;
mod scope;
mod sink;
#[cfg(test)]
mod stage;
mod status;
pub mod style;
pub mod table;
mod talk;
mod terminal;
mod tty;
mod ui;
mod wrap;

pub use console::{Log, Shown, Signals, ToAnswer, ToLines};
pub use editor::Subject;
pub use review::Review;
pub use scope::{PressAction, PressActions};
pub use status::{background, tried};
pub use talk::said;
pub use terminal::{Terminal, columns, fitted};
pub use tty::{block_terminal_signals, restore, restore_on_panic};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
