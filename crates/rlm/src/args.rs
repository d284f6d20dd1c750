//! The command line: all commands and what several of them share; `checkpoints` and `live` have those of the commands that move saved runs, and that reach live ones.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anstream::ColorChoice;
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use loop_state::Timestamp;
use rlm_store::RunId;
use rlm_text::duration;

use crate::agents::AgentKind;
use crate::config::Config;
use crate::exit::Code;
use crate::preset::Preset;

mod checkpoints;
mod live;
#[cfg(test)]
mod tests;

pub(crate) use checkpoints::{
    CheckpointsArgs, CheckpointsCommand, ExportArgs, ForkArgs, ImportArgs, ShowArgs,
};
pub(crate) use live::{AttachArgs, InterruptArgs, PauseArgs, PsArgs, SetArgs, SteerArgs, StopArgs};

/// What `--version` says. A packed program is told its commit and day when it is built; another knows its version alone.
const VERSION: &str = match option_env!("RLM_VERSION") {
    Some(stamped) => stamped,
    None => env!("CARGO_PKG_VERSION"),
};

/// Runs a coding agent in a loop that can be interrupted, checkpointed and resumed, and that loses nothing.
#[derive(Debug, Parser)]
#[command(name = "rlm", version = VERSION, after_help = after_help(), max_term_width = 100)]
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
    #[command(after_help = STATUS)]
    Status(ManyArgs),
    /// Print what the agent said
    #[command(after_help = LOGS)]
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
    #[command(after_help = INIT)]
    Init(InitArgs),
    /// Show the settings that count and where they come from, or their schema
    Config(ConfigArgs),
    /// See whether the agents and this machine work
    Doctor(DoctorArgs),
    /// See it work in a small repository of its own: no account, no network
    #[command(after_help = DEMO)]
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

const EXAMPLES: &str = "\
Examples:
  rlm demo                      see it work: no account, no network
  rlm doctor                    the agents that are here, and what they can
  rlm init                      write rlm.toml, PROMPT.md; --preset: a pipeline
  rlm run --until 'cargo test'  the installed agent, until the tests pass
  rlm run --until 'cargo test' --agent claude --permissions all --max-cost 20
  rlm run --until 'cargo test' --detach    in the background; then: rlm attach
  rlm run -n 5 -p 'Improve the docs' -- codex exec -    any command
  rlm status                    where it stands
  rlm checkpoints list          what is saved, and whether it is sound
  rlm resume                    go on after Ctrl-C, a crash, a reboot or a pause
  rlm steer 'use tabs'          say something to it; also: pause, set, stop

While it runs: Ctrl-C opens a menu, Enter lets you say something to the agent, /help lists the rest.";

const STATUS: &str = "\
Exit codes: 0 shown, or alive; 1 the state of the one RUN that was asked for is damaged, or it is not alive; 10 no such run.

Examples:
  rlm status
  rlm status RUN
  rlm status RUN --alive       as a liveness probe asks
  rlm status --json | jq -r 'select(.state == \"stopped\") | .run'";

const LOGS: &str = "\
Examples:
  rlm logs                     all of the newest run
  rlm logs -f --since 10m      the last minutes, and what comes
  rlm logs RUN --iteration 3
  rlm logs --json | jq -r 'select(.kind == \"prompt\") | .text'";

const INIT: &str = "\
A file that is there is kept as it is.

Examples:
  rlm init
  rlm init --preset plan-then-build       a plan, your word, then the work
  rlm -C ../other init";

const DEMO: &str = "\
Examples:
  rlm demo                press Ctrl-C in it, or Enter and say something
  rlm demo --dir /tmp/roman";

const ENVIRONMENT: &str = "\
Environment, below options and above rlm.toml:
  RLM_AGENT, RLM_PERMISSIONS  as --agent and --permissions
  RLM_SHUTDOWN_TIMEOUT        as --shutdown-timeout
  XDG_CONFIG_HOME             where rlm/config.toml lies, your own settings [default: ~/.config]
  XDG_STATE_HOME              where the index of live runs lies [default: ~/.local/state]
  VISUAL, EDITOR              what edits the prompt from the menu
  NO_COLOR, CLICOLOR_FORCE    no colours; colours also where there is no terminal";

/// Returns the examples, the variables and the exit codes.
fn after_help() -> String {
    let code = |(code, meaning): (Code, &str)| format!("\n  {:2}  {meaning}", code as u8);
    let codes: String = Code::ALL.into_iter().map(code).collect();
    format!(
        "{EXAMPLES}\n\n{ENVIRONMENT}\n\nExit codes:{codes}\nA run that a signal stopped dies by that signal (130, 143, 129)."
    )
}

/// The values of `--color`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorArg {
    Auto,
    Always,
    Never,
}

/// Sets what all output of this process heeds, before anything is parsed or printed.
pub(crate) fn choose_color(words: impl IntoIterator<Item = OsString>) {
    let choice = match wanted(words) {
        Some(ColorArg::Always) => ColorChoice::Always,
        Some(ColorArg::Never) => ColorChoice::Never,
        _ => ColorChoice::Auto,
    };
    choice.write_global();
}

/// Finds the last `--color` among the words in front of `--`; a bad value is the parser's to refuse.
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

/// From when on records are shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since(pub(crate) Timestamp);

impl std::str::FromStr for Since {
    type Err = String;

    /// Reads a point in time, or how long ago it was.
    fn from_str(text: &str) -> Result<Self, String> {
        let now = jiff::Timestamp::now();
        let at = match rlm_text::duration::parse(text) {
            Ok(ago) => now - ago,
            Err(_) => text.parse().map_err(|_| {
                let shown = text.escape_debug();
                format!("`{shown}` is no time: write for example 10m, or 2026-01-31T09:30:00Z")
            })?,
        };
        let millis = u64::try_from(at.as_millisecond()).unwrap_or_default();
        Ok(Self(Timestamp(millis)))
    }
}

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

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
What is said nearer counts: options, then RLM_AGENT and RLM_PERMISSIONS, then rlm.toml, then the user's own \
$XDG_CONFIG_HOME/rlm/config.toml (~/.config/rlm/config.toml), then defaults. The user's file has the keys of rlm.toml but for \
those that say what is to be done in one project and when that is done: prompt, prompt-file, until, gates, \
completion-promise, mcp-config and phases.

Examples:
  rlm config show --explain            what counts here, and where it comes from
  rlm config schema > rlm.schema.json  for editors: #:schema ./rlm.schema.json")]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) what: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show the settings that a run would have, as a file could say them
    Show(Box<ShowConfigArgs>),
    /// Print the JSON Schema of rlm.toml
    #[command(after_help = "Examples:
  rlm config schema > rlm.schema.json
  rlm config schema | jq '.properties | keys'")]
    Schema,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Options of `rlm run` can be given, to see what they would change. Values of variables, headers and the like are never shown.

Examples:
  rlm config show > settings.toml
  rlm config show --explain
  rlm config show --explain -n 5 --agent codex  what this would have
  rlm config show --json | jq '.settings[] | select(.key == \"agent\")'")]
pub(crate) struct ShowConfigArgs {
    /// Say of each value where it comes from, and what it stands in place of
    #[arg(long)]
    pub(crate) explain: bool,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Nothing is sent to a model, and no file of an agent is read: each is asked by its own commands, in the root directory, where \
no project has settings, and ended after 15 s at the latest. A program that only the project's rlm.toml names is shown and not run. They may write what they write at each start. An agent that is \
not logged in can't be used; one whose login can't be known can.

Exit codes: 0 what is named, or else is chosen by rlm.toml or RLM_AGENT, can be used; 1 it can't, or no run can work on this machine. \
Where nothing is named or chosen no agent need be ready: any command can be one.

Examples:
  rlm doctor                           all agents that are known; this machine
  rlm doctor codex && rlm run --agent codex --until 'cargo test'
  rlm doctor --json | jq -r '.agents[] | select(.health != \"absent\") | .agent'")]
pub(crate) struct DoctorArgs {
    /// The agents that must work [default: the one that this project has chosen; all are looked at]
    #[arg(value_name = "AGENT", value_enum)]
    pub(crate) agents: Vec<AgentKind>,
    /// Run also the programs that only this project's rlm.toml names, with the variables that it sets: only if you trust it
    #[arg(long)]
    pub(crate) run_project_agent: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
One file that loads nothing and runs nothing: what happened in three sentences, when, what it cost, each attempt with its prompt, transcript, gates \
and commit, and the evidence of the end. Of a long run what went wrong and what is newest is in full. It is readable for you only, as the state of \
runs is: look through what was printed before you pass it on.

A file that is there is only replaced if it is an earlier report of the same run.

Exit codes: 0 written, 1 it can't be written, 2 the file is something else: --force, 10 no such run.

Examples:
  rlm report                    the newest run, into rlm-RUN.html
  rlm report RUN -o night.html
  rlm report RUN -o - | ssh web 'cat > report.html'
  rlm report --json | jq '.attempts[] | select(.outcome == \"failed\")'")]
pub(crate) struct ReportArgs {
    /// The run; when left out, the one of the project that was active last
    pub(crate) run: Option<String>,
    /// Write the page to this file; - is standard output [default: rlm-RUN.html]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the file whatever it is
    #[arg(long)]
    pub(crate) force: bool,
    /// Allow this inside another run's agent
    #[arg(long)]
    pub(crate) nested: bool,
    /// Print what happened as one JSON object instead
    #[arg(long, conflicts_with_all = ["output", "force"])]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  rlm completions bash > ~/.local/share/bash-completion/completions/rlm
  rlm completions zsh > ~/.zfunc/_rlm  with ~/.zfunc in fpath, before compinit
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
  rlm man --dir ~/.local/share/man/man1     a page for each command")]
pub(crate) struct ManArgs {
    /// The command, such as `run` or `checkpoints list`; the page of rlm itself when left out
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    pub(crate) command: Vec<String>,
    /// Write all pages into this directory instead
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}
