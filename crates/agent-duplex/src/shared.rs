use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::ledger::Ledger;
use crate::replay::{Replay, weight};
use crate::subscription::Queue;
use crate::{ConversationOptions, Lifecycle, Published, What};

/// What the handles and the actor see both.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) primary: Arc<Queue>,
    /// Wakes the actor for an input.
    pub(crate) arrived: Notify,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) ledger: Ledger,
    pub(crate) lifecycle: Lifecycle,
    /// Whether an input was accepted since the actor looked last.
    pub(crate) arrived: bool,
    sequence: u64,
    primary: Arc<Queue>,
    subscribers: Vec<Arc<Queue>>,
    replay: Replay,
}

impl Shared {
    pub(crate) fn new(options: &ConversationOptions) -> Arc<Self> {
        let primary = Queue::new(options.backlog);
        Arc::new(Self {
            state: Mutex::new(State {
                ledger: Ledger::new(options.inbox),
                lifecycle: Lifecycle::Idle,
                arrived: false,
                sequence: 0,
                primary: Arc::clone(&primary),
                subscribers: Vec::new(),
                replay: Replay::default(),
            }),
            primary,
            arrived: Notify::new(),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Lets a queue have what is published from now on.
    pub(crate) fn add(&mut self, queue: &Arc<Queue>) {
        if self.lifecycle == Lifecycle::Ended {
            queue.close();
        } else {
            self.subscribers.push(Arc::clone(queue));
        }
    }

    /// Tells all readers.
    pub(crate) fn publish(&mut self, what: What) {
        self.sequence += 1;
        let weight = weight(&what);
        let published = Arc::new(Published {
            sequence: self.sequence,
            what,
        });
        self.replay.note(&published, weight);
        self.subscribers
            .retain(|queue| queue.offer(&published, weight));
        self.primary.push(published, weight);
    }

    /// Makes a queue that begins with the turn that runs, and lets it have what is published from now on.
    pub(crate) fn replay(&mut self, capacity: usize) -> Arc<Queue> {
        let queue = Queue::replaying(capacity, self.replay.until(self.sequence));
        self.add(&queue);
        queue
    }

    /// Lets all readers come to their end.
    pub(crate) fn close(&mut self) {
        self.primary.close();
        for queue in self.subscribers.drain(..) {
            queue.close();
        }
    }
}
