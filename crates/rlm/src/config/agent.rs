//! The settings of an agent, by what the configuration says of it.

use std::ffi::OsString;
use std::path::Path;

use agent_drivers::{AgentConfig, AgentOptions, acp::AcpPreset};

use super::settings::Config;
use crate::agents::{self, AgentKind};
use crate::exit::Failure;

/// Makes the settings of an agent of this kind by what the file says of it. The program is the one that is given, else the
/// file's, else the one of that name; what a file names by a path counts from `root`, where it lies.
pub(crate) fn agent(
    kind: AgentKind,
    bin: Option<OsString>,
    config: &Config,
    root: &Path,
) -> Result<AgentConfig, Failure> {
    let of_file = config.agent_bin.clone().filter(|_| config.speaks_of(kind));
    let given = bin.or_else(|| agents::bin(of_file, root));
    if let Some(options) = config.options(kind) {
        let program = given.unwrap_or_else(|| kind.name().into());
        let mut agent = AgentConfig::new(options, vec![program]);
        for directory in agent.directories_mut() {
            *directory = root.join(&*directory);
        }
        return Ok(agent);
    }
    if kind == AgentKind::Command {
        return Ok(AgentConfig::command(config.command().unwrap_or_default()));
    }
    let section = config.acp.clone().unwrap_or_default();
    let program = match given {
        Some(bin) => vec![bin],
        None => section.program(root),
    };
    let Some(first) = program.first() else {
        return Err(Failure::usage(
            "which agent? name the program that speaks the protocol: --agent-bin PATH, or in rlm.toml: acp = { program = [\"claude-agent-acp\"] }",
        ));
    };
    let preset = AcpPreset::of_program(first);
    let options = Box::new(section.options());
    Ok(AgentConfig::new(
        AgentOptions::Acp { preset, options },
        program,
    ))
}
