//! The command line of `rlm config`: it takes the options of `rlm run`, to show what they would come to.

use clap::{Args as ClapArgs, Subcommand};

use super::RunArgs;

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
What is said nearer counts: options, then RLM_AGENT and RLM_PERMISSIONS, then rlm.toml, then the user's own \
$XDG_CONFIG_HOME/rlm/config.toml (~/.config/rlm/config.toml), then defaults. The user's file has the keys of rlm.toml but for \
those that say what is to be done in one project and when that is done: prompt, prompt-file, until, gates, \
completion-promise, mcp-config and phases.

Examples:
  rlm config show --explain            what counts here, and where it comes from
  rlm config schema > rlm.schema.json  for editors: #:schema ./rlm.schema.json")]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) what: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show the settings that a run would have, as a file could say them
    Show(Box<ShowConfigArgs>),
    /// Print the JSON Schema of rlm.toml
    #[command(after_help = "Examples:
  rlm config schema > rlm.schema.json
  rlm config schema | jq '.properties | keys'")]
    Schema,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Options of `rlm run` can be given, to see what they would change. Values of variables, headers and the like are never shown.

Examples:
  rlm config show > settings.toml
  rlm config show --explain
  rlm config show --explain -n 5 --agent codex  what this would have
  rlm config show --json | jq '.settings[] | select(.key == \"agent\")'")]
pub(crate) struct ShowConfigArgs {
    /// Say of each value where it comes from, and what it stands in place of
    #[arg(long)]
    pub(crate) explain: bool,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}
