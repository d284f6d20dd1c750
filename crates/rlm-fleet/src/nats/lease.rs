//! The renewals of one lease, by the decisions of a [`LeaseClock`]. They are a task of their own, so that no wait of another task delays
//! them. A task that blocks the thread of the runtime does.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::{AckKind, Message};
use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use super::clock::now;
use super::error::Error;
use super::fleet::Fleet;
use crate::Moment;
use crate::lease::{LeaseClock, LeaseInput, LeaseOutput};

/// The number of answers that can wait for the task.
const ANSWERS: usize = 16;

/// The lease of a delivered run. Dropping it ends the renewals, and sends nothing.
#[derive(Debug)]
pub(super) struct Lease {
    /// The moment of the kill; `None` once the lease is lost.
    kill_at: watch::Receiver<Option<Moment>>,
    fenced: mpsc::Sender<()>,
    task: AbortHandle,
}

impl Lease {
    /// Begins to renew the lease of a message that was requested at the moment `pulled`.
    pub(super) fn begin(
        fleet: &Fleet,
        message: &Arc<Message>,
        lease: Duration,
        pulled: Moment,
    ) -> Self {
        let clock = LeaseClock::new(lease, pulled);
        let (sender, kill_at) = watch::channel(clock.kill_at());
        let (fenced, fencing) = mpsc::channel(1);
        let task = tokio::spawn(renew(
            fleet.clone(),
            Arc::clone(message),
            clock,
            sender,
            fencing,
        ));
        let task = task.abort_handle();
        Self {
            kill_at,
            fenced,
            task,
        }
    }

    /// Returns the moment by which the agent must be killed; `None` once the lease is lost.
    pub(super) fn kill_at(&self) -> Option<Moment> {
        *self.kill_at.borrow()
    }

    /// Waits until the moment of the kill changes, and returns it; `None` if the lease is lost. Cancel safe.
    pub(super) async fn changed(&mut self) -> Option<Moment> {
        match self.kill_at.changed().await {
            Ok(()) => *self.kill_at.borrow_and_update(),
            Err(_) => None,
        }
    }

    /// Waits until the lease is lost. Cancel safe.
    pub(super) async fn lost(&self) {
        let mut kill_at = self.kill_at.clone();
        // A dropped sender means that the task has ended, which loses the lease too.
        let _lost = kill_at.wait_for(Option::is_none).await;
    }

    /// Ends the renewals.
    pub(super) fn end(&self) {
        self.task.abort();
    }

    /// Ends the lease, because another worker owns the run.
    pub(super) fn fence(&self) {
        // A full channel means that the task knows it.
        let _known = self.fenced.try_send(());
    }
}

async fn renew(
    fleet: Fleet,
    message: Arc<Message>,
    mut clock: LeaseClock,
    kill_at: watch::Sender<Option<Moment>>,
    mut fencing: mpsc::Receiver<()>,
) {
    let (answered, mut answers) = mpsc::channel(ANSWERS);
    let (mut input, mut wake) = (LeaseInput::Time, now());
    loop {
        for output in clock.step(input, now()) {
            match output {
                LeaseOutput::Renew { sent } => {
                    let (fleet, message) = (fleet.clone(), Arc::clone(&message));
                    let answered = answered.clone();
                    tokio::spawn(async move {
                        let renewed = acknowledge(&fleet, &message, AckKind::Progress).await;
                        if renewed.is_ok() {
                            // A closed channel means that the lease is lost.
                            let _over = answered.send(sent).await;
                        }
                    });
                }
                LeaseOutput::KillAt(at) => {
                    kill_at.send_replace(Some(at));
                }
                LeaseOutput::WakeAt(at) => wake = at,
                LeaseOutput::Lost => {
                    kill_at.send_replace(None);
                    return;
                }
            }
        }
        input = tokio::select! {
            Some(sent) = answers.recv() => LeaseInput::Answered { sent },
            fenced = fencing.recv() => match fenced {
                Some(()) => LeaseInput::Fenced,
                // The owner of the lease was dropped.
                None => return,
            },
            () = fleet.sleep_until(wake) => LeaseInput::Time,
        };
        if fleet.gate.is_shutdown() {
            kill_at.send_replace(None);
            return;
        }
    }
}

/// Sends an acknowledgement of a message, and waits for the answer of the server. A server without JetStream gives an error: its client library would
/// count the report that nobody listens as an answer.
pub(super) async fn acknowledge(
    fleet: &Fleet,
    message: &Message,
    kind: AckKind,
) -> Result<(), Error> {
    let failed = |cause: async_nats::Error| Error::unavailable("acknowledge a delivery", cause);
    let to = message.reply.clone();
    let to = to.ok_or_else(|| failed("the message has no subject for it".into()))?;
    let answer = fleet.client.request(to, Bytes::from(kind)).await;
    answer.map(drop).map_err(|e| failed(e.into()))
}
