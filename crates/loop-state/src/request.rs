//! What a person asks of a run: one definition for the menu, typed commands, the command line and the control socket.

use serde::{Deserialize, Serialize};

use crate::{Again, RuleChange, StopCause, StopRequest, Verdict, When};

/// What a person asks of a live run. It is serialised as it is: `{"request":"steer","text":"use tabs","now":true}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "request", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Request {
    /// End the turn and keep its session; the run waits for [`Continue`](Self::Continue) or a steer.
    Interrupt,
    /// Wait at the next boundary.
    Pause {
        /// Why, for whoever finds the run waiting; at most 1000 bytes through the socket.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// At which boundary.
        #[serde(default)]
        after: PauseAfter,
    },
    /// Continue a waiting run, or withdraw a pause.
    Continue,
    /// Send the agent a message. Where a phase or a batch waits for a review, it is [`Verdict::Revise`].
    Steer {
        /// The message.
        text: String,
        /// Whether the turn that runs is interrupted for it, and continued in the same session.
        #[serde(default)]
        now: bool,
    },
    /// Answer the review of a phase or a batch.
    Review(Verdict),
    /// Stop the run.
    Stop {
        /// When.
        #[serde(default)]
        after: When,
    },
    /// Stop the run now; what runs has a second to end, also where a stop is under way.
    Abort,
    /// Change a rule; one of a phase is changed for the present phase.
    Set(RuleChange),
    /// Begin now what is slept or waited for, a rate limit included.
    Skip,
    /// Do something again, in a fresh session.
    Again {
        /// What.
        what: Again,
    },
    /// Give the next attempt a fresh session.
    Fresh,
    /// Answer a question of the agent.
    Answer {
        /// The question's id.
        ask: String,
        /// Whether the agent may.
        allow: bool,
        /// What an agent that may not is told.
        #[serde(default)]
        message: String,
    },
    /// Replace a prompt that comes from no file.
    Prompt {
        /// The index of the phase whose prompt it is.
        #[serde(default)]
        phase: u32,
        /// The text.
        text: String,
    },
}

impl Request {
    /// Returns the stop that it asks for, if it asks for one.
    #[must_use]
    pub fn stop(&self) -> Option<StopRequest> {
        match self {
            Self::Stop { after } => Some(StopRequest::by_person(*after)),
            Self::Abort => Some(StopRequest::by_person(When::Now)),
            _ => None,
        }
    }

    /// Says why it changed nothing; `None` for what need not change anything to be obeyed.
    pub(crate) fn why_in_vain(&self) -> Option<&'static str> {
        Some(match self {
            Self::Steer { .. } => {
                "too much was said that the agent has not seen; this was not taken"
            }
            Self::Interrupt => "there is no turn to interrupt",
            Self::Pause { .. } => "it pauses or stops already",
            Self::Continue => "it is not paused",
            Self::Skip => "it does not sleep",
            Self::Review(Verdict::Revise(_)) => {
                "nothing is asked, or too much was said that the agent has not seen; this was not taken"
            }
            Self::Review(_) => "nothing is asked",
            Self::Again { .. } => "not now: something is being ended; try again",
            Self::Stop { .. }
            | Self::Abort
            | Self::Set(_)
            | Self::Fresh
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
    /// The iteration is complete.
    #[default]
    Iteration,
    /// None of the agent's tools runs any more, or the iteration is complete: whatever comes first. The session waits then, as after an interrupt.
    Tool,
}

impl StopRequest {
    /// Returns the stop that a person asks for.
    #[must_use]
    pub fn by_person(when: When) -> Self {
        let by = StopCause::Person;
        Self { by, when }
    }
}
