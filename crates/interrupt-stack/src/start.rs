//! The ways to start a ladder: with signals, with a driver, detached.

use std::{io, thread};

#[cfg(feature = "driver")]
use crate::InterruptDriver;
use crate::{Builder, Interrupts};
#[cfg(feature = "signals")]
use crate::{Error, Installed};

impl Interrupts {
    /// Returns a builder with the default settings.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Starts the ladder and catches `SIGINT`, `SIGTERM`, `SIGHUP`, `SIGQUIT` and `SIGCONT`, and also `SIGTSTP` if a suspend or resume
    /// hook is set.
    ///
    /// This needs no runtime. Call it first in `main`, before anything slow, because a signal that comes earlier has its default effect.
    /// `SIGINT` is a press; `SIGTERM` and `SIGHUP` begin shutdown; `SIGQUIT` ends the process at once. In shutdown a second `SIGTERM`
    /// changes nothing: set a [`shutdown_deadline`](Self::shutdown_deadline). `SIGINT`, `SIGHUP`, `SIGQUIT` and `SIGTSTP` stay ignored
    /// if they were ignored before, as under `nohup` or in a script's background job; see
    /// [`catch_ignored_keys`](Self::catch_ignored_keys).
    ///
    /// The ladder catches the signals for the rest of the life of the process, and its threads live as long, whatever happens to the
    /// returned handle. To restore the earlier behaviour of the signals later, use [`install_scoped`](Self::install_scoped).
    ///
    /// This starts four threads, which sleep until an event comes. The futures run on any executor and need no driver of time or I/O.
    /// The first line under `#[tokio::main]` is early enough for most programs: only the runtime was built before.
    ///
    /// # Errors
    ///
    /// Fails if another install of this process already catches the signals ([`Error::is_already_installed`]), or if the system refuses
    /// a thread or a handler.
    ///
    /// # Platform
    ///
    /// Unix.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use interrupt_stack::Interrupts;
    ///
    /// # fn main() -> Result<(), interrupt_stack::Error> {
    /// let interrupts = Interrupts::builder().install()?;
    /// let other = interrupts.clone(); // for a thread or a task: a handle on the same ladder
    /// let saves = std::thread::spawn(move || other.wait());
    /// # let _ = saves;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "signals")]
    pub fn install(self) -> Result<Interrupts, Error> {
        self.install_scoped().map(Installed::keep)
    }

    /// Starts the ladder as [`install`](Self::install) does, until the returned guard is dropped.
    ///
    /// Dropping the [`Installed`] restores the earlier behaviour of the signals, so that a later part of the program can install a
    /// ladder of its own. Bind the guard to a name: `install_scoped()?.clone()` restores the signals at once.
    ///
    /// # Errors
    ///
    /// Fails as [`install`](Self::install) does.
    ///
    /// # Platform
    ///
    /// Unix.
    #[cfg(feature = "signals")]
    pub fn install_scoped(self) -> Result<Installed, Error> {
        Installed::new(self, false, start)
    }

    /// Starts the ladder as [`install`](Self::install) does, but without threads: the returned driver does their work on a tokio runtime.
    ///
    /// The call itself needs no runtime. It unblocks the signals in the calling thread, whatever mask it inherited.
    ///
    /// # Errors
    ///
    /// Fails as [`install`](Self::install) does.
    ///
    /// # Platform
    ///
    /// Unix.
    #[cfg(feature = "driver")]
    pub fn install_driven(self) -> Result<(Interrupts, InterruptDriver), Error> {
        let (installed, driver) = self.install_driven_scoped()?;
        Ok((installed.keep(), driver))
    }

    /// Starts the ladder as [`install_driven`](Self::install_driven) does, until the returned guard is dropped. The driver ends when the guard and
    /// all other handles are gone.
    ///
    /// # Errors
    ///
    /// Fails as [`install`](Self::install) does.
    ///
    /// # Platform
    ///
    /// Unix.
    #[cfg(feature = "driver")]
    pub fn install_driven_scoped(self) -> Result<(Installed, InterruptDriver), Error> {
        let mut driver = None;
        let installed = Installed::new(self, true, |interrupts| {
            let router = interrupts.router();
            router.unblock();
            let catcher = router.catcher.as_ref().expect("an install catches signals");
            driver = Some(InterruptDriver::new(router.clone(), catcher.woken()?));
            Ok(())
        })?;
        Ok((installed, driver.expect("a start without an error sets it")))
    }

    /// Starts the ladder without signals: presses come only through [`Interrupts::injector`].
    ///
    /// Unless [`hard_exit`](Self::hard_exit) is set otherwise, the hard exit still ends the process, from a thread and without restoring
    /// the terminal.
    ///
    /// # Panics
    ///
    /// Panics if the system refuses to start two threads.
    pub fn detached(self) -> Interrupts {
        let interrupts = Interrupts::new(self.router(None));
        start(&interrupts).expect("the system can start two threads");
        interrupts
    }
}

/// Starts the threads of the router.
fn start(interrupts: &Interrupts) -> io::Result<()> {
    let router = interrupts.router().clone();
    // With signals, this starts one more thread than may run foreign code, so that one thread is always free for the signal handler.
    let announcers = router.max_announcers + usize::from(router.catcher.is_some());
    for _ in 0..announcers {
        let router = router.clone();
        thread::Builder::new()
            .name("interrupts-wake".into())
            .spawn(move || {
                router.unblock();
                router.run_announcer();
            })?;
    }
    thread::Builder::new()
        .name("interrupts".into())
        .spawn(move || router.run())?;
    Ok(())
}
