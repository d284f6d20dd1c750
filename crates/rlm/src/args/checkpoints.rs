//! The arguments of `rlm checkpoints`, and their help with examples.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use rlm_store::RunId;

use super::runs::RunsArgs;

#[derive(Debug, ClapArgs)]
#[command(after_help = CHECKPOINT_EXAMPLES)]
pub(crate) struct CheckpointsArgs {
    #[command(subcommand)]
    pub(crate) what: CheckpointsCommand,
}

const CHECKPOINT_EXAMPLES: &str = "\
No command changes a file of a run, except that export and import transfer it. All of them except export work while the run is live.

Examples:
  rlm checkpoints list                 # the saved states of all runs
  rlm checkpoints verify && tar czf state.tgz .rlm
  rlm checkpoints show RUN --at 3      # the state after iteration 3
  rlm checkpoints fork RUN --at 3      # a new run that continues there
  rlm checkpoints export RUN           # one file, for another machine
  rlm resume RUN --from 3              # go back to the start of iteration 3";

#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointsCommand {
    /// List the saved states: a line for each finished phase and for each attempt
    #[command(
        after_help = "A run has a checkpoint for each finished phase, and a save for each step in between. Damaged states are \
listed as damaged; if you name one RUN, the exit code is then 1. Times are UTC.

Examples:
  rlm checkpoints list
  rlm checkpoints list RUN --json | jq -r '.attempts[].outcome'"
    )]
    List(RunsArgs),
    /// Show one saved state in full, its file, and the last events before it
    #[command(after_help = "Examples:
  rlm checkpoints show                 # the newest state
  rlm checkpoints show RUN --at 3      # the state after iteration 3
  rlm checkpoints show RUN --save 17   # the state of save 17 in the list
  rlm checkpoints show RUN --json | jq .head.machine.step")]
    Show(ShowArgs),
    /// Read every saved byte, report damage, and name a safe next command
    #[command(
        after_help = "Exit codes: 0 intact (also with an incomplete last write, which loses no confirmed save), 1 damaged, 10 no such run.

Examples:
  rlm checkpoints verify
  rlm checkpoints verify RUN --json | jq -r .next"
    )]
    Verify(RunsArgs),
    /// Create a new run that continues after an iteration of another run
    #[command(
        after_help = "The new run has the files of that iteration, in its own worktree below .rlm/worktrees, on a new branch rlm/ID at the commit \
of that iteration. \
Your files and the other run don't change. The other run must have used --commit. Its usage up to that iteration counts for the new run too.

Examples:
  rlm checkpoints fork RUN --at 3
  rlm checkpoints fork RUN --at 3 --run-id second-try && rlm resume second-try
  rlm checkpoints fork RUN --at 2 --phase plan --json | jq -r .run"
    )]
    Fork(ForkArgs),
    /// Write a run into one file, to continue it elsewhere; here it counts as transferred
    #[command(
        after_help = "The file has the state, the transcripts and the git history of the files, so the other machine needs no remote. It has \
everything that the state has, \
including values of variables for agents and MCP servers: keep it private. No commit of rlm includes it. If the run has uncommitted changes, rlm \
refuses the export, except with \
--allow-dirty. Here rlm refuses to resume a run that was transferred, except with: rlm resume RUN --force.

Examples:
  rlm checkpoints export RUN                   # writes rlm-RUN.tar.zst
  rlm checkpoints export RUN -o - | ssh host rlm -C project checkpoints import -
  rlm checkpoints export RUN --copy -o backup.tar.zst   # the run stays here"
    )]
    Export(ExportArgs),
    /// Import a run that was exported elsewhere, with its files
    #[command(
        after_help = "Import into an empty directory (apart from the file), which becomes a repository, or into a clone. In a clone the run uses \
the working tree if that is \
at the commit of the run, otherwise its own worktree below .rlm/worktrees. The import overwrites nothing and starts nothing: \
it prints every command that a resume will run. Read them first.

Examples:
  rlm checkpoints import rlm-RUN.tar.zst && rlm resume RUN
  rlm -C ../clone checkpoints import /tmp/rlm-RUN.tar.zst
  rlm checkpoints import run.tar.zst --json | jq -r '.programs[].command'"
    )]
    Import(ImportArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExportArgs {
    /// The run; it must not be live
    pub(crate) run: String,
    /// The file to write, which must not exist; - is standard output [default: rlm-RUN.tar.zst]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Export a copy: the run stays here, and the copy gets another run id
    #[arg(long)]
    pub(crate) copy: bool,
    /// Include uncommitted changes, except ignored files; they stay uncommitted
    #[arg(long)]
    pub(crate) allow_dirty: bool,
    /// Leave out the git history, because the other machine has the repository
    #[arg(long)]
    pub(crate) state_only: bool,
    /// Export a run again that was already transferred. Both archives are the same transfer: only one of the two continued runs can return here
    #[arg(long)]
    pub(crate) force: bool,
    /// Allow this inside the agent of another run
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
    /// The run id of an imported copy [default: made from the time]
    #[arg(long, value_name = "ID")]
    pub(crate) run_id: Option<RunId>,
    /// Allow this inside the agent of another run
    #[arg(long)]
    pub(crate) nested: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ForkArgs {
    /// The run to continue from; it may be live
    pub(crate) run: String,
    /// Continue after this iteration
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) at: u32,
    /// The phase of that iteration [default: the current phase, if it has that iteration]
    #[arg(long, value_name = "NAME")]
    pub(crate) phase: Option<String>,
    /// The id of the new run, also for its worktree and branch [default: made from the time]
    #[arg(long, value_name = "ID")]
    pub(crate) run_id: Option<RunId>,
    /// Allow this inside the agent of another run
    #[arg(long)]
    pub(crate) nested: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ShowArgs {
    /// The run [default: the one that was active last]
    pub(crate) run: Option<String>,
    /// The state after this iteration, or during it; in the latest phase that has an iteration N
    #[arg(long, value_name = "N", conflicts_with = "save")]
    pub(crate) at: Option<u32>,
    /// The state of this save, by its number in `rlm checkpoints list`
    #[arg(long, value_name = "SAVE")]
    pub(crate) save: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
