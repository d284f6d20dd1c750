//! The time limits of an agent: for pending work (`Waits`), for its end by itself (`Leaving`), and for the stop of its process tree (`Stopping`).
//! Each uses one method after the other, and none blocks by itself.

use crate::times;
use agent_subprocess::Signal;
use std::time::Duration;
use tokio::time::Instant;

/// The number of bytes that can be read after a time limit, because the agent wrote them before: more than the read-ahead.
const SLACK: usize = 16 << 20;
/// The longest budget; a longer one would overflow the clock.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// A timeout with several steps, each with its own time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    times: &'static [Duration],
    /// The number of steps used so far.
    used: usize,
    /// The end of the current time; `None` after the last step.
    until: Option<Instant>,
    slack: usize,
}

impl Patience {
    fn new(times: &'static [Duration]) -> Self {
        let mut patience = Patience {
            times,
            used: 0,
            until: None,
            slack: 0,
        };
        patience.renew();
        patience
    }

    pub(crate) fn until(self) -> Option<Instant> {
        self.until
    }

    /// Whether too much was read after the time limit.
    pub(crate) fn is_exhausted(self) -> bool {
        self.slack == 0
    }

    fn read(&mut self, size: usize) {
        if self.until.is_some_and(|until| until <= Instant::now()) {
            self.slack = self.slack.saturating_sub(size + 1);
        }
    }

    fn renew(&mut self) {
        self.until = self.times.get(self.used).map(|time| Instant::now() + *time);
        self.slack = SLACK;
    }

    /// Moves to the next step and returns the number of the one to do now.
    fn lose(&mut self) -> usize {
        self.used += 1;
        self.renew();
        self.used - 1
    }
}

/// The waits for an agent.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// The wait for the end of an interrupted turn.
    interrupted: Option<Patience>,
    /// The wait for the exit of a process that closed its outputs.
    silent: Option<Patience>,
}

/// The step that is due now, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Impatience {
    Interrupted(usize),
    Silent(usize),
}

impl Waits {
    /// Starts the wait for the end of an interrupted turn with the `times` of its steps, or ends that wait.
    pub(crate) fn watch(&mut self, is_interrupting: bool, times: &'static [Duration]) {
        if !is_interrupting {
            self.interrupted = None;
        } else if self.interrupted.is_none() {
            self.interrupted = Some(Patience::new(times));
        }
    }

    /// Starts the wait for the exit of the process, if it has not started.
    pub(crate) fn expect_end(&mut self) {
        self.silent
            .get_or_insert_with(|| Patience::new(&times::SILENCE));
    }

    /// Whether output is no longer read.
    pub(crate) fn expects_end(&self) -> bool {
        self.silent.is_some()
    }

    /// Returns the wait that ends first.
    pub(crate) fn due(&self) -> Option<Patience> {
        let waits = [self.interrupted, self.silent].into_iter().flatten();
        waits
            .filter(|patience| patience.until.is_some())
            .min_by_key(|patience| patience.until)
    }

    pub(crate) fn read(&mut self, size: usize) {
        self.all().for_each(|patience| patience.read(size));
    }

    /// Restarts the time limits of all waits.
    pub(crate) fn renew(&mut self) {
        self.all().for_each(Patience::renew);
    }

    /// Moves the wait that ends first to its next step.
    pub(crate) fn lose(&mut self) -> Option<Impatience> {
        let until = self.due()?.until;
        if let Some(silent) = self.silent.as_mut().filter(|wait| wait.until == until) {
            return Some(Impatience::Silent(silent.lose()));
        }
        let interrupted = self.interrupted.as_mut()?;
        Some(Impatience::Interrupted(interrupted.lose()))
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Patience> {
        { [&mut self.interrupted, &mut self.silent].into_iter() }.flatten()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    /// The protocol's own request.
    Own,
    CloseInput,
    Signal(Signal),
}

/// The progress of the end of an agent: the method that was used last, and its deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaving {
    /// The methods, gentlest first, each with its time.
    all: &'static [(Means, Duration)],
    step: usize,
    pub(crate) until: Instant,
}

impl Leaving {
    /// Moves to the next method, or to the first one; returns `None` after the last one.
    pub(crate) fn after(before: Option<Self>, all: &'static [(Means, Duration)]) -> Option<Self> {
        let step = before.map_or(0, |before| before.step + 1);
        let (_, time) = all.get(step)?;
        let until = Instant::now() + *time;
        Some(Leaving { all, step, until })
    }

    pub(crate) fn means(&self) -> Means {
        self.all[self.step].0
    }

    /// Whether the time of the current method is not over.
    pub(crate) fn is_waiting(&self) -> bool {
        Instant::now() < self.until
    }

    /// Restarts the time of the current method.
    pub(crate) fn renew(&mut self) {
        self.until = Instant::now() + self.all[self.step].1;
    }
}

/// A stop that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopping {
    /// Whether the agent was alive when the stop began.
    pub(crate) was_alive: bool,
    /// The deadline for a turn to end by the agent's own protocol.
    pub(crate) polite_until: Instant,
    by: Instant,
}

impl Stopping {
    /// Begins a stop, or continues it with the earlier deadline.
    pub(crate) fn go_on(under_way: &mut Option<Self>, budget: Duration, is_alive: bool) -> Self {
        let (now, budget) = (Instant::now(), budget.min(LONGEST));
        let this = Stopping {
            was_alive: is_alive,
            polite_until: now + times::INTERRUPT.min(budget / 3),
            by: now + budget,
        };
        let stopping = under_way.get_or_insert(this);
        stopping.polite_until = stopping.polite_until.min(this.polite_until);
        stopping.by = stopping.by.min(this.by);
        *stopping
    }

    pub(crate) fn left(self) -> Duration {
        self.by.saturating_duration_since(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: &[Duration] = &[Duration::from_secs(1), Duration::from_secs(9)];

    #[tokio::test(start_paused = true)]
    async fn p23a_the_wait_that_is_due_is_lost_and_each_means_is_used_once() {
        let mut waits = Waits::default();
        assert_eq!(waits.lose(), None);
        waits.watch(true, TIMES);
        waits.expect_end();
        let order = std::iter::from_fn(|| waits.lose());
        use Impatience::{Interrupted, Silent};
        let expected = [Interrupted(0), Silent(0), Silent(1), Interrupted(1)];
        assert_eq!(order.collect::<Vec<_>>(), expected);
        assert!(waits.due().is_none());
        waits.renew();
        assert!(waits.due().is_none(), "no step is left");
        waits.watch(false, TIMES);
        waits.watch(true, TIMES);
        assert_eq!(waits.lose(), Some(Interrupted(0)));
    }

    #[tokio::test(start_paused = true)]
    async fn p23a_what_was_written_in_time_may_be_read_but_not_without_end() {
        let mut waits = Waits::default();
        waits.watch(true, TIMES);
        waits.read(2 * SLACK);
        assert!(!waits.due().unwrap().is_exhausted(), "the time is not over");
        tokio::time::advance(TIMES[0]).await;
        waits.read(SLACK / 2);
        assert!(!waits.due().unwrap().is_exhausted());
        waits.read(SLACK / 2);
        assert!(waits.due().unwrap().is_exhausted());
        waits.renew();
        assert!(!waits.due().unwrap().is_exhausted());
    }

    #[tokio::test(start_paused = true)]
    async fn l90a_each_means_gets_its_time_and_the_next_one_follows() {
        const SECOND: Duration = Duration::from_secs(1);
        static ALL: [(Means, Duration); 2] = [(Means::Own, SECOND), (Means::CloseInput, SECOND)];
        let mut leaving = Leaving::after(None, &ALL).unwrap();
        tokio::time::advance(SECOND / 2).await;
        leaving.renew();
        tokio::time::advance(SECOND / 2).await;
        assert!(leaving.means() == Means::Own && leaving.is_waiting());
        tokio::time::advance(SECOND / 2).await;
        assert!(!leaving.is_waiting());
        let last = Leaving::after(Some(leaving), &ALL);
        assert_eq!(last.map(|last| last.means()), Some(Means::CloseInput));
        assert!(Leaving::after(last, &ALL).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn l90g_a_stop_is_shortened_by_a_caller_with_less_time_and_never_prolonged() {
        let (second, mut under_way) = (Duration::from_secs(1), None);
        let mut go_on = |seconds, alive| Stopping::go_on(&mut under_way, second * seconds, alive);
        assert_eq!(go_on(9, true).left(), 9 * second);
        tokio::time::advance(second).await;
        let later = go_on(60, false);
        assert_eq!((later.left(), later.was_alive), (8 * second, true));
        let sooner = go_on(3, false);
        assert_eq!(sooner.left(), 3 * second);
        assert_eq!(sooner.polite_until, Instant::now() + second);
        tokio::time::advance(9 * second).await;
        assert_eq!(sooner.left(), Duration::ZERO);
    }
}
