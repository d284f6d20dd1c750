//! The command line: all commands, and the options that several of them share. `checkpoints` has the commands that fork and transfer saved runs,
//! `live` those that control live runs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anstream::ColorChoice;
use clap::builder::Styles;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, Args as ClapArgs, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use loop_state::Timestamp;
use rlm_store::RunId;
use rlm_text::duration;

use crate::agents::AgentKind;
use crate::config::Config;
use crate::exit::Code;
use crate::preset::Preset;

mod checkpoints;
mod fleet;
mod live;
mod runs;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use checkpoints::{
    CheckpointsArgs, CheckpointsCommand, ExportArgs, ForkArgs, ImportArgs, ShowArgs,
};
pub(crate) use fleet::{FLEET_WORK, FleetArgs};
#[cfg(feature = "fleet")]
pub(crate) use fleet::{
    FleetBudgetArgs, FleetBudgetCommand, FleetCommand, FleetDrainArgs, FleetExportArgs,
    FleetFetchArgs, FleetImportArgs, FleetInitArgs, FleetPsArgs, FleetRemoveArgs, FleetResumeArgs,
    FleetRunArgs, FleetServerArgs, FleetWaitArgs, FleetWorkerArgs,
};
pub(crate) use live::{AttachArgs, InterruptArgs, PauseArgs, PsArgs, SetArgs, SteerArgs, StopArgs};
pub(crate) use runs::RunsArgs;
pub(crate) use view::ViewArgs;
#[cfg(feature = "view")]
pub(crate) use view::ViewCommand;

/// The text of `--version`. A release build sets `RLM_VERSION`, with the commit and the date; any other build has only the version.
pub(crate) const VERSION: &str = match option_env!("RLM_VERSION") {
    Some(stamped) => stamped,
    None => env!("CARGO_PKG_VERSION"),
};

/// The heading of the options that every command has.
const GLOBAL: &str = "Global options";

/// The groups of commands in the help of `rlm`.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Runs",
        &["init", "run", "resume", "status", "logs", "report"],
    ),
    (
        "Live runs",
        &[
            "ps",
            "view",
            "attach",
            "pause",
            "interrupt",
            "steer",
            "set",
            "stop",
        ],
    ),
    (
        "Results and saved states",
        &["merge", "drop", "checkpoints", "clean"],
    ),
    ("Several machines", &["fleet"]),
    (
        "rlm itself",
        &["demo", "doctor", "config", "completions", "man"],
    ),
];

/// Runs a coding agent in a loop until your own check passes; you can interrupt, stop and resume it
#[derive(Debug, Parser)]
#[command(
    name = "rlm",
    version = VERSION,
    help_template = help_template(),
    after_help = SHORT_EXAMPLES,
    after_long_help = after_long_help(),
    max_term_width = 100,
    disable_help_flag = true
)]
pub(crate) struct Args {
    /// Work in this directory
    #[arg(
        short = 'C',
        value_name = "DIR",
        default_value = ".",
        global = true,
        help_heading = GLOBAL
    )]
    pub(crate) directory: PathBuf,
    /// When to use colours [default: auto]
    #[arg(
        long,
        value_name = "auto|always|never",
        value_enum,
        hide_possible_values = true,
        global = true,
        help_heading = GLOBAL,
        long_help = "When to use colours; auto: on a terminal, unless NO_COLOR or CLICOLOR_FORCE says otherwise [default: auto]"
    )]
    pub(crate) color: Option<ColorArg>,
    /// Print help
    #[arg(short, long, action = ArgAction::Help, global = true, help_heading = GLOBAL)]
    help: Option<bool>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a run
    Run(Box<RunArgs>),
    /// Resume a stopped or crashed run, or end a pause
    Resume(Box<ResumeArgs>),
    /// Show a live run of another process in this terminal
    Attach(AttachArgs),
    /// List the live runs
    Ps(PsArgs),
    /// Show all runs of all projects in a browser
    View(ViewArgs),
    /// Show the state of runs
    #[command(after_help = STATUS)]
    Status(StatusArgs),
    /// Print the transcript of a run
    #[command(after_help = LOGS)]
    Logs(LogsArgs),
    /// Write a report of a run as one HTML page
    Report(ReportArgs),
    /// Pause a live run when its iteration is complete
    Pause(PauseArgs),
    /// End the turn of a live run's agent, and keep its session
    Interrupt(InterruptArgs),
    /// Send a message to the agent of a live run
    Steer(SteerArgs),
    /// Change a limit of a live run
    Set(SetArgs),
    /// Stop a live run, and return once every process is gone
    Stop(StopArgs),
    /// List, show and verify saved states; fork and transfer runs
    Checkpoints(CheckpointsArgs),
    /// Merge the result of a run in its own worktree into this branch
    #[command(after_help = MERGE)]
    Merge(WorktreeArgs),
    /// Remove the worktree of a run, and its branch
    #[command(after_help = DROP)]
    Drop(WorktreeArgs),
    /// Delete old runs
    Clean(CleanArgs),
    /// Run loops on several machines
    Fleet(Box<FleetArgs>),
    /// Write rlm.toml and PROMPT.md; files that exist stay
    #[command(after_help = INIT)]
    Init(InitArgs),
    /// Show the settings and their sources, or their schema
    Config(ConfigArgs),
    /// Check the agents and this machine
    Doctor(DoctorArgs),
    /// Play a scripted run in a temporary repository: no account, no network
    #[command(after_help = DEMO)]
    Demo(DemoArgs),
    /// Print the completions for a shell
    Completions(CompletionsArgs),
    /// Print the manual page of a command
    Man(ManArgs),
    /// Act as the agent of the demo
    #[command(name = DEMO_AGENT, hide = true)]
    DemoAgent(DemoAgentArgs),
    /// Be the process of a claimed run of a fleet
    #[command(name = FLEET_WORK, hide = true)]
    FleetWork,
    /// Print the words that can complete a command line
    #[command(name = COMPLETE, hide = true)]
    Complete(CompleteArgs),
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "\
A run needs a stop condition: --until, --completion-promise, -n or --once.
All options, and examples: rlm run --help",
    after_long_help = "\
A run needs a stop condition: --until, --completion-promise, -n or --once.

Precedence, highest first: options, the environment (RLM_AGENT, RLM_KEEP_AWAKE, RLM_NO_FIRST_CHECK, RLM_PERMISSIONS, RLM_SHUTDOWN_TIMEOUT, RLM_VIEW_URL), rlm.toml, \
~/.config/rlm/config.toml, defaults. `rlm config show --explain` prints each value with its source. \
After each turn and each wait, a live run reads both files again. They can only lower the limits of the run.

Examples:
  rlm run --until 'cargo test'
  rlm run 'make the tests pass' --until 'cargo test'
  rlm run --until 'cargo test' --agent claude --permissions ask --model opus
  rlm run --until 'cargo test' --dry-run             # starts nothing
  rlm run -n 20 --completion-promise DONE --session continue
  rlm run --until 'cargo test' --commit --worktree   # in a new worktree
  rlm run --until 'cargo test' --notify desktop
  rlm run --until 'cargo test' --resume-or-start --run-id job    # for cron
  rlm run -n 3 --sleep 0 -P prompt.md --gate 'cargo fmt --check' -- my-agent"
)]
pub(crate) struct RunArgs {
    /// The goal, as --prompt
    #[arg(
        value_name = "GOAL",
        conflicts_with_all = ["prompt", "prompt_file"],
        help_heading = "Prompt",
        long_help = "The goal of the run in words: short for --prompt"
    )]
    pub(crate) goal: Option<String>,
    #[command(flatten)]
    pub(crate) config: Config,
    #[command(flatten)]
    pub(crate) show: Show,
    #[arg(
        long,
        value_enum,
        display_order = 0,
        help_heading = "Agent",
        hide_possible_values = true,
        help = "claude, codex, gemini, opencode, …",
        long_help = format!(
            "The agent: {} [default: RLM_AGENT, or the command after --, or the only installed agent]",
            agent_names()
        )
    )]
    pub(crate) agent: Option<AgentKind>,
    /// Work in a new worktree, on a new branch
    #[arg(
        long,
        value_name = "NAME",
        num_args = 0..=1,
        help_heading = "Git",
        long_help = "Work in a new worktree below .rlm/worktrees, on a new branch rlm/NAME at the current commit [default: \
            NAME is the run id]"
    )]
    pub(crate) worktree: Option<Option<RunId>>,
    /// The run id, to find the run by name later [default: made from the time]
    #[arg(long, value_name = "ID", help_heading = "Run", hide_short_help = true)]
    pub(crate) run_id: Option<RunId>,
    /// Resume the last run, or start a new one
    #[arg(
        long,
        help_heading = "Run",
        long_help = "Resume the run that can be resumed, unless a person stopped it; otherwise start a new one. This \
            command line and the current rlm.toml override the saved settings; a saved command that neither of \
            them names is refused. If the run with this --run-id has ended, only print its end and exit with its \
            code. A run that was transferred is refused"
    )]
    pub(crate) resume_or_start: bool,
    /// Run one iteration, as -n 1
    #[arg(
        long,
        conflicts_with = "max_iterations",
        help_heading = "Stop condition",
        hide_short_help = true
    )]
    pub(crate) once: bool,
    /// Show the settings and the prompt; start nothing
    #[arg(
        long,
        conflicts_with_all = ["quiet", "resume_or_start"],
        help_heading = "Run",
        long_help = "Show the settings and the prompt of the run; create and start nothing"
    )]
    pub(crate) dry_run: bool,
    /// Allow this run inside the agent of another run
    #[arg(long, help_heading = "Run", hide_short_help = true)]
    pub(crate) nested: bool,
    /// The agent as a command, after --
    #[arg(
        last = true,
        value_name = "COMMAND",
        help_heading = "Agent",
        long_help = "Without --agent: the agent itself, a program and its arguments. It gets the prompt on standard \
            input, or in place of {prompt_file} (a private file) or {prompt} (visible to other users in the \
            process list) in its arguments. With an --agent that has a driver: more arguments for it"
    )]
    pub(crate) agent_command: Vec<OsString>,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Options override the saved settings. If the run is paused in another terminal, it continues there.

Examples:
  rlm resume                  # the only run that can be resumed
  rlm resume RUN -n 200       # with a higher limit
  rlm resume RUN --from 3     # go back to iteration 3, discard what followed
  rlm resume RUN --feedback 'the schema is in db/schema.sql'
  rlm resume RUN --dry-run    # shows the settings and the prompt
  rlm resume RUN --agent codex --model gpt-5   # with another agent"
)]
pub(crate) struct ResumeArgs {
    /// The run; you can omit it if only one run can be resumed
    pub(crate) run: Option<String>,
    #[command(flatten)]
    pub(crate) config: Config,
    #[command(flatten)]
    pub(crate) show: Show,
    /// Continue with another agent
    #[arg(
        long,
        value_enum,
        display_order = 0,
        help_heading = "Agent",
        hide_possible_values = true,
        long_help = format!(
            "Continue with another agent: {}; it gets the files and the prompt, not the session",
            agent_names()
        )
    )]
    pub(crate) agent: Option<AgentKind>,
    /// Resume here although the run was transferred
    #[arg(
        long,
        help_heading = "Run",
        long_help = "Resume here although the run was transferred; don't resume it at its new place then"
    )]
    pub(crate) force: bool,
    /// Go back to this iteration, discard what followed
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = "Run",
        long_help = "Go back to this iteration, and discard everything that was recorded since. If damage lost the record \
            of complete iterations, N is the iteration to run next; without it rlm asks, or exits with code 2"
    )]
    pub(crate) from: Option<u32>,
    /// Add this text to the next prompt; - reads standard input
    #[arg(long, value_name = "TEXT", help_heading = "Prompt")]
    pub(crate) feedback: Option<String>,
    /// Show the save, the settings and the prompt
    #[arg(
        long,
        conflicts_with_all = ["quiet", "detach"],
        help_heading = "Run",
        long_help = "Show the save, the settings and the prompt of the resume; change and start nothing"
    )]
    pub(crate) dry_run: bool,
    /// Allow this run inside the agent of another run
    #[arg(long, help_heading = "Run", hide_short_help = true)]
    pub(crate) nested: bool,
    /// Another command of the agent
    #[arg(
        last = true,
        value_name = "COMMAND",
        help_heading = "Agent",
        long_help = "A command that replaces the saved agent command, or more arguments for the agent"
    )]
    pub(crate) agent_command: Vec<OsString>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LogsArgs {
    /// The run [default: the run of this project that was active last]
    pub(crate) run: Option<String>,
    /// Continue with new records, until no process works on the run
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only records since this time: 10m (ago), or 2026-01-31T09:30:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<Since>,
    /// Only this iteration
    #[arg(long, value_name = "N")]
    pub(crate) iteration: Option<u32>,
    /// Only the last N lines, and with --follow the new ones
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<usize>,
    /// Begin each line with time, iteration and attempt, instead of headings: for grep
    #[arg(long, conflicts_with = "json")]
    pub(crate) prefix: bool,
    /// Print the records as they are stored, one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct InitArgs {
    /// Write the settings and prompts of a preset instead
    #[arg(long, value_name = "NAME", value_enum)]
    pub(crate) preset: Option<Preset>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DemoArgs {
    /// Directory of the repository: empty, or new [default: a new temporary one]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// The time between two words of the agent
    #[arg(long, value_name = "TIME", value_parser = duration::parse, hide = true)]
    pub(crate) pace: Option<Duration>,
}

/// The hidden command under which this program acts as the demo's agent.
pub(crate) const DEMO_AGENT: &str = "__demo-agent";

#[derive(Debug, ClapArgs)]
pub(crate) struct DemoAgentArgs {
    #[arg(long, value_parser = duration::parse, default_value = "0")]
    pub(crate) pace: Duration,
    /// The options of the agent that it imitates
    #[arg(last = true)]
    pub(crate) flags: Vec<OsString>,
}

/// The hidden command that the completions of a shell call.
pub(crate) const COMPLETE: &str = "__complete";

#[derive(Debug, ClapArgs)]
pub(crate) struct CompleteArgs {
    /// The words after `rlm`; the last one is the word at the cursor
    #[arg(last = true)]
    pub(crate) words: Vec<OsString>,
}

#[derive(Debug, Default, ClapArgs)]
pub(crate) struct Show {
    /// Print NDJSON events instead of text
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
    /// Show only iterations, questions and the end
    #[arg(
        short,
        long,
        conflicts_with_all = ["json", "verbose"],
        help_heading = "Output",
        long_help = "Show only iterations, failures, questions to you, and the end"
    )]
    pub(crate) quiet: bool,
    /// Show the results of tools and the output of required checks in full
    #[arg(
        short,
        long,
        conflicts_with = "json",
        help_heading = "Output",
        hide_short_help = true
    )]
    pub(crate) verbose: bool,
    /// Never ask: no menu, no questions; Ctrl-C saves and stops
    #[arg(long, help_heading = "Output", hide_short_help = true)]
    pub(crate) no_input: bool,
    /// Run in the background
    #[arg(
        long,
        help_heading = "Run",
        long_help = "Run in the background: return once the run works; see rlm attach, rlm logs -f and rlm stop"
    )]
    pub(crate) detach: bool,
    /// Be the process in the background
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
}

const SHORT_EXAMPLES: &str = "\
Examples:
  rlm demo                                 # see it work: no account, no network
  rlm run --until 'cargo test'             # the installed agent, until the tests pass
  rlm run -n 5 -p 'Improve the docs' -- codex exec -    # any command

Help of a command: rlm help run. More examples, variables and exit codes: rlm --help";

const EXAMPLES: &str = "\
Examples:
  rlm demo                      # see it work: no account, no network
  rlm doctor                    # the installed agents, and what they can do
  rlm init                      # write rlm.toml and PROMPT.md
  rlm run --until 'cargo test'  # the installed agent, until the tests pass
  rlm run --until 'cargo test' --agent claude --permissions all --max-cost 20
  rlm run --until 'cargo test' --detach    # in the background
  rlm run -n 5 -p 'Improve the docs' -- codex exec -    # any command
  rlm status                    # the state of the runs
  rlm steer 'use tabs'          # message the agent
  rlm stop                      # save and stop
  rlm resume                    # after Ctrl-C, a crash, a reboot or a pause
  rlm checkpoints list          # the saved states, and damage

RUN is the id of a run, the beginning or the end of one id, or `last`.
While it runs: Ctrl-C opens the menu, Enter messages the agent, /help lists the rest.";

const STATUS: &str = "\
Exit codes: 0 shown, or alive; 1 the state of RUN is damaged, or RUN is not alive; 10 no such run.

Examples:
  rlm status
  rlm status RUN
  rlm status RUN --alive       # as a liveness probe
  rlm status --json | jq -r 'select(.state == \"stopped\") | .run'";

const LOGS: &str = "\
Examples:
  rlm logs                     # everything of the newest run
  rlm logs --tail 50           # the last lines
  rlm logs -f --since 10m      # the last minutes, then live
  rlm logs RUN --iteration 3
  rlm logs --json | jq -r 'select(.kind == \"prompt\") | .text'";

const INIT: &str = "\
Files that exist stay as they are.

Examples:
  rlm init
  rlm init --preset plan-then-build       # plan, review, build
  rlm init --preset fix-ci                # also: tdd, review, refactor
  rlm -C ../other init";

const MERGE: &str = "\
First it commits files that are not committed in the worktree. After a conflict, your working tree is as before.

Exit codes: 0 merged, or nothing to merge; 1 a conflict; 2 git refused, or no person can be asked: use --yes; 9 the run is live.

Examples:
  rlm merge --dry-run      # the commits and files of the last run
  rlm merge RUN";

const DROP: &str = "\
First it lists the commits and files that would be lost. The state of the run stays: rlm status RUN.

Examples:
  rlm drop RUN --dry-run
  rlm drop RUN --yes";

const DEMO: &str = "\
Examples:
  rlm demo                # in it, press Ctrl-C, or Enter to message the agent
  rlm demo --dir /tmp/roman";

const ENVIRONMENT: &str = "\
Environment (precedence: below options, above rlm.toml):
  RLM_AGENT, RLM_PERMISSIONS  as --agent and --permissions
  RLM_KEEP_AWAKE              as --keep-awake: true or false
  RLM_NO_FIRST_CHECK          as --no-first-check: true or false
  RLM_SHUTDOWN_TIMEOUT        as --shutdown-timeout
  RLM_VIEW_URL                as view-url in your own file: notifications link to it
  XDG_CONFIG_HOME             the directory of your own rlm/config.toml [default: ~/.config]
  XDG_STATE_HOME              the directory of the index of live runs [default: ~/.local/state]
  VISUAL, EDITOR              the editor for the prompt, from the menu
  NO_COLOR, CLICOLOR_FORCE    no colours; colours without a terminal";

/// Returns the names of the agents that have a driver; a command agent follows `--`.
fn agent_names() -> String {
    let driven = AgentKind::value_variants().iter();
    let names = driven
        .filter(|kind| **kind != AgentKind::Command)
        .filter_map(ValueEnum::to_possible_value)
        .map(|value| value.get_name().to_owned());
    names.collect::<Vec<_>>().join(", ")
}

/// Returns the help of `rlm`, with its commands in groups.
fn help_template() -> String {
    let commands = Command::augment_subcommands(clap::Command::new("rlm"));
    let styles = Styles::styled();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let about = |name: &str| commands.find_subcommand(name)?.get_about();
    let row = |name: &&str| {
        let about = about(name).map_or(String::new(), ToString::to_string);
        format!(
            "\n  {literal}{name}{literal:#}{:1$}  {about}",
            "",
            11 - name.len()
        )
    };
    let groups = GROUPS.map(|(heading, names)| {
        let rows: String = names.iter().map(row).collect();
        format!("{header}{heading}:{header:#}{rows}\n\n")
    });
    format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}{header}{GLOBAL}:{header:#}\n{{options}}{{after-help}}",
        groups.concat()
    )
}

/// Returns the examples, the variables and the exit codes.
fn after_long_help() -> String {
    let code = |(code, meaning): (Code, &str)| format!("\n  {:2}  {meaning}", code as u8);
    let codes: String = Code::ALL.into_iter().map(code).collect();
    format!(
        "{EXAMPLES}\n\n{ENVIRONMENT}\n\nExit codes:{codes}\nIf a signal stops a run, rlm dies by that signal (130, 143, 129)."
    )
}

/// Reads the command line.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Args, clap::Error> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    // clap would take the option for the name of a command.
    if words.get(1).is_some_and(|command| command == "help") {
        words.retain(|word| word != "--help" && word != "-h");
    }
    Args::try_parse_from(words).map_err(suggest_separator)
}

/// Adds to the error for a superfluous word that the command of an agent follows `--`.
fn suggest_separator(mut error: clap::Error) -> clap::Error {
    let unknown = error.get(ContextKind::InvalidArg);
    let is_word = matches!(unknown, Some(ContextValue::String(word)) if !word.starts_with('-'));
    let usage = error.get(ContextKind::Usage);
    let takes_command = matches!(usage, Some(ContextValue::StyledStr(usage)) if usage.to_string().contains("[-- <COMMAND>"));
    if error.kind() == ErrorKind::UnknownArgument && is_word && takes_command {
        let tip = "to run a command as the agent, put it after `--`: rlm run -p 'TASK' -- COMMAND";
        let tip = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tip);
    }
    error
}

/// The values of `--color`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorArg {
    Auto,
    Always,
    Never,
}

/// Sets whether this process prints colours, before it parses or prints anything.
pub(crate) fn choose_color(words: impl IntoIterator<Item = OsString>) {
    let choice = match wanted(words) {
        Some(ColorArg::Always) => ColorChoice::Always,
        Some(ColorArg::Never) => ColorChoice::Never,
        _ => ColorChoice::Auto,
    };
    choice.write_global();
}

/// Finds the last `--color` among the words before `--`. The parser reports a wrong value.
fn wanted(words: impl IntoIterator<Item = OsString>) -> Option<ColorArg> {
    let (mut found, mut is_next) = (None, false);
    for word in words.into_iter().take_while(|word| word != "--") {
        let word = word.to_string_lossy();
        let value = match word.strip_prefix("--color") {
            _ if is_next => Some(&*word),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        };
        is_next = !is_next && word == "--color";
        found = { value.and_then(|value| ColorArg::from_str(value, false).ok()) }.or(found);
    }
    found
}

#[derive(Debug, ClapArgs)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// Exit with 0 only if a process works on RUN and its loop is not stuck: for a liveness probe
    #[arg(long, requires = "run", conflicts_with = "json")]
    pub(crate) alive: bool,
}

/// The time from which records are shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since(pub(crate) Timestamp);

impl std::str::FromStr for Since {
    type Err = String;

    /// Reads a time, or how long ago it was.
    fn from_str(text: &str) -> Result<Self, String> {
        let now = jiff::Timestamp::now();
        let at = match rlm_text::duration::parse(text) {
            Ok(ago) => now - ago,
            Err(_) => text.parse().map_err(|_| {
                let shown = text.escape_debug();
                format!("`{shown}` is not a time; write for example 10m or 2026-01-31T09:30:00Z")
            })?,
        };
        let millis = u64::try_from(at.as_millisecond()).unwrap_or_default();
        Ok(Self(Timestamp::from_millis(millis)))
    }
}

/// The arguments of `rlm merge` and `rlm drop`.
#[derive(Debug, ClapArgs)]
pub(crate) struct WorktreeArgs {
    /// The run; it must not be live [default: the one that was active last]
    pub(crate) run: Option<String>,
    /// Don't ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Only show what would happen
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Allow this inside the agent of another run
    #[arg(long)]
    pub(crate) nested: bool,
    /// Print one JSON object for each step
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
By default it deletes runs of this project that ended, and in which nothing happened for a week. \
It never deletes a live run. --all also deletes runs that can be resumed, and damaged runs; a damaged run can also be named. \
Worktrees and their branches stay; it prints the commands that remove them.

Exit codes: 0 done, 1 a run could not be deleted, 2 no person can be asked: use --yes, 10 no such run.

Examples:
  rlm clean --dry-run                  # lists the runs
  rlm clean --days 30 --keep 5 --yes
  rlm clean --transcripts              # keeps the state
  rlm clean RUN
  rlm clean --all --days 0             # every run that is not live")]
pub(crate) struct CleanArgs {
    /// Only these runs, whatever their age [default: all runs of the project]
    #[arg(value_name = "RUN")]
    pub(crate) runs: Vec<String>,
    /// Only runs in which nothing happened for N days [default: 7]
    #[arg(long, value_name = "N", help_heading = "Selection")]
    pub(crate) days: Option<u64>,
    /// Keep the newest N of the runs that would be deleted
    #[arg(long, value_name = "N", help_heading = "Selection")]
    pub(crate) keep: Option<usize>,
    /// Also runs that can be resumed, and damaged runs
    #[arg(long, help_heading = "Selection")]
    pub(crate) all: bool,
    /// Only the transcripts, which are the largest part; the state stays, so runs that can be resumed are included
    #[arg(long, help_heading = "Selection")]
    pub(crate) transcripts: bool,
    /// Don't ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Only list what would be deleted
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Allow this inside the agent of another run
    #[arg(long)]
    pub(crate) nested: bool,
    /// Print one JSON object per run
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Precedence, highest first: options, the variables of `rlm --help`, rlm.toml, your own \
$XDG_CONFIG_HOME/rlm/config.toml (~/.config/rlm/config.toml), defaults. Your own file may have every key of rlm.toml, except \
those that define the task of one project: title, prompt, prompt-file, until, gates, completion-promise, heartbeat, mcp-config \
and phases.

Examples:
  rlm config show --explain            # each value with its source
  rlm config schema > rlm.schema.json  # for editors: #:schema ./rlm.schema.json")]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) config: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show the settings that a run would have, as TOML
    Show(Box<ShowConfigArgs>),
    /// Print the JSON Schema of rlm.toml
    #[command(after_help = "Examples:
  rlm config schema > rlm.schema.json
  rlm config schema | jq '.properties | keys'")]
    Schema,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
You can add options of `rlm run`, to see what they change. The values of variables, headers and the like are never shown.

Examples:
  rlm config show > settings.toml
  rlm config show --explain
  rlm config show --explain -n 5 --agent codex  # with these options
  rlm config show --json | jq '.settings[] | select(.key == \"agent\")'")]
pub(crate) struct ShowConfigArgs {
    /// Show the source of each value, and the values that it overrides
    #[arg(long)]
    pub(crate) explain: bool,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
It sends nothing to a model and reads no file of an agent. It runs each agent's own commands, in the root directory, where \
no project has settings, for at most 15 s. It shows a program that only the project's rlm.toml names, but doesn't run it. \
The agents may write their usual files. An agent that is not logged in can't be used; an agent whose login is unknown can.

Exit codes: 0 the agents that you name can be used, or the agent of rlm.toml or RLM_AGENT if you name none; 1 one of them can't, or no run can work \
on this machine. If no agent is named or set, none needs to be ready: any command can be an agent.

Examples:
  rlm doctor                           # all known agents, and this machine
  rlm doctor codex && rlm run --agent codex --until 'cargo test'
  rlm doctor --notify                  # also test the channels of `notify`
  rlm doctor --json | jq -r '.agents[] | select(.health != \"absent\") | .agent'")]
pub(crate) struct DoctorArgs {
    /// The agents that must work [default: the agent of this project; all agents are shown]
    #[arg(value_name = "AGENT", value_enum)]
    pub(crate) agents: Vec<AgentKind>,
    /// Also run programs that only this project's rlm.toml names, with the variables that it sets; use it only if you
    /// trust the project
    #[arg(long)]
    pub(crate) run_project_agent: bool,
    /// Also send a test notification by each channel of `notify`, and show whether it is acknowledged; the exit code is 1
    /// if one is not
    #[arg(long)]
    pub(crate) notify: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
The report is one file that loads and runs nothing: a summary, a timeline, the cost, each attempt with its prompt, transcript, required checks \
and commit, and the evidence for the end. Of a long run, the failures and the newest attempts are shown in full. Only you can read the file, like \
the state of the runs: check its content before you share it.

An existing file is replaced only if it is an earlier report of the same run.

Exit codes: 0 written, 1 it can't be written, 2 the file is something else: use --force, 10 no such run.

Examples:
  rlm report                    # the newest run, into rlm-RUN.html
  rlm report RUN -o night.html
  rlm report RUN -o - | ssh web 'cat > report.html'
  rlm report --json | jq '.attempts[] | select(.outcome == \"failed\")'")]
pub(crate) struct ReportArgs {
    /// The run [default: the run of this project that was active last]
    pub(crate) run: Option<String>,
    /// Write the page to this file; - is standard output [default: rlm-RUN.html]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the file, whatever it is
    #[arg(long)]
    pub(crate) force: bool,
    /// Allow this inside the agent of another run
    #[arg(long)]
    pub(crate) nested: bool,
    /// Print the report as one JSON object instead
    #[arg(long, conflicts_with_all = ["output", "force"])]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  rlm completions bash > ~/.local/share/bash-completion/completions/rlm
  rlm completions zsh > ~/.zfunc/_rlm  # ~/.zfunc in fpath, before compinit
  rlm completions fish > ~/.config/fish/completions/rlm.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  rlm man | man -l -
  rlm man run | man -l -
  rlm man --dir ~/.local/share/man/man1     # a page per command")]
pub(crate) struct ManArgs {
    /// The command, such as `run` or `checkpoints list` [default: the page of rlm itself]
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    pub(crate) command: Vec<String>,
    /// Write all pages into this directory instead
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}
