use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Instant,
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
    bells: BTreeMap<HandlerId, Arc<Notify>>,
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
                bells: BTreeMap::new(),
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

    pub(crate) fn push(&self, bell: Arc<Notify>) -> HandlerId {
        let mut state = self.lock();
        let id = state.ladder.push();
        state.bells.insert(id, bell);
        id
    }

    pub(crate) fn remove(&self, id: HandlerId) {
        self.decide(|state, now| {
            state.bells.remove(&id);
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
                drop(match wait {
                    None => self
                        .decided
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner),
                    Some(wait) => {
                        self.decided
                            .wait_timeout(state, wait)
                            .unwrap_or_else(PoisonError::into_inner)
                            .0
                    }
                });
            }
        }
    }

    /// The waking thread's whole life: the wakers of handlers and of everybody who waits for shutdown, which are code of others.
    pub(crate) fn run_wakers(&self) {
        let mut announced = false;
        loop {
            let mut state = self.lock();
            let ending = state.exiting || state.exit.is_some();
            let cause = state.ladder.cause().filter(|_| !announced && !ending);
            let ring = state.ring.take();
            if cause.is_none() && ring.is_none() {
                if state.closed {
                    return;
                }
                drop(
                    self.decided
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner),
                );
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
            HardExit::Process => crate::die_by(cause),
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
            Some(Effect::Notify(id)) => self.ring = self.bells.get(&id).cloned(),
            Some(Effect::HardExit(cause)) => self.exit = Some(cause),
            Some(Effect::BeginShutdown(_)) => {} // needs no note: the ladder has the cause
        }
        true
    }
}
