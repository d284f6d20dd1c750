//! The command line of `rlm doctor`.

use clap::Args as ClapArgs;

use crate::agents::AgentKind;

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Nothing is sent to a model, and no file of an agent is read: each is asked by its own commands, in the root directory, where \
no project has settings, and ended after 15 s at the latest. A program that only the project's rlm.toml names is shown and not run. They may write what they write at each start. An agent that is \
not logged in can't be used; one whose login can't be known can.

Exit codes: 0 what is named, or else is chosen by rlm.toml or RLM_AGENT, can be used; 1 it can't, or no run can work on this machine. \
Where nothing is named or chosen no agent need be ready: any command can be one.

Examples:
  rlm doctor                           all agents that are known; this machine
  rlm doctor codex && rlm run --agent codex --until 'cargo test'
  rlm doctor --json | jq -r '.agents[] | select(.health != \"absent\") | .agent'")]
pub(crate) struct DoctorArgs {
    /// The agents that must work [default: the one that this project has chosen; all are looked at]
    #[arg(value_name = "AGENT", value_enum)]
    pub(crate) agents: Vec<AgentKind>,
    /// Run also the programs that only this project's rlm.toml names, with the variables that it sets: only if you trust it
    #[arg(long)]
    pub(crate) run_project_agent: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
