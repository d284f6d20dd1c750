//! The ways to start a ladder: with signals, with a driver, detached.

use std::{io, thread};

#[cfg(feature = "driver")]
use crate::Driver;
use crate::{Builder, Interrupts};
#[cfg(feature = "signals")]
use crate::{Error, Installed};

impl Interrupts {
    /// Begins a configuration.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Starts the ladder and catches `SIGINT`, `SIGTERM`, `SIGHUP`, `SIGQUIT` and `SIGCONT`, and with a hook `SIGTSTP`.
    ///
    /// Needs no runtime: call it first in `main`, before anything slow, since a signal that comes earlier has its default effect.
    /// `SIGINT` is a press; `SIGTERM` and `SIGHUP` begin shutdown; `SIGQUIT` ends the process at once. In shutdown a
    /// second `SIGTERM` changes nothing: set a [`shutdown_deadline`](Self::shutdown_deadline). `SIGINT`, `SIGHUP`, `SIGQUIT` and
    /// `SIGTSTP` stay ignored if they were ignored before, as under `nohup` or in a script's background job.
    ///
    /// Bind the value to a name and keep it to the end of `main`: its drop restores the signals, so `install()?.clone()`, or a
    /// function that returns the clone, switches everything off without a word.
    ///
    /// Four threads are started, all asleep until there is something to do. The futures run on any executor and need no driver of
    /// time or I/O. As the first line under `#[tokio::main]` it is early enough for most: only the runtime was built before.
    ///
    /// # Errors
    ///
    /// Fails when signals are caught by another [`Installed`] of this process already
    /// ([`Error::is_already_installed`]), or when the system refuses a thread or a handler.
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
    /// let installed = Interrupts::builder().install()?;
    /// let interrupts = Interrupts::clone(&installed); // for a thread or a task; `installed` stays here
    /// let saves = std::thread::spawn(move || interrupts.wait());
    /// # let _ = saves;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "signals")]
    pub fn install(self) -> Result<Installed, Error> {
        Installed::new(self, false, start)
    }

    /// As [`install`](Self::install), but without a thread: the returned driver does on a tokio runtime what threads do otherwise.
    ///
    /// Needs no runtime yet. It lets the calling thread receive the signals, whatever mask it inherited.
    ///
    /// # Errors
    ///
    /// As [`install`](Self::install).
    ///
    /// # Platform
    ///
    /// Unix.
    #[cfg(feature = "driver")]
    pub fn install_driven(self) -> Result<(Installed, Driver), Error> {
        let mut driver = None;
        let installed = Installed::new(self, true, |interrupts| {
            let router = interrupts.router();
            router.unblock();
            let catch = router.catch.as_ref().expect("an install catches signals");
            driver = Some(Driver::new(router.clone(), catch.woken()?));
            Ok(())
        })?;
        Ok((installed, driver.expect("the start makes it or fails")))
    }

    /// Starts the ladder without any signal: presses come through [`Interrupts::injector`] only.
    ///
    /// The hard exit is still that of the process unless set otherwise, from a thread and without the terminal's settings.
    ///
    /// # Panics
    ///
    /// Panics when the system refuses to start two threads.
    pub fn detached(self) -> Interrupts {
        let interrupts = Interrupts::new(self.router(None));
        start(&interrupts).expect("the system starts two threads");
        interrupts
    }
}

/// Starts the threads of the router.
fn start(interrupts: &Interrupts) -> io::Result<()> {
    let router = interrupts.router().clone();
    // One more than may tell, where the handler must always find one.
    let tellers = router.tellers + usize::from(router.catch.is_some());
    for _ in 0..tellers {
        let router = router.clone();
        thread::Builder::new()
            .name("interrupts-tell".into())
            .spawn(move || {
                router.unblock();
                router.run_tellers();
            })?;
    }
    thread::Builder::new()
        .name("interrupts".into())
        .spawn(move || router.run())?;
    Ok(())
}
