//! The demo: a small repository, and a scripted agent without a model that works in it.
//!
//! The agent is this program under a hidden command name. It speaks Claude Code's duplex `stream-json`, so the demo uses everything between `rlm run`
//! and a real agent. `protocol` has the lines, `script` the texts and steps, `agent` the conversation, and `project` the repository.

mod agent;
mod project;
mod protocol;
mod script;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use crate::exit::{Code, Failure};
use agent::{Agent, Setup};

/// The capacity of the event channel while a command starts.
const AHEAD: usize = 64;

/// Creates the repository, by default in a new temporary directory.
pub(crate) fn make_project(chosen: Option<&Path>) -> Result<PathBuf, Failure> {
    project::make(chosen)
}

/// Acts as the demo's agent on standard input and output. Of the options of the imitated agent, it uses only those for the session.
pub(crate) fn be_agent(pace: Duration, flags: &[OsString]) -> Result<ExitCode, Failure> {
    let failed =
        |error: io::Error| Failure::failed(format!("the agent of the demo failed: {error}"));
    let resumed = value(flags, "--resume");
    let setup = Setup {
        resumed: resumed.is_some(),
        session: resumed
            .or_else(|| value(flags, "--session-id"))
            .unwrap_or_else(|| uuid::Uuid::new_v4().to_string()),
        mode: value(flags, "--permission-mode").unwrap_or_else(|| "bypassPermissions".to_owned()),
        pace,
        tree: std::env::current_dir().map_err(failed)?,
    };
    let (sender, happenings) = mpsc::sync_channel(AHEAD);
    let listener = sender.clone();
    std::thread::spawn(move || agent::listen(io::stdin().lock(), &listener));
    let agent = Agent::new(setup, io::stdout().lock(), sender, happenings);
    agent.run().map_err(failed)?;
    Ok(Code::Done.into())
}

/// Returns the value of `--name=value` or `--name value`.
fn value(flags: &[OsString], name: &str) -> Option<String> {
    let mut flags = flags.iter().map(|flag| flag.to_string_lossy());
    while let Some(flag) = flags.next() {
        match flag.strip_prefix(name) {
            Some("") => return flags.next().map(Into::into),
            Some(rest) if rest.starts_with('=') => return Some(rest[1..].to_owned()),
            _ => {}
        }
    }
    None
}
