//! Runs the same work for many items on all cores. The results are in the order of the items. If a test switched a sabotage on, it applies in each
//! thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::mistake;
use crate::outcome::{Finding, Outcome};
use crate::step::Workload;

/// Searches each workload for a broken promise. Of several findings, one is shrunk and explained; the others mostly have the same cause.
pub(crate) fn search<C: Send>(
    workloads: &[Workload],
    one: impl Fn(&Workload) -> (Outcome, Option<Finding<C>>) + Sync,
    shrink: impl Fn(Finding<C>) -> Finding<C>,
    explain: impl Fn(Finding<C>) -> String,
) -> Outcome {
    let mut outcome = Outcome::default();
    for (one, found) in map(workloads, one, |(_, found)| found.is_some()) {
        outcome += one;
        if let Some(mut found) = found {
            outcome.lost += 1;
            if outcome.notes.is_empty() {
                if mistake::now().is_none() {
                    found = shrink(found);
                }
                outcome.notes.push(explain(found));
            }
        }
    }
    outcome
}

/// Returns the result of `act` for each item, in the order of the items. Ends early when `is_enough` accepts a result; later items then have no
/// result.
pub fn map<T: Sync, R: Send>(
    items: &[T],
    act: impl Fn(&T) -> R + Sync,
    is_enough: impl Fn(&R) -> bool + Sync,
) -> Vec<R> {
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(items.len());
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let sabotage = mistake::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                mistake::set(sabotage);
                while let index = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(item) = items.get(index)
                {
                    let result = act(item);
                    if is_enough(&result) {
                        next.store(items.len(), Ordering::Relaxed);
                    }
                    done.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push((index, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|&(index, _)| index);
    done.into_iter().map(|(_, result)| result).collect()
}
