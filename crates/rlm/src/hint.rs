//! The commands that `rlm` suggests to a user: how to call this program, how to resume a run, how to fix an error. The crates below know which
//! command helps, but not how to write it.

use std::path::Path;
use std::sync::{PoisonError, RwLock};

use loop_state::{Budget, StopReason};
use rlm_store::{Mend, RunId};

/// The newest value counts: the commands for a run of another project need the directory of that project.
static CALLED: RwLock<Option<&'static str>> = RwLock::new(None);

/// Remembers the directory in which the suggested commands work.
pub(crate) fn called_in(directory: &Path) {
    if directory != Path::new(".") {
        let place = quoted(&directory.to_string_lossy());
        // The leak is small: this is called once or twice in a process.
        let called: &str = format!("rlm -C {place}").leak();
        *CALLED.write().unwrap_or_else(PoisonError::into_inner) = Some(called);
    }
}

/// Returns how to call this program for the same project from the same shell.
pub(crate) fn rlm() -> &'static str {
    let called = CALLED.read().unwrap_or_else(PoisonError::into_inner);
    called.unwrap_or("rlm")
}

/// Quotes a word for a shell, if it needs that.
pub(crate) fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    match path.chars().all(plain) {
        true => path.to_owned(),
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

/// Returns the command that resumes a run that ended for `reason`; `None` if the run is finished, or no option raises its limit.
pub(crate) fn go_on(run: &RunId, reason: &StopReason) -> Option<String> {
    match reason {
        StopReason::Done(_) | StopReason::Planned => None,
        StopReason::Budget(Budget::Tokens { .. }) => {
            Some(format!("{} resume {run} --max-tokens MORE", rlm()))
        }
        StopReason::Budget(_) => Some(format!("{} resume {run} --max-cost MORE", rlm())),
        StopReason::IterationLimit(_) | StopReason::LastFailed(..) => {
            Some(format!("{} resume {run} -n MORE", rlm()))
        }
        StopReason::TimeLimit(_) => Some(format!("{} resume {run} --max-duration MORE", rlm())),
        _ => Some(format!("{} resume {run}", rlm())),
    }
}

/// Returns the same command, but also for a run that finished its plan.
pub(crate) fn go_further(run: &RunId, reason: &StopReason) -> Option<String> {
    match reason {
        StopReason::Planned => Some(format!("{} resume {run} -n MORE", rlm())),
        _ => go_on(run, reason),
    }
}

/// Adds to an error the command that fixes it, if there is one.
pub(crate) fn mended(error: &dyn std::error::Error, mend: Option<Mend>) -> String {
    match mend {
        Some(mend) => format!("{error}: {}", command(rlm(), &mend)),
        None => error.to_string(),
    }
}

fn command(rlm: &str, mend: &Mend) -> String {
    match mend {
        Mend::ChooseRun => format!("{rlm} status, or -C DIR"),
        Mend::ChooseState(run) => format!("{rlm} checkpoints list {run}"),
        Mend::Look { run, save } => format!("{rlm} checkpoints show {run} --save {save}"),
        Mend::Verify(run) => format!("{rlm} checkpoints verify {run}"),
        Mend::Stop(run) => format!("{rlm} stop {run}"),
        Mend::Resume(run) => format!("{rlm} resume {run}"),
        Mend::TakeBack(run) => format!("{rlm} resume {run} --force"),
        Mend::Commit(run) => format!("{rlm} resume {run} --commit"),
        Mend::Fork { run, iteration } => {
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
    fn each_mend_is_a_command_that_there_is() {
        let run: RunId = "r1".parse().unwrap();
        let mends = [
            Mend::ChooseRun,
            Mend::ChooseState(run.clone()),
            Mend::Look {
                run: run.clone(),
                save: 7,
            },
            Mend::Verify(run.clone()),
            Mend::Stop(run.clone()),
            Mend::Resume(run.clone()),
            Mend::TakeBack(run.clone()),
            Mend::Commit(run.clone()),
            Mend::Fork { run, iteration: 3 },
        ];
        let commands = mends.map(|mend| command("rlm -C ../there", &mend));
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
    fn what_is_told_to_type_is_a_command_that_exists() {
        let (run, hour) = ("r".parse().unwrap(), Duration::from_secs(3600));
        let (limit, used) = (1, 2);
        let told: Vec<String> = [
            StopReason::Done(Evidence::Check),
            StopReason::Failed("no such agent".into()),
            StopReason::LastFailed(3, "it failed".into()),
            StopReason::IterationLimit(3),
            StopReason::TimeLimit(hour),
            StopReason::Budget(Budget::Cost { limit, used }),
            StopReason::Budget(Budget::Tokens { limit, used }),
            StopReason::Stopped(StopCause::Person),
        ]
        .iter()
        .filter_map(|reason| go_on(&run, reason))
        .collect();
        assert_eq!(told.len(), 7, "{told:?}");
        for told in told {
            let more = if told.contains("duration") { "2h" } else { "4" };
            let words = told.replace("MORE", more);
            if let Err(why) = Args::try_parse_from(words.split(' ')) {
                panic!("{told}: {why}");
            }
        }
    }
}
