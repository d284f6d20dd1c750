//! From requests to messages to the run, and back. Pure.

use agent_duplex::Decision;
use loop_state::{Again, StopCause, StopRequest, Verdict, When};

use crate::Control;
use crate::control::Reviewed;
use crate::control::protocol::{Redo, Request, StopAfter};

/// Returns what the run is told; `None` for what only looks at it.
pub(crate) fn control(request: &Request) -> Option<Control> {
    Some(match request.clone() {
        Request::Status | Request::Attach { .. } => return None,
        Request::Interrupt => Control::Interrupt,
        Request::Pause { reason, after } => Control::Pause { reason, after },
        Request::Continue => Control::Continue,
        Request::Review { verdict, text } => Control::Review(verdict.verdict(text)),
        Request::Steer { text, now } => Control::Steer { text, now },
        Request::Set(change) => Control::Set(change),
        Request::Skip => Control::SkipSleep,
        Request::Again { what } => Control::Again(match what {
            Redo::Iteration => Again::Iteration,
            Redo::Phase => Again::Phase,
        }),
        Request::Fresh => Control::FreshSession,
        Request::Answer {
            ask,
            allow,
            message,
        } => Control::Answer {
            ask,
            decision: match allow {
                true => Decision::Allow,
                false => Decision::Deny { message },
            },
        },
        Request::Prompt { phase, text } => Control::Prompt { phase, text },
        Request::Abort => Control::Abort,
        Request::Stop { after } => Control::Stop(StopRequest {
            by: StopCause::Person,
            when: match after {
                StopAfter::Now => When::Now,
                StopAfter::Iteration => When::AfterIteration,
            },
        }),
    })
}

impl Request {
    /// Returns what has a live run do this from another process; `None` for what only its own can do.
    #[must_use]
    pub fn of(control: &Control) -> Option<Self> {
        Some(match control {
            Control::Interrupt => Self::Interrupt,
            Control::Pause { reason, after } => Self::Pause {
                reason: reason.clone(),
                after: *after,
            },
            Control::Continue => Self::Continue,
            Control::Steer { text, now } => Self::Steer {
                text: text.clone(),
                now: *now,
            },
            Control::Review(verdict) => {
                let (verdict, text) = match verdict {
                    Verdict::Continue => (Reviewed::Continue, String::new()),
                    Verdict::Revise(text) => (Reviewed::Revise, text.clone()),
                    Verdict::StartOver => (Reviewed::StartOver, String::new()),
                    Verdict::Exit => (Reviewed::Exit, String::new()),
                    _ => return None,
                };
                Self::Review { verdict, text }
            }
            Control::Set(change) => Self::Set(*change),
            Control::SkipSleep => Self::Skip,
            Control::Again(again) => Self::Again {
                what: match again {
                    Again::Iteration => Redo::Iteration,
                    Again::Phase => Redo::Phase,
                },
            },
            Control::FreshSession => Self::Fresh,
            Control::Answer { ask, decision } => {
                let (allow, message) = match decision {
                    Decision::Allow => (true, String::new()),
                    Decision::Deny { message } => (false, message.clone()),
                    _ => return None,
                };
                Self::Answer {
                    ask: ask.clone(),
                    allow,
                    message,
                }
            }
            Control::Prompt { phase, text } => Self::Prompt {
                phase: *phase,
                text: text.clone(),
            },
            Control::Abort => Self::Abort,
            Control::Stop(request) => Self::Stop {
                after: match request.when {
                    When::Now => StopAfter::Now,
                    When::AfterIteration => StopAfter::Iteration,
                },
            },
            Control::Freeze { .. } | Control::Attended(_) => return None,
        })
    }
}
