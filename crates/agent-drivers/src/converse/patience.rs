//! How long an agent is given to do what it owes, one means after the other.

use std::time::Duration;
use tokio::time::Instant;

use crate::times;

/// How much may be read past the time, because it was written before: more than is read ahead.
const SLACK: usize = 16 << 20;

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
}
