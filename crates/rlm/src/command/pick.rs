//! Lets a person at a terminal choose one of several runs: the part of an id matches several, or a command needs a run and several are possible.
//!
//! The choice comes before anything else in a command. So the terminal edits the line, and Ctrl-C has its default action: it ends the command at once.

use std::io::{self, IsTerminal as _};
use std::path::Path;

use rlm_store::{Project, RunEntry, RunId};
use rlm_terminal::columns;
use rustix::process::getpgrp;
use rustix::termios::{QueueSelector, tcflush, tcgetpgrp};

use crate::command::select;
use crate::exit::Failure;
use crate::render::choices;

/// The maximum number of runs in the list.
const MAX_SHOWN: usize = 20;
/// The maximum number of answers that are not in the list.
const MAX_WRONG: usize = 3;

/// Returns the given name of a run, or the run that a person chose because several runs match that name. `asks` is whether the command may ask.
pub(super) fn named(
    directory: &Path,
    asks: bool,
    name: Option<&str>,
) -> Result<Option<String>, Failure> {
    chosen(directory, asks, name, || match name {
        Some(name) => select::run_id(&Project::find(directory)?, name).map(drop),
        None => Ok(()),
    })
}

/// Returns the given name of a live run, or the live run that a person chose because several are possible.
pub(super) fn live(
    directory: &Path,
    asks: bool,
    name: Option<&str>,
) -> Result<Option<String>, Failure> {
    chosen(directory, asks, name, || {
        select::live(Project::find(directory)?, name).map(drop)
    })
}

/// Returns the given name, or the run that a person chose among the choices of `find`.
///
/// # Errors
///
/// The error of `find` if the person chose no run. The command itself reports every other error of `find`.
pub(super) fn chosen(
    directory: &Path,
    asks: bool,
    name: Option<&str>,
    find: impl FnOnce() -> Result<(), Failure>,
) -> Result<Option<String>, Failure> {
    let given = name.map(str::to_owned);
    if !asks || !can_ask() {
        return Ok(given);
    }
    match find() {
        Err(failure) if !failure.choices.is_empty() => match ask(directory, &failure.choices)? {
            Some(run) => Ok(Some(run.to_string())),
            None => Err(failure),
        },
        _ => Ok(given),
    }
}

/// Whether a person sees the list and can answer it. If the output goes elsewhere, the list could appear on the screen of another program.
fn can_ask() -> bool {
    let is_foreground = || tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp());
    io::stdin().is_terminal()
        && io::stdout().is_terminal()
        && io::stderr().is_terminal()
        && is_foreground()
}

/// Asks for one of the runs. An empty line, the end of the input and wrong answers choose none.
fn ask(directory: &Path, ids: &[RunId]) -> Result<Option<RunId>, Failure> {
    let project = Project::find(directory)?;
    let runs = ids.iter().filter_map(|id| project.run(id).ok());
    let mut runs: Vec<RunEntry> = runs.collect();
    runs.sort_by(|a, b| (b.last_at, &b.id).cmp(&(a.last_at, &a.id)));
    let left_out = runs.len().saturating_sub(MAX_SHOWN);
    runs.truncate(MAX_SHOWN);
    let now = jiff::Timestamp::now();
    anstream::eprintln!("{}", choices(&runs, left_out, now, columns()));
    // Text that was typed before the question doesn't answer it.
    let _stays = tcflush(io::stdin(), QueueSelector::IFlush);
    for _ in 0..MAX_WRONG {
        anstream::eprint!("which run? 1 to {}, or Enter for none: ", runs.len());
        let mut answer = String::new();
        let read = io::stdin().read_line(&mut answer);
        if !answer.ends_with('\n') {
            anstream::eprintln!();
        }
        let answer = answer.trim();
        if read.is_err() || answer.is_empty() {
            return Ok(None);
        }
        let number = answer.parse::<usize>().ok();
        match number.and_then(|number| runs.get(number.checked_sub(1)?)) {
            Some(run) => return Ok(Some(run.id.clone())),
            None => anstream::eprintln!("that is not a number in the list"),
        }
    }
    Ok(None)
}
