//! The outputs of the machine: the effects, in order, and the reports to people.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    Again, Command, Cut, Feedback, Occasion, PauseAfter, RuleChange, Steer, SteerState,
    StopDeadline, StopReason, Timestamp, Tree, Usage, Verdict, Wait,
};

/// An action that the runner must do now.
///
/// The runner does the effects in the returned order and finishes each one before it begins the next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// Save the head and the inputs since the last save durably. If that fails, do none of the later effects.
    Save,
    /// Save the head as a separate checkpoint that later saves don't replace: the phase is finished, and nothing of the next one has begun. It
    /// replaces a [`Save`](Self::Save).
    SealPhase {
        /// The phase's name.
        phase: String,
    },
    /// Everything must have ended by this deadline. Each request to stop now returns this, even if the deadline doesn't change.
    StopBy(StopDeadline),
    /// Start the agent; report [`Happening::TurnEnded`](crate::Happening::TurnEnded). If a request to stop waits, or the program shuts down, start
    /// and report nothing: [`StopAttempt`](Self::StopAttempt) follows.
    StartAttempt(Brief),
    /// End the turn and the whole process tree of the attempt; report [`Happening::TurnEnded`](crate::Happening::TurnEnded), at once if nothing was
    /// started.
    StopAttempt {
        /// The reason to show; `None` if a person requested it.
        why: Option<String>,
        /// Whether to skip the interrupt that normally comes first.
        at_once: bool,
    },
    /// Wait this long for a request to stop, and accept no other input meanwhile. If no such request comes, report that
    /// [`Timer::Shutdown`](crate::Timer::Shutdown) expired.
    AwaitStop(Duration),
    /// Send the steer with this number in the current turn, if the agent supports that; report
    /// [`Happening::SteerMoved`](crate::Happening::SteerMoved).
    Deliver(u32),
    /// Interrupt the turn and keep the session; report [`Happening::TurnEnded`](crate::Happening::TurnEnded) unless the agent still has messages to
    /// answer.
    InterruptTurn,
    /// Continue the session of an interrupted turn with the undelivered steers.
    GoOn,
    /// Run the required check with this index; report [`Happening::GateEnded`](crate::Happening::GateEnded).
    RunGate(u32),
    /// Run the check; report [`Happening::CheckEnded`](crate::Happening::CheckEnded).
    RunCheck,
    /// End the running required check or check; its end must still be reported.
    StopCheck,
    /// End the running required check or check because it reached this time limit; its end must still be reported, as a failure with that reason.
    TimeOutCheck(Duration),
    /// End the leftovers of the attempt; report [`Happening::Settled`](crate::Happening::Settled).
    EndLeftovers,
    /// Remember at which boundary the run pauses. Nothing of this is saved.
    PauseAt(PauseAfter),
    /// Record the reason of a pause; the next save makes it durable.
    PauseReason(String),
    /// Report to the person why the request changed nothing. The only other effect is [`PauseAt`](Self::PauseAt).
    Refuse(Cow<'static, str>),
    /// Report this update to all viewers. Everything in it is durable.
    Announce(Notice),
    /// Report a condition that lasts to all viewers. Nothing of it is saved.
    Remind(Reminder),
    /// Show a warning. Nothing of it is saved.
    Warn(Warning),
    /// The run is over for this process; [`Head::stop_reason`](crate::Head::stop_reason) has the reason. This is the last effect.
    Finish,
}

/// A condition that lasts, reported while it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reminder {
    /// The agent is idle.
    Silent {
        /// How long it has been idle.
        silent: Duration,
        /// The idle timeout.
        of: Duration,
    },
    /// The run waits for the service of its agent.
    Waiting {
        /// When the wait ends.
        until: Timestamp,
        /// The time left from now on.
        left: Duration,
    },
}

/// A problem that the run can't fix by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A required check or the check can't run; reported once for failures in a row. The agent can't fix a mistake in a command line.
    CommandNotRun {
        /// The command.
        command: Command,
        /// Why it can't run.
        said: String,
        /// The number of such failures in a row after which the run is stuck; `None` means never.
        stuck_after: Option<u32>,
    },
    /// The run is over, and these steers may not have reached an agent.
    SteersUnseen {
        /// The number of steers.
        count: usize,
    },
}

/// The context of a prompt: everything that the prompt needs besides the text of the phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Brief {
    /// The index of the phase.
    pub phase: u32,
    /// The number of the iteration within its phase, from 1.
    pub iteration: u32,
    /// The number of the attempt.
    pub attempt: u32,
    /// The previous attempt, if it is unfinished.
    pub cut: Option<Cut>,
    /// The output of a failed required check or check.
    pub feedback: Option<Feedback>,
    /// The steers since the last turn.
    pub steers: Vec<Steer>,
    /// The result of the previous phase, in its agent's words.
    pub result: Option<String>,
    /// The previous agent, if the current agent has not been told about it.
    pub predecessor: Option<String>,
    /// The session to continue; `None` starts a fresh one.
    pub session: Option<String>,
    /// Whether that session already has the prompt of this iteration, which then must not be sent again.
    pub prompted: bool,
}

/// An update about the run, serialised for viewers in other processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Notice {
    /// An attempt begins; nothing has been started yet.
    AttemptStarted {
        /// The number of the iteration within its phase, from 1.
        iteration: u32,
        /// The number of the attempt.
        attempt: u32,
        /// Whether it is not the first attempt of its iteration.
        again: bool,
    },
    /// An iteration is complete.
    IterationEnded {
        /// The number of the iteration.
        iteration: u32,
        /// The failure; `None` if the iteration succeeded.
        failure: Option<String>,
        /// The leftovers of its agent.
        leftovers: Tree,
        /// The usage of all its attempts together.
        usage: Usage,
    },
    /// A phase is finished and another one begins.
    PhaseEnded {
        /// The name of the phase.
        name: String,
        /// The usage of the phase.
        usage: Usage,
    },
    /// The next iteration begins later.
    Sleeping {
        /// When the next iteration begins.
        until: Timestamp,
    },
    /// The iteration continues later as another attempt. This is not a failure.
    Waiting {
        /// The cause of the wait.
        why: Wait,
        /// When the wait ends.
        until: Timestamp,
        /// The message of the agent; `None` if a wait continues in another process.
        what: Option<String>,
    },
    /// The run waits for a review.
    Review(Occasion),
    /// A person reviewed the work.
    Reviewed(Verdict),
    /// A rule of the run changed.
    RuleSet(RuleChange),
    /// A rule of one of several phases changed.
    PhaseRuleSet {
        /// The name of the phase.
        phase: String,
        /// The rule.
        change: RuleChange,
    },
    /// A steer reached a later state.
    Steer {
        /// The number of the steer.
        id: u32,
        /// The new state.
        state: SteerState,
    },
    /// The turn made no progress.
    NothingDone {
        /// The number of such turns in a row, this one included.
        in_a_row: u32,
    },
    /// The session to continue does not exist any more; the agent gets a fresh one.
    SessionLost,
    /// The turn was interrupted; its session waits for a message.
    Interrupted,
    /// The run will pause when the iteration is complete.
    Pausing,
    /// The run waits until a person continues it.
    Paused,
    /// The run continues.
    Continued,
    /// The current work ends and will be redone.
    Again(Again),
    /// The next attempt gets a fresh session.
    Fresh,
    /// The run will stop when the iteration is complete.
    StoppingLater,
    /// The run is stopping: the agent or the command that runs ends next.
    Stopping,
    /// The run is over for this process.
    Ended(StopReason),
}
