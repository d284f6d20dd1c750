//! What a scenario needs of an agent: a stage, and the deeds that it makes the agent do.

use std::time::Duration;

use crate::Driver;

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
