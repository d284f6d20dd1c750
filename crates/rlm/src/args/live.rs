//! The arguments of the commands that control a live run from another terminal.

use std::time::Duration;

use clap::Args as ClapArgs;
use loop_state::{PauseAfter, StopTiming};
use rlm_text::duration;

use crate::config::{limit_names, one_of};

/// The run, and the time to wait for its response.
#[derive(Debug, ClapArgs)]
pub(crate) struct LiveArgs {
    /// The run; you can omit it if only one run is live
    pub(crate) run: Option<String>,
    #[command(flatten)]
    pub(crate) wait_args: WaitArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct WaitArgs {
    /// How long to wait until the request takes effect; its progress is printed in any case [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,
    /// Print one JSON object for each step of the request
    #[arg(long)]
    pub(crate) json: bool,
}

const LIVE: &str = "\
Exit codes: 0 accepted, 1 refused or no response, 10 no such run, or it is not live.";

#[derive(Debug, ClapArgs)]
#[command(after_help = format!("\
This ends the turn and keeps the agent's session. Then the run waits: `rlm steer` sends a message and continues the run, `rlm \
resume` only continues it. A command agent can't be interrupted in its turn: use `rlm stop`.

Examples:
  rlm interrupt                        # the only live run here
  rlm -C ../other interrupt RUN        # a run of another project

{LIVE}"))]
pub(crate) struct InterruptArgs {
    #[command(flatten)]
    pub(crate) target: LiveArgs,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = format!("\
The run completes its iteration, with the required checks and the check; then it waits, and its process stays alive. `rlm status` shows \
the reason. `rlm resume` continues the run, and also cancels a requested pause. Ctrl-C in its terminal and `rlm stop` act at once.

Examples:
  rlm pause --reason 'look at the migration first'
  rlm pause --after tool               # doesn't wait for the whole turn
  rlm pause RUN --wait 2h              # returns once the run is paused
  rlm resume RUN                       # continues

{LIVE}"))]
pub(crate) struct PauseArgs {
    /// The reason, which `rlm status` shows
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// When to pause: once no tool of the agent runs, or once the iteration is complete [default: iteration]
    #[arg(
        long,
        value_parser = one_of::<PauseAfter>(),
        hide_possible_values = true,
        value_name = "tool|iteration"
    )]
    pub(crate) after: Option<PauseAfter>,
    #[command(flatten)]
    pub(crate) target: LiveArgs,
}

#[derive(Debug, ClapArgs)]
#[command(override_usage = "rlm steer [OPTIONS] [RUN] <TEXT>...", after_help = format!("\
A message is on disk once it is `recorded`, and survives a crash. If the agent can take it in the current turn, it gets it there; \
otherwise after the turn or in the next prompt. A run that was interrupted continues with the message.

Examples:
  rlm steer 'use tabs, not spaces'     # one argument: the only live run here
  rlm steer RUN use tabs, not spaces   # more arguments: the first is the run
  rlm steer RUN --now 'stop that, and write the test first'
  git diff | rlm steer RUN -           # the message is standard input

{LIVE}"))]
pub(crate) struct SteerArgs {
    /// The message; - reads standard input. If there are several arguments, the first one is the run; a single argument
    /// goes to the only live run
    #[arg(value_name = "TEXT", required = true)]
    pub(crate) words: Vec<String>,
    /// Interrupt the turn for the message, and continue in the same session
    #[arg(long)]
    pub(crate) now: bool,
    #[command(flatten)]
    pub(crate) wait_args: WaitArgs,
}

#[derive(Debug, ClapArgs)]
#[command(override_usage = "rlm set [OPTIONS] [RUN] <KEY=VALUE>...", after_help = format!("\
A limit is on disk once it is `recorded`, and a resume keeps it. It takes effect at once: work beyond the new limit ends. `none` removes a \
limit. A key of a phase changes only the current phase; for other phases edit rlm.toml, which the run reads again after each \
turn. A file can only lower the limits of the run.

Keys: {}

Examples:
  rlm set max-iterations=200           # the only live run here
  rlm set RUN sleep=5m max-failures=10
  rlm set RUN max-duration=none

{LIVE}", limit_names().join(", ")))]
pub(crate) struct SetArgs {
    /// The keys and their values. A first argument without `=` is the run; you can omit it if only one run is live
    #[arg(value_name = "KEY=VALUE", required = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) wait_args: WaitArgs,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
This saves the state, ends the agent, and returns once the run's process and every process that it started are gone. You can resume the run.

If the process of the run doesn't respond, the command names it and the next command; --force is that command. It first requests a stop, \
sends SIGTERM whatever the response is, sends SIGKILL after the waiting time, and then ends every process with the run's marker. This takes \
at most the waiting time and 10 s. The process is the one that holds the lock on the run's working tree (/proc/locks); if rlm can't prove \
that, it signals no process. Unsaved work of the agent is lost; saves that rlm confirmed are not.

Examples:
  rlm stop                             # the only live run here, now
  rlm stop RUN --after iteration       # lets the iteration finish first
  rlm stop RUN --now                   # allows one second
  rlm stop RUN --force --wait 5

Exit codes: 0 stopped, 1 not stopped, 8 a process that rlm started is still alive, 10 no live run.")]
pub(crate) struct StopArgs {
    /// The run; you can omit it if only one run is live
    pub(crate) run: Option<String>,
    /// When to stop: now, or when the iteration is complete [default: now]
    #[arg(
        long,
        value_parser = one_of::<StopTiming>(),
        hide_possible_values = true,
        value_name = "iteration",
        conflicts_with = "force"
    )]
    pub(crate) after: Option<StopTiming>,
    /// Abort: stop within one second
    #[arg(long, conflicts_with_all = ["after", "force"])]
    pub(crate) now: bool,
    /// Also end a run's process that doesn't respond
    #[arg(long)]
    pub(crate) force: bool,
    /// How long to wait for the end [default: the run's stop budget and 5 s; with --force 10s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,
    /// Print one JSON object for each step of the request
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Shows the live runs of this project (or of -C DIR): they work, or wait for a person. With --all it shows the live \
runs of all your projects; the commands accept their RUN from any directory. `rlm status` shows all runs of a project.

Examples:
  rlm ps
  rlm ps --all
  rlm ps --json | jq -r .run")]
pub(crate) struct PsArgs {
    /// Show the live runs of all your projects
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON object per run
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Prints what happened in the run so far, then shows it live, with the keys and the menu of its own terminal. Ctrl-C opens the \
menu; `d` detaches. To detach, you can also close the terminal; the run continues. Slow readers miss output, which the transcripts have.

Examples:
  rlm attach                           # the only live run here
  rlm attach RUN -q                    # from any directory, less output
  rlm attach RUN --json | jq -r .event

Exit codes: 0 detached in the menu, 130 detached by Ctrl-C without a menu, the code of\nthe run if it ended, 10 no such run, or it is not live.")]
pub(crate) struct AttachArgs {
    /// The run; you can omit it if only one run is live
    pub(crate) run: Option<String>,
    /// Print NDJSON events instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Show only iterations, failures, questions to you, and the end
    #[arg(short, long, conflicts_with_all = ["json", "verbose"])]
    pub(crate) quiet: bool,
    /// Show the results of tools and the output of required checks in full
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) verbose: bool,
    /// Never ask: no menu, no questions; Ctrl-C detaches, and this command exits by that signal
    #[arg(long)]
    pub(crate) no_input: bool,
}
