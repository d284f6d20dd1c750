//! What is played, on which stage, and what came of it.

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
    /// An interrupt while the agent talks.
    InterruptText,
    /// An interrupt while a tool runs.
    InterruptTool,
    /// The agent crashes between two turns.
    Resume,
    /// The service limits the rate, and then no more.
    Retry,
    /// The service limits the rate until the agent gives up.
    RateLimit,
    /// The agent is killed in the middle of a turn.
    Death,
    /// The agent ends in the middle of a line, with exit status 0.
    CutLine,
    /// Nobody reads for a while what the agent says.
    SlowReader,
    /// A stop while a tool runs.
    Stop,
    /// The agent asks whether it may, is denied, allowed, and interrupted before it is answered.
    Ask,
    /// What was used is told.
    Usage,
    /// A new conversation begins as a copy.
    Fork,
    /// The session to go on with does not exist.
    LostSession,
}

impl Scenario {
    /// All of them, in the order in which they build on each other.
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
        Self::CutLine,
        Self::SlowReader,
        Self::Stop,
        Self::Ask,
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
            Self::CutLine => "cut last line",
            Self::SlowReader => "slow reader",
            Self::Stop => "stop in a tool",
            Self::Ask => "ask",
            Self::Usage => "usage",
            Self::Fork => "fork",
            Self::LostSession => "lost session",
        })
    }
}

/// What came of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it may be broken"]
pub enum Cell {
    /// It held; the text says what was seen.
    Held(String),
    /// The driver does not declare this; what is promised instead held, as the text says.
    Undeclared(Capability, String),
    /// The agent can't be made to; the text says why.
    Impossible(String),
    /// It does not hold; the text says what was seen instead.
    Broken(String),
}

impl Cell {
    /// Returns whether the contract is broken.
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        matches!(self, Self::Broken(_))
    }

    const fn word(&self) -> &'static str {
        match self {
            Self::Held(_) => "held",
            Self::Undeclared(..) => "undeclared",
            Self::Impossible(_) => "impossible",
            Self::Broken(_) => "BROKEN",
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(text) | Self::Impossible(text) | Self::Broken(text) => {
                write!(f, "{}: {text}", self.word())
            }
            Self::Undeclared(capability, text) => write!(f, "no {capability}: {text}"),
        }
    }
}

/// Writes the table of what was played: a row for each scenario, a column for each driver, and below them what each cell means.
#[must_use]
pub fn table(columns: &[(&str, Vec<(Scenario, Cell)>)]) -> String {
    let mut rows: BTreeMap<Scenario, BTreeMap<usize, &Cell>> = BTreeMap::new();
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

/// What a scenario needs of an agent: its driver, and ways to make it do something.
pub trait Stage: Send + Sync {
    /// Makes a driver of the agent, in this stage's own place: directory, sessions, processes. It is called more than once, and each driver goes on in
    /// the same place.
    fn driver(&self) -> Box<dyn Driver>;

    /// Returns a message that makes the agent do this.
    ///
    /// # Errors
    ///
    /// Why it can't be made to; the cell says so.
    fn words(&self, deed: &Deed) -> Result<String, String>;

    /// Ends the agent's main process as a crash would, by SIGKILL. `pid` is what the driver said of it with [`Event::Started`](crate::Event::Started).
    ///
    /// # Errors
    ///
    /// Why it can't be ended.
    fn kill(&self, pid: u32) -> Result<(), String>;

    /// Returns whether a process of the tool with this name, see [`Deed::ToolFor`], is alive; `None` when that can't be seen.
    fn alive(&self, tool: &str) -> Option<bool>;

    /// Returns how long anything may take that has to come: a start, a turn, an end. Longer is broken.
    fn patience(&self) -> Duration;
}

/// Something that a [`Stage`] makes its agent do. Unless it says otherwise, the agent ends its turn after it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deed {
    /// Says this word.
    Say(String),
    /// Says what the first message of its conversation was, or at least the word that it had to [say](Self::Say) then.
    Recall,
    /// Calls a tool that ends by itself at once.
    Tool,
    /// Calls a tool for which it has to ask before, and goes on when that is answered. The driver has to be one that lets it ask.
    Ask,
    /// Calls a tool whose process is known to [`Stage::alive`] by its name and takes so long, and then says what it was told meanwhile, if anything.
    ToolFor {
        /// The name of the process.
        name: String,
        /// How long it lives.
        time: Duration,
    },
    /// Talks, a few words at a time, for so long.
    TalkFor(Duration),
    /// Is refused by its service for a limit of the rate once, and then says this word.
    LimitOnce(String),
    /// Is refused by its service for a limit of the rate until it gives up.
    Limit,
    /// Says something, and ends in the middle of a line as if all were well: with exit status 0.
    CutLine,
    /// Says a text of this many bytes or more.
    Flood(usize),
}
