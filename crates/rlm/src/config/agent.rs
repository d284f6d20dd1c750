//! The settings of an agent, by what the configuration says of it.

use std::ffi::OsString;
use std::path::Path;

use agent_drivers::{AgentConfig, AgentOptions, acp::AcpPreset, claude::ClaudeOptions};

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
    let named = |options| {
        let program = given.clone().unwrap_or_else(|| kind.name().into());
        AgentConfig::new(options, vec![program])
    };
    Ok(match kind {
        AgentKind::Command => AgentConfig::command(config.command().unwrap_or_default()),
        AgentKind::Claude => named(AgentOptions::Claude(Box::new(claude_options(config, root)))),
        AgentKind::Codex => named(AgentOptions::Codex(Box::new(
            config.codex.clone().unwrap_or_default(),
        ))),
        AgentKind::Gemini => named(AgentOptions::Acp {
            preset: AcpPreset::Gemini,
            options: Box::new(config.gemini.clone().unwrap_or_default()),
        }),
        AgentKind::Opencode => named(AgentOptions::Acp {
            preset: AcpPreset::Opencode,
            options: Box::new(config.opencode.clone().unwrap_or_default()),
        }),
        AgentKind::Acp => {
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
            AgentConfig::new(AgentOptions::Acp { preset, options }, program)
        }
    })
}

/// The directories that a file names count from where it lies.
fn claude_options(config: &Config, root: &Path) -> ClaudeOptions {
    let mut options = config.claude.clone().unwrap_or_default();
    for directory in &mut options.add_dirs {
        *directory = root.join(&*directory);
    }
    options
}
