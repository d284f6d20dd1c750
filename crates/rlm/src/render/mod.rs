//! Everything that people and programs see: functions that turn results into text.

mod agent;
mod banner;
mod checkpoints;
mod choices;
mod clean;
mod config;
mod doctor;
mod dry_run;
mod event;
mod git;
mod level;
mod lines;
mod live;
mod notify;
mod phases;
mod programs;
mod redo;
mod screen;
mod status;
mod worktree;

use crate::output;

pub(crate) use banner::{RunStart, StartedPrograms, permission_text};
pub(crate) use checkpoints::{Export, Fork, Import, List, StateView, Verified};
pub(crate) use choices::choices;
pub(crate) use clean::{CleanEntry, CleanResult, cleaned};
pub(crate) use config::Configuration;
pub(crate) use doctor::{AgentHealth, ChannelHealth, Check, Findings, Health};
pub(crate) use dry_run::DryRun;
pub(crate) use git::RunWorktree;
pub(crate) use level::Level;
pub(crate) use lines::{failure, json_line, record, state, streamed, warning};
pub(crate) use live::{Live, RequestProgress, problem};
pub(crate) use notify::{Notification, NotifyContext, heartbeat, notification, notify_event};
pub(crate) use phases::Phases;
pub(crate) use programs::{Change, changes, visible};
pub(crate) use redo::RedoQuestion;
pub(crate) use screen::{EndWords, KILLED, Screen, ended_elsewhere, left, now};
pub(crate) use status::RunStatusView;
#[cfg(feature = "view")]
pub(crate) use status::doing;
pub(crate) use worktree::{WorktreeStep, WorktreeView};

/// Prints one object as text or JSON, and returns whether the output still has a reader.
pub(crate) fn print<T: serde::Serialize + std::fmt::Display>(json: bool, what: &T) -> bool {
    let text = match json {
        true => json_line(what),
        false => what.to_string(),
    };
    output::line(&text)
}
