//! Which driver speaks to which agent.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use agent_duplex::Driver;
use agent_subprocess::claude::ClaudeDriver;
use agent_subprocess::command::CommandDriver;
use agent_subprocess::{Context, SessionLocks};
use loop_runner::{AgentSettings, ClaudeOptions, DriverFactory, Error, PhaseSettings};

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
    let locks = session_locks();
    Box::new(
        move |phase: &PhaseSettings, context: Context| -> Result<Box<dyn Driver>, Error> {
            match phase.agent.clone() {
                AgentSettings::Command { argv } => Ok(Box::new(CommandDriver::new(argv, context))),
                AgentSettings::Claude {
                    program,
                    model,
                    args,
                    options,
                } => {
                    let mut driver = ClaudeDriver::new(program, context)
                        .permissions(phase.permissions.into())
                        .mcp_servers(phase.mcp_servers.clone())
                        .args(args);
                    if let Some(model) = model {
                        driver = driver.model(model);
                    }
                    if let Some(locks) = &locks {
                        driver = driver.session_locks(locks.clone());
                    }
                    Ok(Box::new(tell(driver, *options)))
                }
                _ => Err(Error::agent(
                    "this version can't drive that agent",
                    "no such driver",
                )),
            }
        },
    )
}

/// Refuses what an agent could not be started with, which stands in this file.
pub(crate) fn check(agent: &AgentSettings, file: &Path) -> Result<(), Failure> {
    let AgentSettings::Claude { options, .. } = agent else {
        return Ok(());
    };
    let context = Context::new("", "");
    let driver = tell(ClaudeDriver::new(Vec::new(), context), (**options).clone());
    let refuse = |e| Failure::usage(format!("`{}`, [claude]: {e}", file.display()));
    driver.check().map_err(refuse)
}

/// Tells the driver what else was chosen.
fn tell(mut driver: ClaudeDriver, options: ClaudeOptions) -> ClaudeDriver {
    driver = driver
        .allowed_tools(options.allowed_tools)
        .disallowed_tools(options.disallowed_tools)
        .settings(options.settings.0)
        .hooks(options.hooks)
        .add_dirs(options.add_dirs)
        .strict_mcp(options.strict_mcp);
    for (name, value) in options.env.0 {
        driver = driver.env(name, value);
    }
    if let Some(model) = options.fallback_model {
        driver = driver.fallback_model(model);
    }
    if let Some(effort) = options.effort {
        driver = driver.effort(effort);
    }
    if let Some(turns) = options.max_turns {
        driver = driver.max_turns(turns);
    }
    if let Some(tools) = options.tools {
        driver = driver.tools(tools);
    }
    if let Some(text) = options.system_prompt {
        driver = driver.system_prompt(text);
    }
    if let Some(text) = options.append_system_prompt {
        driver = driver.append_system_prompt(text);
    }
    if let Some(sources) = options.setting_sources {
        driver = driver.setting_sources(sources);
    }
    match options.env_allow {
        Some(names) => driver.env_allow(names),
        None => driver,
    }
}

/// Finds a place for the locks of agents' sessions. One that all of the user's programs see goes before one that those of a
/// login share. Where none can be used (`sudo` may have made it), sessions are not locked.
fn session_locks() -> Option<SessionLocks> {
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
        .map(|place| SessionLocks::new(place.join("rlm/sessions")))
        .find(|locks| locks.prepare().is_ok())
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
