//! What the machine is told: everything that can happen to a run, with its time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    Request, RuleChange, Rules, SteerState, StopCause, StopRequest, Timestamp, Usage, When,
};

/// Something that happened, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
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
    /// A person asks for something. The machine decides what that means where the run stands, or refuses it, see [`Effect::Refuse`](crate::Effect::Refuse).
    /// The machine ignores [`Request::Answer`] and [`Request::Prompt`]: it holds neither questions nor prompts.
    Requested(Request),
    /// A signal asks the run to stop.
    StopRequested(StopRequest),
    /// A steer came further.
    SteerMoved {
        /// Its number.
        id: u32,
        /// How far it has come; going back is ignored.
        state: SteerState,
    },
    /// Whether a person can be asked from now on. Until this or a resume says so, nobody can, and the run never waits for an answer. When it
    /// waits for one and nobody is there any more, it goes on.
    Attended(bool),
    /// The run's configuration has another rule, one of a phase for the phase with this index, which may be a later one.
    PhaseRuleSet {
        /// Which.
        phase: u32,
        /// The rule.
        change: RuleChange,
    },
    /// The agent's session has this id; one of more than [`MAX_TEXT`](crate::MAX_TEXT) bytes is not kept, and its session not gone on with.
    SessionKnown(String),
    /// The agent has come to this result, in its own words. The last one before a phase is over is for the next phase.
    Said(String),
    /// The agent answers, so that it has the prompt; of one whose words nobody understands, that it was handed it. Comes for every attempt.
    Prompted,
    /// The agent used this much more. Comes as soon as it is known: a budget that is used up ends the turn.
    Used(Usage),
    /// In the turn that runs no tool ran and nothing changed, as far as that can be known.
    NothingDone,
    /// The agent was denied something that it had asked for.
    Denied,
    /// The processes of the run stood still for this long, and go on.
    Thawed(Duration),
    /// The process was told to stop before its first event: before [`Started`](Self::Started) or [`Resumed`](Self::Resumed). The run counts as
    /// stopped by this request, unless it had come to an end of its own.
    StoppedEarly(StopRequest),
    /// A request to stop now waits behind what is being done. Its deadline begins with this, and the request itself follows.
    #[serde(skip)]
    StopForeseen {
        /// Whether it is [`Request::Abort`].
        abort: bool,
    },
    /// The program shuts down: no work may begin any more. A request to stop, with its reason, is on its way.
    #[serde(skip)]
    ShutDown,
    /// Whether the processes of the run are suspended from now on. While they are, no timer runs out and no silence counts;
    /// [`Thawed`](Self::Thawed) follows.
    #[serde(skip)]
    Frozen(bool),
    /// The process is done with the run, and ends what is left of it. From now on, only requests to stop have an effect: they move the deadline.
    #[serde(skip)]
    Ending,
    /// Something that lasts is to be reported; comes from [`Machine::reminder_due`](crate::Machine::reminder_due).
    #[serde(skip)]
    ReminderDue,
    /// The agent gave a sign of life. It postpones the idle timer.
    #[serde(skip)]
    Alive,
    /// The agent announced to wait this long before it tries again. That is no silence, for an hour at most.
    #[serde(skip)]
    Retrying(Duration),
    /// Whether the agent waits for a tool, for a person or for its background tasks. Such silence is not idleness.
    #[serde(skip)]
    Busy(bool),
    /// Whether the turn of the agent that works, if one does, can be ended and its session gone on with. Comes before each request; until this says no, it can.
    #[serde(skip)]
    Interruptible(bool),
}

impl Happening {
    /// Returns whether this is true only of the live process: no later process needs to know it, so it is neither journalled nor serialised.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::StopForeseen { .. }
                | Self::ShutDown
                | Self::Frozen(_)
                | Self::Ending
                | Self::ReminderDue
                | Self::Alive
                | Self::Retrying(_)
                | Self::Busy(_)
                | Self::Interruptible(_)
        )
    }

    /// Returns what announces this request to a machine that can't take it yet; `None` where it is no request to stop now.
    #[must_use]
    pub fn foreseen(&self) -> Option<Self> {
        let abort = matches!(self, Self::Requested(Request::Abort));
        let is_now = self.stop().is_some_and(|it| it.when == When::Now);
        is_now.then_some(Self::StopForeseen { abort })
    }

    /// Returns the stop that this asks for, if it asks for one.
    #[must_use]
    pub fn stop(&self) -> Option<StopRequest> {
        match self {
            Self::StopRequested(request) => Some(*request),
            Self::Requested(request) => request.stop(),
            Self::TimeUp(Timer::Shutdown) => Some(StopRequest {
                by: StopCause::Terminated,
                when: When::Now,
            }),
            _ => None,
        }
    }
}

/// How a run is taken over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Resume {
    /// Rules that replace the saved ones.
    pub rules: Option<Rules>,
    /// The iteration to start at, instead of the saved one. What was recorded from there on is discarded.
    pub from: Option<u32>,
    /// The highest attempt number that was ever used, when the caller knows that the saved state is older than that: after a damage.
    pub used_attempts: Option<u32>,
    /// The last iteration that was ever begun, when the caller knows that the saved state is older than that: after a damage. `from` may go so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<u32>,
    /// Whether a person can be asked.
    pub attended: bool,
    /// The agent that the run had, if it has another one from now on: the session is that one's own and is not gone on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor: Option<String>,
    /// What the person who resumes has to say to the agent: a steer for the next prompt, or how a phase that waits for a review shall be revised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<String>,
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
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
    /// The agent failed in a way that may not come again: what it sent could not be read, a connection broke. Its iteration is tried again, up to
    /// four times in all, before it counts as failed; the text says how it failed.
    Transient(String),
    /// The agent may not work now. Its iteration is done again when it may, and is no failure.
    RateLimited {
        /// When the limit is over, if the agent says so.
        reset: Option<Timestamp>,
        /// What the agent says.
        why: String,
    },
    /// It was ended because the machine had asked for a stop.
    Stopped,
    /// The agent can't work before a person has mended something, such as a login. Ends the run.
    Hopeless(String),
    /// The session that was to be gone on with is not there any more. The work is begun again in a fresh one.
    SessionLost,
    /// Another process has the session that was to be gone on with; the text names it. As the first thing that a process does this ends the run; later
    /// it is a failed turn.
    SessionHeld(String),
    /// The agent could not be started. As the first thing that a process does this ends the run; later it is a failed turn.
    NotStarted(String),
}

/// How a gate or the check ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CheckResult {
    /// It exited with 0.
    Passed,
    /// It didn't; the text is the tail of what it printed, and how it ended.
    Failed(String),
    /// It could not be run: there is no such command, or it is no program. The text says the same as of one that failed.
    NotRun(String),
    /// It was ended because the machine had asked for a stop.
    Stopped,
}

/// What became of the processes that an attempt had started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tree {
    /// How many were ended by the loop after the attempt was over.
    pub ended: u32,
    /// How many could not be ended.
    pub survivors: u32,
}

/// A timer of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Timer {
    /// The turn took too long.
    Iteration,
    /// The agent gave no sign of life for too long.
    Idle,
    /// The gate or the check took too long.
    Check,
    /// The pause between two iterations is over.
    Sleep,
    /// The rate limit is over.
    Limit,
    /// It is time for another try.
    Retry,
    /// The run was active for as long as it may be.
    Run,
    /// The program shuts down, and no request to stop says why.
    Shutdown,
}
