//! Which driver speaks to which agent.

use std::ffi::OsStr;
use std::path::Path;

use agent_duplex::Driver;
use agent_subprocess::Context;
use agent_subprocess::command::CommandDriver;
use loop_runner::{AgentSettings, DriverFactory, Error};

use crate::args::AgentKind;
use crate::exit::Failure;

/// Returns the factory of all drivers that this build has.
pub(crate) fn factory() -> DriverFactory {
    Box::new(
        |agent: &AgentSettings, context: Context| -> Result<Box<dyn Driver>, Error> {
            match agent {
                AgentSettings::Command { argv } => {
                    Ok(Box::new(CommandDriver::new(argv.clone(), context)))
                }
                _ => Err(Error::agent(
                    "this version can't drive that agent",
                    "no such driver",
                )),
            }
        },
    )
}

/// Refuses the kinds that have no driver yet, with what to do instead.
pub(crate) fn require(kind: AgentKind) -> Result<(), Failure> {
    let instead = match kind {
        AgentKind::Command => return Ok(()),
        AgentKind::Claude => "claude -p",
        AgentKind::Codex => "codex exec -",
        AgentKind::Gemini => "gemini -p {prompt}",
        AgentKind::Opencode => "opencode run {prompt}",
        AgentKind::Acp => "YOUR-AGENT",
    };
    Err(Failure::usage(format!(
        "unsupported: this version has no driver for that agent; run it as a command: rlm run … -- {instead}"
    )))
}

/// Looks for the agent's program before anything is made, so that a typing mistake costs nothing.
pub(crate) fn find_program(program: &OsStr, directory: &Path) -> Result<(), Failure> {
    let shown = program.to_string_lossy();
    match which::which_in(program, std::env::var_os("PATH"), directory) {
        Ok(_) => Ok(()),
        Err(_) if directory.join(program).is_file() && shown.contains('/') => Err(Failure::usage(
            format!("the agent `{shown}` is not executable; try: chmod +x {shown}"),
        )),
        Err(_) if directory.join(program).is_dir() => Err(Failure::usage(format!(
            "the agent `{shown}` is a directory; name the program in it"
        ))),
        Err(_) if shown.contains('/') => {
            Err(Failure::usage(format!("the agent `{shown}` is not there")))
        }
        Err(_) => Err(Failure::usage(format!(
            "the agent `{shown}` was not found on PATH; install it or give its path"
        ))),
    }
}
