//! Which driver speaks to which agent, and what it is told.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use agent_drivers::SessionLocks;
use agent_drivers::acp::AcpDriver;
use agent_drivers::claude::ClaudeDriver;
use agent_drivers::codex::CodexDriver;
use agent_drivers::command::CommandDriver;
use agent_drivers::mcp::McpServers;
use agent_duplex::{Capabilities, Driver};
use agent_subprocess::Context;
use loop_runner::DriverFactory;
use rlm_store::{
    AcpOptions, AcpPreset, AgentSettings, ClaudeOptions, CodexOptions, Permissions, PhaseSettings,
};

use crate::agents::AgentKind;
use crate::exit::Failure;

/// Returns the factory of all drivers that this build has.
pub(crate) fn factory() -> DriverFactory {
    let locks = session_place().map(|(_, locks)| locks);
    Box::new(move |phase: &PhaseSettings, context: Context| Ok(driver(phase, context, &locks)))
}

/// Makes the driver of a phase. It holds configuration only; nothing is started.
pub(crate) fn driver(
    phase: &PhaseSettings,
    context: Context,
    locks: &Option<SessionLocks>,
) -> Box<dyn Driver> {
    let locks = locks.clone();
    match Made::of_phase(phase, context) {
        Made::Command(driver) => Box::new(driver),
        // It locks its sessions itself.
        Made::Codex(driver) => Box::new(driver),
        Made::Claude(driver) => Box::new(maybe(driver, locks, ClaudeDriver::session_locks)),
        Made::Acp(driver) => Box::new(maybe(driver, locks, AcpDriver::session_locks)),
    }
}

/// Refuses what an agent could not be started with, which stands in its section of this file.
pub(crate) fn check(agent: &AgentSettings, file: &Path) -> Result<(), Failure> {
    let mut bare = agent.clone();
    if let Some(start) = bare.start_mut() {
        *start.model = None;
        start.args.clear();
    }
    let section = AgentKind::of(agent).name();
    let of_file = |e| Failure::usage(format!("`{}`, [{section}]: {e}", file.display()));
    let (permissions, servers) = (Permissions::default(), McpServers::default());
    Made::of(bare, permissions, servers, Context::new("", ""))
        .check()
        .map_err(of_file)
}

/// Refuses what the agent of a phase could not be started with: what stands in the file, then all that it is told.
pub(crate) fn check_phase(phase: &PhaseSettings, file: &Path) -> Result<(), Failure> {
    check(&phase.agent, file)?;
    let refuse = |e: agent_duplex::Error| Failure::usage(e.to_string());
    Made::of_phase(phase, Context::new("", ""))
        .check()
        .map_err(refuse)
}

/// A driver of some kind.
enum Made {
    Command(CommandDriver),
    Claude(ClaudeDriver),
    Codex(CodexDriver),
    Acp(AcpDriver),
}

impl Made {
    fn of_phase(phase: &PhaseSettings, context: Context) -> Self {
        let (agent, servers) = (phase.agent.clone(), phase.mcp_servers.clone());
        Self::of(agent, phase.permissions, servers, context)
    }

    fn of(
        agent: AgentSettings,
        permissions: Permissions,
        servers: McpServers,
        context: Context,
    ) -> Self {
        let permissions = permissions.into();
        match agent {
            AgentSettings::Claude {
                program,
                model,
                args,
                options,
            } => {
                let driver = ClaudeDriver::new(program, context)
                    .permissions(permissions)
                    .mcp_servers(servers)
                    .args(args);
                let driver = claude(driver, *options);
                Self::Claude(maybe(driver, model, ClaudeDriver::model))
            }
            AgentSettings::Codex {
                program,
                model,
                args,
                options,
            } => {
                let driver = CodexDriver::new(program, context)
                    .permissions(permissions)
                    .mcp_servers(servers)
                    .args(args);
                let driver = codex(driver, *options);
                Self::Codex(maybe(driver, model, CodexDriver::model))
            }
            AgentSettings::Acp {
                preset,
                program,
                model,
                args,
                options,
            } => {
                let driver = acp_driver(preset, program, context)
                    .permissions(permissions)
                    .mcp_servers(servers)
                    .args(args);
                let driver = acp(driver, *options);
                Self::Acp(maybe(driver, model, AcpDriver::model))
            }
            other => Self::Command(CommandDriver::new(other.program().to_vec(), context)),
        }
    }

    fn check(&self) -> Result<(), agent_duplex::Error> {
        match self {
            Self::Command(_) => Ok(()),
            Self::Claude(driver) => driver.check(),
            Self::Codex(driver) => driver.check(),
            Self::Acp(driver) => driver.check(),
        }
    }
}

fn acp_driver(preset: AcpPreset, program: Vec<OsString>, context: Context) -> AcpDriver {
    let new = match preset {
        AcpPreset::Gemini => AcpDriver::gemini,
        AcpPreset::Opencode => AcpDriver::opencode,
        AcpPreset::Claude => AcpDriver::claude,
        AcpPreset::Other => AcpDriver::new,
    };
    new(program, context)
}

/// Returns what an agent can do, as its driver declares it.
pub(crate) fn capabilities(agent: &AgentSettings) -> Capabilities {
    let (program, context) = (Vec::new(), Context::new("", ""));
    match agent {
        AgentSettings::Claude { .. } => ClaudeDriver::new(program, context).capabilities(),
        AgentSettings::Codex { .. } => CodexDriver::new(program, context).capabilities(),
        AgentSettings::Acp { preset, .. } => acp_driver(*preset, program, context).capabilities(),
        _ => CommandDriver::new(program, context).capabilities(),
    }
}

/// Tells a driver something, if that was said.
fn maybe<D, T>(driver: D, said: Option<T>, tell: impl FnOnce(D, T) -> D) -> D {
    match said {
        Some(said) => tell(driver, said),
        None => driver,
    }
}

/// Tells the driver what else was chosen.
fn claude(driver: ClaudeDriver, options: ClaudeOptions) -> ClaudeDriver {
    let driver = driver
        .allowed_tools(options.allowed_tools)
        .disallowed_tools(options.disallowed_tools)
        .settings(options.settings.0)
        .hooks(options.hooks)
        .add_dirs(options.add_dirs)
        .strict_mcp(options.strict_mcp);
    let driver = maybe(driver, options.fallback_model, ClaudeDriver::fallback_model);
    let driver = maybe(driver, options.effort, ClaudeDriver::effort);
    let driver = maybe(driver, options.max_turns, ClaudeDriver::max_turns);
    let driver = maybe(driver, options.tools, ClaudeDriver::tools);
    let driver = maybe(driver, options.system_prompt, ClaudeDriver::system_prompt);
    let append = options.append_system_prompt;
    let driver = maybe(driver, append, ClaudeDriver::append_system_prompt);
    let sources = options.setting_sources;
    let driver = maybe(driver, sources, ClaudeDriver::setting_sources);
    let driver = maybe(driver, options.env_allow, ClaudeDriver::env_allow);
    let set = |driver: ClaudeDriver, (name, value)| driver.env(name, value);
    options.env.0.into_iter().fold(driver, set)
}

fn codex(driver: CodexDriver, options: CodexOptions) -> CodexDriver {
    let driver = driver.config(options.config.0).analytics(options.analytics);
    let driver = maybe(driver, options.effort, CodexDriver::effort);
    let driver = maybe(driver, options.system_prompt, CodexDriver::system_prompt);
    let append = options.append_system_prompt;
    let driver = maybe(driver, append, CodexDriver::append_system_prompt);
    let driver = maybe(driver, options.env_allow, CodexDriver::env_allow);
    let set = |driver: CodexDriver, (name, value)| driver.env(name, value);
    options.env.0.into_iter().fold(driver, set)
}

fn acp(driver: AcpDriver, options: AcpOptions) -> AcpDriver {
    let driver = maybe(driver, options.auth_method, AcpDriver::auth_method);
    let driver = maybe(driver, options.env_allow, AcpDriver::env_allow);
    let set = |driver: AcpDriver, (name, value)| driver.env(name, value);
    options.env.0.into_iter().fold(driver, set)
}

/// Finds a place for the locks of agents' sessions. One that all of the user's programs see goes before one that those of a
/// login share. Where none can be used (`sudo` may have made it), sessions are not locked.
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
