//! The inputs of the machine: everything that can happen to a run, with its time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    CheckOutcome, Request, RuleChange, Rules, SteerState, StopCause, StopRequest, StopTiming,
    Timestamp, UsageTotal,
};

/// A fact about the run, and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TimedInput {
    /// The time of the input.
    pub at: Timestamp,
    /// The input.
    pub what: MachineInput,
}

/// A fact about a run that the runner reports to the machine.
///
/// An input that makes no sense in the current step changes nothing and has no effects. For example, a press can come when the agent has just
/// exited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MachineInput {
    /// A new run begins. This is the first input of every run.
    Started,
    /// A new process took over the run.
    Resumed(ResumeOptions),
    /// The agent's turn is over. If the machine requested the end of the process tree, that tree has ended too.
    TurnEnded(TurnOutcome),
    /// A required check ended.
    RequiredCheckEnded(CheckResult),
    /// The check ended.
    CheckEnded(CheckResult),
    /// The leftovers of the attempt have ended.
    LeftoversEnded(ProcessTreeOutcome),
    /// A timer expired; the input comes from [`Machine::due_input`](crate::Machine::due_input).
    TimerExpired(Timer),
    /// A person made a request. The machine applies it to the current step or refuses it, see
    /// [`Effect::RejectRequest`](crate::Effect::RejectRequest). The machine ignores [`Request::Answer`] and [`Request::Prompt`]: it stores neither
    /// permission requests nor prompts.
    Requested(Request),
    /// A signal requested a stop.
    StopRequested(StopRequest),
    /// A steer reached a later state.
    SteerAdvanced {
        /// The number of the steer.
        id: u32,
        /// The new state; an earlier state is ignored.
        state: SteerState,
    },
    /// Whether a person can be asked from now on. Before this input, or a resume that sets it, nobody can be asked and the run never waits for an
    /// answer. If it becomes false while the run waits for a review, the run continues.
    Attended(bool),
    /// The configuration of the run has a new rule. A phase rule applies to the phase with this index, which can be a later one.
    PhaseRuleChanged {
        /// The index of the phase.
        phase: u32,
        /// The rule.
        change: RuleChange,
    },
    /// The agent's session has this id. An id of more than [`MAX_TEXT`](crate::MAX_TEXT) bytes is not stored, so its session can't continue.
    SessionKnown(String),
    /// The agent's session is on disk up to this position. The turn ends next. A caller that didn't get the position from the agent reads it from the
    /// session.
    SessionSaved {
        /// The position, as [`Head::session_position`](crate::Head::session_position).
        position: u64,
    },
    /// The agent reported this result, in its own words. The last one of a phase is for the next phase.
    ResultReported(String),
    /// The agent answers, so it has the prompt. If the driver can't parse the agent's output, this input only means that the prompt was delivered.
    /// Each attempt reports it.
    PromptReceived,
    /// The agent used this much more. The runner reports usage as soon as it is known, because a used-up budget ends the turn.
    UsageReported(UsageTotal),
    /// In the current turn no tool ran and nothing in the working tree changed, as far as that can be known.
    NoProgress,
    /// The agent's permission request was denied.
    PermissionDenied,
    /// The processes of the run were suspended for this long and continue.
    Thawed(Duration),
    /// The process received a request to stop before its first input, [`Started`](Self::Started) or [`Resumed`](Self::Resumed). The run counts as
    /// stopped by this request unless it had ended already.
    StoppedBeforeStart(StopRequest),
    /// A request to stop now waits until the current effects are done. Its deadline starts with this input, and the request itself follows.
    #[serde(skip)]
    StopForeseen {
        /// Whether it is [`Request::Abort`].
        abort: bool,
    },
    /// The program shuts down: no work may begin. A request to stop, with its reason, follows.
    #[serde(skip)]
    ShutDown,
    /// Whether the processes of the run are suspended from now on. Meanwhile no timer expires and the idle timeout is stopped;
    /// [`Thawed`](Self::Thawed) follows when the processes continue.
    #[serde(skip)]
    Frozen(bool),
    /// The process has finished with the run and ends all remaining processes. From now on only requests to stop have an effect: they move the
    /// deadline.
    #[serde(skip)]
    Ending,
    /// A reminder is due; the input comes from [`Machine::reminder_due`](crate::Machine::reminder_due).
    #[serde(skip)]
    ReminderDue,
    /// The agent showed activity, which restarts the idle timer.
    #[serde(skip)]
    AgentActive,
    /// The agent announced a wait of this length before it retries. Up to one hour of it doesn't count as idle.
    #[serde(skip)]
    AgentRetrying(Duration),
    /// Whether the agent waits for a tool, for a person or for its background tasks. Such time doesn't count as idle.
    #[serde(skip)]
    AgentBusy(bool),
    /// Whether the turn of the working agent can be interrupted and its session continued. This input comes before each request; before the first one
    /// the machine assumes yes.
    #[serde(skip)]
    AgentInterruptible(bool),
}

impl MachineInput {
    /// Returns whether this input is true only for the live process. No later process needs it, so it is neither in the journal nor serialised.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::StopForeseen { .. }
                | Self::ShutDown
                | Self::Frozen(_)
                | Self::Ending
                | Self::ReminderDue
                | Self::AgentActive
                | Self::AgentRetrying(_)
                | Self::AgentBusy(_)
                | Self::AgentInterruptible(_)
        )
    }

    /// Returns the input that announces this request to a machine that can't accept it yet; `None` if it is not a request to stop now.
    #[must_use]
    pub fn foreseen(&self) -> Option<Self> {
        let abort = matches!(self, Self::Requested(Request::Abort));
        let is_now = self.stop().is_some_and(|it| it.when == StopTiming::Now);
        is_now.then_some(Self::StopForeseen { abort })
    }

    /// Returns the stop that this input requests, if any.
    #[must_use]
    pub fn stop(&self) -> Option<StopRequest> {
        match self {
            Self::StopRequested(request) => Some(*request),
            Self::Requested(request) => request.stop(),
            Self::TimerExpired(Timer::Shutdown) => Some(StopRequest {
                by: StopCause::Terminated,
                when: StopTiming::Now,
            }),
            _ => None,
        }
    }
}

/// The options with which a process takes over a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResumeOptions {
    /// Rules that replace the saved ones.
    pub rules: Option<Rules>,
    /// The iteration to start at, in place of the saved one. Records of this and later iterations are discarded.
    pub from_iteration: Option<u32>,
    /// The highest attempt number that was ever used. The caller sets it after a data loss, if the saved state is older than that attempt.
    pub highest_used_attempt: Option<u32>,
    /// The last iteration that ever began. The caller sets it after a data loss, if the saved state is older than that iteration. It is also the
    /// maximum of `from_iteration`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_begun_iteration: Option<u32>,
    /// Whether a person can be asked.
    pub attended: bool,
    /// The previous agent, if the run has another agent from now on. The session belongs to the previous agent and doesn't continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_agent: Option<String>,
    /// The position up to which the session of the run is on disk now, if the agent keeps it there; 0 for a session that exists and can't be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_position: Option<u64>,
    /// The steers of the run that this session has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub session_steers: Vec<u32>,
    /// A message of the person who resumes: a steer for the next prompt, or the revision of a phase that waits for a review.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<String>,
    /// Whether no person resumes the run, but another worker of a fleet takes it over. A pause and a stop after the iteration then stay in force.
    #[serde(default, skip_serializing_if = "is_false")]
    pub taken_over: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TurnOutcome {
    /// The agent finished the turn.
    Completed,
    /// The agent finished the turn and made the completion promise.
    PromiseMade,
    /// A person's interrupt ended the turn; its session stays open.
    Interrupted,
    /// The agent failed, died or reached a time limit; the text describes how.
    Failed(String),
    /// The agent had a transient failure: its output could not be read, or a connection broke. The machine retries the iteration, up to four tries in
    /// all, before it counts as failed. The text describes the failure.
    Transient(String),
    /// The agent's service refuses requests for now, because of a rate limit or an outage. The machine retries the iteration later, and it is no
    /// failure.
    ServiceUnavailable {
        /// When the rate limit ends, if the agent reports it.
        reset: Option<Timestamp>,
        /// The message of the agent.
        why: String,
    },
    /// The turn ended because the machine requested a stop.
    Stopped,
    /// The agent can't work until a person fixes something, such as a login. The run ends.
    AgentUnusable(String),
    /// The session to continue does not exist any more. The machine starts the work again in a fresh one.
    SessionLost,
    /// Another process uses the session to continue; the text names that process. In the first attempt of a process this ends the run; later it is a
    /// failed turn.
    SessionInUse(String),
    /// The agent could not be started. In the first attempt of a process this ends the run; later it is a failed turn.
    NotStarted(String),
}

/// How a required check or the check ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CheckResult {
    /// The command exited with 0.
    Passed,
    /// The command failed; the text is the tail of its output, and how the command exited.
    Failed(String),
    /// The command could not run: it doesn't exist, or it isn't executable. The text has the same form as that of a failed command.
    NotRun(String),
    /// The command ended because the machine requested a stop.
    Stopped,
}

impl CheckResult {
    /// Returns how the command ended, without its output; `None` if it was stopped, which shows neither success nor failure.
    #[must_use]
    pub fn outcome(&self) -> Option<CheckOutcome> {
        match self {
            Self::Passed => Some(CheckOutcome::Passed),
            Self::Failed(_) => Some(CheckOutcome::Failed),
            Self::NotRun(_) => Some(CheckOutcome::NotRun),
            Self::Stopped => None,
        }
    }
}

/// How many processes of an attempt the loop ended, and how many it could not end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessTreeOutcome {
    /// Processes that the loop ended after the attempt was over.
    pub ended: u32,
    /// Processes that could not be ended.
    pub survivors: u32,
}

/// A timer of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Timer {
    /// The turn reached its time limit.
    Iteration,
    /// The agent reached the idle timeout.
    Idle,
    /// The required check or the check reached its time limit.
    Check,
    /// The pause between two iterations is over.
    Sleep,
    /// The rate limit is over.
    RateLimit,
    /// The next try is due.
    Retry,
    /// The run reached its maximum duration.
    MaxDuration,
    /// The program shuts down, and no request to stop stated the reason in time.
    Shutdown,
}
