use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Wake, bell::Bell};

/// A group of sleeps that wake together.
///
/// Clones are the same gate. A gate cannot be opened again after [`shutdown`](Self::shutdown): a second run in the same process
/// takes a new gate, or a new [`child`](Self::child) of one that is still open.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use cancellable_sleep::{SleepGate, Wake};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let gate = SleepGate::new();
/// assert_eq!(gate.sleep(Duration::from_millis(1)).await, Wake::Elapsed);
/// gate.shutdown();
/// assert_eq!(gate.sleep(Duration::from_secs(3600)).await, Wake::Shutdown);
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct SleepGate {
    token: CancellationToken,
    bell: Arc<Bell>,
}

impl SleepGate {
    /// Makes an open gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a gate that is shut down when `token` is cancelled.
    ///
    /// [`shutdown`](Self::shutdown) cancels this very token, for everybody who holds it; pass a child token where that is not wanted.
    pub fn from_token(token: CancellationToken) -> Self {
        Self {
            token,
            bell: Arc::default(),
        }
    }

    /// Returns the token that is cancelled when the gate is shut down, and whose cancelling shuts it down.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Sleeps for `duration`, until a kick, or until shutdown.
    ///
    /// Zero yields to the scheduler once. A duration too long for the clock, such as [`Duration::MAX`], never elapses. Time counts
    /// from the first poll.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with its time driver, unless the gate is shut down already: then no timer is made.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the sleep and takes the sleeper off the gate; nothing is lost, since there is no state but the time.
    pub async fn sleep(&self, duration: Duration) -> Wake {
        self.wait(Instant::now().checked_add(duration)).await
    }

    /// Sleeps until `deadline` on tokio's clock, until a kick, or until shutdown.
    ///
    /// A deadline that has passed yields to the scheduler once.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with its time driver, unless the gate is shut down already: then no timer is made.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the sleep and takes the sleeper off the gate.
    pub async fn sleep_until(&self, deadline: Instant) -> Wake {
        self.wait(Some(deadline)).await
    }

    /// Waits for shutdown for at most `timeout`, and says whether it came: `true` means shutdown.
    ///
    /// A kick ends the wait early with `false`, as the end of the time does.
    ///
    /// # Panics
    ///
    /// Panics where [`sleep`](Self::sleep) does.
    ///
    /// # Cancel safety
    ///
    /// As for [`sleep`](Self::sleep). The answer is not lost either: shutdown is sticky.
    pub async fn wait_or_shutdown(&self, timeout: Duration) -> bool {
        self.sleep(timeout).await == Wake::Shutdown
    }

    /// Ends every sleep that is present and returns how many that were; later sleeps are not affected.
    ///
    /// A sleep is present from its first poll until it is ready or dropped. Each one that was counted answers [`Wake::Kicked`], also
    /// when its time was up in the same moment, or [`Wake::Shutdown`] if the gate is shut down before it is polled again. A gate that
    /// is shut down has no sleepers to kick: the answer is 0. Runs the wakers in the caller.
    pub fn wake_all(&self) -> usize {
        if self.is_shutdown() {
            0
        } else {
            self.bell.kick()
        }
    }

    /// Shuts the gate down, for ever: present sleeps end, later ones end at once.
    ///
    /// Calling it again does nothing. Runs the wakers of all sleepers in the caller.
    pub fn shutdown(&self) {
        self.token.cancel();
    }

    /// Says whether the gate was shut down.
    pub fn is_shutdown(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Makes a gate below this one: shutting this one down shuts the child down, never the other way round.
    ///
    /// Kicks stay within their own gate, in both directions: a kick means "this wait is long enough", which says nothing about the
    /// waits of another scope.
    #[must_use]
    pub fn child(&self) -> Self {
        Self::from_token(self.token.child_token())
    }

    /// `None` never elapses.
    async fn wait(&self, deadline: Option<Instant>) -> Wake {
        let sleeper = self.bell.enter();
        let due = due(deadline);
        tokio::pin!(due);
        loop {
            // Listening comes before the check: a kick in between is heard.
            let rung = sleeper.listen();
            if self.is_shutdown() {
                return Wake::Shutdown;
            }
            if sleeper.was_kicked() {
                return Wake::Kicked;
            }
            tokio::select! {
                biased;
                () = self.token.cancelled() => return Wake::Shutdown,
                () = rung => {}
                () = &mut due => return if sleeper.leave() { Wake::Kicked } else { Wake::Elapsed },
            }
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place where a plain sleep is made wakeable"
)]
async fn due(deadline: Option<Instant>) {
    match deadline {
        None => std::future::pending().await,
        Some(deadline) if deadline <= Instant::now() => tokio::task::yield_now().await,
        Some(deadline) => tokio::time::sleep_until(deadline).await,
    }
}
