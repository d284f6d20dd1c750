//! The progress of a run towards its nearest limit, and the bar that shows it.

use loop_state::{Head, IterationStep, Timestamp};

const CELLS: usize = 8;

/// The limit with the largest used share, or the end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NearestLimit {
    Iterations,
    Cost,
    Time,
    /// The end of a wait, after which the run continues.
    Wait,
}

/// Returns the limit with the largest used share, and this share, from 0 to 1; `None` if the run has no limit. During a wait, returns the wait.
pub(crate) fn nearest_limit(head: &Head, now: Timestamp) -> Option<(NearestLimit, f64)> {
    let share = |part: f64, of: f64| (of > 0.0).then(|| (part / of).clamp(0.0, 1.0));
    let left = |until: Timestamp| until.since(now).as_secs_f64();
    let wait = match head.step {
        IterationStep::Sleeping { until } => {
            share(left(until), head.rules.limits.sleep.as_secs_f64())
        }
        IterationStep::Waiting { since, until, .. } => {
            share(left(until), until.since(since).as_secs_f64())
        }
        _ => None,
    };
    if let Some(left) = wait {
        return Some((NearestLimit::Wait, 1.0 - left));
    }
    let (rules, used) = (&head.rules, head.usage);
    let phase = rules.phases.get(head.phase as usize);
    // A phase of at most one iteration has no progress to show.
    let most = phase.and_then(|phase| phase.limits.max_iterations);
    let most = most.filter(|most| *most > 1 && head.iteration > 0);
    let is_complete = matches!(
        head.step,
        IterationStep::Sleeping { .. }
            | IterationStep::Paused { .. }
            | IterationStep::Review { .. }
    );
    let iterations = head.iteration.saturating_sub(u32::from(!is_complete));
    let cost = rules.limits.max_cost_microusd;
    let tokens = rules.limits.max_tokens;
    let time = rules.limits.max_duration;
    [
        most.and_then(|most| {
            Some((
                NearestLimit::Iterations,
                share(iterations.into(), most.into())?,
            ))
        }),
        cost.and_then(|most| {
            Some((
                NearestLimit::Cost,
                share(used.cost_microusd as f64, most as f64)?,
            ))
        }),
        tokens.and_then(|most| {
            Some((
                NearestLimit::Cost,
                share(used.tokens() as f64, most as f64)?,
            ))
        }),
        time.and_then(|most| {
            let active = active(head, now).as_secs_f64();
            Some((NearestLimit::Time, share(active, most.as_secs_f64())?))
        }),
    ]
    .into_iter()
    .flatten()
    // If two shares are equal, the first limit counts.
    .reduce(|near, other| if other.1 > near.1 { other } else { near })
}

/// Returns how long a run has been active: the sum over all processes that have worked on it.
pub(crate) fn active(head: &Head, now: Timestamp) -> std::time::Duration {
    now.since(head.taken_at) + std::time::Duration::from_millis(head.active_ms)
}

/// Draws a share as a bar. The bar is full only at a share of 1.
pub(crate) fn bar(share: f64) -> String {
    "█".repeat(full(share)) + &"░".repeat(CELLS - full(share))
}

/// Whether the bar of this share has at least one full cell.
pub(crate) fn is_begun(share: f64) -> bool {
    full(share) > 0
}

fn full(share: f64) -> usize {
    ((share * CELLS as f64) as usize).min(CELLS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_run::at;
    use loop_state::WaitCause;
    use proptest::prelude::*;

    #[test]
    fn wait_or_limit_with_largest_used_share_is_nearest() {
        let mut run = at(IterationStep::Turn {
            since: Timestamp::from_millis(1),
        });
        let now = Timestamp::from_millis(3_600_001);
        assert_eq!(
            nearest_limit(&run.head, now),
            Some((NearestLimit::Iterations, 0.02))
        );
        run.head.rules.limits.max_cost_microusd = Some(5_000_000);
        run.head.usage.cost_microusd = 4_000_000;
        assert_eq!(
            nearest_limit(&run.head, now),
            Some((NearestLimit::Cost, 0.8))
        );
        run.head.taken_at = Timestamp::from_millis(1);
        run.head.active_ms = 3_600_000;
        run.head.rules.limits.max_duration = Some(std::time::Duration::from_secs(7200));
        assert_eq!(
            nearest_limit(&run.head, now),
            Some((NearestLimit::Time, 1.0))
        );
        run.head.step = IterationStep::Waiting {
            since: Timestamp::from_millis(3_000_001),
            until: Timestamp::from_millis(4_000_001),
            why: WaitCause::RateLimit,
        };
        assert_eq!(
            nearest_limit(&run.head, now),
            Some((NearestLimit::Wait, 0.6))
        );
    }

    proptest! {
        /// A bar grows with its share, has a constant width, and is full only at the end.
        #[test]
        fn bars_grow_with_their_value(a in 0.0f64..=1.0, b in 0.0f64..=1.0) {
            let full = |share| bar(share).matches('█').count();
            prop_assert!(a > b || full(a) <= full(b));
            prop_assert_eq!(bar(a).chars().count(), CELLS);
            prop_assert_eq!(full(a) == CELLS, a == 1.0);
        }
    }
}
