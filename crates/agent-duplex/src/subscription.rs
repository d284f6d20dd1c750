//! The two kinds of readers over one kind of queue: who is waited for, and who is dropped when it falls behind.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::Published;

/// How many bytes of lines and texts a reader may leave unread before it counts as slow, whatever its capacity.
const MAX_BYTES: usize = 8 << 20;

/// The one reader of a [`Conversation`](crate::Conversation) that misses nothing.
///
/// While it does not read, the conversation stops reading its agent once the backlog is full; it goes on taking commands. Dropping it means that
/// nobody wants to know any more: the agent is read on and what it says goes to the subscribers alone.
#[derive(Debug)]
#[must_use = "dropping it lets the conversation go on without a lossless reader"]
pub struct Primary(pub(crate) Arc<Queue>);

impl Primary {
    /// Waits for what comes next; `None` when the conversation has ended and everything was read.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is lost.
    pub async fn next(&mut self) -> Option<Published> {
        self.next_shared().await.map(Arc::unwrap_or_clone)
    }

    /// Waits as [`next`](Self::next) does, and copies nothing: all readers get the same one.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is lost.
    pub async fn next_shared(&mut self) -> Option<Arc<Published>> {
        self.0.pop().await
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// A reader of a [`Conversation`](crate::Conversation) that nobody waits for: one that reads too slowly is dropped, and told so.
///
/// Dropping it ends the subscription.
#[derive(Debug)]
#[must_use = "dropping it ends the subscription"]
pub struct Subscription(pub(crate) Arc<Queue>);

impl Subscription {
    /// Waits for what comes next; `None` when the conversation has ended and everything was read, or after the error.
    ///
    /// # Errors
    ///
    /// [`Dropped`] once, after everything that had been kept for this reader: from there on it missed something. A new subscription begins with
    /// what is published then.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is lost.
    pub async fn next(&mut self) -> Option<Result<Published, Dropped>> {
        let next = self.next_shared().await?;
        Some(next.map(Arc::unwrap_or_clone))
    }

    /// Waits as [`next`](Self::next) does, and copies nothing: all readers get the same one.
    ///
    /// # Errors
    ///
    /// As for [`next`](Self::next).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is lost.
    pub async fn next_shared(&mut self) -> Option<Result<Arc<Published>, Dropped>> {
        match self.0.pop().await {
            Some(published) => Some(Ok(published)),
            None => self.0.lagged().map(Err),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// A subscriber read too slowly and was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The sequence number of the last thing that it got; 0 for none.
    pub last: u64,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.last;
        write!(
            f,
            "the subscriber read too slowly and was dropped after {last}; subscribe again with more room"
        )
    }
}

impl std::error::Error for Dropped {}

/// Something for readers, and what it weighs.
pub(crate) type Item = (Arc<Published>, usize);

/// What waits for one reader.
#[derive(Debug)]
pub(crate) struct Queue {
    capacity: usize,
    inner: Mutex<Inner>,
    ready: Notify,
    room: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// What comes before everything else and does not count as unread.
    replay: VecDeque<Arc<Published>>,
    /// What is unread, and what it weighs.
    items: VecDeque<Item>,
    bytes: usize,
    last: u64,
    /// Nothing more comes.
    closed: bool,
    /// Something was left out, and the reader has not been told.
    lagged: bool,
    /// Nobody reads.
    abandoned: bool,
}

impl Inner {
    fn is_full(&self, capacity: usize) -> bool {
        self.items.len() >= capacity || self.bytes >= MAX_BYTES
    }

    fn add(&mut self, item: &Item) {
        self.bytes += item.1;
        self.items.push_back(item.clone());
    }
}

impl Queue {
    pub(crate) fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self {
            capacity: capacity.max(1),
            inner: Mutex::default(),
            ready: Notify::new(),
            room: Notify::new(),
        })
    }

    /// Makes one whose reader gets this first, whatever the capacity.
    pub(crate) fn replaying(capacity: usize, replay: Vec<Arc<Published>>) -> Arc<Self> {
        let queue = Self::new(capacity);
        queue.lock().replay = replay.into();
        queue
    }

    /// Adds items whether there is room or not.
    pub(crate) fn push(&self, items: &[Item]) {
        let mut inner = self.lock();
        if !inner.abandoned && !inner.closed {
            let waits = inner.items.is_empty();
            items.iter().for_each(|item| inner.add(item));
            self.wake(waits);
        }
    }

    /// Adds items as far as there is room, and closes the queue when there is none. Returns whether its reader still wants more.
    pub(crate) fn offer(&self, items: &[Item]) -> bool {
        let mut inner = self.lock();
        if inner.abandoned || inner.closed {
            return false;
        }
        let waits = inner.items.is_empty();
        for item in items {
            if inner.is_full(self.capacity) {
                inner.lagged = true;
                inner.closed = true;
                break;
            }
            inner.add(item);
        }
        self.wake(waits);
        !inner.closed
    }

    /// Wakes the reader, who waits only when there is nothing.
    fn wake(&self, waits: bool) {
        if waits {
            self.ready.notify_one();
        }
    }

    /// Lets the reader read what there is, and then end.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.ready.notify_one();
    }

    /// Returns how many items there is room for.
    pub(crate) fn has_room_for(&self) -> usize {
        let inner = self.lock();
        if inner.bytes >= MAX_BYTES {
            return 0;
        }
        self.capacity.saturating_sub(inner.items.len())
    }

    pub(crate) fn has_room(&self) -> bool {
        self.has_room_for() > 0
    }

    /// Waits until there is room. Cancel safe.
    pub(crate) async fn room(&self) {
        while !self.has_room() {
            self.room.notified().await;
        }
    }

    async fn pop(&self) -> Option<Arc<Published>> {
        loop {
            {
                let mut inner = self.lock();
                if let Some(item) = inner.replay.pop_front() {
                    inner.last = item.sequence;
                    return Some(item);
                }
                let was_full = inner.is_full(self.capacity);
                if let Some((item, weight)) = inner.items.pop_front() {
                    inner.bytes -= weight;
                    inner.last = item.sequence;
                    if was_full && !inner.is_full(self.capacity) {
                        self.room.notify_one();
                    }
                    return Some(item);
                }
                if inner.closed {
                    return None;
                }
            }
            self.ready.notified().await;
        }
    }

    fn lagged(&self) -> Option<Dropped> {
        let mut inner = self.lock();
        let last = inner.last;
        std::mem::take(&mut inner.lagged).then_some(Dropped { last })
    }

    fn abandon(&self) {
        let mut inner = self.lock();
        inner.abandoned = true;
        inner.replay = VecDeque::new();
        inner.items = VecDeque::new();
        inner.bytes = 0;
        self.room.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
