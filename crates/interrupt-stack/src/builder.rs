//! The settings of a ladder.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    Cause, Clock, HardExit,
    clock::SystemClock,
    hooks::Hooks,
    ladder::{Ladder, LadderTimes},
    router::Router,
    signal_catcher::SignalCatcher,
    times,
};

/// Configures a ladder and starts it, with the operating system's signals or detached from them.
#[must_use = "nothing happens before `install` or `detached`"]
pub struct Builder {
    pub(crate) times: LadderTimes,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) hard_exit: HardExit,
    pub(crate) forward_window: Duration,
    pub(crate) restore_terminal: bool,
    pub(crate) catch_ignored_keys: bool,
    pub(crate) hooks: Hooks,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            times: LadderTimes::default(),
            clock: Arc::new(SystemClock),
            hard_exit: HardExit::default(),
            forward_window: times::FORWARDED,
            restore_terminal: true,
            catch_ignored_keys: false,
            hooks: Hooks::default(),
        }
    }
}

impl Builder {
    /// Sets how long a press stays counted after its notice was dropped unanswered. Default: 2 s. With zero it doesn't stay counted.
    pub fn cooldown(mut self, cooldown: Duration) -> Self {
        self.times.cooldown = cooldown;
        self
    }

    /// Sets the time after a press in which a further press counts as the same press. Default: 30 ms. With zero every press counts,
    /// for tests that send signals as fast as they can.
    pub fn debounce(mut self, debounce: Duration) -> Self {
        self.times.debounce = debounce;
        self
    }

    /// Sets how long a handler may leave a notice untaken before the handler below gets it. Default: 1 s. The lowest handler keeps the
    /// notice: time alone never begins shutdown.
    #[doc(hidden)] // only tests need another time
    pub fn take_timeout(mut self, timeout: Duration) -> Self {
        self.times.take_timeout = timeout;
        self
    }

    /// Sets how long shutdown may last before it becomes a hard exit by its cause. Default: `None`, for ever. With zero the hard exit
    /// comes at once. Work before the shutdown, such as the save of a job that ended by itself, has no deadline.
    pub fn shutdown_deadline(mut self, deadline: Option<Duration>) -> Self {
        self.times.shutdown_deadline = deadline;
        self
    }

    /// Sets the action of the last stage. Default: [`HardExit::InHandler`].
    pub fn hard_exit(mut self, hard_exit: HardExit) -> Self {
        self.hard_exit = hard_exit;
        self
    }

    /// Sets the time after a press at the terminal in which a `SIGINT` from an ancestor counts as the same press, because `npm`, `uv`
    /// and `cargo` forward it. Default: 500 ms. With zero it is a separate press.
    pub fn forward_window(mut self, window: Duration) -> Self {
        self.forward_window = window;
        self
    }

    /// Sets whether [`HardExit::InHandler`] and [`HardExit::Thread`] restore the settings that the controlling terminal had at the
    /// install. Default: true. They do so only while this process is in the foreground, and don't change the screen.
    pub fn restore_terminal(mut self, restore: bool) -> Self {
        self.restore_terminal = restore;
        self
    }

    /// Sets whether `SIGINT` and `SIGQUIT`, the signals of Ctrl-C and Ctrl-\\, are also caught if they were ignored at the install.
    /// Default: false.
    ///
    /// A shell without job control starts `command &` with both ignored, and programs inherit that through any number of parents. Set
    /// this in a program that asks a person on its terminal: while it shows a menu, Ctrl-C must work.
    pub fn catch_ignored_keys(mut self, catch: bool) -> Self {
        self.catch_ignored_keys = catch;
        self
    }

    /// Catches `SIGTSTP` (^Z) and calls this hook on one of this crate's threads before the process stops, for instance to leave raw
    /// mode.
    ///
    /// After the hook, the process stops as it would without a hook. It doesn't stop if no shell could continue it (an orphaned process
    /// group, PID 1 of a container), or if a `SIGCONT` came while the hook ran. A hook that hangs keeps the process running.
    pub fn on_suspend(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.on_suspend = Some(Box::new(hook));
        self
    }

    /// Calls this hook on one of this crate's threads after each `SIGCONT`, and after each `SIGTSTP` that did not stop the process, for
    /// instance to enter raw mode again. The process may then be in the background. The hook never runs at the same time as
    /// [`on_suspend`](Self::on_suspend).
    pub fn on_resume(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.on_resume = Some(Box::new(hook));
        self
    }

    /// Calls this hook on one of this crate's threads when a handler has not taken its notice within the
    /// [take time-out](Self::take_timeout), for instance to print that the press was received. The hook runs once for each handler that
    /// did not take the notice in time.
    pub fn on_notice_timeout(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.on_notice_timeout = Some(Box::new(hook));
        self
    }

    /// Calls this hook before a hard exit that a thread performs, for instance to clean up the screen. The hard exit restores the
    /// settings of the terminal after the hook.
    ///
    /// | cause of the hard exit | [`HardExit::InHandler`] | [`HardExit::Thread`] |
    /// |---|---|---|
    /// | a real Ctrl-C or `SIGQUIT` | not called | called |
    /// | an injected press, `Injector::hard_exit`, `terminate(Cause::Quit)`, the shutdown deadline | called | called |
    /// | a real Ctrl-C or `SIGQUIT` once the exit has begun | not called | not called again |
    ///
    /// On a detached ladder, `InHandler` acts like `Thread`. With [`HardExit::Off`] and [`HardExit::Callback`] the hook is never called.
    ///
    /// The hook runs on its own thread. The exit waits until the hook returns, until the next press, or for 2 s. So a hook that hangs
    /// delays the exit, but can't prevent it.
    pub fn before_exit(mut self, hook: impl Fn(Cause) + Send + Sync + 'static) -> Self {
        self.hooks.before_exit = Some(Arc::new(hook));
        self
    }

    /// Sets the clock of a detached ladder, for deadlines, debounce and cooldown. Default: the monotonic clock of the system.
    ///
    /// An installed ladder always uses the system clock, as the signal handler does.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    pub(crate) fn router(self, catch: Option<Arc<SignalCatcher>>) -> Router {
        Router::new(
            Ladder::new(self.times),
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
            .field("times", &self.times)
            .field("hard_exit", &self.hard_exit)
            .finish_non_exhaustive()
    }
}
