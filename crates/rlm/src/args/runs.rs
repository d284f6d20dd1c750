//! The choice of the runs that a command shows, which `rlm status` and `rlm checkpoints` share.

use clap::Args as ClapArgs;

#[derive(Debug, ClapArgs)]
pub(crate) struct RunsArgs {
    /// The run [default: all runs of the project]
    pub(crate) run: Option<String>,
    /// Print one JSON object per run
    #[arg(long)]
    pub(crate) json: bool,
}
