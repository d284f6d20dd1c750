//! The gate: the public handle, which begins and ends each kind of wait.

use std::{
    fmt,
    num::NonZeroUsize,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{self, Duration, SystemTime},
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    Sleep, Wake, batches, blocking,
    run::Run,
    sleep::Until,
    sleeper::{Shared, Sleeper, Sleepers},
    wall_clock::WallClock,
};

/// A group of sleeps that wake together.
///
/// Clones are handles on the same gate. A gate can't be opened again after [`shutdown`](Self::shutdown): a second run in the same process
/// needs a new gate, or a new [`child`](Self::child) of a gate that is still open.
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
#[derive(Clone)]
pub struct SleepGate {
    pub(crate) shared: Arc<Shared>,
}

impl SleepGate {
    /// Creates an open gate.
    pub fn new() -> Self {
        Self::build(CancellationToken::new(), WallClock::default())
    }

    /// Creates an open gate that gets the time of day from `now`, for [`sleep_until_wall`](Self::sleep_until_wall): in tests, or if the
    /// program must use another clock than the system's.
    ///
    /// Children inherit the clock. Each sleeper calls `now` when it reads the clock, without holding a lock.
    pub fn with_wall_clock(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self::build(CancellationToken::new(), WallClock::new(now))
    }

    /// Creates a gate that is shut down when `token` is cancelled.
    ///
    /// [`shutdown`](Self::shutdown) cancels this token for all its holders. To prevent that, pass a child token.
    pub fn from_token(token: CancellationToken) -> Self {
        Self::build(token, WallClock::default())
    }

    /// Returns the gate's own token: cancelling it shuts the gate down, and [`shutdown`](Self::shutdown) cancels it.
    ///
    /// Pass a `child_token()` to code that waits for shutdown but must not cause it. To end work of your own, use [`run`](Self::run).
    pub fn token(&self) -> &CancellationToken {
        &self.shared.token
    }

    fn build(token: CancellationToken, wall: WallClock) -> Self {
        let sleepers = Arc::new(Sleepers::default());
        let mut cancellation = Box::pin(token.clone().cancelled_owned());
        let waker = Waker::from(sleepers.clone());
        // The future is ready if the token is already cancelled. Then no sleep will ever wait at this gate, so no waker is needed.
        let _: Poll<()> = cancellation.as_mut().poll(&mut Context::from_waker(&waker));
        Self {
            shared: Arc::new(Shared {
                token,
                sleepers,
                wall,
                _cancellation: cancellation,
            }),
        }
    }

    /// Sleeps for `duration`, until [`wake_all`](Self::wake_all), or until shutdown.
    ///
    /// Time counts from this call, on tokio's monotonic clock. A duration of zero yields to the scheduler once. A duration that is too long for the
    /// clock, such as [`Duration::MAX`], never elapses.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the sleep and removes the sleeper from the gate; nothing is lost. See [`Sleep`], also for its panics.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.begin(Until::at(Instant::now().checked_add(duration)))
    }

    /// Sleeps until `deadline` on the monotonic clock, until [`wake_all`](Self::wake_all), or until shutdown.
    ///
    /// The deadline is converted to a [`tokio::time::Instant`], so it follows a paused clock: in a test, `tokio::time::Instant::into_std`
    /// returns the current time. A deadline in the past yields to the scheduler once. Linux's monotonic clock stops while the machine is
    /// suspended; for a time of day, use [`sleep_until_wall`](Self::sleep_until_wall).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the sleep and removes the sleeper from the gate; nothing is lost. See [`Sleep`], also for its panics.
    pub fn sleep_until(&self, deadline: time::Instant) -> Sleep {
        self.begin(Until::at(Some(Instant::from_std(deadline))))
    }

    /// Sleeps until the time of day is `deadline`, until [`wake_all`](Self::wake_all), or until shutdown.
    ///
    /// Use it for waits such as "the limit is lifted at 15:00". It is correct if the machine is suspended meanwhile, and if the clock is
    /// set forwards (the sleep ends earlier) or backwards (the sleep continues until the clock shows `deadline`). The sleeper reads the
    /// clock once a second. So after a jump or a suspend the sleep ends at most one second late, counted while the machine is awake.
    /// Without a jump or a suspend it is as exact as any sleep. It never ends before its time. A deadline in the past yields to the scheduler once.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the sleep and removes the sleeper from the gate; nothing is lost. See [`Sleep`], also for its panics.
    pub fn sleep_until_wall(&self, deadline: SystemTime) -> Sleep {
        self.begin(Until::at_wall(deadline))
    }

    /// Runs `future` until it is ready, until [`wake_all`](Self::wake_all), or until shutdown. Returns its output, or why the gate ended it.
    ///
    /// The error is [`Wake::Woken`] or [`Wake::Shutdown`], never [`Wake::Elapsed`]. If the gate is already shut down, `future` is never polled.
    /// The gate ends the work at any of its awaits. To let "poll now" end waits but not work, run the work at a [`child`](Self::child) gate, which
    /// `wake_all` doesn't reach.
    ///
    /// [`wake_all`](Self::wake_all) counts the run like a sleep. If `future` becomes ready at the moment in which another thread calls
    /// `wake_all` or `shutdown`, the run returns the output, so no output is lost.
    ///
    /// The returned future owns a handle on the gate, so it can be spawned if `future` can be spawned.
    ///
    /// # Panics
    ///
    /// Polling panics if `future` panics.
    ///
    /// # Cancel safety
    ///
    /// Dropping the returned future drops `future` and removes the run from the gate. If the gate ends the run, `future` is dropped together with
    /// the returned future, as in a `select!`. So this is cancel safe if `future` is.
    ///
    /// # Examples
    ///
    /// ```
    /// use cancellable_sleep::{SleepGate, Wake};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let gate = SleepGate::new();
    /// assert_eq!(gate.run(async { 7 }).await, Ok(7));
    /// gate.shutdown();
    /// assert_eq!(gate.run(async { 7 }).await, Err(Wake::Shutdown));
    /// # }
    /// ```
    pub fn run<F: Future>(
        &self,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Wake>> + use<F> {
        Run::new(self.shared.clone(), future)
    }

    fn begin(&self, until: Until) -> Sleep {
        Sleep::new(self.shared.clone(), until)
    }

    /// Waits for shutdown for at most `timeout`. Returns whether the gate was shut down.
    ///
    /// [`wake_all`](Self::wake_all) ends the wait early with `false`, as the time-out does. This suits loops that check for work in both
    /// cases, such as `while !gate.wait_or_shutdown(period).await { … }`. To distinguish the two, use [`sleep`](Self::sleep).
    ///
    /// # Panics
    ///
    /// Panics if polling a [`Sleep`] panics.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future removes the sleeper from the gate. A shutdown isn't lost, because it is sticky.
    pub async fn wait_or_shutdown(&self, timeout: Duration) -> bool {
        self.sleep(timeout).await == Wake::Shutdown
    }

    /// Creates an interval of `period` that ends with this gate. The first tick is due one period from now; see [`Interval`].
    pub fn interval(&self, period: Duration) -> Interval {
        Interval::new(self.clone(), period)
    }

    /// Blocks the calling thread for `duration`, until [`wake_all`](Self::wake_all), or until shutdown. It needs no runtime.
    ///
    /// [`wake_all`](Self::wake_all) counts this sleep too. The sleep uses the system's monotonic clock, even if tokio's clock is paused. With
    /// a duration of zero, it only checks the gate and returns. Don't call it from a task, because it blocks the worker thread.
    pub fn blocking_sleep(&self, duration: Duration) -> Wake {
        let deadline = time::Instant::now().checked_add(duration);
        blocking::sleep(Sleeper::new(self.shared.clone()), deadline)
    }

    /// Ends every present sleep and returns their number. Later sleeps are not affected.
    ///
    /// A sleep is present from its first poll until it is ready or dropped. Each counted sleep returns [`Wake::Woken`], even if its time
    /// was up at the same moment, or [`Wake::Shutdown`] if the gate is shut down before the sleep is polled again. For a gate that is
    /// shut down, this returns 0. The call runs the wakers in the caller, without holding a lock. It catches the panic of a waker and wakes
    /// the others.
    pub fn wake_all(&self) -> usize {
        if self.is_shutdown() {
            return 0;
        }
        let asleep = self.shared.sleepers.take_wakers();
        let count = asleep.len();
        batches::wake_all(asleep);
        count
    }

    /// Shuts the gate down for ever: present sleeps end, and later sleeps end immediately.
    ///
    /// Calling it again does nothing. It runs the wakers of all sleepers of this gate and its child gates in the caller, without holding a
    /// lock. It catches the panic of a waker and wakes the others. For a hundred thousand sleepers this takes tens of milliseconds, in which a
    /// current-thread runtime can't run other tasks; [`shutdown_in_batches`](Self::shutdown_in_batches) avoids that.
    ///
    /// # Panics
    ///
    /// Passes on the panic of a waker that waits for the gate's token directly. Before that, it wakes the sleepers of this gate.
    pub fn shutdown(&self) {
        batches::cancel(&self.shared.token, &self.shared.sleepers);
    }

    /// Shuts the gate down and wakes the sleepers in batches of `batch`, so that other tasks run between the batches.
    ///
    /// When the call returns, the gate and its child gates are shut down. Every later sleep ends immediately, and so does a present sleep
    /// that is polled before it is woken. The returned future wakes the present sleeps. A good batch is a thousand. If the gate was
    /// shut down before, the future wakes no sleeps. Tasks that wait for the gate's token directly are woken within the call.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, polled or not, immediately wakes all remaining sleeps in the caller.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::num::NonZeroUsize;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let gate = cancellable_sleep::SleepGate::new();
    /// gate.shutdown_in_batches(NonZeroUsize::new(1_000).unwrap()).await;
    /// # assert!(gate.is_shutdown());
    /// # }
    /// ```
    pub fn shutdown_in_batches(
        &self,
        batch: NonZeroUsize,
    ) -> impl Future<Output = ()> + Send + use<> {
        batches::cancel_in_batches(&self.shared.token, &self.shared.sleepers, batch)
    }

    /// Returns whether the gate was shut down.
    pub fn is_shutdown(&self) -> bool {
        self.shared.token.is_cancelled()
    }

    /// Creates a child gate. Shutting this gate down also shuts the child down; shutting the child down doesn't affect this gate.
    ///
    /// [`wake_all`](Self::wake_all) reaches neither the parent nor the children of a gate, because it ends only the waits of one scope.
    #[must_use]
    pub fn child(&self) -> Self {
        Self::build(self.shared.token.child_token(), self.shared.wall.clone())
    }
}

impl Default for SleepGate {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SleepGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SleepGate")
            .field("is_shutdown", &self.is_shutdown())
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "backon")]
impl backon::Sleeper for SleepGate {
    type Sleep = Sleep;

    fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep(duration)
    }
}

#[cfg(feature = "backon")]
impl backon::BlockingSleeper for SleepGate {
    fn sleep(&self, duration: Duration) {
        // backon doesn't use the reason; the caller's `when` checks the gate.
        let _why = self.blocking_sleep(duration);
    }
}

/// A sequence of regular ticks at a [`SleepGate`], made by [`interval`](SleepGate::interval).
///
/// The first tick is due one period after the interval was made, so that "work, then wait" does the work once a period. (tokio's
/// first tick is due at once.)
///
/// If a tick returns late by less than half a period, the next tick is due at its regular time. If a tick returns later than that,
/// the next tick is due one period after its return. So ticks never come in bursts, two ticks are never closer than half a period,
/// and rounding errors of timers don't add up. A tick that is overdue when `tick` is called, because the work took longer than a period,
/// returns at once. The delay of a tick is measured when it returns.
///
/// The interval owns a handle on the gate, so it can be moved into a task.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use cancellable_sleep::{SleepGate, Wake};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let gate = SleepGate::new();
/// # let mut beats = 0;
/// let mut heartbeat = gate.interval(Duration::from_millis(5));
/// while heartbeat.tick().await != Wake::Shutdown {
///     // report that this program is alive
/// #     beats += 1; if beats == 3 { gate.shutdown() }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Interval {
    gate: SleepGate,
    period: Duration,
    due: Option<Instant>,
}

impl Interval {
    pub(crate) fn new(gate: SleepGate, period: Duration) -> Self {
        Self {
            due: Instant::now().checked_add(period),
            gate,
            period,
        }
    }

    /// Waits for the next tick, for [`wake_all`](SleepGate::wake_all), or for shutdown.
    ///
    /// [`wake_all`](SleepGate::wake_all) ends this wait but doesn't change the due time: the next call waits for the same tick. A period
    /// of zero yields to the scheduler once. A period that is too long for the clock never ticks.
    ///
    /// # Panics
    ///
    /// Panics if polling a [`Sleep`] panics.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no tick: the due time changes only when a tick returns.
    pub async fn tick(&mut self) -> Wake {
        let why = Sleep::new(self.gate.shared.clone(), Until::at(self.due)).await;
        if let (Wake::Elapsed, Some(due)) = (why, self.due) {
            self.due = next(due, Instant::now(), self.period);
        }
        why
    }
}

/// Returns the due time of the next tick, after a tick that was due at `due` and returned at `now`.
fn next(due: Instant, now: Instant, period: Duration) -> Option<Instant> {
    let late = now.saturating_duration_since(due) >= period / 2;
    (if late { now } else { due }).checked_add(period)
}
