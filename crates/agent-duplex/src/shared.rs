//! The state behind the one lock of a conversation, so that an input can be accepted and published without the actor.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use uuid::Uuid;

use crate::history::{EventLog, History, weight};
use crate::ids::Ids;
use crate::input::check_parts;
use crate::ledger::{Ledger, LedgerConfig};
use crate::restart::RestartState;
use crate::subscription::{Item, Queue};
use crate::{
    Capabilities, ConversationEvent, Error, Lifecycle, Part, Published, RecoveredConversation,
    RestartPolicy,
};

/// The state that the handles and the actor share.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) primary: Arc<Queue>,
    /// Wakes the actor for an input.
    pub(crate) input_notify: Notify,
    /// Wakes callers that wait until there is nothing left to do.
    pub(crate) idle_notify: Arc<Notify>,
}

/// The agent, as callers need to know it.
#[derive(Debug)]
pub(crate) struct AgentFacts {
    pub(crate) name: String,
    /// The capabilities of the driver, or those of the agent that was started last.
    pub(crate) capabilities: Capabilities,
}

impl AgentFacts {
    /// Returns an error if the agent can't take one of these parts of an input.
    pub(crate) fn check(&self, parts: &[Part]) -> Result<(), Error> {
        check_parts(parts, &self.name, self.capabilities)
    }
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) agent: AgentFacts,
    pub(crate) ledger: Ledger,
    pub(crate) ids: Ids,
    pub(crate) conversation: Uuid,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) starts: RestartState,
    /// The reason why the conversation can't be stored any more.
    pub(crate) persistence_error: Option<Error>,
    /// Whether an input was accepted since the actor's last check.
    pub(crate) has_new_input: bool,
    /// The number of running turns, as published to the readers.
    running: usize,
    idle_notify: Arc<Notify>,
    sequence: u64,
    primary: Arc<Queue>,
    subscribers: Vec<Arc<Queue>>,
    log: EventLog,
}

impl Shared {
    pub(crate) fn new(
        agent: AgentFacts,
        backlog: usize,
        restart: Option<RestartPolicy>,
        config: LedgerConfig,
        recovered: RecoveredConversation,
    ) -> Arc<Self> {
        let primary = Queue::new(backlog);
        let idle_notify = Arc::new(Notify::new());
        Arc::new(Self {
            state: Mutex::new(State {
                agent,
                ledger: Ledger::new(config, recovered),
                ids: Ids::new(),
                conversation: Uuid::new_v4(),
                lifecycle: Lifecycle::Idle,
                starts: RestartState::new(restart),
                persistence_error: None,
                has_new_input: false,
                running: 0,
                idle_notify: Arc::clone(&idle_notify),
                sequence: 0,
                primary: Arc::clone(&primary),
                subscribers: Vec::new(),
                log: EventLog::default(),
            }),
            primary,
            input_notify: Notify::new(),
            idle_notify,
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies the actor of a new input.
    pub(crate) fn notify_input(&self, state: &mut State) {
        state.has_new_input = true;
        state.starts.input_arrived();
        self.input_notify.notify_one();
    }

    /// Records that the conversation can't be stored any more.
    pub(crate) fn record_persistence_error(&self, fault: Error) {
        self.lock().persistence_error.get_or_insert(fault);
        self.idle_notify.notify_waiters();
        self.input_notify.notify_one();
    }
}

impl State {
    /// Returns the reason why no input is accepted, if there is one.
    pub(crate) fn refusal(&self) -> Option<Error> {
        if self.lifecycle.is_over() {
            return Some(Error::conversation_over());
        }
        self.persistence_error
            .clone()
            .or_else(|| self.starts.refusal())
    }

    /// Returns `Ok` if everything that was accepted is completed and published, or the error if this will never happen. `None` means to wait.
    pub(crate) fn idle_result(&self) -> Option<Result<(), Error>> {
        let busy = self.ledger.is_busy() || self.running > 0;
        if !busy && self.ledger.pending().next().is_none() {
            return Some(Ok(()));
        }
        // A running turn still gets its end.
        let over = !busy || self.lifecycle == Lifecycle::Ended;
        self.refusal().filter(|_| over).map(Err)
    }

    /// Adds a queue that gets all events from now on.
    pub(crate) fn add(&mut self, queue: &Arc<Queue>) {
        if self.lifecycle == Lifecycle::Ended {
            queue.close();
        } else {
            self.subscribers.push(Arc::clone(queue));
        }
    }

    /// Publishes an event to all readers.
    pub(crate) fn publish(&mut self, what: ConversationEvent) {
        self.publish_all(vec![what]);
    }

    /// Publishes several events at once: each reader is woken once.
    pub(crate) fn publish_all(&mut self, events: Vec<ConversationEvent>) {
        let items: Vec<Item> = events.into_iter().map(|what| self.item(what)).collect();
        if !items.is_empty() {
            self.subscribers.retain(|queue| queue.offer(&items));
            self.primary.push(&items);
            self.idle_notify.notify_waiters();
        }
    }

    fn item(&mut self, what: ConversationEvent) -> Item {
        match &what {
            ConversationEvent::Assigned(assignment) if !assignment.injected => self.running += 1,
            ConversationEvent::Completed(_) => self.running = self.running.saturating_sub(1),
            _ => {}
        }
        self.sequence += 1;
        let weight = weight(&what);
        let published = Arc::new(Published {
            conversation: self.conversation,
            sequence: self.sequence,
            event: what,
        });
        let item = (published, weight);
        self.log.add(&item);
        item
    }

    /// Creates a queue that starts with the events of the running turn, and adds it for the events from now on.
    pub(crate) fn replay(&mut self, capacity: usize) -> Arc<Queue> {
        let replay = self.log.replay(self.conversation, self.sequence);
        let queue = Queue::replaying(capacity, replay);
        self.add(&queue);
        queue
    }

    /// Returns the latest events.
    pub(crate) fn history(&self) -> History {
        self.log.history(self.sequence)
    }

    /// Ends all readers after their unread events.
    pub(crate) fn close(&mut self) {
        self.primary.close();
        for queue in self.subscribers.drain(..) {
            queue.close();
        }
    }
}
