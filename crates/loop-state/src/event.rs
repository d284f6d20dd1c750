use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Again, Rules, SteerState, StopRequest, Timestamp, Usage};

/// Something that happened, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    pub what: Happening,
}

/// What can happen to a run.
///
/// A happening that makes no sense in the present state changes nothing and has no effects: presses race with exits, and both are true.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Happening {
    /// A new run begins. The first event of every run.
    Started,
    /// A new process took the run over.
    Resumed(Resume),
    /// The agent's turn is over and its tree was ended if the machine had asked for that.
    TurnEnded(TurnOutcome),
    /// A gate ended.
    GateEnded(CheckResult),
    /// The check ended.
    CheckEnded(CheckResult),
    /// What the attempt left running is ended.
    Settled(Tree),
    /// A timer ran out; comes from [`Machine::due`](crate::Machine::due).
    TimeUp(Timer),
    /// Somebody wants the run to stop.
    StopRequested(StopRequest),
    /// A person has something to say to the agent.
    SteerAdded {
        /// What.
        text: String,
        /// Whether the turn that runs is to be interrupted for it.
        now: bool,
    },
    /// A steer came further.
    SteerMoved {
        /// Its number.
        id: u32,
        /// How far it has come; going back is ignored.
        state: SteerState,
    },
    /// A person wants the turn to end and its session to wait.
    InterruptRequested,
    /// A person wants the run to wait when the iteration is complete.
    PauseRequested,
    /// A person wants the run to go on, or takes a wish to pause back.
    ContinueRequested,
    /// A person wants the next iteration now.
    SleepSkipped,
    /// A person wants something done again, in a fresh session.
    AgainRequested(Again),
    /// A person wants the next attempt in a fresh session.
    FreshRequested,
    /// The agent's session has this id.
    SessionKnown(String),
    /// The agent answers, so that it has the prompt.
    Prompted,
    /// The agent used this much more.
    Used(Usage),
    /// In the turn that runs no tool ran and nothing changed, as far as that can be known.
    NothingDone,
    /// The agent was denied something that it had asked for.
    Denied,
    /// The processes of the run stood still for this long, and go on.
    Thawed(Duration),
}

/// How a run is taken over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// Rules that replace the saved ones.
    #[serde(default)]
    pub rules: Option<Rules>,
    /// The iteration to start at, instead of the saved one. What was recorded from there on is discarded.
    #[serde(default)]
    pub from: Option<u32>,
    /// The highest attempt number that was ever used, when the caller knows that the saved state is older than that: after a damage.
    #[serde(default)]
    pub used_attempts: Option<u32>,
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TurnOutcome {
    /// The agent finished it.
    Completed,
    /// The agent finished it and made the promise.
    Claimed,
    /// A person's interrupt ended it; the session waits.
    Interrupted,
    /// The agent failed, died or ran out of time; the text says how.
    Failed(String),
    /// It was ended because the machine had asked for a stop.
    Stopped,
    /// The agent can't work before a person has mended something, such as a login. Ends the run.
    Hopeless(String),
    /// The session that was to be gone on with is not there any more. The work is begun again in a fresh one.
    SessionLost,
    /// The agent could not be started. As the first thing that a process does this ends the run; later it is a failed turn.
    NotStarted(String),
}

/// How a gate or the check ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum CheckResult {
    /// It exited with 0.
    Passed,
    /// It didn't, or could not be run; the text is the tail of what it printed, and how it ended.
    Failed(String),
    /// It was ended because the machine had asked for a stop.
    Stopped,
}

/// What became of the processes that an attempt had started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// How many were ended by the loop after the attempt was over.
    pub ended: u32,
    /// How many could not be ended.
    pub survivors: u32,
}

/// A timer of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Timer {
    /// The turn took too long.
    Iteration,
    /// The agent gave no sign of life for too long.
    Idle,
    /// The pause between two iterations is over.
    Sleep,
    /// The run was active for as long as it may be.
    Run,
}
