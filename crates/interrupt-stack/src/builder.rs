use std::{fmt, sync::Arc, time::Duration};

use crate::{
    Cause, Clock, Interrupts, SystemClock,
    ladder::{Ladder, Rules},
    router::Router,
};

/// What the last rung does. It runs on a thread of the router, under no lock.
#[derive(Default)]
pub enum HardExit {
    /// Ends the process as [`die_by`](crate::die_by) does. The default.
    #[default]
    Process,
    /// Calls this instead, for tests and for embedders. It may come more than once, and while it runs no deadline acts.
    Callback(Box<dyn Fn(Cause) + Send + Sync>),
}

impl fmt::Debug for HardExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "Process",
            Self::Callback(_) => "Callback(..)",
        })
    }
}

/// Configures a ladder and starts it, with the operating system's signals or detached from them.
#[must_use = "nothing happens before `install` or `detached`"]
pub struct Builder {
    rules: Rules,
    clock: Arc<dyn Clock>,
    hard_exit: HardExit,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            clock: Arc::new(SystemClock),
            hard_exit: HardExit::default(),
        }
    }
}

impl Builder {
    /// Sets how long a press stays counted after its notice was dropped unanswered. Default: 2 s; zero: it does not.
    pub fn cooldown(mut self, cooldown: Duration) -> Self {
        self.rules.cooldown = cooldown;
        self
    }

    /// Sets how closely a press must follow another to be part of it. Default: 50 ms; zero: every press counts.
    pub fn debounce(mut self, debounce: Duration) -> Self {
        self.rules.debounce = debounce;
        self
    }

    /// Sets how long a handler may leave a notice untaken before the one below gets it. Default: 1 s.
    pub fn take_timeout(mut self, timeout: Duration) -> Self {
        self.rules.take_timeout = timeout;
        self
    }

    /// Sets how long shutdown may last before it becomes a hard exit by its cause. Default: `None`, for ever; zero: at once.
    pub fn shutdown_deadline(mut self, deadline: Option<Duration>) -> Self {
        self.rules.shutdown_deadline = deadline;
        self
    }

    /// Sets what the last rung does. Default: [`HardExit::Process`].
    pub fn hard_exit(mut self, hard_exit: HardExit) -> Self {
        self.hard_exit = hard_exit;
        self
    }

    /// Sets the clock that deadlines, debounce and cooldown are read from. Default: [`SystemClock`].
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Starts the ladder and catches `SIGINT`, `SIGTERM`, `SIGHUP` and `SIGQUIT`.
    ///
    /// Needs no runtime: call it first in `main`, before anything slow, since a signal that comes earlier has its default effect.
    /// `SIGINT` is a press; `SIGTERM` and `SIGHUP` begin shutdown; `SIGQUIT` ends the process at once. `SIGINT` and `SIGHUP` stay
    /// ignored if they were ignored when the process started, as under `nohup` or in a shell's background job.
    ///
    /// # Errors
    ///
    /// Fails when signals are caught by another [`Installed`](crate::Installed) of this process already
    /// ([`Error::is_already_installed`](crate::Error::is_already_installed)), or when the system refuses a thread or a handler.
    ///
    /// # Platform
    ///
    /// Unix.
    #[cfg(feature = "signals")]
    pub fn install(self) -> Result<crate::Installed, crate::Error> {
        crate::Installed::new(|| self.start())
    }

    /// Starts the ladder without any signal: presses come through [`Interrupts::injector`] only.
    ///
    /// The hard exit is still [`HardExit::Process`] unless set otherwise.
    ///
    /// # Panics
    ///
    /// Panics when the system refuses to start two threads.
    pub fn detached(self) -> Interrupts {
        self.start().expect("the system starts two threads")
    }

    fn start(self) -> std::io::Result<Interrupts> {
        Interrupts::start(Router::new(
            Ladder::new(self.rules),
            self.clock,
            self.hard_exit,
        ))
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
