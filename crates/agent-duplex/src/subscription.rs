//! The two kinds of readers over one kind of queue: the conversation waits for the primary, and drops a subscriber that is too slow.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use tokio::sync::Notify;

use crate::Published;

/// The number of bytes of lines and texts that a reader may leave unread before it counts as slow, whatever its capacity is.
const MAX_BYTES: usize = 8 << 20;

/// The one reader of a [`Conversation`](crate::Conversation) that misses no event.
///
/// If the primary does not read, its backlog fills. Then the conversation stops reading the agent, but still accepts commands. After the primary is
/// dropped, the conversation continues to read the agent, and only the subscribers get the events.
#[derive(Debug)]
#[must_use = "dropping it leaves the conversation without a primary reader"]
pub struct Primary(pub(crate) Arc<Queue>);

impl Primary {
    /// Waits for the next event; returns `None` if the conversation has ended and all events were read.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no event is lost.
    pub async fn next(&mut self) -> Option<Published> {
        self.next_shared().await.map(Arc::unwrap_or_clone)
    }

    /// Waits as [`next`](Self::next) does, without a copy: all readers share the same event.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no event is lost.
    pub async fn next_shared(&mut self) -> Option<Arc<Published>> {
        poll_fn(|cx| self.0.poll_pop(cx)).await
    }
}

impl Stream for Primary {
    type Item = Published;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Published>> {
        let next = self.0.poll_pop(cx);
        next.map(|next| next.map(Arc::unwrap_or_clone))
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// A reader for which the [`Conversation`](crate::Conversation) never waits: a reader that is too slow is dropped with an error.
///
/// Dropping it ends the subscription.
#[derive(Debug)]
#[must_use = "dropping it ends the subscription"]
pub struct Subscription(pub(crate) Arc<Queue>);

impl Subscription {
    /// Waits for the next event; returns `None` if the conversation has ended and all events were read, or after the error.
    ///
    /// # Errors
    ///
    /// [`Lagged`] once, after all events that were stored for this reader: later events are missing. A new subscription gets the events that
    /// are published after it was made.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no event is lost.
    pub async fn next(&mut self) -> Option<Result<Published, Lagged>> {
        let next = self.next_shared().await?;
        Some(next.map(Arc::unwrap_or_clone))
    }

    /// Waits as [`next`](Self::next) does, without a copy: all readers share the same event.
    ///
    /// # Errors
    ///
    /// The same as for [`next`](Self::next).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no event is lost.
    pub async fn next_shared(&mut self) -> Option<Result<Arc<Published>, Lagged>> {
        poll_fn(|cx| self.poll_shared(cx)).await
    }

    pub(crate) fn poll_shared(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Arc<Published>, Lagged>>> {
        self.0.poll_pop(cx).map(|next| match next {
            Some(published) => Some(Ok(published)),
            None => self.0.lagged().map(Err),
        })
    }
}

impl Stream for Subscription {
    type Item = Result<Published, Lagged>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.poll_shared(cx);
        next.map(|next| next.map(|next| next.map(Arc::unwrap_or_clone)))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// The error for a subscriber that read too slowly and was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lagged {
    /// The sequence number of the last event that it got; 0 for none.
    pub last: u64,
}

impl fmt::Display for Lagged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.last;
        write!(
            f,
            "the subscriber read too slowly and was dropped after event {last}; subscribe again with a larger capacity"
        )
    }
}

impl std::error::Error for Lagged {}

/// An event for readers, and its weight in bytes.
pub(crate) type Item = (Arc<Published>, usize);

/// The events that wait for one reader.
#[derive(Debug)]
pub(crate) struct Queue {
    capacity: usize,
    inner: Mutex<Inner>,
    has_room_notify: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// The events that come first and don't count as unread.
    replay: VecDeque<Arc<Published>>,
    /// The unread events, each with its weight.
    items: VecDeque<Item>,
    bytes: usize,
    last: u64,
    /// Whether no more events follow.
    closed: bool,
    /// Whether an event was left out, and the reader has not got the error yet.
    has_lagged: bool,
    /// Whether the reader was dropped.
    is_abandoned: bool,
    /// The waker of the reader, if it waits.
    waker: Option<Waker>,
}

/// Wakes the reader if it waits, after the lock is released: a waker is foreign code.
fn wake(mut inner: MutexGuard<'_, Inner>) {
    let waker = inner.waker.take();
    drop(inner);
    if let Some(waker) = waker {
        waker.wake();
    }
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
            has_room_notify: Notify::new(),
        })
    }

    /// Creates a queue whose reader gets these events first, with any capacity.
    pub(crate) fn replaying(capacity: usize, replay: Vec<Arc<Published>>) -> Arc<Self> {
        let queue = Self::new(capacity);
        queue.lock().replay = replay.into();
        queue
    }

    /// Adds items, even without room.
    pub(crate) fn push(&self, items: &[Item]) {
        let mut inner = self.lock();
        if !inner.is_abandoned && !inner.closed {
            items.iter().for_each(|item| inner.add(item));
            wake(inner);
        }
    }

    /// Adds items while there is room, and closes the queue if there is none. Returns whether its reader wants more events.
    pub(crate) fn offer(&self, items: &[Item]) -> bool {
        let mut inner = self.lock();
        if inner.is_abandoned || inner.closed {
            return false;
        }
        for item in items {
            if inner.is_full(self.capacity) {
                inner.has_lagged = true;
                inner.closed = true;
                break;
            }
            inner.add(item);
        }
        let is_open = !inner.closed;
        wake(inner);
        is_open
    }

    /// Lets the reader read the remaining events, and then end.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        wake(inner);
    }

    /// Returns the number of items for which there is room.
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
            self.has_room_notify.notified().await;
        }
    }

    /// Takes the next item, or stores the waker of the one reader until there is one.
    fn poll_pop(&self, cx: &mut Context<'_>) -> Poll<Option<Arc<Published>>> {
        let mut inner = self.lock();
        if let Some(item) = inner.replay.pop_front() {
            inner.last = item.sequence;
            return Poll::Ready(Some(item));
        }
        let was_full = inner.is_full(self.capacity);
        if let Some((item, weight)) = inner.items.pop_front() {
            inner.bytes -= weight;
            inner.last = item.sequence;
            if was_full && !inner.is_full(self.capacity) {
                self.has_room_notify.notify_one();
            }
            return Poll::Ready(Some(item));
        }
        if inner.closed {
            return Poll::Ready(None);
        }
        inner.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn lagged(&self) -> Option<Lagged> {
        let mut inner = self.lock();
        let last = inner.last;
        std::mem::take(&mut inner.has_lagged).then_some(Lagged { last })
    }

    fn abandon(&self) {
        let mut inner = self.lock();
        inner.is_abandoned = true;
        inner.replay = VecDeque::new();
        inner.items = VecDeque::new();
        inner.bytes = 0;
        self.has_room_notify.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
