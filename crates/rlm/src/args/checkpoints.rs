//! The command lines of `rlm checkpoints` and what can be asked of the saved state, with the examples of the help.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use rlm_store::RunId;

use crate::args::ManyArgs;

#[derive(Debug, ClapArgs)]
#[command(after_help = CHECKPOINT_EXAMPLES)]
pub(crate) struct CheckpointsArgs {
    #[command(subcommand)]
    pub(crate) what: CheckpointsCommand,
}

const CHECKPOINT_EXAMPLES: &str = "\
To look changes no file, and works while a run is at work. Only export and import change a run.

Examples:
  rlm checkpoints list                 what is saved of all runs of this project
  rlm checkpoints verify && tar czf state.tgz .rlm
  rlm checkpoints show RUN --at 3      as it was when iteration 3 was over
  rlm checkpoints fork RUN --at 3      go on from there in a new run
  rlm checkpoints export RUN           one file, to go on on another machine
  rlm resume RUN --from 3              go back to where iteration 3 began";

#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointsCommand {
    /// List the saved states: a line for each sealed phase and for each attempt of an iteration
    #[command(
        after_help = "A run has coarse checkpoints, one for each phase that is over, and fine ones: every save in between. What is damaged is \
listed as damaged; exit code 1 says so when one RUN was asked for. Times are UTC.

Examples:
  rlm checkpoints list
  rlm checkpoints list RUN --json | jq -r '.progress[].outcome'"
    )]
    List(ManyArgs),
    /// Show one saved state in full, the last events that led to it, and which file it comes from
    #[command(after_help = "Examples:
  rlm checkpoints show RUN             the newest state
  rlm checkpoints show RUN --at 3      as it was when iteration 3 was over
  rlm checkpoints show RUN --save 17   that of save 17, as `list` numbers them
  rlm checkpoints show RUN --json | jq .head.machine.step")]
    Show(ShowArgs),
    /// Read every byte that is saved, and say what is safe to do next
    #[command(
        after_help = "Exit codes: 0 sound (a torn tail is: nothing that was promised is lost), 1 damaged, 10 no such run.

Examples:
  rlm checkpoints verify
  rlm checkpoints verify RUN --json | jq -r .next"
    )]
    Verify(ManyArgs),
    /// Make a new run that goes on after an iteration of another one, with the files as they were then
    #[command(
        after_help = "The new run has a working tree of its own below .rlm/worktrees, on a new branch rlm/ID from the commit of that iteration; your files and \
the other run stay as they are. That run must commit its iterations (--commit). What it had used by then counts for the new one too.

Examples:
  rlm checkpoints fork RUN --at 3
  rlm checkpoints fork RUN --at 3 --run-id second-try && rlm resume second-try
  rlm checkpoints fork RUN --at 2 --phase plan --json | jq -r .run"
    )]
    Fork(ForkArgs),
    /// Write a run into one file, to go on elsewhere; here it is sealed as moved
    #[command(
        after_help = "The file has the state, the transcripts and the history that the files of the run stand on, so that no remote is needed. It holds what the state holds, \
the values of variables for agents and MCP servers too: keep it private. No commit of a loop takes it in. What is not committed is refused, or taken along as it is.
A run that was moved is not resumed here any more, but by force: rlm resume RUN --force.

Examples:
  rlm checkpoints export RUN                   writes rlm-RUN.tar.zst here
  rlm checkpoints export RUN -o - | ssh host rlm -C project checkpoints import -
  rlm checkpoints export RUN --copy -o backup.tar.zst   and go on here"
    )]
    Export(ExportArgs),
    /// Take in a run that was exported elsewhere, with its files
    #[command(
        after_help = "Into a directory that is empty but for the file, and becomes a repository; into a clone: in its working tree if that stands at the commit of the run, \
else in one of the run's own below .rlm/worktrees. Nothing that is there is written over, and nothing of the run is started: \
what a resume will run is shown, look at it.

Examples:
  rlm checkpoints import rlm-RUN.tar.zst && rlm resume RUN
  rlm -C ../clone checkpoints import /tmp/rlm-RUN.tar.zst
  rlm checkpoints import run.tar.zst --json | jq -r '.programs[].command'"
    )]
    Import(ImportArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExportArgs {
    /// The run; none that is at work
    pub(crate) run: String,
    /// The file to write, which is not there yet; - is standard output [default: rlm-RUN.tar.zst]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Leave the run as it is here: what is made of the copy has another name
    #[arg(long)]
    pub(crate) copy: bool,
    /// Take along what is not committed and not ignored; it is not committed there either
    #[arg(long)]
    pub(crate) allow_dirty: bool,
    /// Leave the history out: the repository is there already
    #[arg(long)]
    pub(crate) state_only: bool,
    /// Export a run once more that was moved, as the same move: one of its archives comes home
    #[arg(long)]
    pub(crate) force: bool,
    /// Allow this inside another run's agent
    #[arg(long)]
    pub(crate) nested: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ImportArgs {
    /// The file; - is standard input
    pub(crate) file: PathBuf,
    /// The name of what a copy becomes [default: made from the time]
    #[arg(long, value_name = "ID")]
    pub(crate) run_id: Option<RunId>,
    /// Allow this inside another run's agent
    #[arg(long)]
    pub(crate) nested: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ForkArgs {
    /// The run to go on from; it may be at work
    pub(crate) run: String,
    /// After this iteration
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) at: u32,
    /// The phase of that iteration [default: the present one, if it has such an iteration]
    #[arg(long, value_name = "NAME")]
    pub(crate) phase: Option<String>,
    /// The name of the new run, of its tree and of its branch [default: made from the time]
    #[arg(long, value_name = "ID")]
    pub(crate) run_id: Option<RunId>,
    /// Allow this inside another run's agent
    #[arg(long)]
    pub(crate) nested: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ShowArgs {
    /// The run
    pub(crate) run: String,
    /// The state in which this iteration is over, or is at work; in the latest phase that has one of that number
    #[arg(long, value_name = "N", conflicts_with = "save")]
    pub(crate) at: Option<u32>,
    /// The state of this save, as `rlm checkpoints list` numbers them
    #[arg(long, value_name = "SAVE")]
    pub(crate) save: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
