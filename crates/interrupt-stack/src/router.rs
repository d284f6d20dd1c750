//! Where handles, threads and signal handler meet: one lock, under which everything is decided and nothing is done.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{Notify, watch};

use crate::{
    Cause, Clock, HardExit, PressSource,
    catch::Catch,
    hooks::Hooks,
    ladder::{Effect, HandlerId, Ladder, Press, Resolution},
    state::{Inbox, State},
};

/// How many wakers or hooks may hang before others go unheard on an installed ladder. Presses count and end the process even then.
const TELLERS: usize = 2;

/// What handles and threads share. Whoever has an event decides it here, under the lock; only `acting` acts, without it.
pub(crate) struct Router {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) hard_exit: HardExit,
    pub(crate) hooks: Hooks,
    /// The signal handler's side; none for a detached ladder.
    pub(crate) catch: Option<Arc<Catch>>,
    /// How many threads at most may run code of others, so that one is left for the next press.
    pub(crate) tellers: usize,
    /// There are no threads: a driver acts, and must not block.
    pub(crate) is_driven: bool,
    state: Mutex<State>,
    /// Something was decided, or the last handle is gone: for the threads of the router.
    pub(crate) decided: Condvar,
    /// The same for those who wait without a runtime.
    pub(crate) heard: Condvar,
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
        catch: Option<Arc<Catch>>,
    ) -> Self {
        Self {
            clock,
            hard_exit,
            hooks,
            is_driven: false,
            state: Mutex::new(State::new(ladder, Inbox::new(catch.clone()))),
            tellers: if catch.is_some() { TELLERS } else { 1 },
            catch,
            decided: Condvar::new(),
            heard: Condvar::new(),
            shutdown: watch::Sender::new(None),
            #[cfg(feature = "tokio-util")]
            token: tokio_util::sync::CancellationToken::new(),
        }
    }

    pub(crate) fn push(&self, name: Arc<str>, bell: Arc<Notify>) -> HandlerId {
        let mut state = self.lock();
        let id = state.ladder.push();
        state.handlers.insert(id, (name, bell));
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

    /// Waits until there is a notice for `id` to take; `None` at the deadline, and when shutdown has begun.
    pub(crate) fn wait_for_press(&self, id: HandlerId, until: Option<Instant>) -> Option<Press> {
        self.wait_until(until, |state| {
            let press = state.ladder.take(id);
            (press.is_some() || state.shutdown().is_some()).then_some(press)
        })
        .flatten()
    }

    /// Waits until shutdown has begun; `None` at the deadline.
    pub(crate) fn wait_for_cause(&self, until: Option<Instant>) -> Option<Cause> {
        self.wait_until(until, |state| state.shutdown())
    }

    fn wait_until<T>(
        &self,
        until: Option<Instant>,
        mut look: impl FnMut(&mut State) -> Option<T>,
    ) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(found) = look(&mut state) {
                return Some(found);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            state = wait(&self.heard, state, left);
        }
    }

    pub(crate) fn cause(&self) -> Option<Cause> {
        self.lock().ladder.cause()
    }

    pub(crate) fn presses(&self) -> u64 {
        self.lock().ladder.presses()
    }

    /// Decides what has come and what is due.
    #[cfg(any(feature = "signals", feature = "test-util"))]
    pub(crate) fn tick(&self) {
        self.decide(|_, _| None);
    }

    /// Lets the threads end once they have done what is decided.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.announce();
    }

    fn decide(&self, event: impl FnOnce(&mut State, Instant) -> Option<Effect>) {
        let now = self.clock.now();
        let mut state = self.lock();
        let due = state.catch_up(now);
        let effect = event(&mut state, now);
        let any = due | state.note(effect);
        state.settle();
        // A look that finds nothing wakes nobody: a busy program polls its handlers often.
        if any {
            drop(state);
            self.announce();
        }
    }

    /// Wakes whoever acts or waits, under the lock or without.
    pub(crate) fn announce(&self) {
        self.notify();
        if let Some(catch) = &self.catch {
            catch.wake();
        }
    }

    /// Wakes the deciding thread and whoever waits without a runtime.
    pub(crate) fn notify(&self) {
        self.decided.notify_all();
        self.heard.notify_all();
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // No code of others runs under this lock and the ladder's steps are small: a panic would be a bug of ours, and even then the
        // next press must find a way out.
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
