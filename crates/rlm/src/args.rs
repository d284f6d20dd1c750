//! The command line: all commands and what several of them share; a command with more to say has a file below.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand};
use rlm_store::RunId;

mod checkpoints;
mod clean;
mod color;
mod config;
mod doctor;
mod help;
mod live;
mod many;
mod report;
mod shell;
mod since;
#[cfg(test)]
mod tests;

use crate::agents::AgentKind;
use crate::config::Config;
use crate::preset::Preset;
use rlm_text::duration;

pub(crate) use checkpoints::{
    CheckpointsArgs, CheckpointsCommand, ExportArgs, ForkArgs, ImportArgs, ShowArgs,
};
pub(crate) use clean::CleanArgs;
pub(crate) use color::{ColorArg, choose_color};
pub(crate) use config::{ConfigArgs, ConfigCommand, ShowConfigArgs};
pub(crate) use doctor::DoctorArgs;
pub(crate) use live::{
    AttachArgs, InterruptArgs, PauseAfterArg, PauseArgs, PsArgs, SetArgs, SteerArgs, StopAfterArg,
    StopArgs,
};
pub(crate) use many::ManyArgs;
pub(crate) use report::ReportArgs;
pub(crate) use shell::{CompletionsArgs, ManArgs};
pub(crate) use since::Since;

/// What `--version` says. A packed program is told its commit and day when it is built; another knows its version alone.
const VERSION: &str = match option_env!("RLM_VERSION") {
    Some(stamped) => stamped,
    None => env!("CARGO_PKG_VERSION"),
};

/// Runs a coding agent in a loop that can be interrupted, checkpointed and resumed, and that loses nothing.
#[derive(Debug, Parser)]
#[command(name = "rlm", version = VERSION, after_help = help::after(), max_term_width = 100)]
pub(crate) struct Args {
    /// Work in this directory
    #[arg(short = 'C', value_name = "DIR", default_value = ".", global = true)]
    pub(crate) directory: PathBuf,
    /// Whether to use colours; auto: on a terminal, if NO_COLOR and CLICOLOR_FORCE don't say otherwise [default: auto]
    #[arg(
        long,
        value_name = "auto|always|never",
        value_enum,
        hide_possible_values = true,
        global = true
    )]
    pub(crate) color: Option<ColorArg>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a loop in the foreground
    Run(Box<RunArgs>),
    /// Continue a stopped or crashed run where it was, or wake a paused one
    Resume(Box<ResumeArgs>),
    /// Look at a live run as if it were in this terminal
    Attach(AttachArgs),
    /// List the runs that are live
    Ps(PsArgs),
    /// Show where runs stand
    #[command(after_help = help::STATUS)]
    Status(ManyArgs),
    /// Print what the agent said
    #[command(after_help = help::LOGS)]
    Logs(LogsArgs),
    /// Write what happened in a run as one page of HTML
    Report(ReportArgs),
    /// Have a live run wait when its iteration is complete
    Pause(PauseArgs),
    /// End the turn of a live run's agent and keep its session
    Interrupt(InterruptArgs),
    /// Say something to the agent of a live run
    Steer(SteerArgs),
    /// Change a limit of a live run
    Set(SetArgs),
    /// Stop a live run, and wait until nothing of it is left
    Stop(StopArgs),
    /// List, show and verify what is saved of runs; fork them, and move them to other machines
    Checkpoints(CheckpointsArgs),
    /// Remove old runs
    Clean(CleanArgs),
    /// Write rlm.toml and PROMPT.md if they are absent
    #[command(after_help = help::INIT)]
    Init(InitArgs),
    /// Show the settings that count and where they come from, or their schema
    Config(ConfigArgs),
    /// See whether the agents and this machine work
    Doctor(DoctorArgs),
    /// See it work in a small repository of its own: no account, no network
    #[command(after_help = help::DEMO)]
    Demo(DemoArgs),
    /// Print what makes a shell complete the words of this command line
    Completions(CompletionsArgs),
    /// Print the manual
    Man(ManArgs),
    /// Be the demo's agent
    #[command(name = DEMO_AGENT, hide = true)]
    DemoAgent(DemoAgentArgs),
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "A run needs an end: --until, --completion-promise, an explicit -n, or --once.

What is not said here comes from the environment (RLM_AGENT, RLM_PERMISSIONS, RLM_SHUTDOWN_TIMEOUT), then from rlm.toml, then \
from ~/.config/rlm/config.toml: rlm config show --explain. No other variable is a setting. \
While the run goes on, its limits follow those files between iterations; what may be used up is only lowered by them.

Examples:
  rlm run --until 'cargo test'
  rlm run --until 'cargo test' --agent claude --permissions ask --model opus
  rlm run --until 'cargo test' --dry-run      what would be done, and the prompt
  rlm run -n 20 --completion-promise DONE --session continue
  rlm run --until 'cargo test' --commit --worktree   in a tree of its own
  rlm run --until 'cargo test' --notify 'notify-send \"$RLM_TEXT\"'
  rlm run --until 'cargo test' --resume-or-start --run-id job    by a scheduler
  rlm run -n 3 --sleep 0 -P prompt.md --gate 'cargo fmt --check' -- my-agent"
)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) what: Config,
    #[command(flatten)]
    pub(crate) show: Show,
    /// The agent [default: RLM_AGENT, or a command behind --, else the one that is installed]
    #[arg(long, value_enum, display_order = 0, help_heading = "Agent")]
    pub(crate) agent: Option<AgentKind>,
    /// Work in a tree of its own below .rlm/worktrees, on a new branch rlm/NAME from the present commit [default: NAME is
    /// the run's]
    #[arg(long, value_name = "NAME", num_args = 0..=1, help_heading = "Git")]
    pub(crate) worktree: Option<Option<RunId>>,
    /// The name of the run, for those who come back to it [default: made from the time]
    #[arg(long, value_name = "ID", help_heading = "Run")]
    pub(crate) run_id: Option<RunId>,
    /// Continue the run that can be continued, if no person stopped it; else start a new one. This line and the present
    /// rlm.toml win over what was saved; a saved command that neither names is refused. With --run-id one that is over
    /// only says how it ended, and exits with its code. One that was moved away is refused
    #[arg(long, help_heading = "Run")]
    pub(crate) resume_or_start: bool,
    /// Run one iteration
    #[arg(long, conflicts_with = "max_iterations", help_heading = "Ends")]
    pub(crate) once: bool,
    /// Show the settings and the prompt that the run would have; make and start nothing
    #[arg(long, conflicts_with_all = ["quiet", "resume_or_start"], help_heading = "Run")]
    pub(crate) dry_run: bool,
    /// Allow this run inside another run's agent
    #[arg(long, help_heading = "Run")]
    pub(crate) nested: bool,
    /// Without --agent the agent itself: a program and its arguments. It gets the prompt on standard input, or where
    /// its arguments say {prompt_file} (a private file) or {prompt} (visible to other users in the process list).
    /// With an --agent that has a driver, more arguments for it
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) agent_command: Vec<OsString>,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Options that are given win over the saved ones.

Examples:
  rlm resume               the only run that can be resumed
  rlm resume RUN -n 200    with a higher limit
  rlm resume RUN --from 3  from iteration 3 on; what came since is discarded
  rlm resume RUN --feedback 'the schema is in db/schema.sql'
  rlm resume RUN --dry-run   what would be done, and the next prompt
  rlm resume RUN --agent codex --model gpt-5   with another agent

A run that is paused in another terminal goes on there.")]
pub(crate) struct ResumeArgs {
    /// The run; may be left out when only one can be resumed
    pub(crate) run: Option<String>,
    #[command(flatten)]
    pub(crate) what: Config,
    #[command(flatten)]
    pub(crate) show: Show,
    /// Go on with another agent: the files and what is said in the prompt are all that it knows of the work so far
    #[arg(long, value_enum, display_order = 0, help_heading = "Agent")]
    pub(crate) agent: Option<AgentKind>,
    /// Go on here although the run was moved elsewhere: there it must not go on then
    #[arg(long, help_heading = "Run")]
    pub(crate) force: bool,
    /// Go back to this iteration; what was recorded from there on is discarded. Where a damage took the record of
    /// iterations that were complete, N says which is made next: without it you are asked, or refused with exit code 2
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) from: Option<u32>,
    /// Say this to the agent with the next prompt; - is standard input
    #[arg(long, value_name = "TEXT", help_heading = "Prompt")]
    pub(crate) feedback: Option<String>,
    /// Show where the run would go on, with which settings and which prompt; change and start nothing
    #[arg(long, conflicts_with_all = ["quiet", "detach"], help_heading = "Run")]
    pub(crate) dry_run: bool,
    /// Allow this run inside another run's agent
    #[arg(long, help_heading = "Run")]
    pub(crate) nested: bool,
    /// Another agent command than the saved one, or other arguments for the agent
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) agent_command: Vec<OsString>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LogsArgs {
    /// The run; when left out, the one of the project that was active last
    pub(crate) run: Option<String>,
    /// Go on with what comes, until no process has the run any more
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only what came since: 10m ago, or since 2026-01-31T09:30:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<Since>,
    /// Only this iteration
    #[arg(long, value_name = "N")]
    pub(crate) iteration: Option<u32>,
    /// Put the time, iteration and attempt before each line, instead of headings: for grep
    #[arg(long, conflicts_with = "json")]
    pub(crate) prefix: bool,
    /// Print the records as they are stored, one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct InitArgs {
    /// Begin with a pipeline: phases with prompts of their own, and your word between them
    #[arg(long, value_name = "NAME", value_enum)]
    pub(crate) preset: Option<Preset>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DemoArgs {
    /// Where to make the repository; an empty directory, or none yet [default: a new temporary one]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// How fast the agent writes: the time between two words
    #[arg(long, value_name = "TIME", value_parser = duration::parse, hide = true)]
    pub(crate) pace: Option<Duration>,
}

/// The hidden command under which this program is the demo's agent.
pub(crate) const DEMO_AGENT: &str = "__demo-agent";

#[derive(Debug, ClapArgs)]
pub(crate) struct DemoAgentArgs {
    #[arg(long, value_parser = duration::parse, default_value = "0")]
    pub(crate) pace: Duration,
    /// The flags of the agent that it stands for
    #[arg(last = true)]
    pub(crate) flags: Vec<OsString>,
}

#[derive(Debug, Default, ClapArgs)]
pub(crate) struct Show {
    /// Print NDJSON events instead of text
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
    /// Show only the iterations, what goes wrong, what waits for you, and the end
    #[arg(short, long, conflicts_with_all = ["json", "verbose"], help_heading = "Output")]
    pub(crate) quiet: bool,
    /// Show the results of tools and the output of gates in full
    #[arg(short, long, conflicts_with = "json", help_heading = "Output")]
    pub(crate) verbose: bool,
    /// Never ask anything: no menu, no prompt; Ctrl-C saves and stops
    #[arg(long, help_heading = "Output")]
    pub(crate) no_input: bool,
    /// Go on in the background: come back when the run is at work, and leave it to `rlm attach`, `logs -f` and `stop`
    #[arg(long, help_heading = "Run")]
    pub(crate) detach: bool,
    /// Be the process in the background
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
}
