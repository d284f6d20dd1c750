//! The stop of an agent and its tree, which may be told to be over sooner.

use crate::times;
use std::time::Duration;
use tokio::time::Instant;

/// Who gives more wants no bound, which ends in an overflow.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

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
