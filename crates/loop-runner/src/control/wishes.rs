//! The requests to a run, from its own process and from its control socket.

use std::borrow::Cow;
use std::collections::VecDeque;

use loop_state::{Happening, Machine, Request, StopRequest, When};
use tokio::sync::{mpsc, oneshot};

/// The most requests that are taken early, during a short wait; more wait in their channels.
const EARLY: usize = 64;

/// A request, and the sender of its result.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) what: Control,
    pub(crate) reply: Reply,
}

/// Sends the result when the request is done and saved, or rejected. Dropping it means that the run ended.
#[derive(Debug, Default)]
pub(crate) struct Reply(Option<oneshot::Sender<Verdict>>);

pub(crate) type Verdict = Result<Mark, Cow<'static, str>>;

/// The position of the run when it took a request: a steer just taken is the last one, and a turn just interrupted is that of this attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) steers: u32,
    pub(crate) iteration: u32,
    pub(crate) attempt: u32,
    /// Whether the run is stopping, so that its processes have only the stop budget.
    pub(crate) stops: bool,
}

impl From<&Machine> for Mark {
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

impl Reply {
    /// Creates a reply and its receiver.
    pub(crate) fn awaited() -> (Self, oneshot::Receiver<Verdict>) {
        let (told, reply) = oneshot::channel();
        (Self(Some(told)), reply)
    }

    pub(crate) fn send(self, verdict: Verdict) {
        if let Some(told) = self.0 {
            // The receiver may have stopped waiting.
            let _gone = told.send(verdict);
        }
    }
}

impl From<Control> for Wish {
    fn from(what: Control) -> Self {
        let reply = Reply::default();
        Self { what, reply }
    }
}

/// The queued requests. Those of this process come first.
#[derive(Debug)]
pub(crate) struct Wishes {
    own: mpsc::Receiver<Control>,
    others: mpsc::Receiver<Wish>,
    /// The requests that arrived during another wait.
    early: VecDeque<Wish>,
}

impl Default for Wishes {
    /// Creates an empty queue without senders.
    fn default() -> Self {
        Self::new(mpsc::channel(1).1, mpsc::channel(1).1)
    }
}

impl Wishes {
    pub(crate) fn new(own: mpsc::Receiver<Control>, others: mpsc::Receiver<Wish>) -> Self {
        let early = VecDeque::new();
        Self { own, others, early }
    }

    /// Returns a request that waits already.
    pub(crate) fn try_next(&mut self) -> Option<Wish> {
        let early = self.early.pop_front().map(Ok);
        let own = early.unwrap_or_else(|| self.own.try_recv().map(Wish::from));
        own.or_else(|_| self.others.try_recv()).ok()
    }

    /// Waits for a request, forever if all senders are dropped. Cancel safe.
    pub(crate) async fn next(&mut self) -> Wish {
        if let Some(early) = self.early.pop_front() {
            return early;
        }
        self.receive().await
    }

    /// Waits for a request that ends the run now. Other requests that arrive meanwhile are processed later, and so is this one. Cancel safe.
    pub(crate) async fn end_wanted(&mut self) {
        while !self.is_end_wanted() {
            if self.early.len() >= EARLY {
                return std::future::pending().await;
            }
            let wish = self.receive().await;
            self.early.push_back(wish);
        }
    }

    /// Returns the machine input that announces the stop requests found so far.
    pub(crate) fn foreseen(&self) -> Happening {
        let abort = self.early.iter().any(|wish| wish.what.is_abort());
        Happening::StopForeseen { abort }
    }

    /// Returns whether such a request was found.
    pub(crate) fn is_end_wanted(&self) -> bool {
        let is_now = |wish: &Wish| wish.what.stop().is_some_and(|it| it.when == When::Now);
        self.early.iter().any(is_now)
    }

    async fn receive(&mut self) -> Wish {
        tokio::select! {
            biased;
            Some(own) = self.own.recv() => own.into(),
            Some(other) = self.others.recv() => other,
            else => std::future::pending().await,
        }
    }
}

/// A message to the run. The run reports its progress by [`News`](crate::News), and a rejected one by [`News::Rejected`](crate::News::Rejected).
#[derive(Debug)]
#[non_exhaustive]
pub enum Control {
    /// A request of a person, from this process or another one.
    Request(Request),
    /// Stops the run; if it stops now, within [`Options::stop_budget`](crate::Options::stop_budget). A second stop can only move the deadline
    /// earlier.
    Stop(StopRequest),
    /// Whether a person is there from now on who can review a phase or a batch. Without one, the run waits for no review.
    Attended(bool),
    /// Suspends or resumes everything that runs.
    Freeze {
        /// Whether to suspend.
        frozen: bool,
        /// Receives a value when everything is suspended or resumed.
        done: oneshot::Sender<()>,
    },
}

impl From<Request> for Control {
    fn from(request: Request) -> Self {
        Self::Request(request)
    }
}

impl Control {
    /// Returns the machine input of this message while the run ends; the machine decides whether it matters.
    pub(crate) fn while_ending(self) -> Option<Happening> {
        match self {
            Self::Stop(request) => Some(Happening::StopRequested(request)),
            Self::Request(request) => Some(Happening::Requested(request)),
            Self::Attended(_) | Self::Freeze { .. } => None,
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
        self.stop().is_some_and(|stop| stop.when == When::Now)
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

    /// Git may take long, and a press must not wait for it.
    #[tokio::test]
    async fn who_wants_the_end_is_found_behind_others_and_all_are_heard_in_order() {
        let (own, receiver) = mpsc::channel(8);
        let (others, wishes) = mpsc::channel(8);
        let mut wishes = Wishes::new(receiver, wishes);
        let steer = |text: &str| Request::Steer {
            text: text.into(),
            now: false,
        };
        let later = Request::Stop {
            after: When::AfterIteration,
        };
        for what in [steer("one"), later] {
            others.send(Control::from(what).into()).await.unwrap();
        }
        let wanted = tokio::time::timeout(std::time::Duration::ZERO, wishes.end_wanted());
        assert!(wanted.await.is_err() && !wishes.is_end_wanted());
        own.send(steer("two").into()).await.unwrap();
        own.send(Request::Abort.into()).await.unwrap();
        wishes.end_wanted().await;
        assert!(wishes.is_end_wanted());
        let mut heard = Vec::new();
        while let Some(wish) = wishes.try_next() {
            heard.push(match wish.what {
                Control::Request(Request::Steer { text, .. }) => text,
                Control::Request(other) => format!("{other:?}"),
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(heard[0], "one");
        assert!(heard[1].starts_with("Stop {"), "{heard:?}");
        assert_eq!(heard[2..], ["two", "Abort"]);
        assert!(!wishes.is_end_wanted());
    }
}
