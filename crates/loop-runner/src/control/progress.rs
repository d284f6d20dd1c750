//! How far a request has come, as the view of the run shows it. Pure.

use std::time::Duration;

use loop_state::{Head, Request, SteerState, Step};

use crate::View;
use crate::control::protocol::Answer;
use crate::control::wishes::Mark;

/// A request that the run has taken, and what it is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Interrupt(Mark),
    Pause,
    /// All that there is to it is done when it is saved.
    Done,
    /// The steer with this number.
    Steer(u32),
    Stop,
}

impl Taken {
    pub(crate) fn of(request: &Request, mark: Mark) -> Self {
        match request {
            Request::Interrupt => Self::Interrupt(mark),
            Request::Pause { .. } => Self::Pause,
            Request::Steer { .. } => Self::Steer(mark.steers),
            Request::Stop { .. } | Request::Abort => Self::Stop,
            _ => Self::Done,
        }
    }

    /// Returns how far it has come.
    pub(crate) fn progress(self, view: &View) -> Answer {
        let head = &view.head;
        match self {
            // The run's end is told by who ends it.
            Self::Stop => recorded(None),
            Self::Done => Answer::InEffect,
            Self::Interrupt(mark) => interrupt(head, mark),
            Self::Pause if head.is_waiting() => Answer::InEffect,
            Self::Pause if head.pausing => recorded(None),
            Self::Pause => Answer::Rejected {
                why: "somebody took the wish to pause back".into(),
            },
            Self::Steer(id) => steer(view, id),
        }
    }
}

fn interrupt(head: &Head, mark: Mark) -> Answer {
    let same = (head.iteration, head.attempt) == (mark.iteration, mark.attempt);
    match head.step {
        Step::Interrupted { .. } => Answer::InEffect,
        Step::Turn { .. } if same => Answer::Delivered,
        // How that ends is told by who ends it.
        _ if head.stopping.is_some() || head.end.is_some() => Answer::Delivered,
        _ => Answer::Rejected {
            why: "the turn was over before the agent heard of it; the run goes on".into(),
        },
    }
}

fn steer(view: &View, id: u32) -> Answer {
    let head = &view.head;
    let Some(steer) = head.steers.iter().find(|steer| steer.id == id) else {
        // It is kept until a turn that saw it is over.
        return Answer::InEffect;
    };
    let is_heard = match head.step {
        Step::Turn { .. } => view.agent.steerable && view.agent.alive,
        Step::Interrupted { .. } => true,
        _ => false,
    };
    match steer.state {
        SteerState::Seen => Answer::InEffect,
        SteerState::Delivered => Answer::Delivered,
        SteerState::Recorded if is_heard && !head.halting => recorded(Some(id)),
        SteerState::Recorded => Answer::NextPrompt,
    }
}

fn recorded(steer: Option<u32>) -> Answer {
    Answer::Recorded {
        steer,
        budget_ms: None,
    }
}

fn ending(budget: Duration) -> Answer {
    Answer::Recorded {
        steer: None,
        budget_ms: Some(u64::try_from(budget.as_millis()).unwrap_or(u64::MAX)),
    }
}

/// Returns the first that is said of a request that the run has taken. What stops now takes as long as `stop_budget`, or as somebody has
/// patience.
pub(crate) fn first(request: &Request, mark: Mark, stop_budget: Duration) -> Answer {
    match request {
        Request::Interrupt => Answer::Delivered,
        Request::Steer { .. } => recorded(Some(mark.steers)),
        // After an iteration that is never complete is now: its turn was interrupted.
        Request::Stop { .. } if !mark.stops => recorded(None),
        Request::Stop { .. } => ending(stop_budget),
        Request::Abort => ending(loop_state::times::ABORT),
        Request::Pause { .. } | Request::Set(_) => recorded(None),
        _ => Answer::InEffect,
    }
}

/// Returns how far a request has come that the run did not take because it is so already.
pub(crate) fn already(request: &Request, head: &Head) -> Option<Answer> {
    match request {
        Request::Interrupt if matches!(head.step, Step::Interrupted { .. }) => {
            Some(Answer::InEffect)
        }
        Request::Pause { .. } if head.is_waiting() => Some(Answer::InEffect),
        Request::Pause { .. } if head.pausing => Some(recorded(None)),
        _ => None,
    }
}
