//! How the driver of a phase is made, and where agents' sessions are locked.

use std::path::{Path, PathBuf};

use agent_drivers::{AgentConfig, Choices, SessionLocks};
use agent_subprocess::Context;
use loop_runner::DriverFactory;
use rlm_store::PhaseSettings;

use crate::agents::AgentKind;
use crate::exit::Failure;

/// Returns the factory of all drivers.
pub(crate) fn factory() -> DriverFactory {
    let locks = session_place().map(|(_, locks)| locks);
    Box::new(move |phase: &PhaseSettings, context: Context| {
        let mut choices = choices(phase);
        choices.session_locks.clone_from(&locks);
        Ok(phase.agent.driver(choices, context))
    })
}

/// Returns what a phase chooses for its conversations.
fn choices(phase: &PhaseSettings) -> Choices {
    let mut choices = Choices::default();
    choices.permissions = phase.permissions;
    choices.mcp_servers = phase.mcp_servers.clone();
    choices
}

/// Refuses options of the agent's section in this file with which the agent could not be started.
pub(crate) fn check(agent: &AgentConfig, file: &Path) -> Result<(), Failure> {
    let bare = AgentConfig {
        model: None,
        args: Vec::new(),
        ..agent.clone()
    };
    let section = AgentKind::of(agent).name();
    let of_file = |e| Failure::usage(format!("`{}`, [{section}]: {e}", file.display()));
    bare.check(Choices::default()).map_err(of_file)
}

/// Refuses what the agent of a phase could not be started with: its section in the file, then everything together.
pub(crate) fn check_phase(phase: &PhaseSettings, file: &Path) -> Result<(), Failure> {
    check(&phase.agent, file)?;
    let refuse = |e: agent_duplex::Error| Failure::usage(e.to_string());
    phase.agent.check(choices(phase)).map_err(refuse)
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
