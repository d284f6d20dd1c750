//! The command line of `rlm clean`, with the examples of its help.

use clap::Args as ClapArgs;

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Without more it is about the runs of this project that have come to their end and that nothing has happened to for a week. \
A run that a process has is never removed, one that can be resumed only with --all. What is damaged is listed; --all, or its \
name, removes it. A working tree of a run's own and its branch stay, and it is said how to remove them.

Exit codes: 0 done, 1 one could not be removed, 2 nobody is there to be asked: --yes, 10 no such run.

Examples:
  rlm clean --dry-run                  what would go
  rlm clean --days 30 --keep 5 --yes
  rlm clean --transcripts              their state stays
  rlm clean RUN
  rlm clean --all --days 0             everything that no process has")]
pub(crate) struct CleanArgs {
    /// Only these; their age does not matter then [default: all of the project]
    #[arg(value_name = "RUN")]
    pub(crate) runs: Vec<String>,
    /// Only those that nothing has happened to for so many days [default: 7]
    #[arg(long, value_name = "N")]
    pub(crate) days: Option<u64>,
    /// Keep the newest of those that would go
    #[arg(long, value_name = "N")]
    pub(crate) keep: Option<usize>,
    /// Also those that can be resumed, and damaged ones
    #[arg(long)]
    pub(crate) all: bool,
    /// Only their transcripts, which is most of what they take; the state stays, so that those that can be resumed are
    /// meant too
    #[arg(long)]
    pub(crate) transcripts: bool,
    /// Don't ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Only say what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Allow this inside another run's agent
    #[arg(long)]
    pub(crate) nested: bool,
    /// Print one JSON object a run
    #[arg(long)]
    pub(crate) json: bool,
}
