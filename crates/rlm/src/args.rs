//! The command line: all commands and what several of them share; a command with more to say has a file below.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Args as ClapArgs, Parser, Subcommand};
use loop_state::Autonomy;
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
mod values;

use crate::agents::AgentKind;
use crate::occasion::Occasion;
use crate::preset::Preset;
use rlm_text::duration;
use rlm_text::money;

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
pub(crate) use values::{LeftoversArg, PermissionsArg, SessionArg};

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
    pub(crate) what: LoopArgs,
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
    pub(crate) what: LoopArgs,
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

/// What `run` says and `resume` may say anew. Nothing has its default here: what is not given comes from a lower layer, or from the saved run.
/// It is written out as the keys of `rlm.toml`.
#[derive(Debug, Default, PartialEq, Eq, ClapArgs, serde::Serialize)]
#[command(mut_args(switch))]
#[serde(rename_all = "kebab-case")]
pub(crate) struct LoopArgs {
    /// The prompt
    #[arg(
        short,
        long,
        value_name = "TEXT",
        conflicts_with = "prompt_file",
        help_heading = "Prompt"
    )]
    pub(crate) prompt: Option<String>,
    /// The file with the prompt, read anew for each iteration; - is standard input [default: PROMPT.md]
    #[arg(short = 'P', long, value_name = "FILE", help_heading = "Prompt")]
    #[serde(serialize_with = "as_text")]
    pub(crate) prompt_file: Option<PathBuf>,
    /// The model, by the agent's own names for it [default: the agent's choice]
    #[arg(long, value_name = "NAME", help_heading = "Agent")]
    pub(crate) model: Option<String>,
    /// Done when the agent says so: when it ends its last message with <promise>TEXT</promise>. With --until, that is
    /// asked only then; without, the agent's word is all there is
    #[arg(long, value_name = "TEXT", help_heading = "Ends")]
    pub(crate) completion_promise: Option<String>,
    /// Done when this command exits with 0; asked after each iteration
    #[arg(long, value_name = "CMD", help_heading = "Ends")]
    pub(crate) until: Option<String>,
    /// A command that must pass before an iteration counts (repeatable); its output goes into the next prompt
    #[arg(long, value_name = "CMD", help_heading = "Ends")]
    #[serde(rename = "gates", skip_serializing_if = "Vec::is_empty")]
    pub(crate) gate: Vec<String>,
    /// The number of iterations: the plan, or with another end the limit [default: 100]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Limits")]
    pub(crate) max_iterations: Option<u32>,
    /// How long the run may be active, all its processes together [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration::parse, help_heading = "Limits")]
    #[serde(serialize_with = "duration::as_text")]
    pub(crate) max_duration: Option<Duration>,
    /// How long one turn of the agent may take [default: 1h, that is 3600 s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse, help_heading = "Limits")]
    #[serde(serialize_with = "duration::as_text")]
    pub(crate) iteration_timeout: Option<Duration>,
    /// How long the agent may be silent; a running tool is no silence [default: 15m, off for a command]
    #[arg(long, value_name = "TIME", value_parser = duration::parse, help_heading = "Limits")]
    #[serde(serialize_with = "duration::as_text")]
    pub(crate) idle_timeout: Option<Duration>,
    /// How long a gate or the check may take [default: 15m, that is 900 s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse, help_heading = "Limits")]
    #[serde(serialize_with = "duration::as_text")]
    pub(crate) check_timeout: Option<Duration>,
    /// How long nothing may come of what the agent has in the background when its turn is over, before it is ended and
    /// judged; 0 waits for nothing [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse, help_heading = "Limits")]
    #[serde(serialize_with = "duration::as_text")]
    pub(crate) background_wait: Option<Duration>,
    /// How many failures in a row end the run, 0 for no limit [default: 3]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) max_failures: Option<u32>,
    /// What the run may cost by the agent's own reckoning, in US dollars; the turn that uses it up is ended
    /// [default: no limit]
    #[arg(long, value_name = "USD", value_parser = money::parse, help_heading = "Limits")]
    #[serde(serialize_with = "money::as_text")]
    pub(crate) max_cost: Option<u64>,
    /// How many tokens the run may use, those read and those written, as 250k or 2M [default: no limit]
    #[arg(long, value_name = "N", value_parser = money::tokens, help_heading = "Limits")]
    pub(crate) max_tokens: Option<u64>,
    /// How long to wait for rate limits and outages, all waits in a row together; 0 ends the run instead [default: 6h]
    #[arg(long, value_name = "TIME", value_parser = duration::parse, help_heading = "Limits")]
    #[serde(serialize_with = "duration::as_text")]
    pub(crate) wait_on_limit: Option<Duration>,
    /// How long a stop may take, all of it [default: 8s, or RLM_SHUTDOWN_TIMEOUT]
    #[arg(long, value_name = "TIME", value_parser = duration::parse, help_heading = "Limits")]
    #[serde(serialize_with = "duration::as_text")]
    pub(crate) shutdown_timeout: Option<Duration>,
    /// How long a press of Ctrl-C that nobody answered stays counted: another one within it stops the run [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse, help_heading = "Limits")]
    #[serde(serialize_with = "duration::as_text")]
    pub(crate) cooldown: Option<Duration>,
    /// The pause between iterations [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse, help_heading = "Limits")]
    #[serde(serialize_with = "duration::as_text")]
    pub(crate) sleep: Option<Duration>,
    /// What the agent may do: ask = what its own settings don't allow, you are asked; edits = it edits files, the rest
    /// is denied; all = everything; deny = nothing more than its own settings allow [default: edits, or RLM_PERMISSIONS]
    #[arg(
        long,
        value_name = "ask|edits|all|deny",
        value_enum,
        hide_possible_values = true,
        help_heading = "Agent"
    )]
    pub(crate) permissions: Option<PermissionsArg>,
    /// The agent's conversation: a fresh one for each iteration, or one that goes on [default: fresh]
    #[arg(
        long,
        value_name = "fresh|continue",
        value_enum,
        hide_possible_values = true,
        help_heading = "Agent"
    )]
    pub(crate) session: Option<SessionArg>,
    /// The agent's program [default: found on PATH]
    #[arg(long, value_name = "PATH", help_heading = "Agent")]
    #[serde(serialize_with = "as_text")]
    pub(crate) agent_bin: Option<PathBuf>,
    /// What becomes of processes that the agent leaves running: ended before the next attempt, or kept to the end
    /// of the run, those of the last 8 attempts at most [default: end]
    #[arg(
        long,
        value_name = "end|keep",
        value_enum,
        hide_possible_values = true,
        help_heading = "Agent"
    )]
    pub(crate) leftovers: Option<LeftoversArg>,
    /// Where the run waits for your word: checkpoint = between two phases, batch:N = after each N iterations, full =
    /// nowhere. Without a terminal it never does [default: checkpoint with several phases, else full]
    #[arg(long, value_name = "checkpoint|batch:N|full", help_heading = "Run")]
    pub(crate) autonomy: Option<Autonomy>,
    /// Commit what each iteration changed when it is over, also of one that failed, which its commit says: all that git
    /// does not ignore, what you write meanwhile included; your hooks run. Nothing may be uncommitted when the run begins
    #[arg(long, help_heading = "Git")]
    pub(crate) commit: Option<bool>,
    /// Run this by sh -c when something happens that --notify-on names: RLM_EVENT, RLM_TEXT and others say what, standard input
    /// says it in JSON. It has 10 s, and holds nothing up
    #[arg(long, value_name = "CMD", help_heading = "Watching")]
    pub(crate) notify: Option<String>,
    /// What the command is told of: started, resumed, iteration, failure, phase, limit, retry, paused, review, question,
    /// ended [default: review,question,limit,ended]
    #[arg(
        long,
        value_name = "EVENT,..",
        value_enum,
        value_delimiter = ',',
        hide_possible_values = true,
        help_heading = "Watching"
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) notify_on: Vec<Occasion>,
    /// Write this file anew every 10 s, and whenever the run comes further, as long as its loop turns
    #[arg(long, value_name = "FILE", help_heading = "Watching")]
    #[serde(serialize_with = "as_text")]
    pub(crate) heartbeat: Option<PathBuf>,
    /// Ring the terminal's bell when you are needed and when the run is over, if it is in the foreground there
    #[arg(long, help_heading = "Watching")]
    pub(crate) bell: Option<bool>,
}

/// The options that are on when nothing is said behind them, and that `--NAME=false` turns off again, such as for a resume.
const SWITCHES: [&str; 2] = ["commit", "bell"];

fn switch(option: Arg) -> Arg {
    if !SWITCHES.contains(&option.get_id().as_str()) {
        return option;
    }
    option
        .value_name("true|false")
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
        .hide_possible_values(true)
}

/// A path as people see it: one that is no text is taken from the arguments themselves.
#[expect(clippy::ref_option, reason = "serde hands it over so")]
fn as_text<S: serde::Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => to.serialize_some(&path.to_string_lossy()),
        None => to.serialize_none(),
    }
}
