//! Draft settings of a run, only for display: they contain the programs that the run would start, and nothing checks whether the run can start.

use std::ffi::OsString;
use std::path::Path;

use agent_drivers::AgentConfig;
use rlm_store::{PhaseSettings, PromptSource, Settings};

use super::checks::mcp_servers;
use crate::agents;
use crate::config::{self, Layers, SettingsTree, ValueOrigin};

/// Creates the draft for these layers; `words` is the command after `--`.
pub(crate) fn preview_settings(
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

/// Creates the draft of a phase. An unknown agent becomes an empty command.
pub(super) fn phase(
    name: String,
    tree: &SettingsTree,
    words: &[OsString],
    root: &Path,
    directory: &Path,
) -> PhaseSettings {
    let config = tree.config();
    let is_typed = tree
        .leaf("agent-bin")
        .is_some_and(|leaf| matches!(leaf.origin, ValueOrigin::Flag(_)));
    let typed = config.agent_bin.clone().filter(|_| is_typed);
    let bin = agents::program_path(typed, directory);
    let kind = agents::choose(config.agent, words, config.command().as_deref(), directory);
    let agent = kind.and_then(|kind| config::agent(kind, bin, &config, root));
    let argv = Vec::new();
    let mut agent = agent.unwrap_or(AgentConfig::command(argv));
    agents::override_agent(&mut agent, None, words.to_vec());
    let mut phase = PhaseSettings::new(name, PromptSource::Text(String::new()), agent);
    // If the file with MCP servers can't be read, the start of the run reports it.
    phase.mcp_servers =
        mcp_servers(&config, root).unwrap_or(config.mcp_servers.unwrap_or_default());
    phase.required_checks = config.gates.unwrap_or_default();
    phase.check = config.until;
    phase
}
