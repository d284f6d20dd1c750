//! The settings of an agent, by what the configuration says of it.

use std::ffi::OsString;
use std::path::Path;

use rlm_store::AcpPreset;
use rlm_store::AgentSettings;
use rlm_store::ClaudeOptions;

use super::values::Config;
use crate::agents::{self, AgentKind};
use crate::exit::Failure;

/// Makes the settings of an agent of this kind by what the file says of it. The program is the one that is given, else the
/// file's, else the one of that name; what a file names by a path counts from `root`, where it lies.
pub(crate) fn agent(
    kind: AgentKind,
    bin: Option<OsString>,
    config: &Config,
    root: &Path,
) -> Result<AgentSettings, Failure> {
    let of_file = config.agent_bin.clone().filter(|_| config.speaks_of(kind));
    let given = bin.or_else(|| agents::bin(of_file, root));
    let named = || vec![given.clone().unwrap_or_else(|| kind.name().into())];
    Ok(match kind {
        AgentKind::Command => AgentSettings::Command {
            argv: config.command().unwrap_or_default(),
        },
        AgentKind::Claude => AgentSettings::Claude {
            program: named(),
            model: None,
            args: Vec::new(),
            options: Box::new(claude_options(config, root)),
        },
        AgentKind::Codex => AgentSettings::Codex {
            program: named(),
            model: None,
            args: Vec::new(),
            options: Box::new(config.codex.clone().unwrap_or_default()),
        },
        AgentKind::Gemini | AgentKind::Opencode => {
            let (preset, options) = match kind {
                AgentKind::Gemini => (AcpPreset::Gemini, &config.gemini),
                _ => (AcpPreset::Opencode, &config.opencode),
            };
            AgentSettings::Acp {
                preset,
                program: named(),
                model: None,
                args: Vec::new(),
                options: Box::new(options.clone().unwrap_or_default()),
            }
        }
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
            AgentSettings::Acp {
                preset: AcpPreset::of_program(first),
                program,
                model: None,
                args: Vec::new(),
                options: Box::new(section.options()),
            }
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
