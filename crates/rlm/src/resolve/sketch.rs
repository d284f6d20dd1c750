//! The settings of a run as far as they name what it starts, made without asking whether such a run could begin: for showing only.

use std::ffi::OsString;
use std::path::Path;

use agent_drivers::AgentConfig;
use rlm_store::{PhaseSettings, PromptSource, Settings};

use super::checks::mcp_servers;
use crate::agents;
use crate::config::{self, Layers, Origin, Tree};

/// Makes what a run by these layers would start; `words` are those behind `--`.
pub(crate) fn sketch(
    layers: &Layers,
    words: &[OsString],
    root: &Path,
    directory: &Path,
) -> Settings {
    let phases = layers.phases().into_iter();
    let phases = phases.map(|it| phase(it.name, &it.tree, words, root, directory));
    let mut settings = Settings::new(directory, phases.collect());
    settings.commit = layers.run().config().commit.unwrap_or_default();
    settings
}

/// Makes a phase of it. An agent that isn't known is none: a command without words.
pub(super) fn phase(
    name: String,
    tree: &Tree,
    words: &[OsString],
    root: &Path,
    directory: &Path,
) -> PhaseSettings {
    let config = tree.config();
    let is_typed = tree
        .leaf("agent-bin")
        .is_some_and(|leaf| matches!(leaf.origin, Origin::Flag(_)));
    let typed = config.agent_bin.clone().filter(|_| is_typed);
    let bin = agents::bin(typed, directory);
    let kind = agents::choose(config.agent, words, config.command().as_deref(), directory);
    let agent = kind.and_then(|kind| config::agent(kind, bin, &config, root));
    let argv = Vec::new();
    let mut agent = agent.unwrap_or(AgentConfig::command(argv));
    agents::tell(&mut agent, None, words.to_vec());
    let mut phase = PhaseSettings::new(name, PromptSource::Text(String::new()), agent);
    // A file of servers that can't be read is said where a run would begin.
    phase.mcp_servers =
        mcp_servers(&config, root).unwrap_or(config.mcp_servers.unwrap_or_default());
    phase.gates = config.gates.unwrap_or_default();
    phase.until = config.until;
    phase
}
