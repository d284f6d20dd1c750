//! The commands of the handles to the actor, and their answers. The actor's waits end when the conversation is stopped.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::{
    Decision, Error, PendingChange, Permissions, ProcessName, QueuedMessages, SessionChoice,
    StopReport,
};

pub(super) type ReplySender<T> = oneshot::Sender<T>;

#[derive(Debug)]
pub(crate) enum Command {
    Start {
        session: SessionChoice,
        done: ReplySender<Result<(), Error>>,
    },
    Answer {
        ask: String,
        decision: Decision,
        done: ReplySender<Result<(), Error>>,
    },
    Permissions {
        permissions: Permissions,
        done: ReplySender<Result<(), Error>>,
    },
    Model {
        model: Option<String>,
        done: ReplySender<Result<(), Error>>,
    },
    Freeze {
        frozen: bool,
        done: ReplySender<Result<(), Error>>,
    },
    PauseDelivery {
        is_delivery_paused: bool,
        done: ReplySender<()>,
    },
    Close {
        close_timeout: Duration,
        done: ReplySender<()>,
    },
    /// Answered when an agent runs.
    EnsureRunning {
        done: ReplySender<Result<(), Error>>,
    },
    Leftovers {
        done: ReplySender<Vec<ProcessName>>,
    },
}

#[derive(Debug)]
pub(crate) struct Interrupt {
    pub(crate) queued: QueuedMessages,
    pub(crate) done: ReplySender<Result<(), Error>>,
}

/// The time by which a requested stop must have ended everything; `None` before a stop. The sender is dropped with the last handle.
pub(crate) type StopDeadline = watch::Receiver<Option<Instant>>;

/// The actor's ends of the channels for commands, interrupts and reports.
#[derive(Debug)]
pub(crate) struct Channels {
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) interrupts: mpsc::Receiver<Interrupt>,
    pub(crate) stop_deadline: StopDeadline,
    pub(crate) report: watch::Sender<Option<StopReport>>,
}

pub(super) fn answer<T>(done: ReplySender<T>, answer: T) {
    // The send fails if the caller has stopped waiting.
    let _nobody = done.send(answer);
}

pub(super) fn reply<T>(done: ReplySender<T>, answered: Option<T>) {
    if let Some(answered) = answered {
        answer(done, answered);
    }
}

/// Sends the result of a change to its caller when it is known. The actor reads the agent and handles commands in the meantime.
pub(super) fn follow(
    mut done: ReplySender<Result<(), Error>>,
    result: Option<Result<PendingChange, Error>>,
) {
    match result {
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

/// Waits until the conversation must end; returns `None` if it must end because all handles were dropped.
pub(super) async fn wait_for_stop(stop_deadline: &mut StopDeadline) -> Option<Instant> {
    stop_deadline
        .wait_for(Option::is_some)
        .await
        .ok()
        .and_then(|end_by| *end_by)
}

/// Waits until a caller requests an end before `end_by`, and returns that time.
pub(super) async fn wait_for_earlier_stop(
    stop_deadline: &mut StopDeadline,
    end_by: Instant,
) -> Instant {
    let sooner = stop_deadline.wait_for(|deadline| deadline.is_some_and(|by| by < end_by));
    match sooner.await.ok().and_then(|deadline| *deadline) {
        Some(sooner) => sooner,
        None => std::future::pending().await,
    }
}

/// Runs a call of the connection; returns `None`, without the result, if the conversation is stopped.
pub(super) async fn run_unless_stopped<T>(
    stop_deadline: &mut StopDeadline,
    action: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        _ = wait_for_stop(stop_deadline) => None,
        done = action => Some(done),
    }
}
