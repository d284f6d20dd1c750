//! The gate: what callers hold, and where each kind of wait begins and is ended.

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
    seat::{Roster, Seat, Shared},
    sleep::Until,
    wall::WallClock,
};

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
#[derive(Clone)]
pub struct SleepGate {
    pub(crate) shared: Arc<Shared>,
}

impl SleepGate {
    /// Makes an open gate.
    pub fn new() -> Self {
        Self::build(CancellationToken::new(), WallClock::default())
    }

    /// Makes an open gate whose time of day is what `now` says, for [`sleep_until_wall`](Self::sleep_until_wall): in tests, or where
    /// the system's clock isn't the one to go by.
    ///
    /// Children inherit it. It is called whenever a sleeper looks at the clock, under no lock.
    pub fn with_wall_clock(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self::build(CancellationToken::new(), WallClock::new(now))
    }

    /// Makes a gate that is shut down when `token` is cancelled.
    ///
    /// [`shutdown`](Self::shutdown) cancels this very token, for everybody who holds it; pass a child token where that is not wanted.
    #[cfg(feature = "tokio-util")]
    pub fn from_token(token: CancellationToken) -> Self {
        Self::build(token, WallClock::default())
    }

    /// Returns the gate's own token: cancelling it shuts the gate down, and [`shutdown`](Self::shutdown) cancels it.
    ///
    /// The gate only ends waits. `gate.token().run_until_cancelled(work)` ends work too, at any await in it. Whoever may wait for
    /// shutdown but not cause it gets a `child_token()`.
    #[cfg(feature = "tokio-util")]
    pub fn token(&self) -> &CancellationToken {
        &self.shared.token
    }

    fn build(token: CancellationToken, wall: WallClock) -> Self {
        let roster = Arc::new(Roster::default());
        let mut ear = Box::pin(token.clone().cancelled_owned());
        let waker = Waker::from(roster.clone());
        // Ready where the token is cancelled already: then nobody will sleep here, and there is nothing to hear.
        let _: Poll<()> = ear.as_mut().poll(&mut Context::from_waker(&waker));
        Self {
            shared: Arc::new(Shared {
                token,
                roster,
                wall,
                _ear: ear,
            }),
        }
    }

    /// Sleeps for `duration`, until a kick, or until shutdown.
    ///
    /// Time counts from this call, on tokio's monotonic clock. Zero yields to the scheduler once. A duration too long for the clock,
    /// such as [`Duration::MAX`], never elapses.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the sleep and takes the sleeper off the gate; nothing is lost. See [`Sleep`], also for its panics.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.begin(Until::at(Instant::now().checked_add(duration)))
    }

    /// Sleeps until `deadline` on the monotonic clock, until a kick, or until shutdown.
    ///
    /// It is read as a [`tokio::time::Instant`], so that it obeys a paused clock: in a test, `tokio::time::Instant::into_std` says
    /// what time it is. A deadline that has passed yields to the scheduler once. Linux's monotonic clock stands still while the
    /// machine is suspended: [`sleep_until_wall`](Self::sleep_until_wall) doesn't.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the sleep and takes the sleeper off the gate; nothing is lost. See [`Sleep`], also for its panics.
    pub fn sleep_until(&self, deadline: time::Instant) -> Sleep {
        self.begin(Until::at(Some(Instant::from_std(deadline))))
    }

    /// Sleeps until the time of day is `deadline`, until a kick, or until shutdown.
    ///
    /// For "the limit is lifted at 15:00": right when the machine was suspended in between and when the clock was set, forwards (the
    /// sleep ends early) or backwards (it goes on until the clock says `deadline` again). The sleeper looks at the clock once a
    /// second, so after a jump or a suspend it ends at most one second late, with the machine awake; without one it is as exact as
    /// any sleep. It never ends before its time. A deadline that has passed yields to the scheduler once.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the sleep and takes the sleeper off the gate; nothing is lost. See [`Sleep`], also for its panics.
    pub fn sleep_until_wall(&self, deadline: SystemTime) -> Sleep {
        self.begin(Until::at_wall(deadline))
    }

    fn begin(&self, until: Until) -> Sleep {
        Sleep::new(self.shared.clone(), until)
    }

    /// Waits for shutdown for at most `timeout`, and says whether it came: `true` means shutdown.
    ///
    /// A kick ends the wait early with `false`, as the end of the time does: for loops to which both mean "look again", such as
    /// `while !gate.wait_or_shutdown(period).await { … }`. Who must tell them apart takes [`sleep`](Self::sleep).
    ///
    /// # Panics
    ///
    /// Panics where polling a [`Sleep`] does.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes the sleeper off the gate. The answer is not lost either: shutdown is sticky.
    pub async fn wait_or_shutdown(&self, timeout: Duration) -> bool {
        self.sleep(timeout).await == Wake::Shutdown
    }

    /// Makes a beat of `period` that ends with this gate. The first tick is due one period from now; see [`Interval`].
    pub fn interval(&self, period: Duration) -> Interval {
        Interval::new(self.clone(), period)
    }

    /// Puts the calling thread to sleep for `duration`, until a kick, or until shutdown; no runtime is needed.
    ///
    /// It is a sleep like any other: a kick counts it. Time is the system's monotonic clock, also where tokio's is paused. Zero looks
    /// at the gate and returns. It blocks its thread, so call it from threads that may block: from a task it stops the worker.
    pub fn blocking_sleep(&self, duration: Duration) -> Wake {
        let deadline = time::Instant::now().checked_add(duration);
        blocking::sleep(Seat::new(self.shared.clone()), deadline)
    }

    /// Ends every sleep that is present (a kick) and returns how many that were; later sleeps are not affected.
    ///
    /// A sleep is present from its first poll until it is ready or dropped. Each one that was counted answers [`Wake::Kicked`], also
    /// when its time was up in the same moment, or [`Wake::Shutdown`] if the gate is shut down before it is polled again. A gate that
    /// is shut down has no sleepers to kick: the answer is 0. Runs the wakers in the caller, under no lock; one that panics is
    /// contained, and the others are woken.
    pub fn wake_all(&self) -> usize {
        if self.is_shutdown() {
            return 0;
        }
        let asleep = self.shared.roster.ring();
        let count = asleep.len();
        batches::wake_all(asleep);
        count
    }

    /// Shuts the gate down, for ever: present sleeps end, later ones end at once.
    ///
    /// Calling it again does nothing. Runs the wakers of all sleepers in the caller, under no lock, here and at the gates below; one
    /// that panics is contained, and the others are woken. That is tens of milliseconds for a hundred thousand: a current-thread
    /// runtime that has so many stands still meanwhile, and [`shutdown_in_batches`](Self::shutdown_in_batches) is for it.
    ///
    /// # Panics
    ///
    /// Goes on with the panic of a waker that waits for the gate's token and is no sleeper's. The sleepers of this very gate are
    /// woken first.
    pub fn shutdown(&self) {
        batches::cancel(&self.shared.token, &self.shared.roster);
    }

    /// Shuts the gate down, and lets others run in between while it wakes the sleepers, `batch` of them in a turn.
    ///
    /// When the call returns, the gate and those below are shut down: every sleep that begins now ends at once, and so does one
    /// that is polled for any other reason, without having been woken. The future wakes those who slept. A thousand are a good
    /// batch. A gate that was shut down before has nobody to wake. Waiters of the gate's token that are no sleepers are woken
    /// within the call.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, polled or not, wakes everybody who is left, at once and in the caller: nobody sleeps on.
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
        batches::cancel_in_batches(&self.shared.token, &self.shared.roster, batch)
    }

    /// Says whether the gate was shut down.
    pub fn is_shutdown(&self) -> bool {
        self.shared.token.is_cancelled()
    }

    /// Makes a gate below this one: shutting this one down shuts the child down, never the other way round.
    ///
    /// Kicks stay within their own gate, in both directions: a kick means "this wait is long enough", which says nothing about the
    /// waits of another scope.
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
        // backon has no use for the reason; the caller's `when` asks the gate.
        let _why = self.blocking_sleep(duration);
    }
}

/// A beat at a [`SleepGate`], made by [`interval`](SleepGate::interval).
///
/// The first tick is due one period after the interval was made, so that "work, then wait" does the work once a period. (tokio's
/// first tick is due at once.)
///
/// A tick that is answered late by less than half a period keeps the beat: the next is due where it always was. One that is later
/// moves the beat: the next is due one period after the late answer. So ticks never come in bursts, two of them are never closer
/// than half a period, and the rounding of timers doesn't add up. A tick that is overdue when it is asked for, because the work took
/// longer than a period, is answered at once; how late it is counts at its answer.
///
/// It owns its share of the gate, so that it can be moved into a task.
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
///     // say that we are alive
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

    /// Waits for the next tick, for a kick, or for shutdown.
    ///
    /// A kick ends this wait and leaves the beat alone: the next call waits for the same tick. A period of zero yields to the
    /// scheduler once, one too long for the clock never ticks.
    ///
    /// # Panics
    ///
    /// Panics where polling a [`Sleep`] does.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no tick: only one that was answered moves the beat on.
    pub async fn tick(&mut self) -> Wake {
        let why = Sleep::new(self.gate.shared.clone(), Until::at(self.due)).await;
        if let (Wake::Elapsed, Some(due)) = (why, self.due) {
            self.due = next(due, Instant::now(), self.period);
        }
        why
    }
}

/// Decides when the tick after the one of `due`, answered at `now`, is due.
fn next(due: Instant, now: Instant, period: Duration) -> Option<Instant> {
    let late = now.saturating_duration_since(due) >= period / 2;
    (if late { now } else { due }).checked_add(period)
}
