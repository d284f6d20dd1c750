//! The sleep of a thread: a sleeper like that of a task, with a condition variable instead of a timer.

use std::{
    pin::pin,
    sync::{Arc, Condvar, Mutex, PoisonError},
    task::{Wake, Waker},
    time::Instant,
};

use crate::sleeper::Sleeper;

/// A waker of one thread. It doesn't use `unpark`, because other code may use the thread's one permit.
#[derive(Default)]
struct ThreadWaker {
    is_woken: Mutex<bool>,
    condvar: Condvar,
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        *self.is_woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.condvar.notify_one();
    }
}

/// Sleeps on this thread. A deadline of `None` never elapses.
pub(crate) fn sleep(sleeper: Sleeper, deadline: Option<Instant>) -> crate::Wake {
    let mut sleeper = pin!(sleeper);
    let thread_waker = Arc::new(ThreadWaker::default());
    let waker = Waker::from(thread_waker.clone());
    let mut over = sleeper.as_mut().register(&waker);
    loop {
        if let Some(why) = over {
            return why;
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let is_woken = thread_waker
            .is_woken
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_woken = match left {
            Some(left) if left.is_zero() => {
                drop(is_woken);
                return sleeper.elapse();
            }
            Some(left) => {
                let waited = thread_waker
                    .condvar
                    .wait_timeout_while(is_woken, left, |is_woken| !*is_woken);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let waited = thread_waker
                    .condvar
                    .wait_while(is_woken, |is_woken| !*is_woken);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
        };
        drop(is_woken);
        over = sleeper.as_mut().keep_waiting(&waker);
    }
}
