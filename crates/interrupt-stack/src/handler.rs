//! The program's side of a press: a scope on the stack, and the notice that it takes and answers.

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
/// Presses go to the topmost handler only. Dropping it takes it off the stack, in any order; a notice that it has not taken goes to
/// the handler below, or begins shutdown if there is none. `let _ = interrupts.push(…)` drops it at once: give it a name.
#[derive(Debug)]
#[must_use = "dropping a handler takes it off the stack at once"]
pub struct Handler {
    pub(crate) interrupts: Interrupts,
    pub(crate) id: HandlerId,
    pub(crate) name: Arc<str>,
    pub(crate) bell: Arc<Notify>,
}

impl Handler {
    /// Waits for a press and takes its notice.
    ///
    /// A handler that does not come here within the take time-out (1 s by default) loses the notice to the one below, if there is
    /// one. In shutdown there are no notices and it stays pending: wait for [`Interrupts::cancelled`] beside it.
    ///
    /// # Cancel safety
    ///
    /// A notice is taken only in the poll that returns it, so dropping the future loses none.
    pub async fn notified(&mut self) -> Notice {
        loop {
            if let Some(notice) = self.try_take() {
                return notice;
            }
            // A ring between the look and this wait leaves a permit behind, and the wait ends at once.
            self.bell.notified().await;
        }
    }

    /// Takes the notice that waits for this handler, if there is one.
    pub fn try_take(&mut self) -> Option<Notice> {
        let press = self.interrupts.router().take(self.id)?;
        Some(self.notice(press))
    }

    /// Waits for a press and takes its notice, or returns `None` once shutdown has begun, before the wait or in it.
    ///
    /// It blocks the thread: for programs without a runtime. Not on the runtime that runs the `Driver`.
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
    ///         notice.handled(); // asked and answered
    ///     }
    /// });
    /// interrupts.injector().terminate(Cause::Terminate);
    /// asks.join().unwrap();
    /// ```
    pub fn wait(&mut self) -> Option<Notice> {
        let press = self.interrupts.router().wait_for_press(self.id, None)?;
        Some(self.notice(press))
    }

    /// As [`wait`](Self::wait), but no longer than `timeout`: `None` at its end as well.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Option<Notice> {
        let deadline = Instant::now().checked_add(timeout); // `None` is further away than any time: for ever
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

    /// Returns the name that it was pushed with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its id, by which a notice names its handler.
    pub fn id(&self) -> HandlerId {
        self.id
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        self.interrupts.router().remove(self.id);
    }
}

/// A press that was handed to one handler and waits for an answer.
///
/// While it is open, taken or not, another press begins shutdown, whatever the clock says. It can be answered once. Dropping it is no
/// answer: the press stays counted, and another one within the cooldown (2 s by default) begins shutdown.
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

    /// Leaves the press to the handler below this one, also when this one is gone; if there is none, shutdown begins. A
    /// [request](PressSource::Request) goes nowhere else, and begins nothing.
    pub fn decline(mut self) {
        self.resolution = Resolution::Declined;
    }

    /// Begins shutdown with [`Cause::Press`](crate::Cause::Press), as a second press would, also for a request.
    ///
    /// It is the answer where input ends, too. If that ended with the terminal, `SIGHUP` comes beside it and the first of the two is
    /// the cause. For another cause, call [`Injector::terminate`](crate::Injector::terminate) and drop the notice.
    pub fn escalate(mut self) {
        self.resolution = Resolution::Escalated;
    }

    /// Returns how many presses were accepted up to this one, itself included; 0 for a [request](PressSource::Request).
    pub fn presses(&self) -> u64 {
        self.press.number
    }

    /// Returns the handler that took it.
    pub fn handler(&self) -> HandlerId {
        self.handler
    }

    /// Returns when the press was accepted.
    pub fn at(&self) -> Instant {
        self.press.at
    }

    /// Returns where the press came from.
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
