//! A beat of sleeps, apart for the one decision in it: when the next tick is due after one that came late.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    SleepGate, Wake,
    sleep::{Sleep, Until},
};

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
