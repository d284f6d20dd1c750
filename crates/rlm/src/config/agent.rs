//! The settings of an agent, from the configuration.

use std::ffi::OsString;
use std::path::Path;

use agent_drivers::{AgentConfig, AgentOptions, acp::AcpPreset};

use super::file::api_server;
use super::settings::Config;
use crate::agents::{self, AgentKind};
use crate::exit::Failure;

/// Creates the settings of an agent of this kind. The program is `bin`, or the file's program, or the one with the name of the kind. Relative
/// paths in the file start at `root`, the directory of the file.
pub(crate) fn agent(
    kind: AgentKind,
    bin: Option<OsString>,
    config: &Config,
    root: &Path,
) -> Result<AgentConfig, Failure> {
    let of_file = config
        .agent_bin
        .clone()
        .filter(|_| config.applies_to_agent(kind));
    let given = bin.or_else(|| agents::program_path(of_file, root));
    if kind == AgentKind::Api {
        let refuse =
            "agent api is a part of rlm and has no program; remove --agent-bin or `agent-bin`";
        let mut options = config.options(kind).expect("a known agent has options");
        if let AgentOptions::Api(options) = &mut options {
            options.report_cost |= !api_server().prices.is_empty();
        }
        return match given {
            Some(_) => Err(Failure::usage(refuse)),
            None => Ok(AgentConfig::new(options, Vec::new())),
        };
    }
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
            "no program for agent acp: use --agent-bin PATH, or in rlm.toml: acp = { program = [\"claude-agent-acp\"] }",
        ));
    };
    let preset = AcpPreset::of_program(first);
    let options = Box::new(section.options());
    Ok(AgentConfig::new(
        AgentOptions::Acp { preset, options },
        program,
    ))
}
