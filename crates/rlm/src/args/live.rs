//! The commands that reach a run in another terminal.

use std::time::Duration;

use clap::Args as ClapArgs;
use loop_state::{PauseAfter, When};
use rlm_text::duration;

use crate::config::{limit_names, one_of};

/// Which run is meant, and how long its answer is waited for.
#[derive(Debug, ClapArgs)]
pub(crate) struct LiveArgs {
    /// The run; may be left out when only one is live
    pub(crate) run: Option<String>,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct HowArgs {
    /// How long to wait until it is in effect; how far it came is said in any case [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,
    /// Print one JSON object for each step of what becomes of it
    #[arg(long)]
    pub(crate) json: bool,
}

const LIVE: &str = "\
Exit codes: 0 taken, 1 refused or not answered, 10 nothing reached: no such run, or no process has it.";

#[derive(Debug, ClapArgs)]
#[command(after_help = format!("\
The turn ends, the agent's session stays. The run then waits for a word: `rlm steer` says something and goes on, `rlm \
resume` just goes on. An agent that is a plain command can't be interrupted within its turn: use `rlm stop`.

Examples:
  rlm interrupt                        the only run that is live here
  rlm -C ../other interrupt RUN        of another project; no other run notices

{LIVE}"))]
pub(crate) struct InterruptArgs {
    #[command(flatten)]
    pub(crate) live: LiveArgs,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = format!("\
The iteration comes to its end, with gates and check; then the run waits, its process stays. `rlm status` shows why it \
waits, `rlm resume` goes on and also takes a pause back that has not come yet, Ctrl-C in its terminal and `rlm stop` act \
at once.

Examples:
  rlm pause --reason 'look at the migration first'
  rlm pause --after tool               don't wait for the whole turn
  rlm pause RUN --wait 2h              come back when it is so
  rlm resume RUN                       go on

{LIVE}"))]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    pub(crate) live: LiveArgs,
    /// Why, for whoever finds it waiting
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// At which boundary: no tool of the agent's runs any more, or the iteration is complete [default: iteration]
    #[arg(
        long,
        value_parser = one_of::<PauseAfter>(),
        hide_possible_values = true,
        value_name = "tool|iteration"
    )]
    pub(crate) after: Option<PauseAfter>,
}

#[derive(Debug, ClapArgs)]
#[command(override_usage = "rlm steer [OPTIONS] [RUN] <TEXT>...", after_help = format!("\
What is said is on disk when it is `recorded`, and survives a crash. An agent that listens gets it in the turn that runs, \
one that can be talked to again right after it, any other in its next prompt. An agent that was interrupted goes on with it.

Examples:
  rlm steer 'use tabs, not spaces'     one argument: the only live run here
  rlm steer RUN use tabs, not spaces   more: the first one is the run
  rlm steer RUN --now 'stop that, and write the test first'
  git diff | rlm steer RUN -           what stands on standard input

{LIVE}"))]
pub(crate) struct SteerArgs {
    /// What to say; - is standard input. Of several arguments the first one is the run; alone it is for the only run
    /// that is live
    #[arg(value_name = "TEXT", required = true)]
    pub(crate) words: Vec<String>,
    /// Interrupt the turn for it, and go on with it in the same session
    #[arg(long)]
    pub(crate) now: bool,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

#[derive(Debug, ClapArgs)]
#[command(override_usage = "rlm set [OPTIONS] [RUN] <KEY=VALUE>...", after_help = format!("\
What is set is on disk when it is `recorded`, and a resume has it too; what the new limit forbids ends at once. `none` takes a \
limit away. What belongs to a phase is set for the present one, which is \
named; for others there is rlm.toml, which is read again after each turn and lowers what bounds the run, but never raises it.

Keys: {}

Examples:
  rlm set max-iterations=200           the only run that is live here
  rlm set RUN sleep=5m max-failures=10
  rlm set RUN max-duration=none

{LIVE}", limit_names().join(", ")))]
pub(crate) struct SetArgs {
    /// What to set, and to what. A first argument without `=` is the run, which may be left out when only one is live
    #[arg(value_name = "KEY=VALUE", required = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Saves, ends what runs, and comes back when the run's process and all that it had started are gone. The run can be resumed.

A run's process that does not answer is named, with what to do about it; --force does that. It asks first; whatever the \
answer is, it sends SIGTERM, after the waiting time SIGKILL, and then ends everything that carries the run's mark. The \
whole command takes the waiting time and 10 s more at most. The process is the one that holds the lock on the run's working \
tree (/proc/locks); where that can't be proven, no process gets a signal. What an agent had not saved then is lost; what \
rlm acknowledged is not.

Examples:
  rlm stop                             the only run that is live here, now
  rlm stop RUN --after iteration       let it finish what it does
  rlm stop RUN --now                   what runs has a second to end
  rlm stop RUN --force --wait 5

Exit codes: 0 stopped, 1 not stopped, 8 a process that rlm started is still alive, 10 no live run.")]
pub(crate) struct StopArgs {
    /// The run; may be left out when only one is live
    pub(crate) run: Option<String>,
    /// When: now, or when the iteration is complete [default: now]
    #[arg(
        long,
        value_parser = one_of::<When>(),
        hide_possible_values = true,
        value_name = "iteration",
        conflicts_with = "force"
    )]
    pub(crate) after: Option<When>,
    /// Have no patience with what runs: it has a second to end
    #[arg(long, conflicts_with_all = ["after", "force"])]
    pub(crate) now: bool,
    /// End a run's process that does not stop
    #[arg(long)]
    pub(crate) force: bool,
    /// How long to wait for the end [default: the run's own time to stop and 5 s; with --force 10s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,
    /// Print one JSON object for each step of what becomes of it
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Shows the runs of this project (-C names another one) that a process has: at work, or waiting for a person; with --all \
those of all your projects, which a RUN's name reaches from anywhere. `rlm status` shows all runs of a project.

Examples:
  rlm ps
  rlm ps --all
  rlm ps --json | jq -r .run")]
pub(crate) struct PsArgs {
    /// Show those of all your projects
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON object a run
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Shows what happened in the run, then what it tells, with the keys and the menu that its own terminal has; Ctrl-C opens the \
menu, in which `d` detaches. What happened before is printed above: scroll back as in any other output. Leaving, also by closing the terminal, leaves the run alone. Who is too slow misses output, \
which the transcripts have.

Examples:
  rlm attach                           the only run that is live here
  rlm attach RUN -q                    from any directory; only what matters
  rlm attach RUN --json | jq -r .event

Exit codes: 0 detached in the menu, 130 by Ctrl-C where there is none, that of\nthe run when it ended, 10 nothing reached.")]
pub(crate) struct AttachArgs {
    /// The run; may be left out when only one is live
    pub(crate) run: Option<String>,
    /// Print NDJSON events instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Show only the iterations, what goes wrong, what waits for you, and the end
    #[arg(short, long, conflicts_with_all = ["json", "verbose"])]
    pub(crate) quiet: bool,
    /// Show the results of tools and the output of gates in full
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) verbose: bool,
    /// Never ask anything: no menu, no prompt; Ctrl-C detaches, and is what this dies of
    #[arg(long)]
    pub(crate) no_input: bool,
}
