//! The outputs of the machine: the effects, in order, and the reports to people.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    CheckOutcome, Feedback, LoopCommand, PauseAfter, ProcessTreeOutcome, RedoScope, ReviewDecision,
    ReviewPoint, RuleChange, Steer, SteerState, StopDeadline, StopReason, Timestamp,
    UnfinishedAttempt, UsageTotal, WaitCause,
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
    SavePhase {
        /// The phase's name.
        phase: String,
    },
    /// Everything must have ended by this deadline. Each request to stop now returns this, even if the deadline doesn't change.
    StopBy(StopDeadline),
    /// Start the agent; report [`MachineInput::TurnEnded`](crate::MachineInput::TurnEnded). If a request to stop waits, or the program shuts down,
    /// start and report nothing: [`StopAttempt`](Self::StopAttempt) follows.
    StartAttempt(PromptContext),
    /// End the turn and the whole process tree of the attempt; report [`MachineInput::TurnEnded`](crate::MachineInput::TurnEnded), at once if nothing
    /// was started.
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
    /// [`MachineInput::SteerAdvanced`](crate::MachineInput::SteerAdvanced).
    Deliver(u32),
    /// Interrupt the turn and keep the session; report [`MachineInput::TurnEnded`](crate::MachineInput::TurnEnded) unless the agent still has
    /// messages to answer.
    InterruptTurn,
    /// Continue the session of an interrupted turn with the undelivered steers.
    ContinueTurn,
    /// Run the required check with this index; report [`MachineInput::RequiredCheckEnded`](crate::MachineInput::RequiredCheckEnded).
    RunRequiredCheck(u32),
    /// Run the check; report [`MachineInput::CheckEnded`](crate::MachineInput::CheckEnded).
    RunCheck,
    /// End the running required check or check; its end must still be reported.
    StopCheck,
    /// End the running required check or check because it reached this time limit; its end must still be reported, as a failure for that reason.
    TimeOutCheck(Duration),
    /// End the leftovers of the attempt; report [`MachineInput::LeftoversEnded`](crate::MachineInput::LeftoversEnded).
    EndLeftovers,
    /// Remember at which boundary the run pauses. The boundary is not saved.
    PauseAt(PauseAfter),
    /// Record the reason of a pause; the next save makes it durable.
    SavePauseReason(String),
    /// Report to the person why the request changed nothing. The only other effect is [`PauseAt`](Self::PauseAt).
    RejectRequest(Cow<'static, str>),
    /// Report this update to all viewers. Everything in it is durable.
    Emit(RunUpdate),
    /// Report a lasting condition to all viewers. The reminder is not saved.
    Remind(Reminder),
    /// Show a warning. The warning is not saved.
    Warn(Warning),
    /// The run is over for this process; [`Head::stop_reason`](crate::Head::stop_reason) has the reason. This is the last effect.
    EndRun,
}

impl Effect {
    /// Returns whether these effects start the agent or a command after a save. A runner can prepare the start during the save.
    ///
    /// # Examples
    ///
    /// ```
    /// use loop_state::Effect;
    ///
    /// assert!(Effect::starts_after_save(&[Effect::Save, Effect::RunCheck]));
    /// assert!(!Effect::starts_after_save(&[Effect::RunCheck, Effect::Save]));
    /// ```
    pub fn starts_after_save(effects: &[Effect]) -> bool {
        let is_save = |effect: &&Effect| matches!(effect, Self::Save | Self::SavePhase { .. });
        let starts = |effect: &Effect| {
            matches!(
                effect,
                Self::StartAttempt(_) | Self::RunRequiredCheck(_) | Self::RunCheck
            )
        };
        effects.iter().skip_while(|it| !is_save(it)).any(starts)
    }
}

/// A condition that lasts for some time. The run reports it before the condition ends.
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
    /// A required check or the check can't run. Of several such failures in a row, only the first one causes this warning. The agent can't fix a
    /// mistake in a command line, so a person has to know.
    CommandNotRun {
        /// The command.
        command: LoopCommand,
        /// Why it can't run.
        why: String,
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
pub struct PromptContext {
    /// The index of the phase.
    pub phase: u32,
    /// The number of the iteration within its phase, from 1.
    pub iteration: u32,
    /// The number of the attempt.
    pub attempt: u32,
    /// The previous attempt, if it is unfinished.
    pub unfinished: Option<UnfinishedAttempt>,
    /// The output of a failed required check or check.
    pub feedback: Option<Feedback>,
    /// The steers since the last turn.
    pub steers: Vec<Steer>,
    /// The result of the previous phase, in its agent's words.
    pub result: Option<String>,
    /// The previous agent, if the current agent has not read about it yet.
    pub previous_agent: Option<String>,
    /// The session to continue; `None` starts a fresh one.
    pub session: Option<String>,
    /// The id that the fresh session gets. No session of the run has it.
    pub new_session: Option<String>,
    /// Whether the session to continue already has the prompt of this iteration, which then must not be sent again.
    pub has_prompt: bool,
}

/// An update about the run, serialised for viewers in other processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunUpdate {
    /// An attempt begins; nothing has been started yet.
    AttemptStarted {
        /// The number of the iteration within its phase, from 1.
        iteration: u32,
        /// The number of the attempt.
        attempt: u32,
        /// Whether it is not the first attempt of its iteration.
        is_retry: bool,
    },
    /// An iteration is complete.
    IterationEnded {
        /// The number of the iteration.
        iteration: u32,
        /// The failure; `None` if the iteration succeeded.
        failure: Option<String>,
        /// The leftovers of its agent.
        leftovers: ProcessTreeOutcome,
        /// The usage of all its attempts together.
        usage: UsageTotal,
        /// The time since its last attempt began.
        took: Duration,
        /// How its check ended, if one ran.
        check: Option<CheckOutcome>,
    },
    /// A phase is finished and another one begins.
    PhaseEnded {
        /// The name of the phase.
        name: String,
        /// The usage of the phase.
        usage: UsageTotal,
    },
    /// The next iteration begins later.
    Sleeping {
        /// When the next iteration begins.
        until: Timestamp,
    },
    /// The iteration continues later as another attempt. This is not a failure.
    Waiting {
        /// The cause of the wait.
        why: WaitCause,
        /// When the wait ends.
        until: Timestamp,
        /// The message of the agent; `None` if a wait continues in another process.
        what: Option<String>,
    },
    /// The run waits for a review.
    Review(ReviewPoint),
    /// A person reviewed the work.
    Reviewed(ReviewDecision),
    /// A rule of the run changed.
    RuleChanged(RuleChange),
    /// A rule of one of several phases changed.
    PhaseRuleChanged {
        /// The name of the phase.
        phase: String,
        /// The rule.
        change: RuleChange,
    },
    /// A steer reached a later state.
    SteerAdvanced {
        /// The number of the steer.
        id: u32,
        /// The new state.
        state: SteerState,
    },
    /// The turn made no progress.
    NoProgress {
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
    Redoing(RedoScope),
    /// The next attempt gets a fresh session.
    FreshSession,
    /// The run will stop when the iteration is complete.
    StoppingAfterIteration,
    /// The run is stopping: the agent or the command that runs ends next.
    Stopping,
    /// The run is over for this process.
    Ended(StopReason),
}
