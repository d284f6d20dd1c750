//! One file a command, and what several need: `meant` finds the run, `live` reaches one that a process has.

pub(crate) mod alive;
pub(crate) mod attach;
pub(crate) mod checkpoints;
pub(crate) mod clean;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod control;
pub(crate) mod demo;
pub(crate) mod detach;
pub(crate) mod doctor;
pub(crate) mod init;
pub(crate) mod live;
pub(crate) mod logs;
pub(crate) mod man;
mod meant;
pub(crate) mod ps;
pub(crate) mod report;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod set;
pub(crate) mod status;
pub(crate) mod stop;

use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use crate::exit::{Code, Failure};

/// Prints what was made for another program, which may have read enough of it.
fn written(text: &[u8]) -> Result<ExitCode, Failure> {
    match io::stdout().write_all(text) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure::failed(format!(
            "standard output takes nothing: {e}"
        ))),
        _ => Ok(Code::Done.into()),
    }
}
