//! Tests of wakers as foreign code: they panic, use the gate, and are replaced while they are called.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake as Wakes, Waker},
};

use cancellable_sleep::{SleepGate, Wake};

use crate::{Count, TEN, poll_once};

/// A waker that runs a function.
struct Waking<F: Fn() + Send + Sync>(F);

impl<F: Fn() + Send + Sync + 'static> Waking<F> {
    fn waker(what: F) -> Waker {
        Waker::from(Arc::new(Self(what)))
    }
}

impl<F: Fn() + Send + Sync> Wakes for Waking<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

#[tokio::test(start_paused = true)]
async fn panicking_waker_does_not_block_others_or_poison() {
    let process = SleepGate::new();
    let gate = process.child();
    let bad = Waking::waker(|| panic!("a waker that panics"));
    for shut in [false, false, true] {
        let woken = Arc::new(Count::default());
        let mut sleeps = Vec::from_iter((0..4).map(|_| Box::pin(gate.sleep(TEN))));
        sleeps.push(Box::pin(process.sleep(TEN)));
        for (n, sleep) in sleeps.iter_mut().enumerate() {
            let pending = if n == 1 {
                sleep.as_mut().poll(&mut Context::from_waker(&bad))
            } else {
                woken.poll(sleep.as_mut())
            };
            assert!(pending.is_pending());
        }
        let why = if shut {
            process.shutdown();
            Wake::Shutdown
        } else {
            assert_eq!((gate.wake_all(), process.wake_all()), (4, 1));
            Wake::Woken
        };
        assert_eq!(woken.get(), 4);
        for sleep in &mut sleeps {
            assert_eq!(poll_once(sleep.as_mut()), Poll::Ready(why));
        }
    }
    assert!(process.is_shutdown() && gate.is_shutdown());
}

/// A foreign task waits for the token before the gate does. Its panic keeps the token from waking the gate.
#[tokio::test(start_paused = true)]
async fn panicking_waiter_of_the_token_does_not_block_sleepers_of_the_gate() {
    use std::num::NonZeroUsize;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    for in_batches in [false, true] {
        let token = tokio_util::sync::CancellationToken::new();
        let bad = Waking::waker(|| panic!("a waker that panics"));
        let mut foreign = pin!(token.cancelled());
        assert!(
            foreign
                .as_mut()
                .poll(&mut Context::from_waker(&bad))
                .is_pending()
        );
        let gate = SleepGate::from_token(token.clone());
        let (mut sleep, woken) = (pin!(gate.sleep(TEN)), Arc::new(Count::default()));
        assert!(woken.poll(sleep.as_mut()).is_pending());
        let panicked = catch_unwind(AssertUnwindSafe(|| match in_batches {
            true => drop(gate.shutdown_in_batches(NonZeroUsize::MIN)),
            false => gate.shutdown(),
        }));
        assert!(panicked.is_err(), "the panic reaches the caller");
        assert_eq!(woken.get(), 1);
        assert_eq!(poll_once(sleep.as_mut()), Poll::Ready(Wake::Shutdown));
    }
}

/// This test would hang if a waker was called or dropped under a lock.
#[tokio::test(start_paused = true)]
async fn waker_can_use_the_gate() {
    struct OnDrop(SleepGate);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            use_it(&self.0);
        }
    }
    fn use_it(gate: &SleepGate) {
        let _: Poll<Wake> = poll_once(pin!(gate.sleep(TEN)));
        gate.wake_all();
        gate.child().shutdown();
    }
    let process = SleepGate::new();
    let gate = process.child();
    for shut in [false, true] {
        let mut first = Box::pin(gate.sleep(TEN));
        let mut second = Box::pin(gate.sleep(TEN));
        for sleep in [&mut first, &mut second] {
            for _ in 0..2 {
                // The second waker replaces the first, which is dropped.
                let (at, on_drop, up) = (gate.clone(), OnDrop(gate.clone()), process.clone());
                let waker = Waking::waker(move || {
                    use_it(&at);
                    use_it(&on_drop.0);
                    use_it(&up);
                    up.shutdown();
                });
                let _: Poll<Wake> = sleep.as_mut().poll(&mut Context::from_waker(&waker));
            }
        }
        drop(first); // drops its waker too
        if shut {
            process.shutdown();
        } else {
            gate.wake_all();
        }
    }
    assert!(gate.is_shutdown());
}

#[tokio::test(start_paused = true)]
async fn last_waker_is_woken() {
    let gate = SleepGate::new();
    let (before, after) = (Arc::new(Count::default()), Arc::new(Count::default()));
    let mut sleep = pin!(gate.sleep(TEN));
    assert!(before.poll(sleep.as_mut()).is_pending());
    assert!(after.poll(sleep.as_mut()).is_pending());
    assert_eq!(Arc::strong_count(&before), 1, "the old waker is dropped");
    assert_eq!(gate.wake_all(), 1);
    assert_eq!((before.get(), after.get()), (0, 1));
}

/// A foreign waker was registered before the waker of the gate. It calls `wake_all` after the token is cancelled and before the gate is woken.
#[tokio::test(start_paused = true)]
async fn wake_all_counts_nothing_once_the_gate_is_shut_down() {
    use std::sync::{Mutex, OnceLock};
    let token = tokio_util::sync::CancellationToken::new();
    let gate = Arc::new(OnceLock::<SleepGate>::new());
    let counted = Arc::new(Mutex::new(Vec::new()));
    let waker = Waking::waker({
        let (gate, counted) = (gate.clone(), counted.clone());
        move || counted.lock().unwrap().push(gate.get().unwrap().wake_all())
    });
    let mut foreign = pin!(token.cancelled());
    let waits = foreign.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(waits.is_pending());
    let gate = gate.get_or_init(|| SleepGate::from_token(token.clone()));
    let mut sleep = pin!(gate.sleep(TEN));
    assert!(poll_once(sleep.as_mut()).is_pending());
    token.cancel();
    assert_eq!(*counted.lock().unwrap(), [0]);
    assert_eq!(poll_once(sleep), Poll::Ready(Wake::Shutdown));
}

/// A foreign waker was registered before the waker of the gate. It polls the sleeps after the token is cancelled and before the gate is woken.
#[tokio::test(start_paused = true)]
async fn shutdown_during_expiry_beats_the_time() {
    use std::sync::Mutex;
    let token = tokio_util::sync::CancellationToken::new();
    let (said, sleeps) = (
        Arc::new(Mutex::new(Vec::new())),
        Arc::new(Mutex::new(Vec::new())),
    );
    let count = Arc::new(Count::default());
    let mut first = pin!(token.cancelled());
    let waker = Waking::waker({
        let (said, sleeps, count) = (said.clone(), sleeps.clone(), count.clone());
        move || {
            let mut sleeps: Vec<std::pin::Pin<Box<cancellable_sleep::Sleep>>> =
                std::mem::take(&mut *sleeps.lock().unwrap());
            let looks = sleeps.iter_mut().map(|sleep| count.poll(sleep.as_mut()));
            said.lock().unwrap().extend(looks);
        }
    });
    let waits = first.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(waits.is_pending());

    let gate = SleepGate::from_token(token.clone());
    let (mut due, new) = (Box::pin(gate.sleep(TEN)), Box::pin(gate.sleep(TEN)));
    assert!(count.poll(due.as_mut()).is_pending());
    tokio::time::advance(TEN).await;
    sleeps.lock().unwrap().extend([due, new]);
    token.cancel();
    assert_eq!(*said.lock().unwrap(), [Poll::Ready(Wake::Shutdown); 2]);
    assert_eq!(gate.wake_all(), 0);
}
