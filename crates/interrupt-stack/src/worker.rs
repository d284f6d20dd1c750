//! Performs the actions that were decided under the lock, on threads or in a driver.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        MutexGuard,
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use crate::{
    Cause, HardExit,
    router::{Router, wait},
    signal_catcher::SIGNALS,
    state::{Announcements, STOP_SIGNAL_GRACE, State},
    sys, times,
};

/// How long a woken handler may take before the deadline thread is woken too.
const HANDLER_GRACE: Duration = Duration::from_millis(5);

/// The result of one step of the deadline thread.
pub(crate) enum WorkState<'a> {
    Done,
    /// Nothing to do for this time, or until another event comes.
    Idle(MutexGuard<'a, State>, Option<Duration>),
    /// The ladder is closed.
    Closed,
}

impl Router {
    /// Runs the deadline thread: deadlines and the hard exit. The thread runs no wakers, so no waker can delay these.
    pub(crate) fn run(&self) {
        loop {
            match self.step() {
                WorkState::Done => {}
                WorkState::Idle(state, time) => drop(wait(&self.work_ready, state, time)),
                WorkState::Closed => return,
            }
        }
    }

    /// Runs a thread that calls wakers and hooks. An installed ladder has more of these threads than may call foreign code at the same
    /// time. A free thread waits for the signal handler, so a press is handled even if the other threads hang.
    pub(crate) fn run_announcer(&self) {
        loop {
            let state = self.serve();
            match &self.catcher {
                _ if state.closed => break self.wake_threads(), // wakes the next thread
                None => drop(wait(&self.work_ready, state, None)),
                Some(catcher) => {
                    drop(state);
                    catcher.wait();
                }
            }
        }
    }

    /// Unblocks the signals in this thread, whatever mask it inherited. At least one thread must receive them.
    pub(crate) fn unblock(&self) {
        if self.catcher.is_some() {
            sys::unblock(match self.hooks.has_suspend_hook() {
                true => &SIGNALS,
                false => &SIGNALS[1..],
            });
        }
    }

    /// Passes due events to the ladder, and performs the hard exit.
    pub(crate) fn step(&self) -> WorkState<'_> {
        let now = self.clock.now();
        let mut state = self.catch_up(now);
        if let Some(cause) = state.exit.take() {
            state.exiting = true;
            drop(state);
            self.exit(cause);
            self.lock().exiting = false;
            self.wake_threads();
            WorkState::Done
        } else if state.closed {
            WorkState::Closed
        } else {
            let rest = state.time_until_next(now);
            WorkState::Idle(state, rest)
        }
    }

    /// Passes new events to the ladder and calls the wakers and hooks for them, until nothing is left or the other threads do the rest.
    pub(crate) fn serve(&self) -> MutexGuard<'_, State> {
        loop {
            let now = self.clock.now();
            let mut state = self.lock();
            let any = state.catch_up(now);
            state.publish_stage();
            let announcements = match state.announcing_threads < self.max_announcers {
                true => state.take_announcements(),
                false => None,
            };
            // If this wakes only a handler, the handler soon takes the notice, and then there is no deadline. So the deadline thread can sleep.
            let is_all = self.is_driven
                || state.exit.is_some()
                || announcements
                    .as_ref()
                    .is_none_or(|announcements| !announcements.is_for_one_handler());
            if any && is_all {
                self.wake_waiters();
            }
            let Some(announcements) = announcements else {
                return state;
            };
            state.announcing_threads += 1;
            drop(state);
            self.call_wakers_and_hooks(announcements);
            let mut state = self.lock();
            state.announcing_threads -= 1;
            if any && !is_all {
                self.linger(state);
            }
        }
    }

    /// Gives a handler time to take its notice before this wakes the deadline thread for the take time-out. Waking that thread at once
    /// would take the processor from the handler.
    fn linger(&self, mut state: MutexGuard<'_, State>) {
        self.changed.notify_all();
        if !state.is_lingering {
            state.is_lingering = true;
            state = wait(&self.changed, state, Some(HANDLER_GRACE));
            state.is_lingering = false;
        }
        if state.exit.is_some() || state.next_deadline().is_some() {
            drop(state);
            self.wake_waiters();
        }
    }

    /// Calls the hooks, and the wakers of handlers and of everything that waits for shutdown.
    fn call_wakers_and_hooks(&self, announcements: Announcements) {
        if let Some((_, waker)) = &announcements.wake_handler {
            catch_panic(|| waker.notify_one());
        }
        if announcements.shutdown.is_some() {
            catch_panic(|| _ = self.shutdown.send_replace(announcements.shutdown));
            #[cfg(feature = "tokio-util")]
            catch_panic(|| self.token.cancel());
        }
        #[cfg(feature = "tracing")]
        catch_panic(|| crate::state::emit(&announcements)); // after the wakers, because a subscriber may hang
        if let Some(hook) = self
            .hooks
            .on_notice_timeout
            .as_ref()
            .filter(|_| announcements.has_untaken)
        {
            catch_panic(hook);
        }
        if let Some(hook) = self
            .hooks
            .on_resume
            .as_ref()
            .filter(|_| announcements.resumed)
        {
            catch_panic(hook);
        }
        if announcements.suspend {
            if let Some(hook) = &self.hooks.on_suspend {
                catch_panic(hook);
            }
            self.stop();
        }
    }

    /// Suspends the process, and returns when it continues.
    fn stop(&self) {
        let mut state = self.catch_up(Instant::now());
        state.suspended = !state.resumed; // `resumed`: a `SIGCONT` came while the hook ran
        if state.suspended {
            drop(state);
            #[cfg(feature = "signals")]
            crate::process::stop_process();
            state = self.catch_up(Instant::now());
        }
        let until = Instant::now() + STOP_SIGNAL_GRACE;
        while state.suspended {
            drop(wait(&self.changed, state, Some(STOP_SIGNAL_GRACE / 10)));
            let now = Instant::now();
            state = self.catch_up(now);
            // No `SIGCONT` means that the process was not suspended.
            if state.suspended && now >= until {
                state.resume(now);
            }
        }
        state.stopping = false;
    }

    /// Passes new and due events to the ladder, and wakes the threads that wait for them.
    fn catch_up(&self, now: Instant) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        if state.catch_up(now) {
            self.wake_threads();
        }
        state.publish_stage();
        state
    }

    /// Runs the program's hook before the exit, for a limited time. The hook has its own thread, because it may hang.
    fn run_exit_hook(&self, cause: Cause) {
        let Some(hook) = self.hooks.before_exit.clone() else {
            return;
        };
        let (returns, returned) = mpsc::channel::<()>();
        let hooked = std::thread::Builder::new().spawn(move || {
            let _returns = returns; // dropped when the hook returns or panics
            hook(cause);
        });
        let until = Instant::now() + times::LAST_HOOK;
        while hooked.is_ok() && Instant::now() < until && self.lock().exit.is_none() {
            if returned.recv_timeout(times::LAST_HOOK / 200) == Err(RecvTimeoutError::Disconnected)
            {
                return;
            }
        }
    }

    fn exit(&self, cause: Cause) {
        match &self.hard_exit {
            HardExit::InHandler | HardExit::Thread => {
                self.run_exit_hook(cause);
                if let Some(catcher) = &self.catcher {
                    catcher.restore_terminal();
                }
                crate::die_by(cause)
            }
            HardExit::Off => {}
            HardExit::Callback(callback) => catch_panic(|| callback(cause)),
        }
    }
}

/// Runs foreign code and catches its panic, because the next press needs this thread.
fn catch_panic(action: impl FnOnce()) {
    // The panic hook has reported the panic, and no caller needs the payload.
    drop(catch_unwind(AssertUnwindSafe(action)));
}
