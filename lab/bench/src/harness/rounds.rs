//! Contenders take turns, so that a disturbance of the machine affects all of them.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::{Contender, Progress, Result, Role, Sample};

/// A contender that waits for its turn.
pub(crate) struct Turn<'a> {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    /// Time after which this contender gets no more turns, so that a slow peer does not delay the others.
    pub(crate) budget: Duration,
    take: Box<dyn FnMut(usize) -> Result<Taken> + 'a>,
}

/// A sample, and a figure that was measured beside it; `None` if there is none.
type Taken = (Option<f64>, Option<f64>);

impl<'a> Turn<'a> {
    /// Makes a contender; `take` gets the round, and returns a sample, or `None` after its limit.
    pub(crate) fn new(
        name: &'static str,
        role: Role,
        mut take: impl FnMut(usize) -> Result<Option<f64>> + 'a,
    ) -> Self {
        Self::beside(name, role, move |round| Ok((take(round)?, None)))
    }

    /// Makes a contender as [`Turn::new`] does; `take` also returns a figure beside each sample.
    pub(crate) fn beside(
        name: &'static str,
        role: Role,
        take: impl FnMut(usize) -> Result<Taken> + 'a,
    ) -> Self {
        Self {
            name,
            role,
            budget: Duration::from_secs(120),
            take: Box::new(take),
        }
    }

    pub(crate) fn within(mut self, budget: Duration) -> Self {
        self.budget = budget;
        self
    }
}

/// Lets each contender take one sample a round.
///
/// Two rounds use the same order, the second one backwards, and the next two rounds begin with the next contender. So no contender always follows
/// the same one.
///
/// # Errors
///
/// Fails when one of our contenders or a floor fails. A peer that fails gets no more turns, and its `Contender::failed` has the reason.
pub(crate) fn in_turn(
    rounds: Range<usize>,
    turns: Vec<Turn<'_>>,
    progress: &Progress,
) -> Result<Vec<Contender>> {
    Ok(in_turn_beside(rounds, turns, progress)?.0)
}

/// Lets each contender take one sample a round, as [`in_turn`] does, and also returns the figures beside the samples.
///
/// # Errors
///
/// Fails as [`in_turn`] does.
pub(crate) fn in_turn_beside(
    rounds: Range<usize>,
    mut turns: Vec<Turn<'_>>,
    progress: &Progress,
) -> Result<(Vec<Contender>, Vec<Contender>)> {
    let empty = |turn: &Turn<'_>| Contender::new(turn.name, turn.role);
    let mut found: Vec<Contender> = turns.iter().map(empty).collect();
    let mut beside = found.clone();
    let mut spent = vec![Duration::ZERO; turns.len()];
    let first = rounds.start;
    let count = rounds.len();
    for round in rounds {
        for at in order(round, turns.len()) {
            let (turn, contender) = (&mut turns[at], &mut found[at]);
            if contender.failed.is_some() || spent[at] > turn.budget {
                continue;
            }
            progress.show(|| format!("{}/{count} {}", round - first + 1, turn.name));
            let begun = Instant::now();
            match (turn.take)(round) {
                Ok((taken, figure)) => {
                    let sample = |value| Sample { round, value };
                    contender.samples.extend(taken.map(sample));
                    contender.lost += usize::from(taken.is_none());
                    beside[at].samples.extend(figure.map(sample));
                }
                Err(error) if turn.role == Role::Peer => {
                    contender.failed = Some(error.to_string());
                }
                Err(error) => return Err(format!("{}: {error}", turn.name).into()),
            }
            spent[at] += begun.elapsed();
        }
    }
    Ok((found, beside))
}

fn order(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |step| {
        let step = if round % 2 == 1 {
            count - 1 - step
        } else {
            step
        };
        (round / 2 + step) % count
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn each_contender_runs_once_per_round_and_in_both_orders() {
        for count in 1..5 {
            let mut followed = std::collections::BTreeSet::new();
            for round in 0..2 * count {
                let order: Vec<usize> = order(round, count).collect();
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..count).collect::<Vec<_>>());
                followed.extend(order.windows(2).map(|pair| (pair[0], pair[1])));
            }
            assert!(
                (0..count).all(|who| count == 1 || followed.iter().any(|(_, after)| *after == who))
            );
            assert!(followed.iter().all(|(a, b)| followed.contains(&(*b, *a))));
        }
    }

    #[test]
    fn failing_or_slow_peer_does_not_block_the_others() {
        let asked = RefCell::new(Vec::new());
        let ask = |who: &'static str| asked.borrow_mut().push(who);
        let turns = vec![
            Turn::new("ours", Role::Ours, |_| Ok(Some(1.0))),
            Turn::new("broken", Role::Peer, |_| {
                ask("broken");
                Err("no".into())
            }),
            Turn::new("slow", Role::Peer, |_| {
                ask("slow");
                super::super::pause(Duration::from_millis(2));
                Ok(None)
            })
            .within(Duration::ZERO),
        ];
        let found = in_turn(5..9, turns, &Progress::silent()).unwrap();
        assert_eq!(found[0].samples.len(), 4);
        assert_eq!(found[0].samples[0].round, 5);
        assert_eq!(found[1].failed.as_deref(), Some("no"));
        assert_eq!(found[2].lost, 1);
        assert_eq!(asked.borrow().len(), 2);
    }

    #[test]
    fn figure_beside_lost_sample_is_kept() {
        let turn = Turn::beside("ours", Role::Ours, |round| {
            let taken = (round > 0).then_some(1.0);
            Ok((taken, Some(round as f64)))
        });
        let (found, beside) = in_turn_beside(0..2, vec![turn], &Progress::silent()).unwrap();
        assert_eq!((found[0].samples.len(), found[0].lost), (1, 1));
        let figures: Vec<f64> = beside[0].samples.iter().map(|it| it.value).collect();
        assert_eq!(figures, [0.0, 1.0]);
    }

    #[test]
    fn failed_baseline_fails_the_bench() {
        let turns = vec![Turn::new("floor", Role::Floor, |_| Err("no".into()))];
        let error = in_turn(0..1, turns, &Progress::silent()).unwrap_err();
        assert_eq!(error.to_string(), "floor: no");
    }
}
