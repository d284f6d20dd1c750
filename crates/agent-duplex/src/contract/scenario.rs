//! The scenarios, the interface to an agent under test, and the results.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::time::Duration;

use crate::{Capability, Driver};

/// One scenario of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Scenario {
    /// A message, its answer, the end of the turn.
    Turn,
    /// A turn with a tool.
    Tool,
    /// A second message after the first is answered.
    TwoMessages,
    /// A message while a turn runs.
    Steer,
    /// An interrupt while the agent writes text.
    InterruptText,
    /// An interrupt while a tool runs.
    InterruptTool,
    /// The agent crashes between two turns.
    Resume,
    /// The service limits the rate once.
    Retry,
    /// The service limits the rate until the agent gives up.
    RateLimit,
    /// The agent is killed in the middle of a turn.
    Death,
    /// The agent ends in the middle of a line, with exit status 0.
    TruncatedLine,
    /// The primary does not read the agent's output for a while.
    SlowReader,
    /// A stop while a tool runs.
    Stop,
    /// The agent requests a permission. One request is denied, one is allowed, and one is withdrawn by an interrupt.
    PermissionRequest,
    /// The agent reports its usage.
    Usage,
    /// A new conversation starts as a copy of another one.
    Fork,
    /// The session to resume does not exist.
    LostSession,
}

impl Scenario {
    /// All scenarios, in the order in which they build on each other.
    pub const ALL: [Self; 17] = [
        Self::Turn,
        Self::Tool,
        Self::TwoMessages,
        Self::Steer,
        Self::InterruptText,
        Self::InterruptTool,
        Self::Resume,
        Self::Retry,
        Self::RateLimit,
        Self::Death,
        Self::TruncatedLine,
        Self::SlowReader,
        Self::Stop,
        Self::PermissionRequest,
        Self::Usage,
        Self::Fork,
        Self::LostSession,
    ];
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Turn => "turn",
            Self::Tool => "tool",
            Self::TwoMessages => "two messages",
            Self::Steer => "steer",
            Self::InterruptText => "interrupt in text",
            Self::InterruptTool => "interrupt in a tool",
            Self::Resume => "resume after a crash",
            Self::Retry => "rate limit, once",
            Self::RateLimit => "rate limit",
            Self::Death => "death",
            Self::TruncatedLine => "truncated line",
            Self::SlowReader => "slow reader",
            Self::Stop => "stop in a tool",
            Self::PermissionRequest => "permission request",
            Self::Usage => "usage",
            Self::Fork => "fork",
            Self::LostSession => "lost session",
        })
    }
}

/// The result of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the contract may be broken"]
pub enum ScenarioResult {
    /// The scenario passed; the text describes the observed behaviour.
    Passed(String),
    /// The driver does not declare this capability; the promised fallback works, as the text describes.
    Undeclared(Capability, String),
    /// The test can't make the agent do what the scenario needs; the text gives the reason.
    NotApplicable(String),
    /// The contract is broken; the text describes the observed behaviour.
    Failed(String),
}

impl ScenarioResult {
    /// Returns whether the contract is broken.
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        matches!(self, Self::Failed(_))
    }

    /// Returns the result as that of a step: only a step that passed lets its scenario continue.
    pub(super) fn into_check(self) -> Result<Self, Self> {
        match self {
            Self::Passed(_) => Ok(self),
            _ => Err(self),
        }
    }

    const fn word(&self) -> &'static str {
        match self {
            Self::Passed(_) => "passed",
            Self::Undeclared(..) => "undeclared",
            Self::NotApplicable(_) => "not applicable",
            Self::Failed(_) => "FAILED",
        }
    }
}

impl fmt::Display for ScenarioResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed(text) | Self::NotApplicable(text) | Self::Failed(text) => {
                write!(f, "{}: {text}", self.word())
            }
            Self::Undeclared(capability, text) => write!(f, "no {capability}: {text}"),
        }
    }
}

/// Returns the table of results: a row for each scenario, a column for each driver, and below them the text of each result.
#[must_use]
pub fn table(columns: &[(&str, Vec<(Scenario, ScenarioResult)>)]) -> String {
    let mut rows: BTreeMap<Scenario, BTreeMap<usize, &ScenarioResult>> = BTreeMap::new();
    for (i, (_, cells)) in columns.iter().enumerate() {
        for (scenario, cell) in cells {
            rows.entry(*scenario).or_default().insert(i, cell);
        }
    }
    let mut head = vec![String::new()];
    head.extend(columns.iter().map(|(name, _)| (*name).to_owned()));
    let mut lines = vec![head];
    for (scenario, cells) in &rows {
        let word = |i| cells.get(&i).map_or("", |cell| cell.word()).to_owned();
        let mut line = vec![scenario.to_string()];
        line.extend((0..columns.len()).map(word));
        lines.push(line);
    }
    let mut text = String::new();
    for line in &lines {
        let mut row = String::new();
        for (i, word) in line.iter().enumerate() {
            let width = lines.iter().map(|line| line[i].len()).max().unwrap_or(0);
            // Writing to a string can't fail.
            let _written = write!(row, "{word:width$}  ");
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    for (scenario, cells) in &rows {
        let _written = write!(text, "\n{scenario}\n");
        for (i, cell) in cells {
            let _written = writeln!(text, "  {}: {cell}", columns[*i].0);
        }
    }
    text
}

/// An agent under test: its driver, and ways to make it do something.
pub trait TestAgent: Send + Sync {
    /// Creates a driver of the agent, in the same place for each call: directory, sessions, processes. It is called more than once.
    fn driver(&self) -> Box<dyn Driver>;

    /// Returns a message that makes the agent do this.
    ///
    /// # Errors
    ///
    /// The reason why the agent can't be made to do it; the result contains it.
    fn prompt_for(&self, action: &TestAction) -> Result<String, String>;

    /// Kills the main process of the agent with SIGKILL, as a crash would. `pid` comes from the driver's [`Event::Started`](crate::Event::Started).
    ///
    /// # Errors
    ///
    /// The reason why it can't be ended.
    fn kill(&self, pid: u32) -> Result<(), String>;

    /// Returns whether the agent has a process of its own; true by default. An agent that runs inside this program can't be killed: instead of a
    /// crash, its conversation is closed and another one resumes the session.
    fn has_process(&self) -> bool {
        true
    }

    /// Returns whether a process of the tool with this name is alive (see [`TestAction::RunToolFor`]); `None` if this can't be observed.
    fn alive(&self, tool: &str) -> Option<bool>;

    /// Returns the maximum time for every expected event: a start, a turn, an end. After that time the contract counts as broken.
    fn timeout(&self) -> Duration;
}

/// An action that a [`TestAgent`] makes its agent do. Unless stated otherwise, the agent then ends its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TestAction {
    /// Writes this word.
    Say(String),
    /// Writes the first message of its conversation, or at least the word that this message made it [write](Self::Say).
    Recall,
    /// Calls a tool that ends by itself immediately.
    CallTool,
    /// Calls a tool that needs a permission request, and continues after the answer. The driver must be configured so that the agent asks.
    CallToolWithPermission,
    /// Calls a tool that runs for this time. [`TestAgent::alive`] finds the process of the tool by its name. Then the agent writes the messages that
    /// it got in the meantime.
    RunToolFor {
        /// The name of the process.
        name: String,
        /// The lifetime of the process.
        time: Duration,
    },
    /// Writes text for this time, a few words at a time.
    TalkFor(Duration),
    /// Gets a rate limit error from its service once, and then writes this word.
    RateLimitOnce(String),
    /// Gets rate limit errors from its service until the agent gives up.
    RateLimit,
    /// Writes something, and ends in the middle of a line as if it had succeeded: with exit status 0.
    EndMidLine,
    /// Writes a text of at least this many bytes.
    Flood(usize),
}
