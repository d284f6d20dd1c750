//! The two ends between a connection and the task of its agent: commands in, observations out.

use std::pin::pin;

use agent_duplex::{Decision, Error, Event, Message, Observation, Permissions, TurnEnd};
use tokio::sync::{mpsc, oneshot, watch};

/// The commands that wait for the task. The caller sends one at a time, and the task takes them at once.
pub(crate) const COMMANDS: usize = 64;
/// The observations that wait for the reader; then the agent waits too.
pub(crate) const OBSERVATIONS: usize = 256;

/// A request of the caller.
#[derive(Debug)]
pub(crate) enum Command {
    /// Take a message. `taken` gets the result when the message is saved.
    Message {
        message: Message,
        taken: oneshot::Sender<Result<(), Error>>,
    },
    /// Continue after [`Event::AcceptsMessages`].
    Continue,
    /// End the turn.
    Interrupt,
    /// Answer a permission request.
    Answer { ask: String, decision: Decision },
}

/// Why a turn does not continue.
#[derive(Debug)]
pub(crate) enum Halt {
    /// A person interrupted it.
    Interrupted,
    /// The connection was closed.
    Closed,
    /// It has ended.
    Ended(TurnEnd),
}

/// The side of the task.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) observations: mpsc::Sender<Observation>,
    pub(crate) permissions: watch::Receiver<Permissions>,
    pub(crate) model: watch::Receiver<String>,
    pub(crate) frozen: watch::Receiver<bool>,
}

impl Link {
    /// Reports an event, and waits until there is room for it.
    pub(crate) async fn report(&self, event: Event) {
        // It fails only after the connection was closed; the next command then ends the task.
        let _closed = self.observations.send(event.into()).await;
    }

    /// Waits for an effect. Drops it if the turn must end first.
    pub(crate) async fn during<T>(&mut self, effect: impl Future<Output = T>) -> Result<T, Halt> {
        let mut effect = pin!(effect);
        loop {
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    None => return Err(Halt::Closed),
                    Some(Command::Interrupt) => return Err(Halt::Interrupted),
                    Some(Command::Message { taken, .. }) => refuse(taken),
                    // An answer to an earlier question.
                    Some(Command::Answer { .. } | Command::Continue) => {}
                },
                done = &mut effect => return Ok(done),
            }
        }
    }

    /// Waits while a person has frozen the agent.
    pub(crate) async fn thawed(&mut self) -> Result<(), Halt> {
        let mut frozen = self.frozen.clone();
        self.during(async move {
            // If the connection is gone, its end is the next command.
            let _gone = frozen.wait_for(|frozen| !frozen).await;
        })
        .await
    }
}

/// Refuses a message: the conversation tries again at the end of the turn.
pub(super) fn refuse(taken: oneshot::Sender<Result<(), Error>>) {
    let hint = "wait for the next call of the model";
    let refused = Error::unsupported("in a turn", "take a message now", hint);
    // The caller can be gone.
    let _gone = taken.send(Err(refused));
}
