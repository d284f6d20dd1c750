//! What threads, or a driver in their place, do about what was decided.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::MutexGuard,
    time::{Duration, Instant},
};

use crate::{
    Cause, HardExit,
    router::Router,
    state::{NEWS, State},
    sys,
};

/// What the acting side finds to do.
pub(crate) enum Step<'a> {
    Done,
    /// Nothing, for this long or until something is decided.
    Rest(MutexGuard<'a, State>, Option<Duration>),
    /// Nothing any more.
    Closed,
}

/// What the wakers were told already.
#[derive(Default)]
pub(crate) struct Told {
    shutdown: bool,
}

impl Router {
    /// The deciding thread's whole life: deadlines and the hard exit. It runs no waker, so that none can stand in the way of these.
    pub(crate) fn run(&self) {
        loop {
            match self.step() {
                Step::Done => {}
                Step::Rest(state, time) => drop(self.wait(state, time)),
                Step::Closed => return,
            }
        }
    }

    /// The waking thread's whole life: wakers and hooks, which are code of others.
    pub(crate) fn run_wakers(&self) {
        let mut told = Told::default();
        loop {
            match self.tell(&mut told) {
                Step::Done => {}
                Step::Rest(state, time) => drop(self.wait(state, time)),
                Step::Closed => return,
            }
        }
    }

    /// Decides what is due, and performs the hard exit.
    pub(crate) fn step(&self) -> Step<'_> {
        let now = self.clock.now();
        let mut state = self.lock();
        if state.catch_up(now) {
            self.announce();
        }
        state.settle();
        if let Some(cause) = state.exit.take() {
            state.exiting = true;
            drop(state);
            self.exit(cause);
            self.lock().exiting = false;
            self.announce();
            Step::Done
        } else if state.closed {
            Step::Closed
        } else {
            let rest = state.rest(now);
            Step::Rest(state, rest)
        }
    }

    /// Runs the wakers of handlers and of everybody who waits for shutdown, and the hooks.
    pub(crate) fn tell(&self, told: &mut Told) -> Step<'_> {
        let mut state = self.lock();
        let cause = state.shutdown().filter(|_| !told.shutdown);
        let ring = state.ring.take();
        let (suspend, resumed) = (
            std::mem::take(&mut state.suspend),
            std::mem::take(&mut state.resumed),
        );
        if cause.is_none() && ring.is_none() && !suspend && !resumed {
            return match state.closed {
                true => Step::Closed,
                false => Step::Rest(state, None),
            };
        }
        drop(state);
        if let Some((_, bell)) = ring {
            survive(|| bell.notify_one());
        }
        if cause.is_some() {
            told.shutdown = true;
            survive(|| _ = self.shutdown.send_replace(cause));
            #[cfg(feature = "tokio-util")]
            survive(|| self.token.cancel());
        }
        if let Some(hook) = self.on_resume.as_ref().filter(|_| resumed) {
            survive(hook);
        }
        if suspend {
            if let Some(hook) = &self.on_suspend {
                survive(hook);
            }
            self.stop();
        }
        Step::Done
    }

    /// Stops the process, and comes back with it.
    fn stop(&self) {
        self.lock().suspended = true;
        sys::stop();
        let until = Instant::now() + NEWS;
        loop {
            let mut state = self.lock();
            let now = Instant::now();
            if state.catch_up(now) {
                self.announce();
            }
            // Where no `SIGCONT` comes there was no stop: PID 1 of a container cannot be stopped from inside.
            if !state.resumed && now >= until {
                state.resume(now);
            }
            state.settle();
            if state.resumed {
                return;
            }
            drop(self.wait(state, Some(NEWS / 10)));
        }
    }

    fn exit(&self, cause: Cause) {
        match &self.hard_exit {
            HardExit::InHandler | HardExit::Thread => {
                if let Some(catch) = &self.catch {
                    catch.restore_terminal();
                }
                crate::die_by(cause)
            }
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
