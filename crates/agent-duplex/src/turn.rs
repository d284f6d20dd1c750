use std::fmt;

use crate::Event;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExitStatus {
    /// It exited with this code.
    Code(i32),
    /// It was killed by this signal.
    Signal(i32),
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit status {code}"),
            Self::Signal(signal) => write!(f, "killed by signal {signal}"),
        }
    }
}

/// Why a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndReason {
    /// The agent finished it.
    Completed,
    /// We interrupted it.
    Interrupted,
    /// The agent reported a failure.
    Failed,
    /// The agent's process ended without finishing it. Never a success, whatever its exit code.
    Died,
}

/// The end of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnEnd {
    /// Why it ended.
    pub reason: EndReason,
    /// How the process ended, when it did.
    pub exit: Option<ExitStatus>,
    /// The last of what the agent wrote to its standard error, for the record.
    pub stderr_tail: String,
}

/// Sees to it that a turn has exactly one completion and that nothing of it comes later.
///
/// Feed it what a connection reports, and tell it when the connection ends.
///
/// # Examples
///
/// ```
/// use agent_duplex::{EndReason, Event, Turn};
///
/// let mut turn = Turn::default();
/// assert!(turn.observe(Event::Started { pid: 7 }).is_some());
/// // The connection ends and owes the completion: the turn died.
/// let Some(Event::TurnCompleted(end)) = turn.finish() else { panic!() };
/// assert_eq!(end.reason, EndReason::Died);
/// assert!(turn.finish().is_none());
/// ```
#[derive(Debug, Default)]
pub struct Turn {
    completed: bool,
}

impl Turn {
    /// Returns whether the completion was reported.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.completed
    }

    /// Passes an event on, unless the turn was already over.
    pub fn observe(&mut self, event: Event) -> Option<Event> {
        if self.completed {
            return None;
        }
        self.completed = matches!(event, Event::TurnCompleted(_));
        Some(event)
    }

    /// Returns the completion that an ended connection still owes.
    pub fn finish(&mut self) -> Option<Event> {
        self.observe(Event::TurnCompleted(TurnEnd {
            reason: EndReason::Died,
            exit: None,
            stderr_tail: String::new(),
        }))
    }
}
