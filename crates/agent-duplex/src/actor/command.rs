//! What the handles ask the actor for, and how they are answered. Its waits end when the conversation is halted.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::{
    Changing, Decision, Error, Permissions, ProcessName, Queued, SessionChoice, StopReport,
};

pub(super) type Done<T> = oneshot::Sender<T>;

#[derive(Debug)]
pub(crate) enum Command {
    Start {
        session: SessionChoice,
        done: Done<Result<(), Error>>,
    },
    Answer {
        ask: String,
        decision: Decision,
        done: Done<Result<(), Error>>,
    },
    Permissions {
        permissions: Permissions,
        done: Done<Result<(), Error>>,
    },
    Model {
        model: Option<String>,
        done: Done<Result<(), Error>>,
    },
    Freeze {
        frozen: bool,
        done: Done<Result<(), Error>>,
    },
    Hold {
        held: bool,
        done: Done<()>,
    },
    Close {
        patience: Duration,
        done: Done<()>,
    },
    /// Answered when an agent runs.
    Ensure {
        done: Done<Result<(), Error>>,
    },
    Leftovers {
        done: Done<Vec<ProcessName>>,
    },
}

#[derive(Debug)]
pub(crate) struct Interrupt {
    pub(crate) queued: Queued,
    pub(crate) done: Done<Result<(), Error>>,
}

/// Until when everything has to be ended; the other side is dropped with the last handle.
pub(crate) type Halt = watch::Receiver<Option<Instant>>;

/// The actor's ends of what it is asked for and answers by.
#[derive(Debug)]
pub(crate) struct Channels {
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) interrupts: mpsc::Receiver<Interrupt>,
    pub(crate) halt: Halt,
    pub(crate) report: watch::Sender<Option<StopReport>>,
}

pub(super) fn answer<T>(done: Done<T>, answer: T) {
    // Who asked may have stopped waiting.
    let _nobody = done.send(answer);
}

pub(super) fn reply<T>(done: Done<T>, answered: Option<T>) {
    if let Some(answered) = answered {
        answer(done, answered);
    }
}

/// Answers when it is known what came of a change. The agent is read meanwhile, and everything else is obeyed.
pub(super) fn follow(mut done: Done<Result<(), Error>>, asked: Option<Result<Changing, Error>>) {
    match asked {
        Some(Ok(changing)) => drop(tokio::spawn(async move {
            tokio::select! {
                () = done.closed() => {}
                changed = changing => answer(done, changed),
            }
        })),
        Some(Err(e)) => answer(done, Err(e)),
        None => {}
    }
}

/// Waits until the conversation is to end; with `None`, because nobody holds it any more.
pub(super) async fn halted(halt: &mut Halt) -> Option<Instant> {
    halt.wait_for(Option::is_some)
        .await
        .ok()
        .and_then(|end_by| *end_by)
}

/// Waits until the conversation is to end sooner than by `end_by`; for ever when nobody wants that.
pub(super) async fn halted_before(halt: &mut Halt, end_by: Instant) -> Instant {
    let sooner = halt.wait_for(|halt| halt.is_some_and(|by| by < end_by));
    match sooner.await.ok().and_then(|halt| *halt) {
        Some(sooner) => sooner,
        None => std::future::pending().await,
    }
}

/// Does what a connection is asked for; `None`, and not to its end, when the conversation is halted.
pub(super) async fn unless_halted<T>(halt: &mut Halt, deed: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        _ = halted(halt) => None,
        done = deed => Some(done),
    }
}
