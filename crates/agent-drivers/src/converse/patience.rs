//! How long an agent is given: for what it owes (`Waits`), to end by itself (`Leaving`), and to be stopped with its tree (`Stopping`). Each uses one
//! means after the other, and none waits by itself.

use crate::times;
use agent_subprocess::Signal;
use std::time::Duration;
use tokio::time::Instant;

/// How much may be read past the time, because it was written before: more than is read ahead.
const SLACK: usize = 16 << 20;
/// Who gives more wants no bound, which ends in an overflow.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// A wait that runs out once for each time that it was given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    times: &'static [Duration],
    /// How many means were used.
    used: usize,
    /// `None` when the last means was used.
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

    /// Tells whether too much was read since the time was up.
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

    /// Goes on to the next means and returns the number of the one that is used now.
    fn lose(&mut self) -> usize {
        self.used += 1;
        self.renew();
        self.used - 1
    }
}

/// What an agent is waited for.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// For the end of a turn that was interrupted.
    interrupted: Option<Patience>,
    /// For the end of a process that said all.
    silent: Option<Patience>,
}

/// Which means is to be used now, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Impatience {
    Interrupted(usize),
    Silent(usize),
}

impl Waits {
    /// Begins to wait for the end of an interrupted turn, each means for its time, or stops to.
    pub(crate) fn watch(&mut self, is_interrupting: bool, times: &'static [Duration]) {
        if !is_interrupting {
            self.interrupted = None;
        } else if self.interrupted.is_none() {
            self.interrupted = Some(Patience::new(times));
        }
    }

    /// Begins to wait for the end of the process, if that has not begun.
    pub(crate) fn expect_end(&mut self) {
        self.silent
            .get_or_insert_with(|| Patience::new(&times::SILENCE));
    }

    /// Tells whether nothing is read any more.
    pub(crate) fn expects_end(&self) -> bool {
        self.silent.is_some()
    }

    /// Returns the wait that runs out first.
    pub(crate) fn due(&self) -> Option<Patience> {
        let waits = [self.interrupted, self.silent].into_iter().flatten();
        waits
            .filter(|patience| patience.until.is_some())
            .min_by_key(|patience| patience.until)
    }

    /// Counts a line that was read.
    pub(crate) fn read(&mut self, size: usize) {
        self.all().for_each(|patience| patience.read(size));
    }

    /// Begins the time of what is waited for again.
    pub(crate) fn renew(&mut self) {
        self.all().for_each(Patience::renew);
    }

    /// Goes on to the next means of the wait that runs out first.
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
    /// What the protocol has for it.
    Own,
    CloseInput,
    Signal(Signal),
}

/// How far the end of an agent has come: the means that was used last, and until when it has time to work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaving {
    /// The gentlest first, and how long each is given.
    all: &'static [(Means, Duration)],
    step: usize,
    pub(crate) until: Instant,
}

impl Leaving {
    /// Goes on to the means behind the one before it, or to the first; `None` when there is none left.
    pub(crate) fn after(before: Option<Self>, all: &'static [(Means, Duration)]) -> Option<Self> {
        let step = before.map_or(0, |before| before.step + 1);
        let (_, time) = all.get(step)?;
        let until = Instant::now() + *time;
        Some(Leaving { all, step, until })
    }

    pub(crate) fn means(&self) -> Means {
        self.all[self.step].0
    }

    /// Returns whether its time is not over yet.
    pub(crate) fn is_waiting(&self) -> bool {
        Instant::now() < self.until
    }

    /// Begins the time of the means again.
    pub(crate) fn renew(&mut self) {
        self.until = Instant::now() + self.all[self.step].1;
    }
}

/// A stop that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopping {
    /// Whether the agent was alive when it began.
    pub(crate) was_alive: bool,
    /// Until when a turn may take to end by the agent's own means.
    pub(crate) polite_until: Instant,
    by: Instant,
}

impl Stopping {
    /// Begins a stop, or goes on with it; the earlier end counts.
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
        assert!(waits.due().is_none(), "nothing is left to be used");
        waits.watch(false, TIMES);
        waits.watch(true, TIMES);
        assert_eq!(waits.lose(), Some(Interrupted(0)));
    }

    #[tokio::test(start_paused = true)]
    async fn p23a_what_was_written_in_time_may_be_read_but_not_without_end() {
        let mut waits = Waits::default();
        waits.watch(true, TIMES);
        waits.read(2 * SLACK);
        assert!(!waits.due().unwrap().is_exhausted(), "it has time");
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
