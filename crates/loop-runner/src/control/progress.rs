//! The progress of a request, according to the view of the run. This module has no I/O.

use std::time::Duration;

use loop_state::{Head, IterationStep, Request, SteerState};

use crate::control::protocol::Response;
use crate::control::request_queue::RunPosition;
use crate::{SteerDelivery, View};

/// A request that the run accepted, with the values that identify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcceptedRequest {
    Interrupt(RunPosition),
    Pause,
    /// The request is done when it is saved.
    Done,
    /// The steer with this number.
    Steer(u32),
    Stop,
}

impl AcceptedRequest {
    pub(crate) fn of(request: &Request, position: RunPosition) -> Self {
        match request {
            Request::Interrupt => Self::Interrupt(position),
            Request::Pause { .. } => Self::Pause,
            Request::Steer { .. } => Self::Steer(position.steers),
            Request::Stop { .. } | Request::Abort => Self::Stop,
            _ => Self::Done,
        }
    }

    /// Returns the progress of the request.
    pub(crate) fn progress(self, view: &View) -> Response {
        let head = &view.head;
        match self {
            // The connection reports the run's end.
            Self::Stop => recorded(None),
            Self::Done => Response::Applied,
            Self::Interrupt(position) => interrupt(head, position),
            Self::Pause if head.awaits_person() => Response::Applied,
            Self::Pause if head.pausing => recorded(None),
            Self::Pause => Response::Rejected {
                reason: "the request to pause was cancelled".into(),
            },
            Self::Steer(id) => steer(view, id),
        }
    }
}

fn interrupt(head: &Head, position: RunPosition) -> Response {
    let same = (head.iteration, head.attempt) == (position.iteration, position.attempt);
    match head.step {
        IterationStep::Interrupted { .. } => Response::Applied,
        IterationStep::Turn { .. } if same => Response::Delivered,
        // The run stops or has ended; the connection reports the end.
        _ if head.stopping.is_some() || head.end.is_some() => Response::Delivered,
        _ => Response::Rejected {
            reason: "the turn ended before the interrupt reached the agent; the run continues"
                .into(),
        },
    }
}

fn steer(view: &View, id: u32) -> Response {
    let head = &view.head;
    let Some(steer) = head.steers.iter().find(|steer| steer.id == id) else {
        // The run stores a steer until a turn that read it has ended.
        return Response::Applied;
    };
    let can_deliver = matches!(
        view.agent.steer_delivery(head),
        SteerDelivery::InTurn | SteerDelivery::ContinuesSession
    );
    match steer.state {
        SteerState::Seen => Response::Applied,
        SteerState::Delivered => Response::Delivered,
        SteerState::Recorded if can_deliver => recorded(Some(id)),
        SteerState::Recorded => Response::NextPrompt,
    }
}

fn recorded(steer: Option<u32>) -> Response {
    Response::Recorded {
        steer,
        budget_ms: None,
    }
}

fn ending(budget: Duration) -> Response {
    Response::Recorded {
        steer: None,
        budget_ms: Some(u64::try_from(budget.as_millis()).unwrap_or(u64::MAX)),
    }
}

/// Returns the first response to a request that the run accepted. `stop_budget` is the time for a stop that begins now and is no abort.
pub(crate) fn first_response(
    request: &Request,
    position: RunPosition,
    stop_budget: Duration,
) -> Response {
    match request {
        Request::Interrupt => Response::Delivered,
        Request::Steer { .. } => recorded(Some(position.steers)),
        // With an interrupted turn, "after the iteration" means now.
        Request::Stop { .. } if !position.stops => recorded(None),
        Request::Stop { .. } => ending(stop_budget),
        Request::Abort => ending(loop_state::times::ABORT),
        Request::Pause { .. } | Request::Set(_) => recorded(None),
        _ => Response::Applied,
    }
}

/// Returns the response to a request that the run did not accept because it changes nothing.
pub(crate) fn response_without_change(request: &Request, head: &Head) -> Option<Response> {
    match request {
        Request::Interrupt if matches!(head.step, IterationStep::Interrupted { .. }) => {
            Some(Response::Applied)
        }
        Request::Pause { .. } if head.awaits_person() => Some(Response::Applied),
        Request::Pause { .. } if head.pausing => Some(recorded(None)),
        _ => None,
    }
}
