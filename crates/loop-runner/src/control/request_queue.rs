//! The requests to a run, from its own process and from its control socket.

use std::borrow::Cow;
use std::collections::VecDeque;

use loop_state::{Machine, MachineInput, Request, StopRequest, StopTiming};
use rlm_store::ItemError;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

/// The maximum number of requests that are received during another wait; further requests stay in their channels.
const MAX_DEFERRED: usize = 64;

/// A request, and the sender of its result.
#[derive(Debug)]
pub(crate) struct QueuedRequest {
    pub(crate) control: RunControl,
    pub(crate) reply: ReplySender,
}

/// The sender of a request's result: the request is done and saved, or it is rejected. Dropping the sender means that the run ended.
#[derive(Debug, Default)]
pub(crate) struct ReplySender {
    to: Option<oneshot::Sender<RequestResult>>,
    number: Option<u64>,
}

pub(crate) type RequestResult = Result<RunPosition, Cow<'static, str>>;

/// The position of the run directly after it accepted a request. It identifies the request: a new steer has the number `steers`, and an interrupted
/// turn belongs to this attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunPosition {
    pub(crate) steers: u32,
    pub(crate) iteration: u32,
    pub(crate) attempt: u32,
    /// Whether the run is stopping, so that its processes have only the stop budget.
    pub(crate) stops: bool,
}

impl From<&Machine> for RunPosition {
    fn from(machine: &Machine) -> Self {
        let head = machine.head();
        Self {
            stops: machine.is_stopping(),
            steers: head.counts.steers,
            iteration: head.iteration,
            attempt: head.attempt,
        }
    }
}

impl ReplySender {
    /// Creates a reply and its receiver. A fleet records a request under a number.
    pub(crate) fn channel(number: Option<u64>) -> (Self, oneshot::Receiver<RequestResult>) {
        let (sender, reply) = oneshot::channel();
        let to = Some(sender);
        (Self { to, number }, reply)
    }

    /// Returns the number under which a fleet recorded the request. The run saves it together with the effect of the request.
    pub(crate) fn number(&self) -> Option<u64> {
        self.number
    }

    pub(crate) fn send(self, result: RequestResult) {
        if let Some(sender) = self.to {
            // The receiver has possibly stopped waiting.
            let _gone = sender.send(result);
        }
    }
}

impl From<RunControl> for QueuedRequest {
    fn from(what: RunControl) -> Self {
        let reply = ReplySender::default();
        Self {
            control: what,
            reply,
        }
    }
}

/// The queued requests. Those of this process come first.
#[derive(Debug)]
pub(crate) struct RequestQueue {
    local: mpsc::Receiver<RunControl>,
    remote: mpsc::Receiver<QueuedRequest>,
    /// The requests that arrived during another wait.
    deferred: VecDeque<QueuedRequest>,
}

impl Default for RequestQueue {
    /// Creates an empty queue without senders.
    fn default() -> Self {
        Self::new(mpsc::channel(1).1, mpsc::channel(1).1)
    }
}

impl RequestQueue {
    pub(crate) fn new(
        local: mpsc::Receiver<RunControl>,
        remote: mpsc::Receiver<QueuedRequest>,
    ) -> Self {
        let deferred = VecDeque::new();
        Self {
            local,
            remote,
            deferred,
        }
    }

    /// Returns the next request, if one is waiting.
    pub(crate) fn try_next(&mut self) -> Option<QueuedRequest> {
        let deferred = self.deferred.pop_front().map(Ok);
        let local = deferred.unwrap_or_else(|| self.local.try_recv().map(QueuedRequest::from));
        local.or_else(|_| self.remote.try_recv()).ok()
    }

    /// Waits for a request, forever if all senders are dropped. Cancel safe.
    pub(crate) async fn next(&mut self) -> QueuedRequest {
        if let Some(deferred) = self.deferred.pop_front() {
            return deferred;
        }
        self.receive().await
    }

    /// Waits for a request that ends the run now. Other requests that arrive meanwhile are processed later, and so is this one. Cancel safe.
    pub(crate) async fn stop_requested(&mut self) {
        while !self.is_stop_requested() {
            if self.deferred.len() >= MAX_DEFERRED {
                return std::future::pending().await;
            }
            let request = self.receive().await;
            self.deferred.push_back(request);
        }
    }

    /// Returns the machine input that announces the stop requests found so far.
    pub(crate) fn announced_stop(&self) -> MachineInput {
        let abort = self
            .deferred
            .iter()
            .any(|request| request.control.is_abort());
        MachineInput::StopForeseen { abort }
    }

    /// Returns whether a deferred request ends the run now.
    pub(crate) fn is_stop_requested(&self) -> bool {
        let is_now = |request: &QueuedRequest| {
            request
                .control
                .stop()
                .is_some_and(|it| it.when == StopTiming::Now)
        };
        self.deferred.iter().any(is_now)
    }

    async fn receive(&mut self) -> QueuedRequest {
        tokio::select! {
            biased;
            Some(local) = self.local.recv() => local.into(),
            Some(other) = self.remote.recv() => other,
            else => std::future::pending().await,
        }
    }
}

/// A message to the run. The run reports the progress of a message by [`RunEvent`](crate::RunEvent), and its rejection by
/// [`RunEvent::RequestRejected`](crate::RunEvent::RequestRejected).
#[derive(Debug)]
#[non_exhaustive]
pub enum RunControl {
    /// A request of a person, from this process or another one.
    Request(Request),
    /// Stops the run; if it stops now, within [`RunnerOptions::stop_budget`](crate::RunnerOptions::stop_budget). A second stop can only move the
    /// deadline earlier.
    Stop(StopRequest),
    /// Whether from now on a person can review a phase or a batch. If not, the run waits for no review.
    Attended(bool),
    /// Suspends or resumes everything that runs.
    #[doc(hidden)] // only `rlm` suspends a run
    Freeze {
        /// Whether to suspend.
        frozen: bool,
        /// Receives a value when everything is suspended or resumed.
        done: oneshot::Sender<()>,
    },
    #[doc(hidden)] // `IterationItems` sends it
    /// Saves an item of the current iteration; see [`IterationItems::save`](crate::IterationItems::save).
    SaveItem {
        /// The key of the item.
        key: String,
        /// The item.
        value: Value,
        /// Receives the result: the item is on disk, or was not saved. Dropped if the run ends first.
        saved: oneshot::Sender<Result<(), ItemError>>,
    },
}

impl From<Request> for RunControl {
    fn from(request: Request) -> Self {
        Self::Request(request)
    }
}

impl RunControl {
    /// Returns the machine input of this message while the run ends; the machine decides whether it matters.
    pub(crate) fn while_ending(self) -> Option<MachineInput> {
        match self {
            Self::Stop(request) => Some(MachineInput::StopRequested(request)),
            Self::Request(request) => Some(MachineInput::Requested(request)),
            Self::Attended(_) | Self::Freeze { .. } | Self::SaveItem { .. } => None,
        }
    }

    /// Returns the stop request in this message, if any.
    pub(crate) fn stop(&self) -> Option<StopRequest> {
        match self {
            Self::Stop(request) => Some(*request),
            Self::Request(request) => request.stop(),
            _ => None,
        }
    }

    /// Returns whether this message ends the running processes now.
    #[must_use]
    pub fn stops_now(&self) -> bool {
        self.stop().is_some_and(|stop| stop.when == StopTiming::Now)
    }

    /// Returns whether this is an abort.
    pub(crate) fn is_abort(&self) -> bool {
        matches!(self, Self::Request(Request::Abort))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loop_state::Request;

    /// Git can take long, and a press must not wait for it.
    #[tokio::test]
    async fn stop_is_found_behind_other_requests() {
        let (own, receiver) = mpsc::channel(8);
        let (others, other_receiver) = mpsc::channel(8);
        let mut queue = RequestQueue::new(receiver, other_receiver);
        let steer = |text: &str| Request::Steer {
            text: text.into(),
            now: false,
        };
        let later = Request::Stop {
            when: StopTiming::AfterIteration,
        };
        for what in [steer("one"), later] {
            others.send(RunControl::from(what).into()).await.unwrap();
        }
        let stop = tokio::time::timeout(std::time::Duration::ZERO, queue.stop_requested());
        assert!(stop.await.is_err() && !queue.is_stop_requested());
        own.send(steer("two").into()).await.unwrap();
        own.send(Request::Abort.into()).await.unwrap();
        queue.stop_requested().await;
        assert!(queue.is_stop_requested());
        let mut taken = Vec::new();
        while let Some(request) = queue.try_next() {
            taken.push(match request.control {
                RunControl::Request(Request::Steer { text, .. }) => text,
                RunControl::Request(other) => format!("{other:?}"),
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(taken[0], "one");
        assert!(taken[1].starts_with("Stop {"), "{taken:?}");
        assert_eq!(taken[2..], ["two", "Abort"]);
        assert!(!queue.is_stop_requested());
    }
}
