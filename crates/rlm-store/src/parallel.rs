//! Work on many runs at the same time.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The largest number of threads. Most of them wait for a disk or for the process of a run.
const MOST_THREADS: usize = 16;

/// Passes each item to `work`, on up to 16 threads, and returns the results in the same order. Blocks.
pub fn in_parallel<T: Sync, R: Send + Sync>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<OnceLock<R>> = items.iter().map(|_| OnceLock::new()).collect();
    let rest = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else {
                break;
            };
            let _set_once = results[index].set(work(item));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..items.len().min(MOST_THREADS) {
            // If the system has no room for a thread, the others do the work.
            let _started = std::thread::Builder::new().spawn_scoped(scope, rest);
        }
        rest();
    });
    results
        .into_iter()
        .filter_map(OnceLock::into_inner)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn items_are_worked_on_at_the_same_time_and_listed_in_order() {
        // Fewer threads could not pass this barrier.
        let all_work = Barrier::new(MOST_THREADS);
        let items: Vec<usize> = (0..4 * MOST_THREADS).collect();
        let results = in_parallel(&items, |item| {
            all_work.wait();
            item * 2
        });
        let expected: Vec<_> = items.iter().map(|item| item * 2).collect();
        assert_eq!(results, expected);
    }
}
