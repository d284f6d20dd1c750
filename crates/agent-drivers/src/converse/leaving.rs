//! How an agent alone is brought to its end: by one means after the other.

use agent_subprocess::Signal;
use std::time::Duration;
use tokio::time::Instant;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
