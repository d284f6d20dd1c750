//! The checks for a new, a resumed and a restarted run, and the inputs that these share.

use std::path::{Path, PathBuf};

use agent_drivers::AgentConfig;
use agent_drivers::mcp::McpServers;
use rlm_store::{PhaseSettings, PromptSource, Settings};

use crate::agents;
use crate::config::{self, Config, SettingsTree, ValueOrigin};
use crate::exit::Failure;
use crate::stdin;

/// The largest prompt that `rlm` reads from standard input.
const MAX_STDIN: u64 = 4 << 20;

/// Refuses a prompt file outside of the project, if the project itself names it. Otherwise a cloned project could send any file of the user to the
/// agent.
pub(super) fn refuse_outside(file: &Path, tree: &SettingsTree, root: &Path) -> Result<(), Failure> {
    let origin = tree.leaf("prompt-file").map(|leaf| &leaf.origin);
    let is_users = origin.is_some_and(|it| *it != ValueOrigin::Default && !is_of_project(it, root));
    let real = |path: &Path| fs_err::canonicalize(path).ok();
    let (Some(target), Some(top)) = (real(file), real(root)) else {
        return Ok(());
    };
    if is_users || target.starts_with(&top) {
        return Ok(());
    }
    let (file, target) = (file.display(), target.display());
    Err(Failure::usage(format!(
        "the prompt file `{file}` is outside of the project: `{target}`; to use it anyway: --prompt-file {target}"
    )))
}

/// Returns whether a value comes from the project's own file.
pub(super) fn is_of_project(origin: &ValueOrigin, root: &Path) -> bool {
    matches!(origin, ValueOrigin::File { path, .. } if **path == *root.join(config::FILE_NAME))
}

/// Returns the MCP servers from the setting `mcp-servers`, and from the file that `mcp-config` names.
pub(super) fn mcp_servers(config: &Config, root: &Path) -> Result<McpServers, Failure> {
    let of_file = { config.mcp_config.as_ref() }.map(|file| config::read_mcp(&root.join(file)));
    let of_file = of_file.transpose()?.unwrap_or_default();
    Ok(config
        .mcp_servers
        .clone()
        .unwrap_or_default()
        .merged_over(of_file))
}

/// Returns an error if a variable is missing that the agent needs to start.
pub(super) fn refuse_missing_variables(
    servers: &McpServers,
    agent: &AgentConfig,
) -> Result<(), Failure> {
    let own = agent.passed_through().env;
    let variable = |name: &str| {
        let own = own.and_then(|own| own.get(name).cloned());
        own.or_else(|| std::env::var(name).ok())
    };
    let expanded = servers.expanded(variable);
    expanded
        .map(drop)
        .map_err(|e| Failure::usage(e.to_string()))
}

/// Returns an error for rules that no run can follow. For a budget on usage that the agent doesn't report, the error names the option.
pub(super) fn refuse_bad_rules(settings: &Settings) -> Result<(), Failure> {
    let Err(error) = settings.rules().validate() else {
        return Ok(settings.check_rules()?);
    };
    let (option, phase, missing) = match (error.unreported_cost(), error.unreported_tokens()) {
        (Some(phase), _) => ("--max-cost", phase, "its cost"),
        (_, Some(phase)) => ("--max-tokens", phase, "its tokens"),
        _ => return Ok(settings.check_rules()?),
    };
    let agent = { settings.phases.iter() }.find(|it| it.name == phase);
    let agent = agent.map(|phase| &phase.agent);
    let name = agent.map(agents::name).unwrap_or_default();
    let fix = match agent.map(AgentConfig::usage_reporting) {
        Some((false, true)) => "it reports tokens: use --max-tokens N",
        _ => "limit the run with -n, --max-duration or --iteration-timeout instead",
    };
    Err(Failure::usage(format!(
        "{option} can't be enforced: {name} doesn't report {missing}; {fix}"
    )))
}

/// Returns an error if an option is for agents with a driver, and no phase has one.
pub(super) fn refuse_driver_options(
    args: &Config,
    phases: &[PhaseSettings],
) -> Result<(), Failure> {
    if phases.iter().any(|phase| phase.agent.has_driver()) {
        return Ok(());
    }
    let given = [
        ("--permissions", args.permissions.is_some()),
        ("--model", args.model.is_some()),
        ("--session", args.session.is_some()),
        ("--agent-bin", args.agent_bin.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((option, _)) => Err(Failure::usage(format!(
            "{option} has no effect on a command agent: add the agent's own options after --, or choose an agent with --agent"
        ))),
    }
}

pub(super) fn prompt(text: Option<String>, file: PathBuf) -> Result<PromptSource, Failure> {
    let text = match text {
        Some(text) => text,
        None if file.file_name() == Some("-".as_ref()) => stdin::text("the prompt", MAX_STDIN)?,
        None => return Ok(PromptSource::File(file)),
    };
    if text.trim().is_empty() {
        return Err(Failure::usage(
            "the prompt is empty; describe the task in it",
        ));
    }
    Ok(PromptSource::Text(text))
}
