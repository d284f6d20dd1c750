//! One file per command, and shared code: `select` selects the run, `pick` lets a person choose one of several, `live`
//! reaches a live run.

pub(crate) mod attach;
pub(crate) mod checkpoints;
pub(crate) mod clean;
pub(crate) mod complete;
pub(crate) mod config;
pub(crate) mod control;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod fleet;
pub(crate) mod init;
pub(crate) mod limit_change;
pub(crate) mod live;
pub(crate) mod logs;
pub(crate) mod man;
mod pick;
pub(crate) mod report;
pub(crate) mod resume;
pub(crate) mod run;
mod select;
pub(crate) mod set;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod target;
pub(crate) mod view;
pub(crate) mod worktree;

use std::io::Write as _;
use std::process::ExitCode;

use crate::args::Show;
use crate::exit::Code;
use crate::output;
use crate::render::{Level, Screen};

/// Prints bytes for another program, which may close the output early.
fn written(text: &[u8]) -> ExitCode {
    let _noted = output::bytes().write_all(text);
    Code::Done.into()
}

/// Returns the screen of a run, with the level of the command line.
fn screen(show: &Show) -> Screen {
    Screen::new(show.json)
        .with_level(Level::from_flags(show.quiet, show.verbose))
        .in_background(show.detached)
}
