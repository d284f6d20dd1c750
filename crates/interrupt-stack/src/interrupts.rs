//! The handles on a ladder: one to push handlers and to wait, and one to inject presses.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use crate::{Cause, Handler, PressSource, router::Router};

/// A handle on one ladder with its stack of handlers.
///
/// Clones are handles on the same ladder. After [`Builder::install`](crate::Builder::install) the ladder lives as long as the process. The threads
/// of any other ladder, and with them a shutdown deadline, end when the last handle ([`Interrupts`], [`Handler`],
/// [`Notice`](crate::Notice), [`Injector`], `Installed`) is gone.
///
/// # Examples
///
/// ```
/// use interrupt_stack::{Cause, Interrupts, PressSource};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let interrupts = Interrupts::builder().debounce(std::time::Duration::ZERO).detached();
/// let mut menu = interrupts.push("menu");
/// interrupts.injector().press(PressSource::Injected);
/// menu.notified().await.handled(); // "continue"
///
/// drop(menu);
/// interrupts.injector().press(PressSource::Injected);
/// assert_eq!(interrupts.shutdown_cause().await, Cause::Press);
/// # }
/// ```
#[derive(Clone)]
pub struct Interrupts {
    handle: Arc<Handle>,
}

/// Closes the router when the last handle is dropped. The threads hold the router itself.
struct Handle(Arc<Router>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Interrupts {
    pub(crate) fn new(router: Router) -> Self {
        Self {
            handle: Arc::new(Handle(Arc::new(router))),
        }
    }

    pub(crate) fn router(&self) -> &Arc<Router> {
        &self.handle.0
    }

    /// Puts a handler on top of the stack, for as long as the returned value lives.
    ///
    /// [`Injector::interrupt`] finds the handler by its `name`, and reports contain it. The name need not be unique.
    pub fn push(&self, name: impl Into<Arc<str>>) -> Handler {
        let (name, waker) = (name.into(), Arc::new(Notify::new()));
        let id = self.router().push(name.clone(), waker.clone());
        Handler {
            interrupts: self.clone(),
            id,
            name,
            notify: waker,
        }
    }

    /// Returns an injector for presses that are not signals: from raw-mode terminals, remote commands, tests.
    pub fn injector(&self) -> Injector {
        Injector {
            interrupts: self.clone(),
        }
    }

    /// Returns a token that is cancelled when shutdown begins. Cancelling it yourself begins no shutdown and affects no other token,
    /// because each call creates a new child of the ladder's own token. To begin shutdown, use [`Injector::terminate`].
    ///
    /// A thread cancels the token, so this can happen a moment after [`cause`](Self::cause) returns the cause: in a test, wait for it.
    #[cfg(feature = "tokio-util")]
    pub fn token(&self) -> tokio_util::sync::CancellationToken {
        self.router().token.child_token()
    }

    /// Waits until shutdown begins, and returns its cause. Returns at once if shutdown has begun. [`cause`](Self::cause) doesn't wait, and
    /// [`wait`](Self::wait) blocks the thread.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: the cause is sticky.
    pub fn shutdown_cause(&self) -> impl Future<Output = Cause> + Send + use<> {
        let interrupts = self.clone(); // keeps the sender below alive
        async move {
            let mut shutdown = interrupts.router().shutdown.subscribe();
            let cause = shutdown
                .wait_for(Option::is_some)
                .await
                .ok()
                .and_then(|cause| *cause);
            cause.expect("the sender is alive, so the wait ends only with a cause")
        }
    }

    /// Waits until shutdown begins, and returns its cause. This blocks the thread: it is for programs without a runtime. Don't call it
    /// on the runtime that runs the `InterruptDriver`.
    pub fn wait(&self) -> Cause {
        let cause = self.router().wait_for_cause(None);
        cause.expect("without a deadline, the wait ends only with a cause")
    }

    /// Waits as [`wait`](Self::wait) does, for at most `timeout`. Returns `None` at the time-out.
    pub fn wait_timeout(&self, timeout: Duration) -> Option<Cause> {
        let deadline = Instant::now().checked_add(timeout); // `None` means for ever
        self.router().wait_for_cause(deadline)
    }

    /// Returns the cause of the shutdown, or `None` before it. This can return a cause a moment before [`shutdown_cause`](Self::shutdown_cause)
    /// wakes.
    pub fn cause(&self) -> Option<Cause> {
        self.router().cause()
    }

    /// Changes how long a press stays counted after its notice was dropped unanswered; see
    /// [`Builder::cooldown`](crate::Builder::cooldown). For programs that read their settings after the install.
    pub fn set_cooldown(&self, cooldown: Duration) {
        self.router().lock().ladder.set_cooldown(cooldown);
    }

    /// Changes the time after a press in which a further press counts as the same press; see
    /// [`Builder::debounce`](crate::Builder::debounce). For programs that read their settings after the install.
    pub fn set_debounce(&self, debounce: Duration) {
        self.router().set_debounce(debounce);
    }

    /// Changes how long shutdown may last; see [`Builder::shutdown_deadline`](crate::Builder::shutdown_deadline). A shutdown that has
    /// begun keeps its deadline.
    pub fn set_shutdown_deadline(&self, deadline: Option<Duration>) {
        self.router().lock().ladder.set_shutdown_deadline(deadline);
    }

    /// Returns how many presses were accepted so far. Debounced presses don't count.
    pub fn presses(&self) -> u64 {
        self.router().presses()
    }

    /// Handles due deadlines. With the system clock this happens automatically.
    #[cfg(feature = "test-util")]
    pub fn tick(&self) {
        self.router().tick();
    }
}

impl fmt::Debug for Interrupts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interrupts")
            .field("cause", &self.cause())
            .field("presses", &self.presses())
            .finish_non_exhaustive()
    }
}

/// A handle that injects presses and requests into a ladder, from any thread.
#[derive(Clone, Debug)]
pub struct Injector {
    interrupts: Interrupts,
}

impl Injector {
    /// Injects a press, with the same effect as `SIGINT`. For a terminal in raw mode, call it on the byte 0x03.
    pub fn press(&self, source: PressSource) {
        self.interrupts.router().press(source);
    }

    /// Begins shutdown without asking any handler. This is not a press: after shutdown has begun, another cause changes nothing.
    ///
    /// [`Cause::Quit`] has the effect of `SIGQUIT`: a hard exit, which the parent sees as a death by `SIGQUIT`. To abort with another cause, use
    /// [`hard_exit`](Self::hard_exit).
    pub fn terminate(&self, cause: Cause) {
        self.interrupts.router().terminate(cause);
    }

    /// Ends the process now, as the last stage of the ladder does, by the signal or exit code of `cause`: for "abort" in a menu.
    ///
    /// With [`Cause::Press`] the parent sees the same death by `SIGINT` as after the last press. The setting
    /// [`Builder::hard_exit`](crate::Builder::hard_exit) decides what the exit does; it happens on one of this crate's threads, so this call
    /// returns before it.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use interrupt_stack::{Cause, Interrupts};
    ///
    /// # fn main() -> Result<(), interrupt_stack::Error> {
    /// let interrupts = Interrupts::builder().install()?;
    /// interrupts.injector().hard_exit(Cause::Press); // "abort": nothing is saved
    /// # Ok(()) }
    /// ```
    pub fn hard_exit(&self, cause: Cause) {
        self.interrupts.router().hard_exit(cause);
    }

    /// Requests an interrupt from the innermost handler of this name. Returns whether there is such a handler.
    ///
    /// The handler gets a [`Notice`](crate::Notice) with the source [`PressSource::Request`]. It is not a press: it has no number, and
    /// it doesn't count for the next press, whatever the answer is. If another handler's notice is open, the request waits for its end.
    /// If the handler's own notice is open, the request changes nothing. In shutdown the request is dropped, and this returns `false`.
    pub fn interrupt(&self, name: &str) -> bool {
        self.interrupts.router().interrupt(name)
    }

    /// Suspends the job, as the terminal does on ^Z. For a terminal in raw mode, call it on the byte 0x1a.
    ///
    /// This sends `SIGTSTP` to the process group, so that a script or wrapper around the program stops too. On a detached ladder, or after the
    /// signals were restored, it does nothing.
    pub fn suspend(&self) {
        if let Some(catcher) = &self.interrupts.router().catcher {
            catcher.suspend_job();
        }
    }
}
