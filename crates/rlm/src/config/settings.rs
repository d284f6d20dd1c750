//! All settings, each defined once. Its option, its key in `rlm.toml`, the schema, its line in `config show`, its default, its environment
//! variable and what `rlm set` makes of it follow from its definition.
//!
//! The first line of a definition is its help and its description in the schema. Behind the name is its type, which decides what a file and an
//! option may say; the types are in `values.rs`. Then come:
//!
//! - `of`: where the key may be: of the whole `Run`, of a `Phase`, of a `PhaseOnly`, or in the `User`'s own file only;
//! - `keys`: of a section for an agent, what it may say;
//! - `project: true`: the user's own file may not have the key, since it says what to do in one project;
//! - `flag`: the arguments of clap for the option, or `no_flag`: why there is none;
//! - `default`: what counts where nothing is said: `Always`, or only for agents that are `Driven`; `shown`: how the help puts it;
//! - `env`: the variable of the environment that sets it; no other variable is a setting;
//! - `live`: the rule that it changes while a run goes on; see [`Live`].

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use agent_drivers::mcp::McpServers;
use agent_drivers::{
    AgentOptions, acp::AcpOptions, acp::AcpPreset, claude::ClaudeOptions, codex::CodexOptions,
};
use agent_duplex::Permissions;
use clap::builder::TypedValueParser as _;
use loop_state::{Autonomy, Limits, RuleChange, RunLimits, SessionPolicy, times};
use rlm_store::{Leftovers, PhaseSettings, Settings};
use rlm_terminal::PressActions;

use super::keys::{
    Fallback, Key, Kind, Of, Whose, kebab, name_of, option, section, settings, toml, type_kind,
};
use super::values::{
    AcpSection, Bytes, PhaseName, Time, Title, Tokens, Usd, Value, one_of, path_as_text,
};
use crate::agents::AgentKind;
use crate::config::Occasion;
use crate::config::values::Live;

// Defaults that others need too.
pub(crate) const DEFAULT_PROMPT: &str = "PROMPT.md";
pub(crate) const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(900);
/// The variable for how long a stop may take.
pub(crate) const SHUTDOWN_TIMEOUT: &str = "RLM_SHUTDOWN_TIMEOUT";

settings! {
    /// The name of the phase.
    name: PhaseName {
        of: PhaseOnly,
        project: true,
        no_flag: "the command line knows no single phase",
    }
    /// A short name of the run, which `rlm status` and `rlm ps` show; 80 characters at most.
    title: Title {
        of: Run,
        project: true,
        flag: (value_name = "TEXT", help_heading = "Run"),
    }
    /// The prompt, in place of a file.
    prompt: String {
        of: Phase,
        project: true,
        flag: (short, value_name = "TEXT", conflicts_with = "prompt_file", help_heading = "Prompt"),
    }
    /// The file with the prompt, read anew for each iteration; --prompt-file - reads standard input.
    prompt_file: PathBuf {
        of: Phase,
        project: true,
        flag: (short = 'P', value_name = "FILE", help_heading = "Prompt"),
        serde: (serialize_with = "path_as_text"),
        default: Always(DEFAULT_PROMPT.into()),
    }
    /// The agent.
    agent: AgentKind {
        of: Phase,
        no_flag: "`run` and `resume` each have an --agent with a help of its own",
        env: "RLM_AGENT",
    }
    /// A program and its arguments as the agent; it gets the prompt on standard input.
    command: Vec<String> {
        of: Phase,
        no_flag: "on the command line it is what follows --",
    }
    /// The agent's program: a name on PATH, or a path; a path in a file is relative to that file.
    agent_bin: PathBuf {
        of: Phase,
        flag: (value_name = "PATH", help_heading = "Agent"),
        serde: (serialize_with = "path_as_text"),
        shown: "found on PATH",
    }
    /// The model, by the agent's own names for it.
    model: String {
        of: Phase,
        flag: (value_name = "NAME", help_heading = "Agent"),
        shown: "the agent's choice",
    }
    /// What the agent may do: ask = what its own settings don't allow, you are asked; edits = it edits files, the rest is denied; all =
    /// everything; deny = nothing more than its own settings allow.
    permissions: Permissions {
        of: Phase,
        flag: (value_name = "ask|edits|all|deny", value_parser = one_of::<Permissions>(), help_heading = "Agent"),
        default: Driven(Permissions::default()),
        env: "RLM_PERMISSIONS",
    }
    /// The agent's conversation: a fresh one for each iteration, or one that goes on.
    session: SessionPolicy {
        of: Phase,
        flag: (value_name = "fresh|continue", value_parser = one_of::<SessionPolicy>(), help_heading = "Agent"),
        default: Driven(SessionPolicy::default()),
    }
    /// Done when the agent says so: when it ends its last message with <promise>TEXT</promise>. With `until`, the check then decides; without
    /// it, the promise alone does.
    completion_promise: String {
        of: Phase,
        project: true,
        flag: (value_name = "TEXT", help_heading = "Ends"),
    }
    /// Done when this command exits with 0; it runs after each iteration.
    until: String {
        of: Phase,
        project: true,
        flag: (value_name = "CMD", help_heading = "Ends"),
    }
    /// Commands that must pass before an iteration counts, each in a --gate of its own; their output goes into the next prompt.
    gates: Vec<String> {
        of: Phase,
        project: true,
        flag: (long = "gate", value_name = "CMD", help_heading = "Ends"),
    }
    /// The number of iterations: the plan, or with another end the limit.
    max_iterations: NonZeroU32 {
        of: Phase,
        flag: (
            short = 'n',
            value_parser = clap::value_parser!(u32).range(1..).try_map(NonZeroU32::try_from),
            help_heading = "Limits",
        ),
        default: Always(NonZeroU32::new(100).expect("100 is more than 0")),
        live: Live::OrNone(RuleChange::MaxIterations),
    }
    /// How long one turn of the agent may take.
    iteration_timeout: Time {
        of: Phase,
        flag: (help_heading = "Limits"),
        default: Always(Duration::from_secs(3600).into()),
        shown: "1h, that is 3600 s",
        live: Live::OrNone(RuleChange::IterationTimeout),
    }
    /// How long the agent may be silent; a running tool is no silence.
    idle_timeout: Time {
        of: Phase,
        flag: (help_heading = "Limits"),
        default: Driven(DEFAULT_IDLE_TIMEOUT.into()),
        shown: "15m, off for a command",
        live: Live::OrNone(RuleChange::IdleTimeout),
    }
    /// How long a gate or the check may take.
    check_timeout: Time {
        of: Phase,
        flag: (help_heading = "Limits"),
        default: Always(Limits::CHECK_TIMEOUT.into()),
        shown: "15m, that is 900 s",
        live: Live::Value(RuleChange::CheckTimeout),
    }
    /// How long the agent's background tasks may show no progress after its turn, before they are ended; 0 ends them at once.
    background_wait: Time {
        of: Phase,
        flag: (help_heading = "Limits"),
        default: Always(PhaseSettings::BACKGROUND_WAIT.into()),
    }
    /// How long the run may be active, all its processes together.
    max_duration: Time {
        of: Run,
        flag: (help_heading = "Limits"),
        shown: "no limit",
        live: Live::OrNone(RuleChange::MaxDuration),
    }
    /// How many failures in a row end the run, 0 for no limit.
    max_failures: u32 {
        of: Run,
        flag: (help_heading = "Limits"),
        default: Always(RunLimits::default().max_failures),
        live: Live::OrNone(|most| RuleChange::MaxFailures(most.unwrap_or(0))),
    }
    /// The pause between iterations.
    sleep: Time {
        of: Run,
        flag: (help_heading = "Limits"),
        default: Always(RunLimits::default().sleep.into()),
        live: Live::Value(RuleChange::Sleep),
    }
    /// What the run may cost by the agent's own reckoning, in US dollars; the turn that uses it up is ended.
    max_cost: Usd {
        of: Run,
        flag: (value_name = "USD", help_heading = "Limits"),
        shown: "no limit",
        live: Live::OrNone(RuleChange::MaxCost),
    }
    /// How many tokens the run may use, those read and those written, as 250k or 2M.
    max_tokens: Tokens {
        of: Run,
        flag: (value_name = "N", help_heading = "Limits"),
        shown: "no limit",
        live: Live::OrNone(RuleChange::MaxTokens),
    }
    /// How much disk the transcripts of a run may take, but for its newest eight; beyond it the oldest lose something.
    max_transcripts: Bytes {
        of: Run,
        no_flag: "it is chosen once for a machine or a project",
        default: Always(Bytes(Settings::MAX_TRANSCRIPTS)),
    }
    /// How long to wait for rate limits and outages, all waits in a row together; 0 ends the run instead.
    wait_on_limit: Time {
        of: Run,
        flag: (help_heading = "Limits"),
        default: Always(RunLimits::default().wait_on_limit.into()),
        live: Live::Value(RuleChange::WaitOnLimit),
    }
    /// How long a stop may take, all of it; 0 waits for nothing.
    shutdown_timeout: Time {
        of: Run,
        flag: (help_heading = "Limits"),
        default: Always(times::STOP_BUDGET.into()),
        env: SHUTDOWN_TIMEOUT,
    }
    /// How long an unanswered press of Ctrl-C stays counted: another one within it stops the run.
    cooldown: Time {
        of: Run,
        flag: (help_heading = "Limits"),
        default: Always(times::COOLDOWN.into()),
    }
    /// Where the run waits for your approval: checkpoint = between two phases, batch:N = after each N iterations, full = nowhere. Without a
    /// terminal it never does.
    autonomy: Autonomy {
        of: Run,
        flag: (value_name = "checkpoint|batch:N|full", help_heading = "Run"),
        shown: "checkpoint with several phases, else full",
        live: Live::ByPerson(RuleChange::Autonomy),
    }
    /// What becomes of processes that the agent leaves running: ended before the next attempt, or kept to the end of the run, those of the last
    /// 8 attempts at most.
    leftovers: Leftovers {
        of: Run,
        flag: (value_name = "end|keep", value_parser = one_of::<Leftovers>(), help_heading = "Agent"),
        default: Always(Leftovers::default()),
    }
    /// Commit what each iteration changed when it is over, also of one that failed, which its commit says: all that git does not ignore, what
    /// you write meanwhile included; your hooks run. Nothing may be uncommitted when the run begins.
    commit: bool {
        of: Run,
        flag: (help_heading = "Git"),
        default: Always(false),
    }
    /// Give each run a working tree and a branch of its own.
    worktree: bool {
        of: Run,
        no_flag: "`run --worktree` takes a name as well, and a resume has the tree of its run",
        default: Always(false),
    }
    /// Run this by sh -c when something happens that `notify-on` names: RLM_EVENT, RLM_TEXT and others say what, standard input says it in JSON.
    /// It has 10 s, and holds nothing up.
    notify: String {
        of: Run,
        flag: (value_name = "CMD", help_heading = "Watching"),
    }
    /// The events for which `notify` runs: started, resumed, iteration, failure, phase, limit, retry, paused, review, question, ended.
    notify_on: Vec<Occasion> {
        of: Run,
        flag: (value_name = "EVENT,..", value_enum, value_delimiter = ',', help_heading = "Watching"),
        default: Always(Occasion::DEFAULT.into()),
    }
    /// Write this file anew every 10 s, and whenever the run comes further, as long as its loop turns.
    heartbeat: PathBuf {
        of: Run,
        project: true,
        flag: (value_name = "FILE", help_heading = "Watching"),
        serde: (serialize_with = "path_as_text"),
    }
    /// Ring the terminal's bell when you are needed and when the run is over, if it is in the foreground there.
    bell: bool {
        of: Run,
        flag: (help_heading = "Watching"),
        default: Always(false),
    }
    /// Projects whose files may belong to another user: a path, `PATH/*` for all below it, or `*`.
    safe_directories: Vec<PathBuf> {
        of: User,
        no_flag: "it is read before any project",
    }
    /// What else Claude Code is told.
    claude: ClaudeOptions {
        of: Phase,
        keys: ClaudeOptions::KEYS,
        no_flag: "a section",
    }
    /// What else Codex is told.
    codex: CodexOptions {
        of: Phase,
        keys: CodexOptions::KEYS,
        no_flag: "a section",
    }
    /// What else the Gemini CLI is told.
    gemini: AcpOptions {
        of: Phase,
        keys: AcpOptions::KEYS,
        no_flag: "a section",
    }
    /// What else OpenCode is told.
    opencode: AcpOptions {
        of: Phase,
        keys: AcpOptions::KEYS,
        no_flag: "a section",
    }
    /// An agent that speaks the Agent Client Protocol.
    acp: AcpSection {
        of: Phase,
        keys: AcpSection::KEYS,
        no_flag: "a section",
    }
    /// A file with MCP servers, such as .mcp.json.
    mcp_config: PathBuf {
        of: Phase,
        project: true,
        no_flag: "servers belong to a project",
    }
    /// MCP servers by name; ${VARIABLE} is filled in when the agent starts.
    mcp_servers: McpServers {
        of: Phase,
        no_flag: "a section",
    }
    /// What Ctrl-C does.
    on_press: PressActions {
        of: Run,
        no_flag: "a section",
    }
}

impl Config {
    /// Returns whether the file's `model` and `agent-bin` are meant for this agent: it names no other.
    pub(crate) fn speaks_of(&self, kind: AgentKind) -> bool {
        self.agent.is_none_or(|named| named == kind)
    }

    pub(crate) fn command(&self) -> Option<Vec<OsString>> {
        let words = self.command.as_ref()?;
        Some(words.iter().map(Into::into).collect())
    }

    /// Returns the options of an agent that is known by its name; `None` for one that is known by its program only.
    pub(super) fn options(&self, kind: AgentKind) -> Option<AgentOptions> {
        let acp = |preset, section: &Option<AcpOptions>| AgentOptions::Acp {
            preset,
            options: boxed(section),
        };
        Some(match kind {
            AgentKind::Claude => AgentOptions::Claude(boxed(&self.claude)),
            AgentKind::Codex => AgentOptions::Codex(boxed(&self.codex)),
            AgentKind::Gemini => acp(AcpPreset::Gemini, &self.gemini),
            AgentKind::Opencode => acp(AcpPreset::Opencode, &self.opencode),
            AgentKind::Command | AgentKind::Acp => return None,
        })
    }
}

fn boxed<T: Clone + Default>(section: &Option<T>) -> Box<T> {
    Box::new(section.clone().unwrap_or_default())
}

/// A setting that can change while a run goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// Its key in the files and in `rlm set`.
    pub(crate) key: &'static str,
    /// Reads what a person sets it to.
    pub(crate) read: fn(&str) -> Result<RuleChange, String>,
    /// What a file says of it.
    pub(crate) said: fn(&Config) -> Option<RuleChange>,
    follows_files: bool,
}

/// Returns whether a file can change this while a run goes on.
pub(super) fn follows_files(key: &str) -> bool {
    let mut limits = LIMITS.iter();
    limits.any(|limit| limit.key == key && limit.follows_files)
}

/// Names the settings that can change while a run goes on.
pub(crate) fn limit_names() -> Vec<&'static str> {
    LIMITS.iter().map(|limit| limit.key).collect()
}

/// Returns what the value at this path can be; `None` for a path that has no key of its own.
pub(super) fn kind_of(path: &[&str]) -> Option<Kind> {
    let find = |keys: &[Key], name| keys.iter().find(|key| key.name == name).map(|key| key.kind);
    match path {
        [name] => find(KEYS, *name),
        [table, name] => match find(KEYS, *table)? {
            Kind::Table(keys) => find(keys, *name),
            _ => None,
        },
        _ => None,
    }
}

/// Says why a key may not stand where it stands; a name that is none is for others to refuse.
pub(super) fn refuses(name: &str, place: Of, whose: Whose) -> Option<String> {
    let key = KEYS.iter().find(|key| key.name == name)?;
    match (key.of, place) {
        (Of::Run, Of::Phase) => Some(format!(
            "`{name}` is of the whole run: write it above the first [[phase]]"
        )),
        (Of::PhaseOnly, Of::Run) => Some(format!(
            "`{name}` is of a phase: write it below a [[phase]]"
        )),
        (Of::User, _) if whose == Whose::Project => Some(format!(
            "`{name}` is for your own file only: write it into ~/.config/rlm/config.toml"
        )),
        _ if key.project && whose == Whose::User => Some(of_projects(name)),
        _ => None,
    }
}

/// Says that a key is none of the user's.
pub(super) fn of_projects(name: &str) -> String {
    format!("`{name}` says what is to be done in one project: write it into its rlm.toml")
}
