//! The command lines of `rlm completions` and `rlm man`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use clap_complete::Shell;

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
