//! The router, which connects handles, threads and the signal handler. It makes all decisions under its one lock. All actions are performed without
//! the lock.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{Notify, watch};

use crate::{
    Cause, Clock, HardExit, PressSource,
    hooks::Hooks,
    ladder::{HandlerId, Ladder, LadderEffect, Press, Resolution},
    signal_catcher::SignalCatcher,
    state::{Inbox, State},
};

/// The number of threads of an installed ladder that may run wakers or hooks at once. If that many hang, no other waker or hook runs; but presses
/// still count and end the process.
const MAX_ANNOUNCERS: usize = 2;

/// The state that handles and threads share. Events are decided here, under the lock; only `worker.rs` performs actions, without the lock.
pub(crate) struct Router {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) hard_exit: HardExit,
    pub(crate) hooks: Hooks,
    /// The signal handler; `None` for a detached ladder.
    pub(crate) catcher: Option<Arc<SignalCatcher>>,
    /// The maximum number of threads that may run foreign code, so that one thread is free for the next press.
    pub(crate) max_announcers: usize,
    /// Whether a driver, which must not block, replaces the threads.
    pub(crate) is_driven: bool,
    state: Mutex<State>,
    /// Wakes the deadline thread, and on a detached ladder the other thread, after a decision or when the last handle is gone.
    pub(crate) work_ready: Condvar,
    /// Wakes the callers of blocking waits in the same cases.
    pub(crate) changed: Condvar,
    pub(crate) shutdown: watch::Sender<Option<Cause>>,
    #[cfg(feature = "tokio-util")]
    pub(crate) token: tokio_util::sync::CancellationToken,
}

impl Router {
    pub(crate) fn new(
        ladder: Ladder,
        clock: Arc<dyn Clock>,
        hard_exit: HardExit,
        hooks: Hooks,
        catcher: Option<Arc<SignalCatcher>>,
    ) -> Self {
        Self {
            clock,
            hard_exit,
            hooks,
            is_driven: false,
            state: Mutex::new(State::new(ladder, Inbox::new(catcher.clone()))),
            max_announcers: if catcher.is_some() { MAX_ANNOUNCERS } else { 1 },
            catcher,
            work_ready: Condvar::new(),
            changed: Condvar::new(),
            shutdown: watch::Sender::new(None),
            #[cfg(feature = "tokio-util")]
            token: tokio_util::sync::CancellationToken::new(),
        }
    }

    pub(crate) fn push(&self, name: Arc<str>, waker: Arc<Notify>) -> HandlerId {
        let mut state = self.lock();
        let id = state.ladder.push();
        state.handlers.insert(id, (name, waker));
        id
    }

    pub(crate) fn remove(&self, id: HandlerId) {
        self.decide(|state, now| {
            state.handlers.remove(&id);
            state.ladder.remove(id, now)
        });
    }

    pub(crate) fn take(&self, id: HandlerId) -> Option<Press> {
        let mut press = None;
        self.decide(|state, _| {
            press = state.ladder.take(id);
            None
        });
        press
    }

    pub(crate) fn resolve(&self, number: u64, resolution: Resolution) {
        self.decide(|state, now| state.ladder.resolve(number, resolution, now));
    }

    pub(crate) fn press(&self, source: PressSource) {
        self.decide(|state, now| Some(state.press(source, now)));
    }

    pub(crate) fn terminate(&self, cause: Cause) {
        self.decide(|state, now| state.ladder.terminate(cause, now));
    }

    pub(crate) fn hard_exit(&self, cause: Cause) {
        self.decide(|state, _| Some(state.ladder.hard_exit(cause)));
    }

    pub(crate) fn set_debounce(&self, debounce: Duration) {
        let mut state = self.lock();
        state.ladder.set_debounce(debounce);
        if let Some(catcher) = &self.catcher {
            catcher.set_debounce(debounce);
        }
    }

    pub(crate) fn interrupt(&self, name: &str) -> bool {
        let mut is_reached = false;
        self.decide(|state, now| {
            let innermost = state.handlers.iter().rev().find(|(_, h)| *h.0 == *name);
            let id = *innermost.filter(|_| state.ladder.cause().is_none())?.0;
            is_reached = true;
            state.ladder.request(id, now)
        });
        is_reached
    }

    /// Waits for a notice for `id` and takes it. Returns `None` at the deadline, and when shutdown has begun.
    pub(crate) fn wait_for_press(&self, id: HandlerId, until: Option<Instant>) -> Option<Press> {
        self.wait_until(until, |state| {
            let press = state.ladder.take(id);
            (press.is_some() || state.shutdown().is_some()).then_some(press)
        })
        .flatten()
    }

    /// Waits until shutdown has begun. Returns `None` at the deadline.
    pub(crate) fn wait_for_cause(&self, until: Option<Instant>) -> Option<Cause> {
        self.wait_until(until, |state| state.shutdown())
    }

    fn wait_until<T>(
        &self,
        until: Option<Instant>,
        mut search: impl FnMut(&mut State) -> Option<T>,
    ) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(found) = search(&mut state) {
                return Some(found);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            state = wait(&self.changed, state, left);
        }
    }

    pub(crate) fn cause(&self) -> Option<Cause> {
        self.lock().ladder.cause()
    }

    pub(crate) fn presses(&self) -> u64 {
        self.lock().ladder.presses()
    }

    /// Passes new posts and due deadlines to the ladder.
    #[cfg(any(feature = "signals", feature = "test-util"))]
    pub(crate) fn tick(&self) {
        self.decide(|_, _| None);
    }

    /// Ends the threads after they have performed all decided actions.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.wake_threads();
    }

    fn decide(&self, event: impl FnOnce(&mut State, Instant) -> Option<LadderEffect>) {
        let now = self.clock.now();
        let mut state = self.lock();
        let due = state.catch_up(now);
        let effect = event(&mut state, now);
        let any = due | state.note(effect);
        state.publish_stage();
        // Without a change, wake no thread: a busy program polls its handlers often.
        if any {
            drop(state);
            self.wake_threads();
        }
    }

    /// Wakes all threads that act or wait. Can be called with or without the lock.
    pub(crate) fn wake_threads(&self) {
        self.wake_waiters();
        if let Some(catcher) = &self.catcher {
            catcher.wake();
        }
    }

    /// Wakes the deadline thread and the callers of blocking waits.
    pub(crate) fn wake_waiters(&self) {
        self.work_ready.notify_all();
        self.changed.notify_all();
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // No foreign code runs under this lock and the ladder's steps are small, so a panic would be a bug of this crate. Even then the
        // next press must be able to end the process.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn wait<'a>(
    until: &Condvar,
    state: MutexGuard<'a, State>,
    timeout: Option<Duration>,
) -> MutexGuard<'a, State> {
    match timeout {
        None => until.wait(state).unwrap_or_else(PoisonError::into_inner),
        Some(timeout) => {
            let woken = until.wait_timeout(state, timeout);
            woken.unwrap_or_else(PoisonError::into_inner).0
        }
    }
}
