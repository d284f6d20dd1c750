use clap::{Args as ClapArgs, Subcommand};

use super::ManyArgs;

#[derive(Debug, ClapArgs)]
#[command(after_help = CHECKPOINT_EXAMPLES)]
pub(crate) struct CheckpointsArgs {
    #[command(subcommand)]
    pub(crate) what: CheckpointsCommand,
}

const CHECKPOINT_EXAMPLES: &str = "\
Nothing here changes a file, and all of it works while a run is at work.

Examples:
  rlm checkpoints list                 what is saved of all runs of this project
  rlm checkpoints verify && tar czf state.tgz .rlm
  rlm checkpoints show RUN --at 3      as it was when iteration 3 was over
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
