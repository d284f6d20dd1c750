//! The progress of a request, from the view of the run. Pure.

use std::time::Duration;

use loop_state::{Head, Request, SteerState, Step};

use crate::View;
use crate::control::protocol::Answer;
use crate::control::wishes::Mark;

/// A request that the run accepted, with the values that identify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Interrupt(Mark),
    Pause,
    /// The request is done when it is saved.
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

    /// Returns the progress of the request.
    pub(crate) fn progress(self, view: &View) -> Answer {
        let head = &view.head;
        match self {
            // The connection reports the run's end.
            Self::Stop => recorded(None),
            Self::Done => Answer::InEffect,
            Self::Interrupt(mark) => interrupt(head, mark),
            Self::Pause if head.is_waiting() => Answer::InEffect,
            Self::Pause if head.pausing => recorded(None),
            Self::Pause => Answer::Rejected {
                why: "the request to pause was cancelled".into(),
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
        // The connection reports how the stop or the end of the run ends.
        _ if head.stopping.is_some() || head.end.is_some() => Answer::Delivered,
        _ => Answer::Rejected {
            why: "the turn ended before the interrupt reached the agent; the run continues".into(),
        },
    }
}

fn steer(view: &View, id: u32) -> Answer {
    let head = &view.head;
    let Some(steer) = head.steers.iter().find(|steer| steer.id == id) else {
        // The run keeps the steer until a turn that saw it has ended.
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

/// Returns the first response to a request that the run accepted. A stop that happens now takes as long as `stop_budget`, or as the abort allows.
pub(crate) fn first(request: &Request, mark: Mark, stop_budget: Duration) -> Answer {
    match request {
        Request::Interrupt => Answer::Delivered,
        Request::Steer { .. } => recorded(Some(mark.steers)),
        // With an interrupted turn, "after the iteration" means now.
        Request::Stop { .. } if !mark.stops => recorded(None),
        Request::Stop { .. } => ending(stop_budget),
        Request::Abort => ending(loop_state::times::ABORT),
        Request::Pause { .. } | Request::Set(_) => recorded(None),
        _ => Answer::InEffect,
    }
}

/// Returns the response to a request that the run did not accept because it changes nothing.
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
