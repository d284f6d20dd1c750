//! The agent's side of an attempt: its conversation, its transcript, and its events.

use std::collections::HashMap;

use agent_duplex::{Conversation, Decision, PermissionRequest, Primary, Published, StopReport};
use loop_state::{AttemptMachine, Timestamp, times};
use rlm_store::deadline::Deadline;
use rlm_store::transcript::Transcript;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::timeout;
use uuid::Uuid;

use crate::view::AgentView;

/// The handles on the agent of an attempt; its state is in `machine`.
#[derive(Debug)]
pub(crate) struct AttemptHandles {
    pub(crate) conversation: Conversation,
    /// `None` after the last event of the conversation.
    pub(crate) primary: Option<Primary>,
    /// The first answer of the agent; reported after the save that records that the agent answers.
    pub(crate) first_answer: Option<Published>,
    /// `None` if it could not be written.
    pub(crate) transcript: Option<Transcript>,
    pub(crate) tasks: Tasks,
    /// The shared deadline for the end of the process tree.
    pub(crate) deadline: Deadline,
    pub(crate) machine: AttemptMachine,
    pub(crate) reports: AgentReports,
    /// The steers by the receipts of their messages.
    pub(crate) receipts: HashMap<Uuid, u32>,
}

/// The tasks that run for an attempt beside the loop.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    /// Starts the agent.
    pub(crate) starting: Option<JoinHandle<Result<(), agent_duplex::Error>>>,
    /// Closes an agent whose background tasks were given up.
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
pub(crate) struct AgentReports {
    /// The process id of the agent, once it runs.
    pub(crate) pid: Option<u32>,
    /// The full permission requests; `machine` has those that wait for a person.
    pub(crate) asks: Vec<PermissionRequest>,
}

/// An event of the agent or of its tasks.
#[derive(Debug)]
pub(crate) enum AgentWakeup {
    /// The agent was started, or the start failed.
    Started(Result<(), agent_duplex::Error>),
    /// The agent was closed although it has background tasks.
    Closed,
    /// The process tree was ended; `None` if the task failed.
    Ended(Option<StopReport>),
    /// An event of the conversation; `None` at its end.
    Published(Option<Published>),
}

/// Waits for a task; `None` if there is none.
async fn joined<T>(task: &mut Option<JoinHandle<T>>) -> Option<Result<T, JoinError>> {
    match task {
        Some(task) => Some(task.await),
        None => None,
    }
}

/// Waits for an event of the conversation; `None` if it publishes nothing any more.
async fn published(primary: &mut Option<Primary>) -> Option<Option<Published>> {
    match primary {
        Some(primary) => Some(primary.next().await),
        None => None,
    }
}

impl AttemptHandles {
    pub(crate) fn new(
        conversation: Conversation,
        primary: Primary,
        transcript: Option<Transcript>,
        machine: AttemptMachine,
    ) -> Self {
        Self {
            conversation,
            primary: Some(primary),
            first_answer: None,
            transcript,
            tasks: Tasks::default(),
            deadline: Deadline::default(),
            machine,
            reports: AgentReports::default(),
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
            awaited_tasks: self.machine.awaited_tasks(),
            interruptible: self.machine.options().interruptible,
            steerable: self.machine.options().steerable,
            tools: self.machine.tools().map(ToOwned::to_owned).collect(),
            permission_requests: { self.reports.asks.iter() }
                .filter(|ask| self.machine.is_asking(&ask.id))
                .cloned()
                .collect(),
        }
    }

    /// Waits for the next event. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Published> {
        if self.first_answer.is_some() {
            return self.first_answer.take();
        }
        published(&mut self.primary).await.flatten()
    }

    /// Waits for the next event, including the start of the agent. Cancel safe.
    pub(crate) async fn wake(&mut self) -> AgentWakeup {
        if let Some(first) = self.first_answer.take() {
            return AgentWakeup::Published(Some(first));
        }
        let tasks = &mut self.tasks;
        let (starting, closing, ending) =
            (&mut tasks.starting, &mut tasks.closing, &mut tasks.ending);
        tokio::select! {
            biased;
            Some(started) = joined(starting) => {
                *starting = None;
                let lost = |e: JoinError| Err(agent_duplex::Error::agent_gone(e.to_string()));
                AgentWakeup::Started(started.unwrap_or_else(lost))
            }
            Some(ended) = joined(ending) => {
                *ending = None;
                AgentWakeup::Ended(ended.ok())
            }
            Some(published) = published(&mut self.primary) => AgentWakeup::Published(published),
            // Check this last, so that the ends of the background tasks and of their turn are reported first.
            Some(_) = joined(closing) => {
                *closing = None;
                AgentWakeup::Closed
            }
        }
    }

    pub(crate) fn may_publish(&self) -> bool {
        self.primary.is_some() || !self.tasks.is_empty()
    }
}

pub(crate) fn deny(why: &str) -> Decision {
    let message =
        format!("Denied: {why}. Find another way, or state at the end what you needed and why.");
    Decision::Deny { message }
}

/// Suspends or resumes an agent. If the agent is being started, this happens after the start; the caller doesn't wait for it.
pub(crate) async fn freeze(conversation: &Conversation, frozen: bool) {
    // Freezing fails if the agent is gone, which is fine.
    let _gone_or_later = timeout(times::FREEZE_TIMEOUT, conversation.freeze(frozen)).await;
}
