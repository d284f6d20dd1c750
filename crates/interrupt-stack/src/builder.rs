//! What is chosen before a ladder runs.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    Cause, Clock, HardExit, SystemClock,
    catch::Catch,
    hooks::Hooks,
    ladder::{Ladder, Rules},
    router::Router,
    times,
};

/// Configures a ladder and starts it, with the operating system's signals or detached from them.
#[must_use = "nothing happens before `install` or `detached`"]
pub struct Builder {
    pub(crate) rules: Rules,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) hard_exit: HardExit,
    pub(crate) forward_window: Duration,
    pub(crate) restore_terminal: bool,
    pub(crate) hooks: Hooks,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            clock: Arc::new(SystemClock),
            hard_exit: HardExit::default(),
            forward_window: times::FORWARDED,
            restore_terminal: true,
            hooks: Hooks::default(),
        }
    }
}

impl Builder {
    /// Sets how long a press stays counted after its notice was dropped unanswered. Default: 2 s; zero: it does not.
    pub fn cooldown(mut self, cooldown: Duration) -> Self {
        self.rules.cooldown = cooldown;
        self
    }

    /// Sets how closely a press must follow another to be part of it. Default: 30 ms; zero: every press counts,
    /// which is for tests that send signals as fast as they can.
    pub fn debounce(mut self, debounce: Duration) -> Self {
        self.rules.debounce = debounce;
        self
    }

    /// Sets how long a handler may leave a notice untaken before the one below gets it. Default: 1 s. The last one keeps it: time
    /// alone never begins shutdown.
    pub fn take_timeout(mut self, timeout: Duration) -> Self {
        self.rules.take_timeout = timeout;
        self
    }

    /// Sets how long shutdown may last, from its beginning, before it becomes a hard exit by its cause. Default: `None`, for ever;
    /// zero: at once. What runs before shutdown began, such as the save of a job that ended by itself, has no deadline.
    pub fn shutdown_deadline(mut self, deadline: Option<Duration>) -> Self {
        self.rules.shutdown_deadline = deadline;
        self
    }

    /// Sets what the last rung does. Default: [`HardExit::InHandler`].
    pub fn hard_exit(mut self, hard_exit: HardExit) -> Self {
        self.hard_exit = hard_exit;
        self
    }

    /// Sets how long after a press at the terminal a `SIGINT` from a parent is taken for the same press, forwarded, as `npm`, `uv` and
    /// `cargo` do. Default: 500 ms; zero: it is a press of its own.
    pub fn forward_window(mut self, window: Duration) -> Self {
        self.forward_window = window;
        self
    }

    /// Sets whether [`HardExit::InHandler`] and [`HardExit::Thread`] put the settings of the controlling terminal back to those at the
    /// install. Default: true. It happens only while the terminal is ours, that is in the foreground; what is on the screen stays.
    pub fn restore_terminal(mut self, restore: bool) -> Self {
        self.restore_terminal = restore;
        self
    }

    /// Catches `SIGTSTP` (^Z) and calls this on one of this crate's threads before the process stops, to leave raw mode for instance.
    ///
    /// With this or [`on_resume`](Self::on_resume) the process stops after it as it would have without: not where no shell could
    /// continue it (an orphaned process group, PID 1 of a container), nor after a `SIGCONT` that came while the hook ran. A hook that
    /// hangs keeps it running.
    pub fn on_suspend(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.on_suspend = Some(Box::new(hook));
        self
    }

    /// Calls this on one of this crate's threads after each `SIGCONT`, and after each stop that did not come about, to enter raw mode again
    /// for instance. The process may be in the background then. It never runs beside [`on_suspend`](Self::on_suspend).
    pub fn on_resume(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.on_resume = Some(Box::new(hook));
        self
    }

    /// Calls this on one of this crate's threads when a handler has not taken its notice within the
    /// [take time-out](Self::take_timeout), to print that the press was received. It comes once for each handler that the press passes.
    pub fn on_untaken(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.on_untaken = Some(Box::new(hook));
        self
    }

    /// Calls this before a hard exit that a thread performs, to take something off the screen for instance. The terminal's settings
    /// are put back after it.
    ///
    /// | what ends the process | [`HardExit::InHandler`] | [`HardExit::Thread`] |
    /// |---|---|---|
    /// | a real Ctrl-C or `SIGQUIT` | not called | called |
    /// | an injected press, `terminate(Cause::Quit)`, the shutdown deadline | called | called |
    /// | a real Ctrl-C or `SIGQUIT` once the exit has begun | not called | not called again |
    ///
    /// On a detached ladder both are as `Thread`; with [`HardExit::Off`] and [`HardExit::Callback`] it is never called.
    ///
    /// It runs on a thread of its own, and the exit waits for it until it returns, the next press, or 2 s. So a hook that hangs costs
    /// a press or a moment, and never the exit.
    pub fn before_exit(mut self, hook: impl Fn(Cause) + Send + Sync + 'static) -> Self {
        self.hooks.before_exit = Some(Arc::new(hook));
        self
    }

    /// Sets the clock that a detached ladder reads deadlines, debounce and cooldown from. Default: [`SystemClock`].
    ///
    /// An installed one always uses the system's, as the signal handler does.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    pub(crate) fn router(self, catch: Option<Arc<Catch>>) -> Router {
        Router::new(
            Ladder::new(self.rules),
            self.clock,
            self.hard_exit,
            self.hooks,
            catch,
        )
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("rules", &self.rules)
            .field("hard_exit", &self.hard_exit)
            .finish_non_exhaustive()
    }
}
