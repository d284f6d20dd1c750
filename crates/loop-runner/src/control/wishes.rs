//! What people want of a run, from the program that carries it out and from its control socket.

use std::borrow::Cow;
use std::collections::VecDeque;

use loop_state::{Happening, Machine, Request, StopRequest, When};
use tokio::sync::{mpsc, oneshot};

/// How many wishes are taken while something short is waited for; more wait where they are.
const EARLY: usize = 64;

/// A message, and who wants to know whether the run took it.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) what: Control,
    pub(crate) reply: Reply,
}

/// Told when what was wanted is done and saved, or why it was not. Dropping it says that the run is over.
#[derive(Debug, Default)]
pub(crate) struct Reply(Option<oneshot::Sender<Verdict>>);

pub(crate) type Verdict = Result<Mark, Cow<'static, str>>;

/// Where the run stood when a wish was taken: a steer that was just taken is the last one, a turn that was just told to end is that of this attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) steers: u32,
    pub(crate) iteration: u32,
    pub(crate) attempt: u32,
    /// Whether the run is being stopped, so that what runs has no more than its budget.
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
    /// Makes one that is waited for.
    pub(crate) fn awaited() -> (Self, oneshot::Receiver<Verdict>) {
        let (told, reply) = oneshot::channel();
        (Self(Some(told)), reply)
    }

    pub(crate) fn send(self, verdict: Verdict) {
        if let Some(told) = self.0 {
            // Whoever asked may have given up waiting.
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

/// Where wishes come from. Those of this process go first.
#[derive(Debug)]
pub(crate) struct Wishes {
    own: mpsc::Receiver<Control>,
    others: mpsc::Receiver<Wish>,
    /// Those that came while something else was waited for.
    early: VecDeque<Wish>,
}

impl Default for Wishes {
    /// Makes one in which nobody wants anything.
    fn default() -> Self {
        Self::new(mpsc::channel(1).1, mpsc::channel(1).1)
    }
}

impl Wishes {
    pub(crate) fn new(own: mpsc::Receiver<Control>, others: mpsc::Receiver<Wish>) -> Self {
        let early = VecDeque::new();
        Self { own, others, early }
    }

    /// Returns one that waits already.
    pub(crate) fn try_next(&mut self) -> Option<Wish> {
        let early = self.early.pop_front().map(Ok);
        let own = early.unwrap_or_else(|| self.own.try_recv().map(Wish::from));
        own.or_else(|_| self.others.try_recv()).ok()
    }

    /// Waits for one, for ever where nobody is left who could want something. Cancel safe.
    pub(crate) async fn next(&mut self) -> Wish {
        if let Some(early) = self.early.pop_front() {
            return early;
        }
        self.receive().await
    }

    /// Waits until somebody wants the run to end now. What else comes meanwhile is heard later, as this is. Cancel safe.
    pub(crate) async fn end_wanted(&mut self) {
        while !self.is_end_wanted() {
            if self.early.len() >= EARLY {
                return std::future::pending().await;
            }
            let wish = self.receive().await;
            self.early.push_back(wish);
        }
    }

    /// Returns what announces the requests that were found to the machine.
    pub(crate) fn foreseen(&self) -> Happening {
        let abort = self.early.iter().any(|wish| wish.what.is_abort());
        Happening::StopForeseen { abort }
    }

    /// Returns whether somebody was found to want that.
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

#[cfg(test)]
mod tests {
    use super::*;
    use loop_state::Request;

    /// What is asked of git can take long, and a press must not wait for it.
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
