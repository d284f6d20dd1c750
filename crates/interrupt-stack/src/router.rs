use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{Notify, watch};

use crate::{
    Cause, Clock, HardExit,
    ladder::{Effect, HandlerId, Ladder, Press, Resolution},
};

/// What handles and threads share. Whoever has an event decides it here, under the lock; only the two threads act, without it.
pub(crate) struct Router {
    clock: Arc<dyn Clock>,
    hard_exit: HardExit,
    state: Mutex<State>,
    /// Something was decided, or the last handle is gone.
    decided: Condvar,
    pub(crate) shutdown: watch::Sender<Option<Cause>>,
    #[cfg(feature = "tokio-util")]
    pub(crate) token: tokio_util::sync::CancellationToken,
}

struct State {
    ladder: Ladder,
    handlers: BTreeMap<HandlerId, (Arc<str>, Arc<Notify>)>,
    /// To be rung. One is enough: only one notice is open at a time.
    ring: Option<Arc<Notify>>,
    exit: Option<Cause>,
    /// The exit is being performed. Until that has failed to end the process, no graceful shutdown shall start beside it.
    exiting: bool,
    closed: bool,
}

impl Router {
    pub(crate) fn new(ladder: Ladder, clock: Arc<dyn Clock>, hard_exit: HardExit) -> Self {
        Self {
            clock,
            hard_exit,
            state: Mutex::new(State {
                ladder,
                handlers: BTreeMap::new(),
                ring: None,
                exit: None,
                exiting: false,
                closed: false,
            }),
            decided: Condvar::new(),
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

    pub(crate) fn press(&self, source: crate::PressSource) {
        self.decide(|state, now| Some(state.ladder.press(source, now)));
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

    pub(crate) fn suspend(&self) {}

    /// Waits until there is a notice for `id` to take; `None` at the deadline.
    pub(crate) fn wait_for_press(&self, id: HandlerId, until: Option<Instant>) -> Option<Press> {
        self.wait_until(until, |state| state.ladder.take(id))
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
            state = self.wait(state, left);
        }
    }

    pub(crate) fn cause(&self) -> Option<Cause> {
        self.lock().ladder.cause()
    }

    pub(crate) fn presses(&self) -> u64 {
        self.lock().ladder.presses()
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn tick(&self) {
        self.decide(|_, _| None);
    }

    /// Lets both threads end once they have done what is decided.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.decided.notify_all();
    }

    fn decide(&self, event: impl FnOnce(&mut State, Instant) -> Option<Effect>) {
        let now = self.clock.now();
        let mut state = self.lock();
        let due = state.catch_up(now);
        let effect = event(&mut state, now);
        // A look that finds nothing wakes nobody: a busy program polls its handlers often.
        if due | state.note(effect) {
            drop(state);
            self.decided.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code of others runs under this lock and the ladder's steps are small: a panic would be a bug of ours, and even then the
        // next press must find a way out.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        timeout: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        match timeout {
            None => self
                .decided
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                self.decided
                    .wait_timeout(state, timeout)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        }
    }

    /// The deciding thread's whole life: deadlines and the hard exit. It runs no waker, so that none can stand in the way of these.
    pub(crate) fn run(&self) {
        loop {
            let now = self.clock.now();
            let mut state = self.lock();
            if state.catch_up(now) {
                self.decided.notify_all();
            }
            if let Some(cause) = state.exit.take() {
                state.exiting = true;
                drop(state);
                self.exit(cause);
                self.lock().exiting = false;
                self.decided.notify_all();
            } else if state.closed {
                return;
            } else {
                let wait = state
                    .ladder
                    .next_deadline()
                    .map(|deadline| deadline.saturating_duration_since(now));
                drop(self.wait(state, wait));
            }
        }
    }

    /// The waking thread's whole life: the wakers of handlers and of everybody who waits for shutdown, which are code of others.
    pub(crate) fn run_wakers(&self) {
        let mut announced = false;
        loop {
            let mut state = self.lock();
            let cause = state.shutdown().filter(|_| !announced);
            let ring = state.ring.take();
            if cause.is_none() && ring.is_none() {
                if state.closed {
                    return;
                }
                drop(self.wait(state, None));
                continue;
            }
            drop(state);
            if let Some(bell) = ring {
                survive(|| bell.notify_one());
            }
            if cause.is_some() {
                announced = true;
                survive(|| _ = self.shutdown.send_replace(cause));
                #[cfg(feature = "tokio-util")]
                survive(|| self.token.cancel());
            }
        }
    }

    fn exit(&self, cause: Cause) {
        match &self.hard_exit {
            HardExit::InHandler | HardExit::Thread => crate::die_by(cause),
            HardExit::Off => {}
            HardExit::Callback(callback) => survive(|| callback(cause)),
        }
    }
}

/// Keeps the thread when code of others panics: the next press needs it.
fn survive(action: impl FnOnce()) {
    // The panic hook has reported it, and there is nobody to return the payload to.
    drop(catch_unwind(AssertUnwindSafe(action)));
}

impl State {
    /// Why a graceful shutdown is to be carried out: not beside a hard exit that has not failed.
    fn shutdown(&self) -> Option<Cause> {
        let ending = self.exiting || self.exit.is_some();
        self.ladder.cause().filter(|_| !ending)
    }

    /// Does what the clock has made due; says whether there was anything.
    fn catch_up(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(effect) = self.ladder.on_deadline(now) {
            any |= self.note(Some(effect));
        }
        any
    }

    /// Leaves the effect to the thread that performs it; says whether there is one.
    fn note(&mut self, effect: Option<Effect>) -> bool {
        match effect {
            None | Some(Effect::Debounced) => return false,
            Some(Effect::Notify(id)) => {
                self.ring = self.handlers.get(&id).map(|(_, bell)| bell.clone())
            }
            Some(Effect::HardExit(cause)) => self.exit = Some(cause),
            Some(Effect::BeginShutdown(_)) => {} // needs no note: the ladder has the cause
        }
        true
    }
}
