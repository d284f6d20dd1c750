//! All settings, each defined once. The definition of a setting gives its option, its key in `rlm.toml`, its schema, its line in `config show`, its
//! default, its environment variable and its key of `rlm set`.
//!
//! The doc comment of a definition is its help and its description in the schema. After the name comes the type, which decides the values that a
//! file and an option accept; `values.rs` has the types. Then come:
//!
//! - `of`: where the key may be: above the phases (`Run`), in a phase or above the phases (`Phase`), only in a phase (`PhaseOnly`), or only in the
//!   user's own file (`User`);
//! - `keys`: the keys of an agent's section;
//! - `project: true`: the user's own file may not have the key, because it defines the task of one project;
//! - `flag`: the arguments of clap for the option, or `no_flag`: the reason why there is no option;
//! - `short`: the help of the option in `run -h`; an option without it is only in `run --help`;
//! - `default`: the value if no layer sets one: `Always`, or only for agents with a driver: `ForDriver`; `shown`: the default as the help shows it;
//! - `env`: the environment variable that sets it; no other variable is a setting;
//! - `live`: the rule that it changes in a live run; see [`LiveRule`].

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use agent_drivers::mcp::McpServers;
use agent_drivers::{
    AgentOptions, acp::AcpOptions, acp::AcpPreset, api::ApiOptions, api::ApiServer,
    claude::ClaudeOptions, codex::CodexOptions,
};
use agent_duplex::Permissions;
use clap::builder::TypedValueParser as _;
use loop_state::{Autonomy, PhaseLimits, RuleChange, RunLimits, SessionPolicy, times};
use rlm_store::{Leftovers, PhaseSettings, Settings};
use rlm_terminal::PressActions;

use super::keys::{
    DefaultValue, FileOwner, Key, KeyScope, ValueKind, kebab, name_of, option, section, settings,
    toml, type_kind,
};
use super::values::{
    AcpSection, Bytes, Debounce, NotifyChannel, PhaseName, Time, Title, Tokens, Usd, Value,
    Webhook, one_of, path_as_text,
};
use crate::agents::AgentKind;
use crate::config::NotifyEvent;
use crate::config::values::LiveRule;

// Defaults that other modules need too.
pub(crate) const DEFAULT_PROMPT: &str = "PROMPT.md";
pub(crate) const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(900);
/// The variable that sets the stop budget.
pub(crate) const SHUTDOWN_TIMEOUT: &str = "RLM_SHUTDOWN_TIMEOUT";
/// The variable that skips the check before the first iteration.
const NO_FIRST_CHECK: &str = "RLM_NO_FIRST_CHECK";
/// The variable with the address of the page of the runs.
const VIEW_URL: &str = "RLM_VIEW_URL";
/// The variable that keeps the computer awake.
const KEEP_AWAKE: &str = "RLM_KEEP_AWAKE";

settings! {
    /// The name of the phase.
    name: PhaseName {
        of: PhaseOnly,
        project: true,
        no_flag: "the command line can't name a phase",
    }
    /// The prompt, instead of a file.
    prompt: String {
        of: Phase,
        project: true,
        flag: (short, value_name = "TEXT", conflicts_with = "prompt_file", help_heading = "Prompt"),
        short: "The prompt",
    }
    /// The file with the prompt, read again for each iteration; --prompt-file - reads standard input.
    prompt_file: PathBuf {
        of: Phase,
        project: true,
        flag: (short = 'P', value_name = "FILE", help_heading = "Prompt"),
        serde: (serialize_with = "path_as_text"),
        default: Always(DEFAULT_PROMPT.into()),
        short: "Its file; - is stdin",
    }
    /// The agent.
    agent: AgentKind {
        of: Phase,
        no_flag: "`run` and `resume` each have an --agent with its own help",
        env: "RLM_AGENT",
    }
    /// The agent, as a program and its arguments; it gets the prompt on standard input.
    command: Vec<String> {
        of: Phase,
        no_flag: "on the command line it follows --",
    }
    /// The agent's program: a name on PATH, or a path; a path in a file is relative to that file.
    agent_bin: PathBuf {
        of: Phase,
        flag: (value_name = "PATH", help_heading = "Agent"),
        serde: (serialize_with = "path_as_text"),
        shown: "found on PATH",
    }
    /// The model, by the agent's own name for it.
    model: String {
        of: Phase,
        flag: (value_name = "NAME", help_heading = "Agent"),
        shown: "the agent's choice",
        short: "The model",
    }
    /// The permissions of the agent: ask = rlm asks you for everything that the agent's own settings don't allow; edits = edit files, everything else
    /// is denied; all = everything; deny = only what the agent's own settings allow.
    permissions: Permissions {
        of: Phase,
        flag: (value_name = "ask|edits|all|deny", value_parser = one_of::<Permissions>(), help_heading = "Agent"),
        default: ForDriver(Permissions::default()),
        env: "RLM_PERMISSIONS",
        short: "Its permissions",
    }
    /// The agent's session: a fresh one for each iteration, or continue the last one.
    session: SessionPolicy {
        of: Phase,
        flag: (value_name = "fresh|continue", value_parser = one_of::<SessionPolicy>(), help_heading = "Agent"),
        default: ForDriver(SessionPolicy::default()),
        short: "Its session",
    }
    /// Finished when the agent ends its last message with <promise>TEXT</promise>. With `until`, the check then decides; without it, the promise
    /// decides.
    completion_promise: String {
        of: Phase,
        project: true,
        flag: (value_name = "TEXT", help_heading = "Stop condition"),
        short: "Finish at <promise>TEXT</promise>",
    }
    /// Finished when this command (the check) exits with 0; it runs after each iteration.
    until: String {
        of: Phase,
        project: true,
        flag: (value_name = "CMD", help_heading = "Stop condition"),
        short: "Finish when this check exits with 0",
    }
    /// Required checks: commands that must pass before an iteration counts, one per --gate; the next prompt has the output of a failed one.
    gates: Vec<String> {
        of: Phase,
        project: true,
        flag: (long = "gate", value_name = "CMD", help_heading = "Stop condition"),
        short: "A required check of each iteration",
    }
    /// Start a new run with its first iteration. Without this option, Claude Code or Codex first reports whether it is logged in; then the required
    /// checks and the check run, except with phases or a completion promise: if all pass, the run is already done.
    no_first_check: bool {
        of: Run,
        flag: (help_heading = "Stop condition"),
        default: Always(false),
        env: NO_FIRST_CHECK,
    }
    /// The number of iterations: the plan, or with a check the limit.
    max_iterations: NonZeroU32 {
        of: Phase,
        flag: (
            short = 'n',
            value_parser = clap::value_parser!(u32).range(1..).try_map(NonZeroU32::try_from),
            help_heading = "Limits",
        ),
        default: Always(NonZeroU32::new(100).expect("100 is more than 0")),
        live: LiveRule::OrNone(RuleChange::MaxIterations),
        short: "Run N iterations",
    }
    /// The time limit of one turn of the agent.
    iteration_timeout: Time {
        of: Phase,
        flag: (help_heading = "Limits"),
        default: Always(Duration::from_secs(3600).into()),
        shown: "1h",
        live: LiveRule::OrNone(RuleChange::IterationTimeout),
        short: "Of one turn of the agent",
    }
    /// End the turn after this time without output; a running tool counts as output.
    idle_timeout: Time {
        of: Phase,
        flag: (help_heading = "Limits"),
        default: ForDriver(DEFAULT_IDLE_TIMEOUT.into()),
        shown: "15m, off for a command agent",
        live: LiveRule::OrNone(RuleChange::IdleTimeout),
        short: "Of a turn without output",
    }
    /// The time limit of a required check or the check.
    check_timeout: Time {
        of: Phase,
        flag: (help_heading = "Limits"),
        default: Always(PhaseLimits::CHECK_TIMEOUT.into()),
        shown: "15m",
        live: LiveRule::Value(RuleChange::CheckTimeout),
    }
    /// Wait this long for background tasks that show no progress after a turn, then end them; 0 ends them at once.
    background_wait: Time {
        of: Phase,
        flag: (help_heading = "Limits"),
        default: Always(PhaseSettings::BACKGROUND_WAIT.into()),
    }
    /// The time limit of the run: the time in which it is active, over all its processes.
    max_duration: Time {
        of: Run,
        flag: (help_heading = "Limits"),
        shown: "no limit",
        live: LiveRule::OrNone(RuleChange::MaxDuration),
        short: "Of the whole run",
    }
    /// The number of failures in a row that ends the run; 0 for no limit.
    max_failures: u32 {
        of: Run,
        flag: (help_heading = "Limits"),
        default: Always(RunLimits::default().max_failures),
        live: LiveRule::OrNone(|most| RuleChange::MaxFailures(most.unwrap_or(0))),
        short: "End after N failures in a row",
    }
    /// The pause between iterations.
    sleep: Time {
        of: Run,
        flag: (help_heading = "Limits"),
        default: Always(RunLimits::default().sleep.into()),
        live: LiveRule::Value(RuleChange::Sleep),
    }
    /// Cost limit in US dollars, as reported by the agent; the turn that reaches it is interrupted.
    max_cost: Usd {
        of: Run,
        flag: (value_name = "USD", help_heading = "Limits"),
        shown: "no limit",
        live: LiveRule::OrNone(RuleChange::MaxCost),
        short: "In US dollars, as the agent reports it",
    }
    /// Token limit, input and output together, such as 250k or 2M; the turn that reaches it is interrupted.
    max_tokens: Tokens {
        of: Run,
        flag: (value_name = "N", help_heading = "Limits"),
        shown: "no limit",
        live: LiveRule::OrNone(RuleChange::MaxTokens),
    }
    /// The disk space for the transcripts of a run, except its newest eight; above it, the oldest transcripts drop content.
    max_transcripts: Bytes {
        of: Run,
        no_flag: "it is set once for a machine or a project",
        default: Always(Bytes(Settings::MAX_TRANSCRIPTS)),
    }
    /// How long to wait for rate limits and outages, as the sum of all waits in a row; 0 ends the run instead.
    wait_on_limit: Time {
        of: Run,
        flag: (help_heading = "Limits"),
        default: Always(RunLimits::default().wait_on_limit.into()),
        live: LiveRule::Value(RuleChange::WaitOnLimit),
    }
    /// The stop budget: the time for a whole stop; 0 waits for nothing.
    shutdown_timeout: Time {
        of: Run,
        flag: (help_heading = "Limits"),
        default: Always(times::STOP_BUDGET.into()),
        env: SHUTDOWN_TIMEOUT,
    }
    /// How long an unanswered Ctrl-C counts: another one within this time stops the run.
    cooldown: Time {
        of: Run,
        flag: (help_heading = "Limits"),
        default: Always(times::COOLDOWN.into()),
    }
    /// The time after a Ctrl-C within which another one counts as the same one, at most 1 s.
    debounce: Debounce {
        of: Run,
        flag: (help_heading = "Limits"),
        default: Always(Debounce::DEFAULT),
    }
    /// A short name of the run, which `rlm status` and `rlm ps` show; at most 80 characters.
    title: Title {
        of: Run,
        project: true,
        flag: (value_name = "TEXT", help_heading = "Run"),
    }
    /// Where the run waits for your review: checkpoint = between two phases, batch:N = after each N iterations, full = nowhere. Without a terminal
    /// it never waits.
    autonomy: Autonomy {
        of: Run,
        flag: (value_name = "checkpoint|batch:N|full", help_heading = "Run"),
        shown: "checkpoint with several phases, else full",
        live: LiveRule::ByPerson(RuleChange::Autonomy),
    }
    /// Processes that the agent leaves running: end them before the next attempt, or keep them until the run ends (at most those of the
    /// last 8 attempts).
    leftovers: Leftovers {
        of: Run,
        flag: (value_name = "end|keep", value_parser = one_of::<Leftovers>(), help_heading = "Agent"),
        default: Always(Leftovers::default()),
    }
    /// Commit the changes of each iteration, also of a failed one, whose commit message says so. A commit has every change that git doesn't ignore,
    /// including yours; your hooks run. The run doesn't start while there are uncommitted changes.
    commit: bool {
        of: Run,
        flag: (help_heading = "Git"),
        default: Always(false),
        short: "Commit the changes of each iteration",
    }
    /// Give each run its own worktree and branch.
    worktree: bool {
        of: Run,
        no_flag: "`run --worktree` takes a name as well, and a resume uses the worktree of its run",
        default: Always(false),
    }
    /// Send notifications for the events in `notify-on`; several channels are possible. desktop = a notification of your desktop; webhook = a POST to
    /// each webhook of your own file; command:CMD = sh -c runs CMD, with the event in RLM_EVENT, RLM_TEXT and other variables, and as JSON on standard
    /// input; bell = the terminal's bell, when the run needs you and when it ends. The run doesn't wait for them.
    notify: Vec<NotifyChannel> {
        of: Run,
        flag: (value_name = "CHANNEL", help_heading = "Notifications"),
    }
    /// The webhooks of the channel `webhook`: url, the secret address; preset, the form of the JSON (json, ntfy, slack, discord), by default that of
    /// the host; token-variable, the name of the variable with the access token.
    webhook: Vec<Webhook> {
        of: User,
        no_flag: "other users of the machine could read the address",
    }
    /// The address of your page of the runs: notifications link to it.
    view_url: String {
        of: User,
        no_flag: "it is set once for a machine",
        env: VIEW_URL,
    }
    /// The events that channels report: started, resumed, iteration, iteration-failed, phase, limit, retry, paused, review, permission, done, stuck,
    /// stopped, failed.
    notify_on: Vec<NotifyEvent> {
        of: Run,
        flag: (value_name = "EVENT,..", value_enum, value_delimiter = ',', help_heading = "Notifications"),
        default: Always(NotifyEvent::DEFAULT.into()),
    }
    /// Write this file every 10 s, and at each step of the run, as long as its loop works.
    heartbeat: PathBuf {
        of: Run,
        project: true,
        flag: (value_name = "FILE", help_heading = "Notifications"),
        serde: (serialize_with = "path_as_text"),
    }
    /// Keep the computer awake until the run ends, also while it waits or is paused: by systemd-inhibit on Linux, by caffeinate on macOS. If that fails,
    /// the run prints a warning and continues.
    keep_awake: bool {
        of: Run,
        flag: (help_heading = "Run"),
        default: Always(false),
        env: KEEP_AWAKE,
    }
    /// Projects whose files may belong to another user: a path, `PATH/*` for all projects below it, or `*`.
    safe_directories: Vec<PathBuf> {
        of: User,
        no_flag: "rlm reads it before any project",
    }
    /// More settings for Claude Code.
    claude: ClaudeOptions {
        of: Phase,
        keys: ClaudeOptions::KEYS,
        no_flag: "a section",
    }
    /// More settings for Codex.
    codex: CodexOptions {
        of: Phase,
        keys: CodexOptions::KEYS,
        no_flag: "a section",
    }
    /// More settings for the agent of rlm itself.
    api: ApiOptions {
        of: Phase,
        keys: ApiOptions::KEYS,
        no_flag: "a section",
    }
    /// The model server of the agent of rlm itself.
    api_server: ApiServer {
        of: User,
        keys: ApiServer::KEYS,
        no_flag: "a project could send your key elsewhere",
    }
    /// More settings for Gemini CLI.
    gemini: AcpOptions {
        of: Phase,
        keys: AcpOptions::KEYS,
        no_flag: "a section",
    }
    /// More settings for OpenCode.
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
    /// The action of Ctrl-C, for each part of the run.
    on_press: PressActions {
        of: Run,
        no_flag: "a section",
    }
}

impl Config {
    /// Returns whether the file's `model` and `agent-bin` apply to this agent: the file names no other agent.
    pub(crate) fn applies_to_agent(&self, kind: AgentKind) -> bool {
        self.agent.is_none_or(|named| named == kind)
    }

    pub(crate) fn command(&self) -> Option<Vec<OsString>> {
        let words = self.command.as_ref()?;
        Some(words.iter().map(Into::into).collect())
    }

    /// Returns the options of a known agent; `None` for `command` and `acp`, which a program defines.
    pub(super) fn options(&self, kind: AgentKind) -> Option<AgentOptions> {
        let acp = |preset, section: &Option<AcpOptions>| AgentOptions::Acp {
            preset,
            options: boxed(section),
        };
        Some(match kind {
            AgentKind::Claude => AgentOptions::Claude(boxed(&self.claude)),
            AgentKind::Codex => AgentOptions::Codex(boxed(&self.codex)),
            AgentKind::Api => AgentOptions::Api(boxed(&self.api)),
            AgentKind::Gemini => acp(AcpPreset::Gemini, &self.gemini),
            AgentKind::Opencode => acp(AcpPreset::Opencode, &self.opencode),
            AgentKind::Command | AgentKind::Acp => return None,
        })
    }
}

fn boxed<T: Clone + Default>(section: &Option<T>) -> Box<T> {
    Box::new(section.clone().unwrap_or_default())
}

/// A setting that can change in a live run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveSetting {
    /// The key of the setting in the files and in `rlm set`.
    pub(crate) key: &'static str,
    /// Reads the value that a person sets.
    pub(crate) read: fn(&str) -> Result<RuleChange, String>,
    /// Returns the change that a file requests.
    pub(crate) from_file: fn(&Config) -> Option<RuleChange>,
    follows_files: bool,
}

/// Returns whether a file can change this setting in a live run.
pub(super) fn follows_files(key: &str) -> bool {
    let mut limits = LIMITS.iter();
    limits.any(|limit| limit.key == key && limit.follows_files)
}

/// Returns the names of the settings that can change in a live run.
pub(crate) fn limit_names() -> Vec<&'static str> {
    LIMITS.iter().map(|limit| limit.key).collect()
}

/// Returns the kind of the value at this path; `None` for a path that has no key of its own.
pub(super) fn kind_of(path: &[&str]) -> Option<ValueKind> {
    let find = |keys: &[Key], name| keys.iter().find(|key| key.name == name).map(|key| key.kind);
    match path {
        [name] => find(KEYS, *name),
        [table, name] => match find(KEYS, *table)? {
            ValueKind::Table(keys) => find(keys, *name),
            _ => None,
        },
        _ => None,
    }
}

/// Explains why a key may not be in this place; the parser refuses unknown names.
pub(super) fn placement_error(name: &str, place: KeyScope, whose: FileOwner) -> Option<String> {
    let key = KEYS.iter().find(|key| key.name == name)?;
    match (key.scope, place) {
        (KeyScope::Run, KeyScope::Phase) => Some(format!(
            "`{name}` is a setting of the whole run: write it above the first [[phase]]"
        )),
        (KeyScope::PhaseOnly, KeyScope::Run) => Some(format!(
            "`{name}` is a setting of a phase: write it below a [[phase]]"
        )),
        (KeyScope::User, _) if whose == FileOwner::Project => Some(format!(
            "`{name}` is allowed only in your own file: write it into ~/.config/rlm/config.toml"
        )),
        _ if key.project && whose == FileOwner::User => Some(of_projects(name)),
        _ => None,
    }
}

/// Explains that a key may not be in the user's own file.
pub(super) fn of_projects(name: &str) -> String {
    format!("`{name}` belongs to one project: write it into the rlm.toml of the project")
}
