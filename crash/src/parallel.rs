//! The same for many things, on all cores.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Returns what `act` says of each item, in their order. A sabotage acts in its threads too.
/// Ends early when one result is enough.
pub fn map<T: Sync, R: Send>(
    items: &[T],
    act: impl Fn(&T) -> R + Sync,
    is_enough: impl Fn(&R) -> bool + Sync,
) -> Vec<R> {
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(items.len());
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let sabotage = crate::sabotages::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                crate::sabotages::set(sabotage);
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
