//! The requests of a person to a run: one definition for the menu, typed commands, the command line and the control socket.

use serde::{Deserialize, Serialize};

use crate::{RedoScope, ReviewDecision, RuleChange, StopCause, StopRequest, StopTiming};

/// A request of a person to a live run. Its serialised form is, for example, `{"request":"steer","text":"use tabs","now":true}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "request", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Request {
    /// Interrupt the turn and keep its session; the run waits for [`Continue`](Self::Continue) or a steer.
    Interrupt,
    /// Pause at the next boundary.
    Pause {
        /// The reason, for people who find the run paused; at most 1000 bytes through the socket.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The boundary.
        #[serde(default)]
        after: PauseAfter,
    },
    /// Continue a waiting run, or withdraw a pause.
    Continue,
    /// Send the agent a message. If a phase or a batch waits for a review, it counts as [`ReviewDecision::Revise`].
    Steer {
        /// The message.
        text: String,
        /// Whether to interrupt the current turn for it, and continue in the same session.
        #[serde(default)]
        now: bool,
    },
    /// Answer the review of a phase or a batch.
    Review(ReviewDecision),
    /// Stop the run.
    Stop {
        /// When the stop takes effect.
        #[serde(default)]
        when: StopTiming,
    },
    /// Stop the run now, with one second for everything, even if a stop is already under way.
    Abort,
    /// Change a rule. A phase rule changes for the current phase.
    Set(RuleChange),
    /// End the current sleep or wait now. This includes the wait for a rate limit.
    Skip,
    /// Redo something, in a fresh session.
    Redo {
        /// The scope of the redo.
        what: RedoScope,
    },
    /// Use a fresh session for the next attempt.
    FreshSession,
    /// Answer a permission request of the agent.
    Answer {
        /// The id of the permission request.
        permission_request: String,
        /// Whether the agent may use the tool.
        allow: bool,
        /// The text for the agent if it may not.
        #[serde(default)]
        message: String,
    },
    /// Replace a prompt that doesn't come from a file.
    Prompt {
        /// The index of the phase of the prompt.
        #[serde(default)]
        phase: u32,
        /// The new prompt.
        text: String,
    },
}

impl Request {
    /// Returns the stop that this request asks for, if any.
    #[must_use]
    pub fn stop(&self) -> Option<StopRequest> {
        match self {
            Self::Stop { when } => Some(StopRequest::from_person(*when)),
            Self::Abort => Some(StopRequest::from_person(StopTiming::Now)),
            _ => None,
        }
    }

    /// Returns why the request changed nothing; `None` for a request that is valid even if it changes nothing.
    pub(crate) fn rejection(&self) -> Option<&'static str> {
        Some(match self {
            Self::Steer { .. } => {
                "too many messages wait for the agent; this message was not accepted"
            }
            Self::Interrupt => "there is no turn to interrupt",
            Self::Pause { .. } => "the run already pauses or stops",
            Self::Continue => "the run is not paused",
            Self::Skip => "the run does not sleep or wait",
            Self::Review(ReviewDecision::Revise(_)) => {
                "no review is open, or too many messages wait for the agent; this message was not accepted"
            }
            Self::Review(_) => "no review is open",
            Self::Redo { .. } => "can't redo while the current work is being ended; try again",
            Self::Stop { .. }
            | Self::Abort
            | Self::Set(_)
            | Self::FreshSession
            | Self::Answer { .. }
            | Self::Prompt { .. } => return None,
        })
    }
}

/// The boundary at which a run pauses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PauseAfter {
    /// When the iteration is complete.
    #[default]
    Iteration,
    /// When no tool of the agent runs, or when the iteration is complete, whichever comes first. The session then stays open, as after an interrupt.
    Tool,
}

impl StopRequest {
    /// Returns the stop that a person requests.
    pub(crate) fn from_person(when: StopTiming) -> Self {
        let by = StopCause::Person;
        Self { by, when }
    }
}
