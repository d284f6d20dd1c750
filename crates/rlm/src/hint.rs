//! The commands that `rlm` suggests to a user: how to call this program, how to resume a run, how to fix an error. The lower crates know which
//! command helps, but not how to write it.

use std::cell::Cell;
#[cfg(feature = "view")]
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
#[cfg(feature = "view")]
use std::path::PathBuf;
#[cfg(feature = "view")]
use std::sync::Mutex;
use std::sync::{OnceLock, PoisonError, RwLock};

use loop_state::{LoopCommand, SpentBudget, StopReason};
use rlm_store::{Hint, RunId};

/// The name of this program.
const NAME: &str = "rlm";
/// How the user called this program: by a name on `PATH`, or by a path.
static PROGRAM: OnceLock<String> = OnceLock::new();
/// The beginning of each suggested command, if that is more than the program: commands for a run of another project need that project's directory.
static COMMAND_PREFIX: RwLock<Option<&'static str>> = RwLock::new(None);

/// Remembers how the user called this program.
pub(crate) fn set_program(called: Option<&OsStr>) {
    let called = called.map(|called| quoted(&called.to_string_lossy()));
    let called = called.filter(|called| !called.is_empty());
    PROGRAM.get_or_init(|| called.unwrap_or_else(|| NAME.to_owned()));
}

/// Returns the program as the user calls it.
pub(crate) fn program() -> &'static str {
    PROGRAM.get().map_or(NAME, String::as_str)
}

/// Remembers the directory in which the suggested commands work.
pub(crate) fn set_directory(directory: &Path) {
    if directory != Path::new(".") {
        let place = quoted(&directory.to_string_lossy());
        // The leak is small: this is called once or twice in a process.
        let called: &str = format!("{} -C {place}", program()).leak();
        *COMMAND_PREFIX
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(called);
    }
}

thread_local! {
    /// The prefix of the commands about a run of another project, on this thread.
    static THREAD_PREFIX: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Calls `f`, whose suggested commands work for the project at `root` from any directory.
#[cfg(feature = "view")]
pub(crate) fn with_project<T>(root: &Path, f: impl FnOnce() -> T) -> T {
    static PREFIXES: Mutex<BTreeMap<PathBuf, &'static str>> = Mutex::new(BTreeMap::new());
    let mut prefixes = PREFIXES.lock().unwrap_or_else(PoisonError::into_inner);
    let prefix = *prefixes.entry(root.to_owned()).or_insert_with(|| {
        let place = quoted(&root.to_string_lossy());
        // The leak is small: once for each project.
        format!("{} -C {place}", program()).leak()
    });
    drop(prefixes);
    let before = THREAD_PREFIX.replace(Some(prefix));
    let result = f();
    THREAD_PREFIX.set(before);
    result
}

/// Returns how to call this program for the same project from the same shell.
pub(crate) fn program_command() -> &'static str {
    if let Some(prefix) = THREAD_PREFIX.get() {
        return prefix;
    }
    let called = COMMAND_PREFIX
        .read()
        .unwrap_or_else(PoisonError::into_inner);
    called.unwrap_or_else(program)
}

/// Quotes a word for a shell, if necessary.
pub(crate) fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    match path.chars().all(plain) {
        true => path.to_owned(),
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

/// Returns the command that resumes a run that ended for `reason`; `None` if the run is finished, or no option raises its limit.
pub(crate) fn resume_hint(run: &RunId, reason: &StopReason) -> Option<String> {
    match reason {
        StopReason::Done(_) | StopReason::AlreadyDone | StopReason::AllIterationsRan => None,
        StopReason::FirstCheckNotRun { command, .. } => {
            let option = match command {
                LoopCommand::RequiredCheck(_) => "--gate",
                LoopCommand::Check => "--until",
            };
            Some(format!(
                "{} resume {run} {option} COMMAND",
                program_command()
            ))
        }
        StopReason::BudgetSpent(SpentBudget::Tokens { .. }) => Some(format!(
            "{} resume {run} --max-tokens MORE",
            program_command()
        )),
        StopReason::BudgetSpent(_) => Some(format!(
            "{} resume {run} --max-cost MORE",
            program_command()
        )),
        StopReason::IterationLimit(_) | StopReason::LastIterationFailed { .. } => {
            Some(format!("{} resume {run} -n MORE", program_command()))
        }
        StopReason::TimeLimit(_) => Some(format!(
            "{} resume {run} --max-duration MORE",
            program_command()
        )),
        _ => Some(format!("{} resume {run}", program_command())),
    }
}

/// Returns how a suspended process continues.
pub(crate) fn continues(pid: u32) -> String {
    format!("`fg` in its shell, or: kill -CONT {pid}")
}

/// Returns the command of [`resume_hint`], and also a command for a run that finished its plan.
pub(crate) fn extend_hint(run: &RunId, reason: &StopReason) -> Option<String> {
    match reason {
        StopReason::AllIterationsRan => Some(format!("{} resume {run} -n MORE", program_command())),
        _ => resume_hint(run, reason),
    }
}

/// Adds to an error the command that fixes it, if there is one.
pub(crate) fn with_command(error: &dyn std::error::Error, hint: Option<Hint>) -> String {
    match hint {
        Some(hint) => format!("{error}: {}", command(program_command(), &hint)),
        None => error.to_string(),
    }
}

fn command(rlm: &str, hint: &Hint) -> String {
    match hint {
        Hint::ChooseRun => format!("{rlm} status, or -C DIR"),
        Hint::ChooseState(run) => format!("{rlm} checkpoints list {run}"),
        Hint::ShowState { run, save } => format!("{rlm} checkpoints show {run} --save {save}"),
        Hint::Verify(run) => format!("{rlm} checkpoints verify {run}"),
        Hint::Stop(run) => format!("{rlm} stop {run}"),
        Hint::Resume(run) => format!("{rlm} resume {run}"),
        Hint::TakeBack(run) => format!("{rlm} resume {run} --force"),
        Hint::Commit(run) => format!("{rlm} resume {run} --commit"),
        Hint::Fork { run, iteration } => {
            format!("{rlm} checkpoints fork {run} --at {iteration}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::Parser;
    use loop_state::{Evidence, StopCause};
    use std::time::Duration;

    #[test]
    fn each_hint_is_a_valid_command() {
        let run: RunId = "r1".parse().unwrap();
        let hints = [
            Hint::ChooseRun,
            Hint::ChooseState(run.clone()),
            Hint::ShowState {
                run: run.clone(),
                save: 7,
            },
            Hint::Verify(run.clone()),
            Hint::Stop(run.clone()),
            Hint::Resume(run.clone()),
            Hint::TakeBack(run.clone()),
            Hint::Commit(run.clone()),
            Hint::Fork { run, iteration: 3 },
        ];
        let commands = hints.map(|hint| command("rlm -C ../there", &hint));
        for line in &commands {
            let line = line.split(',').next().unwrap();
            let parsed = Args::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}");
        }
        insta::assert_snapshot!(commands.join("\n"), @r"
        rlm -C ../there status, or -C DIR
        rlm -C ../there checkpoints list r1
        rlm -C ../there checkpoints show r1 --save 7
        rlm -C ../there checkpoints verify r1
        rlm -C ../there stop r1
        rlm -C ../there resume r1
        rlm -C ../there resume r1 --force
        rlm -C ../there resume r1 --commit
        rlm -C ../there checkpoints fork r1 --at 3
        ");
    }

    #[test]
    fn suggested_commands_exist() {
        let (run, hour) = ("r".parse().unwrap(), Duration::from_secs(3600));
        let (limit, used) = (1, 2);
        let commands: Vec<String> = [
            StopReason::Done(Evidence::Check),
            StopReason::Failed("no such agent".into()),
            StopReason::LastIterationFailed {
                iteration: 3,
                why: "it failed".into(),
            },
            StopReason::IterationLimit(3),
            StopReason::TimeLimit(hour),
            StopReason::BudgetSpent(SpentBudget::Cost { limit, used }),
            StopReason::BudgetSpent(SpentBudget::Tokens { limit, used }),
            StopReason::Stopped(StopCause::Person),
        ]
        .iter()
        .filter_map(|reason| resume_hint(&run, reason))
        .collect();
        assert_eq!(commands.len(), 7, "{commands:?}");
        for command in commands {
            let more = if command.contains("duration") {
                "2h"
            } else {
                "4"
            };
            let words = command.replace("MORE", more);
            if let Err(why) = Args::try_parse_from(words.split(' ')) {
                panic!("{command}: {why}");
            }
        }
    }
}
