//! The messages of a program to the run that it carries out.

use loop_state::{Happening, Request, StopRequest, When};
use tokio::sync::oneshot;

/// A message to the run. What becomes of it comes as [`News`](crate::News); one that makes no sense now is answered with
/// [`News::Rejected`](crate::News::Rejected).
#[derive(Debug)]
#[non_exhaustive]
pub enum Control {
    /// A person asks for something, from this process or from another one.
    Request(Request),
    /// The run shall stop, within [`Options::stop_budget`](crate::Options::stop_budget) where that is now. A second one can only make it sooner.
    Stop(StopRequest),
    /// Whether somebody is there, from now on, who can be asked what they think of a phase or a batch. When nobody is, none waits for that.
    Attended(bool),
    /// Everything that runs shall stand still, or go on.
    Freeze {
        /// Which of the two.
        frozen: bool,
        /// Told when it is so.
        done: oneshot::Sender<()>,
    },
}

impl From<Request> for Control {
    fn from(request: Request) -> Self {
        Self::Request(request)
    }
}

impl Control {
    /// Returns what the machine has to know of it while the run ends; it decides what counts.
    pub(crate) fn while_ending(self) -> Option<Happening> {
        match self {
            Self::Stop(request) => Some(Happening::StopRequested(request)),
            Self::Request(request) => Some(Happening::Requested(request)),
            Self::Attended(_) | Self::Freeze { .. } => None,
        }
    }

    /// Returns the stop that it asks for, if it asks for one.
    pub(crate) fn stop(&self) -> Option<StopRequest> {
        match self {
            Self::Stop(request) => Some(*request),
            Self::Request(request) => request.stop(),
            _ => None,
        }
    }

    /// Returns whether it ends what runs now.
    #[must_use]
    pub fn stops_now(&self) -> bool {
        self.stop().is_some_and(|stop| stop.when == When::Now)
    }

    /// Returns whether what runs has no more than a moment to end.
    pub(crate) fn is_abort(&self) -> bool {
        matches!(self, Self::Request(Request::Abort))
    }
}
