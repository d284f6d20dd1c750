//! What threads, or a driver in their place, do about what was decided.

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
    catch::SIGNALS,
    router::{Router, wait},
    state::{NEWS, News, State},
    sys, times,
};

/// How long a handler that was rung for may take, to spare a thread the news of it.
const LINGER: Duration = Duration::from_millis(5);

/// What the deciding side finds to do.
pub(crate) enum Step<'a> {
    Done,
    /// Nothing, for this long or until something is decided.
    Rest(MutexGuard<'a, State>, Option<Duration>),
    /// Nothing any more.
    Closed,
}

impl Router {
    /// The deciding thread's whole life: deadlines and the hard exit. It runs no waker, so that none can stand in the way of these.
    pub(crate) fn run(&self) {
        loop {
            match self.step() {
                Step::Done => {}
                Step::Rest(state, time) => drop(wait(&self.decided, state, time)),
                Step::Closed => return,
            }
        }
    }

    /// The whole life of a telling thread. On an installed ladder there are more of them than may tell at once, and whoever is free
    /// waits for the signal handler: a press meets a thread that decides and tells it, whatever the others hang in.
    pub(crate) fn run_tellers(&self) {
        loop {
            let state = self.serve();
            match &self.catch {
                _ if state.closed => break self.announce(), // to the next one
                None => drop(wait(&self.decided, state, None)),
                Some(catch) => {
                    drop(state);
                    catch.wait();
                }
            }
        }
    }

    /// Lets this thread receive the signals, whatever mask it inherited: one at least must.
    pub(crate) fn unblock(&self) {
        if self.catch.is_some() {
            sys::unblock(match self.hooks.are_of_stops() {
                true => &SIGNALS,
                false => &SIGNALS[1..],
            });
        }
    }

    /// Decides what is due, and performs the hard exit.
    pub(crate) fn step(&self) -> Step<'_> {
        let now = self.clock.now();
        let mut state = self.catch_up(now);
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

    /// Decides what has come, and tells it, until there is nothing left or others are at it.
    pub(crate) fn serve(&self) -> MutexGuard<'_, State> {
        loop {
            let now = self.clock.now();
            let mut state = self.lock();
            let any = state.catch_up(now);
            state.settle();
            let news = match state.telling < self.tellers {
                true => state.news(),
                false => None,
            };
            // Only a bell can wait to be followed: whom it wakes takes the notice, and then there is no deadline to mind.
            let is_all = self.is_driven
                || state.exit.is_some()
                || news.as_ref().is_none_or(|news| !news.is_a_bell());
            if any && is_all {
                self.notify();
            }
            let Some(news) = news else {
                return state;
            };
            state.telling += 1;
            drop(state);
            self.tell(news);
            let mut state = self.lock();
            state.telling -= 1;
            if any && !is_all {
                self.linger(state);
            }
        }
    }

    /// Gives a handler the time to take its notice before the deciding thread is told to mind how long it takes. Waking that at once
    /// would take the processor from the one that was rung for.
    fn linger(&self, mut state: MutexGuard<'_, State>) {
        self.heard.notify_all();
        if !state.lingering {
            state.lingering = true;
            state = wait(&self.heard, state, Some(LINGER));
            state.lingering = false;
        }
        if state.exit.is_some() || state.next_deadline().is_some() {
            drop(state);
            self.notify();
        }
    }

    /// Runs the wakers of handlers and of everybody who waits for shutdown, and the hooks.
    fn tell(&self, news: News) {
        if let Some((_, bell)) = &news.ring {
            survive(|| bell.notify_one());
        }
        if news.shutdown.is_some() {
            survive(|| _ = self.shutdown.send_replace(news.shutdown));
            #[cfg(feature = "tokio-util")]
            survive(|| self.token.cancel());
        }
        #[cfg(feature = "tracing")]
        survive(|| crate::state::say(&news)); // last, since it may hang
        if let Some(hook) = self.hooks.on_untaken.as_ref().filter(|_| news.untaken) {
            survive(hook);
        }
        if let Some(hook) = self.hooks.on_resume.as_ref().filter(|_| news.resumed) {
            survive(hook);
        }
        if news.suspend {
            if let Some(hook) = &self.hooks.on_suspend {
                survive(hook);
            }
            self.stop();
        }
    }

    /// Stops the process, and comes back with it.
    fn stop(&self) {
        let mut state = self.catch_up(Instant::now());
        state.suspended = !state.resumed; // else it was told to go on while the hook ran
        if state.suspended {
            drop(state);
            #[cfg(feature = "signals")]
            crate::process::stop_process();
            state = self.catch_up(Instant::now());
        }
        let until = Instant::now() + NEWS;
        while state.suspended {
            drop(wait(&self.heard, state, Some(NEWS / 10)));
            let now = Instant::now();
            state = self.catch_up(now);
            // Where no `SIGCONT` comes there was no stop.
            if state.suspended && now >= until {
                state.resume(now);
            }
        }
        state.stopping = false;
    }

    /// Decides what has come and is due, and wakes those whom it concerns.
    fn catch_up(&self, now: Instant) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        if state.catch_up(now) {
            self.announce();
        }
        state.settle();
        state
    }

    /// Gives the program's hook its time before the exit. The hook has a thread of its own, since it may hang.
    fn prepare(&self, cause: Cause) {
        let Some(hook) = self.hooks.before_exit.clone() else {
            return;
        };
        let (returns, returned) = mpsc::channel::<()>();
        let hooked = std::thread::Builder::new().spawn(move || {
            let _returns = returns; // or panics
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
                self.prepare(cause);
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
