//! The arguments of commands that look at one run or at all runs of a project.

use clap::Args as ClapArgs;

#[derive(Debug, ClapArgs)]
pub(crate) struct ManyArgs {
    /// The run; all runs of the project when left out
    pub(crate) run: Option<String>,
    /// Only say by the exit code whether a process has RUN and its loop turns, as a liveness probe asks
    #[arg(long, requires = "run", conflicts_with = "json")]
    pub(crate) alive: bool,
    /// Print one JSON object a run
    #[arg(long)]
    pub(crate) json: bool,
}
