//! The known agents: their names, how to choose one, and how to create the driver of a phase.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use agent_drivers::acp::AcpPreset;
use agent_drivers::api::ApiServer;
use agent_drivers::{AgentConfig, AgentOptions, Choices, SessionLocks};
use agent_subprocess::{Containment, Marker, ProcessContext};
use loop_runner::DriverFactory;
use rlm_store::PhaseSettings;

use crate::exit::Failure;
use crate::hint::{program_command, quoted};

/// The values of `--agent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AgentKind {
    /// Any program, given after --
    Command,
    Claude,
    Codex,
    Gemini,
    Opencode,
    /// Any program that speaks the Agent Client Protocol, such as claude-agent-acp
    Acp,
    /// The agent of rlm itself, for a model server: needs --model
    Api,
}

/// An agent that `rlm` looks for if none is named.
#[derive(Debug)]
pub(crate) struct SupportedAgent {
    pub(crate) kind: AgentKind,
    /// The name of the agent on the command line, in `rlm.toml` and on `PATH`.
    pub(crate) name: &'static str,
    /// The command that installs the agent.
    pub(crate) install: &'static str,
}

pub(crate) const KNOWN: [SupportedAgent; 4] = [
    SupportedAgent {
        kind: AgentKind::Claude,
        name: "claude",
        install: "npm install -g @anthropic-ai/claude-code",
    },
    SupportedAgent {
        kind: AgentKind::Codex,
        name: "codex",
        install: "npm install -g @openai/codex",
    },
    SupportedAgent {
        kind: AgentKind::Gemini,
        name: "gemini",
        install: "npm install -g @google/gemini-cli",
    },
    SupportedAgent {
        kind: AgentKind::Opencode,
        name: "opencode",
        install: "npm install -g opencode-ai",
    },
];

/// The program that `acp` means if `rlm.toml` names none.
pub(crate) const ADAPTER: &str = "claude-agent-acp";

impl AgentKind {
    /// All names, in the order of the help.
    pub(crate) const NAMES: &[&str] = &[
        "command", "claude", "codex", "gemini", "opencode", "acp", "api",
    ];

    /// Returns the kind of a run's agent.
    pub(crate) fn of(agent: &AgentConfig) -> Self {
        match &agent.options {
            AgentOptions::Command => Self::Command,
            AgentOptions::Claude(_) => Self::Claude,
            AgentOptions::Codex(_) => Self::Codex,
            AgentOptions::Api(_) => Self::Api,
            AgentOptions::Acp { preset, .. } => match preset {
                AcpPreset::Gemini => Self::Gemini,
                AcpPreset::Opencode => Self::Opencode,
                _ => Self::Acp,
            },
        }
    }

    /// Returns its name on the command line and in `rlm.toml`.
    pub(crate) fn name(self) -> &'static str {
        let known = KNOWN.iter().find(|known| known.kind == self);
        known.map_or_else(
            || match self {
                Self::Acp => "acp",
                Self::Api => "api",
                _ => "command",
            },
            |known| known.name,
        )
    }
}

/// Applies a model and arguments to an agent, if there are any.
pub(crate) fn override_agent(agent: &mut AgentConfig, model: Option<String>, words: Vec<OsString>) {
    if agent.has_driver() && model.is_some() {
        agent.model = model;
    }
    if !words.is_empty() {
        match agent.has_driver() {
            true => agent.args = words,
            false => agent.program = words,
        }
    }
}

/// Returns the agent's short name.
pub(crate) fn name(agent: &AgentConfig) -> String {
    let name = match &agent.options {
        AgentOptions::Command => {
            let words: Vec<_> = { agent.program.iter() }
                .map(|word| quoted(&word.to_string_lossy()))
                .collect();
            return words.join(" ");
        }
        AgentOptions::Acp {
            preset: AcpPreset::Other,
            ..
        } => {
            let program = Path::new(program(agent)).file_name().unwrap_or_default();
            format!("acp agent {}", quoted(&program.to_string_lossy()))
        }
        _ => agent.name().to_owned(),
    };
    match &agent.model {
        Some(model) => format!("{name} ({model})"),
        None => name,
    }
}

/// Returns the context for a query of an agent outside a run; `asker` is in the marker of its processes.
pub(crate) fn query_context(directory: &Path, asker: &str) -> ProcessContext {
    let mut context = ProcessContext::new(directory, "/");
    context.containment = Containment::Auto;
    context.marker = Some(Marker {
        variable: rlm_store::marker_variable().into(),
        scope: uuid::Uuid::new_v4().simple().to_string(),
        member: asker.into(),
    });
    context
}

/// Returns the program of an agent.
pub(crate) fn program(agent: &AgentConfig) -> &OsStr {
    agent.program.first().map_or(OsStr::new(""), |word| word)
}

/// Returns the program to start: a path is relative to `directory`, and a bare name is searched on `PATH`.
pub(crate) fn program_path(given: Option<PathBuf>, directory: &Path) -> Option<OsString> {
    given.map(|given| match given.components().count() {
        1 => given.into(),
        _ => directory.join(given).into(),
    })
}

/// Chooses the kind of agent of a run: the named one, the given command, or the only installed one.
pub(crate) fn choose(
    named: Option<AgentKind>,
    given: &[OsString],
    configured: Option<&[OsString]>,
    directory: &Path,
) -> Result<AgentKind, Failure> {
    match named {
        Some(AgentKind::Command) if given.is_empty() && configured.is_none() => {
            return Err(Failure::usage(format!(
                "no command: give it after --, for example: {} run --until 'make test' -- my-agent",
                program_command()
            )));
        }
        Some(kind) => return Ok(kind),
        None if !given.is_empty() || configured.is_some_and(|words| !words.is_empty()) => {
            return Ok(AgentKind::Command);
        }
        None => {}
    }
    let path = std::env::var_os("PATH");
    let installed =
        |known: &&SupportedAgent| which::which_in(known.name, path.as_ref(), directory).is_ok();
    let found: Vec<_> = KNOWN.iter().filter(installed).collect();
    match found.as_slice() {
        [] => Err(Failure::usage(format!(
            "no agent: none of claude, codex, gemini, opencode is on PATH; install one, or give a command after --, for example: {} run --until 'make test' -- my-agent",
            program_command()
        ))),
        [known] => Ok(known.kind),
        several => {
            let names: Vec<&str> = several.iter().map(|known| known.name).collect();
            Err(Failure::usage(format!(
                "several agents are installed ({}): choose one with --agent {}",
                names.join(", "),
                names[0]
            )))
        }
    }
}

/// Looks for the agent's program before the run is created, so that a typing mistake costs nothing.
pub(crate) fn find_program(agent: &AgentConfig, directory: &Path) -> Result<(), Failure> {
    if let AgentOptions::Api(_) = &agent.options {
        return Ok(()); // It runs inside this program.
    }
    let program = program(agent);
    let shown = program.to_string_lossy();
    let refuse = |what: String| Err(Failure::usage(what));
    match which::which_in(program, std::env::var_os("PATH"), directory) {
        Ok(_) => Ok(()),
        Err(_) if directory.join(program).is_file() && shown.contains('/') => refuse(format!(
            "the agent `{shown}` is not executable; try: chmod +x {shown}"
        )),
        Err(_) if directory.join(program).is_dir() => refuse(format!(
            "the agent `{shown}` is a directory; give the path of the program in it"
        )),
        Err(_) if shown.contains('/') => refuse(format!("the agent `{shown}` doesn't exist")),
        Err(_) => {
            let known = KNOWN.iter().find(|known| program == known.name);
            let install = known.map_or("install it".to_owned(), |known| {
                format!("install it ({})", known.install)
            });
            refuse(format!(
                "the agent `{shown}` was not found on PATH; {install} or give its path"
            ))
        }
    }
}

/// Returns how to get a program that is missing.
pub(crate) fn missing(kind: AgentKind, program: &str) -> String {
    match KNOWN.iter().find(|known| known.name == program) {
        Some(known) => known.install.to_owned(),
        None if program == ADAPTER => {
            "npm install -g @agentclientprotocol/claude-agent-acp".to_owned()
        }
        None if program.is_empty() => {
            "rlm.toml has no command; you can add one after --".to_owned()
        }
        None => format!(
            "`{program}` doesn't exist; rlm.toml names it as the program of {}",
            kind.name()
        ),
    }
}

/// Returns the factory of all drivers. `api_server` is the model server of the agent of rlm itself.
pub(crate) fn factory(api_server: ApiServer) -> DriverFactory {
    let locks = session_place().map(|(_, locks)| locks);
    Box::new(move |phase: &PhaseSettings, context: ProcessContext| {
        let mut choices = choices(phase);
        choices.session_locks.clone_from(&locks);
        choices.api_server.clone_from(&api_server);
        Ok(phase.agent.driver(choices, context))
    })
}

/// Returns the choices of a phase for its conversations.
fn choices(phase: &PhaseSettings) -> Choices {
    let mut choices = Choices::default();
    choices.permissions = phase.permissions;
    choices.mcp_servers = phase.mcp_servers.clone();
    choices
}

/// Returns an error if the agent can't start with the options of its section in this file.
pub(crate) fn check(agent: &AgentConfig, file: &Path) -> Result<(), Failure> {
    if let AgentOptions::Api(_) = &agent.options {
        return Ok(()); // Its mistakes are those of its server, which the file doesn't name.
    }
    let bare = AgentConfig {
        model: None,
        args: Vec::new(),
        ..agent.clone()
    };
    let section = AgentKind::of(agent).name();
    let of_file = |e| Failure::usage(format!("`{}`, [{section}]: {e}", file.display()));
    bare.check(Choices::default()).map_err(of_file)
}

/// Returns an error if the agent of a phase can't start. Checks the agent's section in the file first, then all options together.
pub(crate) fn check_phase(
    phase: &PhaseSettings,
    file: &Path,
    api_server: ApiServer,
) -> Result<(), Failure> {
    check(&phase.agent, file)?;
    let refuse = |e: agent_duplex::Error| Failure::usage(e.to_string());
    let mut choices = choices(phase);
    choices.api_server = api_server;
    phase.agent.check(choices).map_err(refuse)
}

/// Finds a directory for the locks of agents' sessions. The first choice is a directory that all programs of the user share; the second choice is one
/// that only the programs of one login share. If no directory can be used (`sudo` may have created it), sessions are not locked.
pub(crate) fn session_place() -> Option<(PathBuf, SessionLocks)> {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let places = [
        named("XDG_STATE_HOME"),
        named("HOME").map(|home| home.join(".local/state")),
        named("XDG_RUNTIME_DIR"),
    ];
    places
        .into_iter()
        .flatten()
        .filter(|place| place.is_absolute())
        .map(|place| place.join("rlm/sessions"))
        .map(|place| (place.clone(), SessionLocks::new(place)))
        .find(|(_, locks)| locks.prepare().is_ok())
}
