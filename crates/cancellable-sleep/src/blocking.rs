//! The sleep of a thread: a seat as for a task, with a condition variable instead of a timer.

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
pub(crate) fn sleep(seat: Sleeper, deadline: Option<Instant>) -> crate::Wake {
    let mut seat = pin!(seat);
    let bell = Arc::new(ThreadWaker::default());
    let waker = Waker::from(bell.clone());
    let mut over = seat.as_mut().register(&waker);
    loop {
        if let Some(why) = over {
            return why;
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let rung = bell.is_woken.lock().unwrap_or_else(PoisonError::into_inner);
        let rung = match left {
            Some(left) if left.is_zero() => {
                drop(rung);
                return seat.elapse();
            }
            Some(left) => {
                let waited = bell.condvar.wait_timeout_while(rung, left, |rung| !*rung);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let waited = bell.condvar.wait_while(rung, |rung| !*rung);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
        };
        drop(rung);
        over = seat.as_mut().keep_waiting(&waker);
    }
}
