//! The agent's side of an attempt: its conversation, its transcript, and what is heard of it.

use std::collections::HashMap;

use agent_duplex::{Ask, Conversation, Decision, Primary, Published, StopReport};
use loop_state::{AttemptMachine, Timestamp, times};
use rlm_store::deadline::Hurry;
use rlm_store::transcript::Transcript;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::timeout;
use uuid::Uuid;

use crate::view::AgentView;

/// The handles on the agent of an attempt; its state is in `machine`.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) conversation: Conversation,
    /// `None` once the conversation publishes nothing more.
    pub(crate) primary: Option<Primary>,
    /// The first answer of the agent, reported once it is saved that the agent answers.
    pub(crate) first_words: Option<Published>,
    /// `None` when it could not be written.
    pub(crate) transcript: Option<Transcript>,
    pub(crate) tasks: Tasks,
    /// The shared deadline for the end of its process tree.
    pub(crate) hurry: Hurry,
    pub(crate) machine: AttemptMachine,
    pub(crate) heard: Heard,
    /// The steers by the receipts of what was sent.
    pub(crate) receipts: HashMap<Uuid, u32>,
}

/// The tasks that run for an attempt beside the loop.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    /// Starts the agent.
    pub(crate) starting: Option<JoinHandle<Result<(), agent_duplex::Error>>>,
    /// Closes the agent whose background tasks were given up.
    pub(crate) closing: Option<JoinHandle<()>>,
    /// Ends the whole process tree.
    pub(crate) ending: Option<JoinHandle<StopReport>>,
}

impl Tasks {
    pub(crate) fn is_empty(&self) -> bool {
        self.starting.is_none() && self.closing.is_none() && self.ending.is_none()
    }
}

/// The agent's reports about itself.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// The process id of the agent, once it runs.
    pub(crate) pid: Option<u32>,
    /// The requests for permission in full; `machine` has those that wait for a person.
    pub(crate) asks: Vec<Ask>,
}

/// What was heard of an agent.
#[derive(Debug)]
pub(crate) enum Woken {
    /// It was started, or could not be.
    Started(Result<(), agent_duplex::Error>),
    /// It was closed though it has something in the background.
    Closed,
    /// Its tree was ended; `None` when that came to no end of its own.
    Ended(Option<StopReport>),
    /// What its conversation tells; `None` when that is over.
    Published(Option<Published>),
}

/// Waits for a task that may not be there.
async fn joined<T>(task: &mut Option<JoinHandle<T>>) -> Option<Result<T, JoinError>> {
    match task {
        Some(task) => Some(task.await),
        None => None,
    }
}

/// Waits for what a conversation publishes; `None` where it publishes nothing any more.
async fn published(primary: &mut Option<Primary>) -> Option<Option<Published>> {
    match primary {
        Some(primary) => Some(primary.next().await),
        None => None,
    }
}

impl Attempt {
    pub(crate) fn new(
        conversation: Conversation,
        primary: Primary,
        transcript: Option<Transcript>,
        machine: AttemptMachine,
    ) -> Self {
        Self {
            conversation,
            primary: Some(primary),
            first_words: None,
            transcript,
            tasks: Tasks::default(),
            hurry: Hurry::default(),
            machine,
            heard: Heard::default(),
            receipts: HashMap::new(),
        }
    }

    /// Continues in another conversation.
    pub(crate) fn replace(&mut self, conversation: Conversation, primary: Primary) {
        let machine = self.machine.clone();
        let transcript = self.transcript.take();
        *self = Self::new(conversation, primary, transcript, machine);
    }

    pub(crate) fn flush_at(&self) -> Option<Timestamp> {
        self.transcript.as_ref()?.flush_at()
    }

    pub(crate) fn view(&self) -> AgentView {
        AgentView {
            alive: self.machine.agent().is_alive(),
            held_for: self.machine.held_for(),
            interruptible: self.machine.options().interruptible,
            steerable: self.machine.options().steerable,
            tools: self.machine.tools().map(ToOwned::to_owned).collect(),
            asks: { self.heard.asks.iter() }
                .filter(|ask| self.machine.is_asking(&ask.id))
                .cloned()
                .collect(),
        }
    }

    /// Waits for the next thing. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Published> {
        if self.first_words.is_some() {
            return self.first_words.take();
        }
        published(&mut self.primary).await.flatten()
    }

    /// Waits for the next thing, the start of the agent included. Cancel safe.
    pub(crate) async fn wake(&mut self) -> Woken {
        if let Some(first) = self.first_words.take() {
            return Woken::Published(Some(first));
        }
        let tasks = &mut self.tasks;
        let (starting, closing, ending) =
            (&mut tasks.starting, &mut tasks.closing, &mut tasks.ending);
        tokio::select! {
            biased;
            Some(started) = joined(starting) => {
                *starting = None;
                let lost = |e: JoinError| Err(agent_duplex::Error::gone(e.to_string()));
                Woken::Started(started.unwrap_or_else(lost))
            }
            Some(ended) = joined(ending) => {
                *ending = None;
                Woken::Ended(ended.ok())
            }
            Some(published) = published(&mut self.primary) => Woken::Published(published),
            // Last: the ends of the tasks and of their turn are told first.
            Some(_) = joined(closing) => {
                *closing = None;
                Woken::Closed
            }
        }
    }

    pub(crate) fn may_speak(&self) -> bool {
        self.primary.is_some() || !self.tasks.is_empty()
    }
}

pub(crate) fn deny(why: &str) -> Decision {
    let message = format!(
        "Denied: {why}. Find another way, or say at the end what you would have needed and why."
    );
    Decision::Deny { message }
}

/// Stops an agent where it stands, or lets it go on. One that is being started hears it when that is done, for which nobody waits.
pub(crate) async fn freeze(conversation: &Conversation, frozen: bool) {
    // An agent that is gone needs neither.
    let _gone_or_later = timeout(times::FREEZE, conversation.freeze(frozen)).await;
}
