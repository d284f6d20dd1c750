//! The handles on a ladder: one for the program, which pushes and waits, and one for whoever feeds presses in.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use crate::{Cause, Handler, PressSource, router::Router};

/// A handle on one ladder with its stack of handlers.
///
/// Clones are the same ladder. Its threads end when the last handle ([`Interrupts`], [`Handler`], [`Notice`](crate::Notice),
/// [`Injector`]) is gone; a running shutdown deadline ends with them, so keep one to the end of `main`.
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
/// assert_eq!(interrupts.cancelled().await, Cause::Press);
/// # }
/// ```
#[derive(Clone)]
pub struct Interrupts {
    handle: Arc<Handle>,
}

/// Closes the router when the last of them is dropped; the threads hold the router itself.
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
    /// `name` is what [`Injector::interrupt`] looks for, and says in reports what the program was doing. It need not be unique.
    pub fn push(&self, name: impl Into<Arc<str>>) -> Handler {
        let (name, bell) = (name.into(), Arc::new(Notify::new()));
        let id = self.router().push(name.clone(), bell.clone());
        Handler {
            interrupts: self.clone(),
            id,
            name,
            bell,
        }
    }

    /// Returns the way in for presses that are no signals: raw-mode terminals, remote commands, tests.
    pub fn injector(&self) -> Injector {
        Injector {
            interrupts: self.clone(),
        }
    }

    /// Returns a token that is cancelled when shutdown begins. Cancelling it yourself begins nothing and reaches nobody else: each
    /// call makes a new child of the ladder's own. To begin shutdown, use [`Injector::terminate`].
    ///
    /// It is told by a thread, so it may be cancelled a moment after [`cause`](Self::cause) knows: in a test, wait for it.
    #[cfg(feature = "tokio-util")]
    pub fn token(&self) -> tokio_util::sync::CancellationToken {
        self.router().token.child_token()
    }

    /// Waits until shutdown begins, and says why. Answers at once when it has begun.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: the cause is sticky.
    pub fn cancelled(&self) -> impl Future<Output = Cause> + Send + use<> {
        let interrupts = self.clone(); // keeps the sender below alive
        async move {
            let mut shutdown = interrupts.router().shutdown.subscribe();
            let cause = shutdown
                .wait_for(Option::is_some)
                .await
                .ok()
                .and_then(|cause| *cause);
            cause.expect("the sender is alive and the wait is for a cause")
        }
    }

    /// Waits until shutdown begins, and says why, blocking the thread: for programs without a runtime. Not on the runtime that
    /// runs the `Driver`.
    pub fn wait(&self) -> Cause {
        let cause = self.router().wait_for_cause(None);
        cause.expect("the wait has no end but a cause")
    }

    /// As [`wait`](Self::wait), but no longer than `timeout`.
    pub fn wait_timeout(&self, timeout: Duration) -> Option<Cause> {
        let deadline = Instant::now().checked_add(timeout); // `None` is further away than any time: for ever
        self.router().wait_for_cause(deadline)
    }

    /// Returns why shutdown began, or `None` before it has. It may know a moment before [`cancelled`](Self::cancelled) wakes.
    pub fn cause(&self) -> Option<Cause> {
        self.router().cause()
    }

    /// Sets anew how long a press stays counted after its notice was dropped unanswered; see
    /// [`Builder::cooldown`](crate::Builder::cooldown). For settings that are read after the signals were taken.
    pub fn set_cooldown(&self, cooldown: Duration) {
        self.router().lock().ladder.set_cooldown(cooldown);
    }

    /// Sets anew how long shutdown may last; see [`Builder::shutdown_deadline`](crate::Builder::shutdown_deadline). A shutdown that has
    /// begun keeps its deadline.
    pub fn set_shutdown_deadline(&self, deadline: Option<Duration>) {
        self.router().lock().ladder.set_shutdown_deadline(deadline);
    }

    /// Returns how many presses were accepted so far; debounced ones are part of the press before them.
    pub fn presses(&self) -> u64 {
        self.router().presses()
    }

    /// Does what the clock has made due. With the system clock this happens by itself.
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

/// Feeds presses and requests into a ladder, from any thread.
#[derive(Clone, Debug)]
pub struct Injector {
    interrupts: Interrupts,
}

impl Injector {
    /// Presses: what `SIGINT` does. For a terminal in raw mode, call it on the byte 0x03.
    pub fn press(&self, source: PressSource) {
        self.interrupts.router().press(source);
    }

    /// Begins shutdown, past all handlers. It is not a press: once shutdown has begun, another cause changes nothing.
    ///
    /// [`Cause::Quit`] is the way to abort from within: a hard exit by `SIGQUIT`, with the terminal's settings put back.
    pub fn terminate(&self, cause: Cause) {
        self.interrupts.router().terminate(cause);
    }

    /// Asks the innermost handler of this name for an interrupt, and says whether there is one to ask.
    ///
    /// The handler gets a [`Notice`](crate::Notice) of source [`PressSource::Request`]. It is no press: it has no number, and it does
    /// not count for the next one, however it is answered. If another handler's notice is open, it comes after that; if the handler's
    /// own is, there is nothing to add. In shutdown nobody is asked, and the answer is `false`.
    pub fn interrupt(&self, name: &str) -> bool {
        self.interrupts.router().interrupt(name)
    }

    /// Suspends the job, as the terminal does on ^Z: for a terminal in raw mode, call it on the byte 0x1a.
    ///
    /// It sends `SIGTSTP` to the process group, so that a shell or a wrapper around the program stops with it. A detached ladder, also
    /// one whose signals were given back, does nothing.
    pub fn suspend(&self) {
        if let Some(catch) = &self.interrupts.router().catch {
            catch.suspend_job();
        }
    }
}
