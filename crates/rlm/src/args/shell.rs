//! The command lines of `rlm completions` and `rlm man`, and what they speak of.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Command, CommandFactory};
use clap_complete::Shell;

use super::Args;

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  rlm completions bash > ~/.local/share/bash-completion/completions/rlm
  rlm completions zsh > ~/.zfunc/_rlm  with ~/.zfunc in fpath, before compinit
  rlm completions fish > ~/.config/fish/completions/rlm.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  rlm man | man -l -
  rlm man run | man -l -
  rlm man --dir ~/.local/share/man/man1     a page for each command")]
pub(crate) struct ManArgs {
    /// The command, such as `run` or `checkpoints list`; the page of rlm itself when left out
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    pub(crate) command: Vec<String>,
    /// Write all pages into this directory instead
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// Returns the command line without what is hidden, which a generator would show.
pub(crate) fn visible() -> Command {
    let whole = Args::command();
    let shown = whole.get_subcommands().filter(|it| !it.is_hide_set());
    let mut command = Command::new("rlm")
        .version(env!("CARGO_PKG_VERSION"))
        .args(whole.get_arguments().cloned())
        .subcommands(shown.cloned())
        .disable_help_subcommand(true);
    if let Some(about) = whole.get_about() {
        command = command.about(about.clone());
    }
    if let Some(after) = whole.get_after_help() {
        command = command.after_help(after.clone());
    }
    command.subcommand_required(true)
}
