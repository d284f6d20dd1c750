//! The handler of a press scope, and the notice that it takes and answers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use crate::{
    Interrupts, PressSource,
    ladder::{HandlerId, Press, Resolution},
};

/// A scope in which the program answers presses itself.
///
/// Presses go to the topmost handler only. Handlers can be dropped in any order; dropping one removes it from the stack. A notice that
/// the dropped handler has not taken goes to the handler below, or begins shutdown if there is none. `let _ = interrupts.push(…)` drops
/// the handler at once: bind it to a name.
#[derive(Debug)]
#[must_use = "dropping a handler removes it from the stack at once"]
pub struct Handler {
    pub(crate) interrupts: Interrupts,
    pub(crate) id: HandlerId,
    pub(crate) name: Arc<str>,
    pub(crate) notify: Arc<Notify>,
}

impl Handler {
    /// Waits for a press and takes its notice.
    ///
    /// A handler that doesn't call this within the take time-out (1 s by default) loses the notice to the handler below, if there is
    /// one. In shutdown there are no notices and this future stays pending: also wait for [`Interrupts::shutdown_cause`].
    ///
    /// # Cancel safety
    ///
    /// A notice is taken only in the poll that returns it, so dropping the future loses no notice.
    pub async fn notified(&mut self) -> Notice {
        loop {
            if let Some(notice) = self.try_take() {
                return notice;
            }
            // A wake between `try_take` and this wait leaves a permit, so the wait ends at once.
            self.notify.notified().await;
        }
    }

    /// Takes the notice that waits for this handler, if there is one.
    pub fn try_take(&mut self) -> Option<Notice> {
        let press = self.interrupts.router().take(self.id)?;
        Some(self.notice(press))
    }

    /// Waits for a press and takes its notice. Returns `None` if shutdown has begun before the wait or begins during it.
    ///
    /// This blocks the thread: it is for programs without a runtime. Don't call it on the runtime that runs the `InterruptDriver`.
    ///
    /// # Examples
    ///
    /// ```
    /// use interrupt_stack::{Cause, Interrupts};
    ///
    /// let interrupts = Interrupts::builder().detached();
    /// let mut menu = interrupts.push("menu");
    /// let asks = std::thread::spawn(move || {
    ///     while let Some(notice) = menu.wait() {
    ///         notice.handled(); // the person has answered
    ///     }
    /// });
    /// interrupts.injector().terminate(Cause::Terminate);
    /// asks.join().unwrap();
    /// ```
    pub fn wait(&mut self) -> Option<Notice> {
        let press = self.interrupts.router().wait_for_press(self.id, None)?;
        Some(self.notice(press))
    }

    /// Waits as [`wait`](Self::wait) does, for at most `timeout`. Also returns `None` at the time-out.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Option<Notice> {
        let deadline = Instant::now().checked_add(timeout); // `None` means for ever
        let press = self.interrupts.router().wait_for_press(self.id, deadline)?;
        Some(self.notice(press))
    }

    fn notice(&self, press: Press) -> Notice {
        Notice {
            interrupts: self.interrupts.clone(),
            press,
            handler: self.id,
            resolution: Resolution::Dropped,
        }
    }

    /// Returns the name of the handler, as it was pushed.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the id of the handler, which a notice contains too.
    pub fn id(&self) -> HandlerId {
        self.id
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        self.interrupts.router().remove(self.id);
    }
}

/// A press on its way to one handler, which answers it.
///
/// While a notice is open, taken or not, another press begins shutdown, however much later it comes. A notice can be answered once.
/// Dropping it is not an answer: the press stays counted, and another press within the cooldown (2 s by default) begins shutdown.
#[derive(Debug)]
#[must_use = "dropping a notice leaves the press unanswered, so that the next one begins shutdown"]
pub struct Notice {
    interrupts: Interrupts,
    press: Press,
    handler: HandlerId,
    resolution: Resolution,
}

impl Notice {
    /// Answers the press: the ladder starts over at once, and the next press is a first one.
    pub fn handled(mut self) {
        self.resolution = Resolution::Handled;
    }

    /// Passes the press to the handler below this one, even if this one is gone; if there is none, shutdown begins. A
    /// [request](PressSource::Request) is not passed on and begins no shutdown.
    pub fn decline(mut self) {
        self.resolution = Resolution::Declined;
    }

    /// Begins shutdown with [`Cause::Press`](crate::Cause::Press), as a second press would. This is also possible for a request.
    ///
    /// Call it also when the input of a menu ends. If the input ended because the terminal is gone, `SIGHUP` comes as well, and the first of the
    /// two is the cause. For another cause, call [`Injector::terminate`](crate::Injector::terminate) and drop the notice.
    pub fn escalate(mut self) {
        self.resolution = Resolution::Escalated;
    }

    /// Returns the number of this press: the presses accepted so far, including this one; 0 for a [request](PressSource::Request).
    pub fn presses(&self) -> u64 {
        self.press.number
    }

    /// Returns the handler that took the notice.
    pub fn handler(&self) -> HandlerId {
        self.handler
    }

    /// Returns when the press was accepted.
    pub fn at(&self) -> Instant {
        self.press.at
    }

    /// Returns the source of the press.
    pub fn source(&self) -> PressSource {
        self.press.source
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        self.interrupts
            .router()
            .resolve(self.press.number, self.resolution);
    }
}
