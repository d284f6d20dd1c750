//! Which driver speaks to which agent.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use agent_duplex::Driver;
use agent_subprocess::Context;
use agent_subprocess::claude::ClaudeDriver;
use agent_subprocess::command::CommandDriver;
use loop_runner::{AgentSettings, DriverFactory, Error, PhaseSettings};

use crate::args::AgentKind;
use crate::exit::Failure;
use crate::render::quoted;

/// The agents that are looked for when none is named, and how each is run as a command.
const KNOWN: [(AgentKind, &str, &str); 4] = [
    (AgentKind::Claude, "claude", "claude -p"),
    (AgentKind::Codex, "codex", "codex exec -"),
    (AgentKind::Gemini, "gemini", "gemini -p {prompt}"),
    (AgentKind::Opencode, "opencode", "opencode run {prompt}"),
];

/// Returns the factory of all drivers that this build has.
pub(crate) fn factory() -> DriverFactory {
    Box::new(
        |phase: &PhaseSettings, context: Context| -> Result<Box<dyn Driver>, Error> {
            match phase.agent.clone() {
                AgentSettings::Command { argv } => Ok(Box::new(CommandDriver::new(argv, context))),
                AgentSettings::Claude {
                    program,
                    model,
                    args,
                } => {
                    let driver = ClaudeDriver::new(program, context)
                        .permissions(phase.permissions.into())
                        .args(args);
                    Ok(Box::new(match model {
                        Some(model) => driver.model(model),
                        None => driver,
                    }))
                }
                _ => Err(Error::agent(
                    "this version can't drive that agent",
                    "no such driver",
                )),
            }
        },
    )
}

/// Returns the program that is started for an agent.
pub(crate) fn program(agent: &AgentSettings) -> &OsStr {
    let words = match agent {
        AgentSettings::Command { argv } => argv,
        AgentSettings::Claude { program, .. } => program,
        _ => return OsStr::new(""),
    };
    words.first().map_or(OsStr::new(""), |word| word)
}

/// Returns the agent's short name, for people.
pub(crate) fn name(agent: &AgentSettings) -> String {
    match agent {
        AgentSettings::Command { argv } => {
            let words: Vec<_> = argv
                .iter()
                .map(|word| quoted(&word.to_string_lossy()))
                .collect();
            words.join(" ")
        }
        AgentSettings::Claude { model, .. } => match model {
            Some(model) => format!("claude ({model})"),
            None => "claude".into(),
        },
        _ => "an agent of another version".into(),
    }
}

/// Decides which kind of agent a run has: the one that is named, a command that is given, or the only one that is installed.
pub(crate) fn choose(
    named: Option<AgentKind>,
    given: &[OsString],
    configured: Option<&Vec<OsString>>,
    directory: &Path,
) -> Result<AgentKind, Failure> {
    match named {
        Some(AgentKind::Command) if given.is_empty() && configured.is_none() => {
            return Err(Failure::usage(
                "no command: give it behind --, for example: rlm run --until 'make test' -- my-agent",
            ));
        }
        Some(kind) => return Ok(kind),
        None if !given.is_empty() || configured.is_some_and(|words| !words.is_empty()) => {
            return Ok(AgentKind::Command);
        }
        None => {}
    }
    let path = std::env::var_os("PATH");
    let installed = |(_, program, _): &&(_, &str, _)| {
        which::which_in(program, path.as_ref(), directory).is_ok()
    };
    let found: Vec<_> = KNOWN.iter().filter(installed).collect();
    match found.as_slice() {
        [] => Err(Failure::usage(
            "no agent: none of claude, codex, gemini, opencode is on PATH; install one, or give a command behind --, for example: rlm run --until 'make test' -- my-agent",
        )),
        [(kind, ..)] => Ok(*kind),
        several => {
            let names: Vec<&str> = several.iter().map(|(_, program, _)| *program).collect();
            Err(Failure::usage(format!(
                "several agents are installed ({}): choose one with --agent {}",
                names.join(", "),
                names[0]
            )))
        }
    }
}

/// Says that a kind has no driver yet, and what to do instead.
pub(crate) fn unsupported(kind: AgentKind) -> Failure {
    let known = KNOWN.iter().find(|(known, ..)| *known == kind);
    let instead = known.map_or("YOUR-AGENT", |(.., instead)| instead);
    Failure::usage(format!(
        "unsupported: this version has no driver for that agent; run it as a command: rlm run … -- {instead}"
    ))
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
