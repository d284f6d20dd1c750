//! What people and programs get to see: functions from what happened to text.

mod agent;
mod banner;
mod changes;
mod checkpoints;
mod clean;
mod config;
mod doctor;
mod dry_run;
mod event;
mod git;
mod level;
mod live;
mod mend;
mod notify;
mod phases;
mod programs;
mod redo;
mod screen;
mod status;
mod style;

use std::path::Path;
use std::sync::{PoisonError, RwLock};

use loop_state::{Budget, StopReason};
use rlm_store::{Record, RunId};
use rlm_terminal::style::{BAD, DIM, MIND, styled};
use rlm_text::escape::plain;

use crate::exit::Failure;
use crate::{output, ulimits};

pub(crate) use banner::{Beginning, Starts, may};
pub(crate) use changes::{Change, changes};
pub(crate) use checkpoints::{Export, Fork, Import, List, Shown, Verified, cut_words};
pub(crate) use clean::{Cleaning, Fate, cleaned};
pub(crate) use config::Configuration;
pub(crate) use doctor::{AgentHealth, Check, Findings, Health, LoggedIn};
pub(crate) use dry_run::DryRun;
pub(crate) use git::OwnTree;
pub(crate) use level::Level;
pub(crate) use live::{Live, Told};
pub(crate) use mend::mended;
pub(crate) use notify::{heartbeat, occasion, telling};
pub(crate) use phases::Phases;
pub(crate) use programs::visible;
pub(crate) use redo::Redo;
pub(crate) use screen::{EndWords, KILLED, Screen, ended_elsewhere, left, now};
pub(crate) use status::Status;
pub(crate) use style::state;

/// The newest one counts: a run that was found elsewhere is called there.
static CALLED: RwLock<Option<&'static str>> = RwLock::new(None);

/// Remembers where the commands work that people are told to type.
pub(crate) fn called_in(directory: &Path) {
    if directory != Path::new(".") {
        let place = quoted(&directory.to_string_lossy());
        // Once or twice in a process.
        let called: &str = format!("rlm -C {place}").leak();
        *CALLED.write().unwrap_or_else(PoisonError::into_inner) = Some(called);
    }
}

/// Returns how this program is called for the same project from the same shell.
pub(crate) fn rlm() -> &'static str {
    let called = CALLED.read().unwrap_or_else(PoisonError::into_inner);
    called.unwrap_or("rlm")
}

/// Quotes a word for a shell, where it needs that.
pub(crate) fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    match path.chars().all(plain) {
        true => path.to_owned(),
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

/// Says how a run that ended for `reason` can be taken up again; `None` when it is over for good, or no option raises its limit.
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

/// Says the same also of a run that has made all that was planned.
pub(crate) fn go_further(run: &RunId, reason: &StopReason) -> Option<String> {
    match reason {
        StopReason::Planned => Some(format!("{} resume {run} -n MORE", rlm())),
        _ => go_on(run, reason),
    }
}

/// A line that warns.
pub(crate) fn warning(text: &str) -> String {
    let text = ulimits::explained(text);
    format!("{} {}", styled(MIND, "warning:"), plain(&text))
}

/// The one line of a command that could not do what it was asked to.
pub(crate) fn failure(failure: &Failure) -> String {
    let message = ulimits::explained(&failure.message);
    format!("{} {}", styled(BAD, "rlm:"), plain(&message))
}

/// A record of a transcript, as `rlm logs` prints it.
pub(crate) fn record(record: &Record) -> String {
    let text = rlm_text::escape::safe(&record.text);
    match record.kind.as_str() {
        "stdout" | "message" => text,
        // The line behind what is shown.
        "raw" => String::new(),
        kind => text
            .lines()
            .map(|line| format!("{} {line}\n", styled(DIM, format!("[{kind}]"))))
            .collect::<String>()
            .trim_end()
            .to_owned(),
    }
}

/// Text that was streamed and cut off.
pub(crate) fn streamed(text: &str) -> String {
    format!(
        "{} {}",
        rlm_text::escape::safe(text.trim_end()),
        styled(MIND, "(cut off)")
    )
}

/// One JSON object on one line.
pub(crate) fn json_line(value: &impl serde::Serialize) -> String {
    rlm_text::escape::json_escaped(
        serde_json::to_string(value).expect("what is rendered is plain data"),
    )
}

/// Prints one thing for people or programs, and returns whether anybody still reads.
pub(crate) fn print<T: serde::Serialize + std::fmt::Display>(json: bool, what: &T) -> bool {
    let text = match json {
        true => json_line(what),
        false => what.to_string(),
    };
    output::line(&text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser as _;
    use loop_state::{Evidence, StopCause};

    use super::*;
    use crate::args::Args;

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
