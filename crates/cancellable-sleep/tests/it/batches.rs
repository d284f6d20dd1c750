//! Tests of `shutdown_in_batches`: it shuts the gate down at once, wakes all sleeps, and lets other tasks run in between.

use std::{
    future::poll_fn,
    num::NonZeroUsize,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use cancellable_sleep::{Sleep, SleepGate, Wake};

use crate::{Count, TEN, poll_once, settle};

const THREE: NonZeroUsize = NonZeroUsize::new(3).unwrap();

/// Returns ten sleeps at a gate and its child gates, and the counting waker that they share.
fn ten(gate: &SleepGate) -> (Vec<Pin<Box<Sleep>>>, Arc<Count>) {
    let (woken, child) = (Arc::new(Count::default()), gate.child());
    let gates = [gate.clone(), child.child(), child];
    let mut sleeps = Vec::from_iter((0..10).map(|n| Box::pin(gates[n % 3].sleep(TEN))));
    for sleep in &mut sleeps {
        assert!(woken.poll(sleep.as_mut()).is_pending());
    }
    (sleeps, woken)
}

#[tokio::test(start_paused = true)]
async fn c55a_batched_shutdown_is_sticky_at_once_and_wakes_all_sleepers() {
    let gate = SleepGate::new();
    let (mut sleeps, woken) = ten(&gate);
    let mut shutdown = pin!(gate.shutdown_in_batches(THREE));
    assert!(gate.is_shutdown() && gate.child().is_shutdown());
    assert_eq!((woken.get(), gate.wake_all()), (0, 0));
    assert_eq!(gate.sleep(TEN).await, Wake::Shutdown);
    // A sleep that is polled before it is woken returns shutdown too.
    assert_eq!(poll_once(sleeps[9].as_mut()), Poll::Ready(Wake::Shutdown));
    for count in [3, 6, 9] {
        assert!(poll_once(shutdown.as_mut()).is_pending());
        assert_eq!(woken.get(), count);
    }
    assert!(poll_once(shutdown).is_ready());
    assert_eq!(woken.get(), 10);
    for sleep in &mut sleeps[..9] {
        assert_eq!(poll_once(sleep.as_mut()), Poll::Ready(Wake::Shutdown));
    }
    gate.shutdown_in_batches(THREE).await;
}

#[tokio::test(start_paused = true)]
async fn dropped_batched_shutdown_wakes_all_sleepers() {
    for polls in [0, 2] {
        let gate = SleepGate::new();
        let (_sleeps, woken) = ten(&gate);
        let mut shutdown = Box::pin(gate.shutdown_in_batches(THREE));
        for _ in 0..polls {
            assert!(poll_once(shutdown.as_mut()).is_pending());
        }
        assert_eq!(woken.get(), polls * 3);
        drop(shutdown);
        assert_eq!(woken.get(), 10);
    }
}

/// The batches contain only the wakers of this call on this thread. Gates that other calls or threads shut down wake their own sleeps.
#[tokio::test(start_paused = true)]
async fn other_gates_shut_down_unbatched() {
    let (slow, quick, elsewhere) = (SleepGate::new(), SleepGate::new(), SleepGate::new());
    let (_a, slow_woken) = ten(&slow);
    let (_b, quick_woken) = ten(&quick);
    let (_c, elsewhere_woken) = ten(&elsewhere);
    let shutdown = slow.shutdown_in_batches(THREE);
    quick.shutdown();
    std::thread::spawn(move || elsewhere.shutdown())
        .join()
        .unwrap();
    assert_eq!(quick_woken.get(), 10);
    assert_eq!(elsewhere_woken.get(), 10);
    assert_eq!(slow_woken.get(), 0);
    shutdown.await;
    assert_eq!(slow_woken.get(), 10);
}

/// On a runtime with one thread, other tasks run between any two batches. The control uses one batch for all.
#[tokio::test(start_paused = true)]
async fn other_tasks_run_between_the_batches() {
    let mut turns = [0, 0];
    for (n, batch) in [20, 1_000].into_iter().enumerate() {
        let gate = SleepGate::new();
        let sleepers = Vec::from_iter((0..200).map(|_| tokio::spawn(gate.sleep(Duration::MAX))));
        settle().await;
        let shutdown = tokio::spawn(gate.shutdown_in_batches(NonZeroUsize::new(batch).unwrap()));
        let mut count = 0;
        let other = tokio::spawn(poll_fn(move |cx| {
            if shutdown.is_finished() {
                return Poll::Ready(count);
            }
            count += 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        }));
        for sleeper in sleepers {
            assert_eq!(sleeper.await.unwrap(), Wake::Shutdown);
        }
        turns[n] = other.await.unwrap();
    }
    assert!(turns[0] >= 9 && turns[1] <= 1, "{turns:?}");
}

/// The call also runs the wakers of futures that wait for the token directly. If such a waker panics, all sleeps are woken, and the gate still works.
#[tokio::test(start_paused = true)]
async fn panic_during_shutdown_wakes_all_sleepers() {
    use std::{panic::AssertUnwindSafe, task::Context};
    struct Bad;
    impl std::task::Wake for Bad {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics");
        }
    }
    let gate = SleepGate::new();
    let (_sleeps, woken) = ten(&gate);
    let mut waiter = pin!(gate.token().cancelled());
    let bad = std::task::Waker::from(Arc::new(Bad));
    assert!(
        waiter
            .as_mut()
            .poll(&mut Context::from_waker(&bad))
            .is_pending()
    );
    let shutdown = AssertUnwindSafe(|| drop(gate.shutdown_in_batches(THREE)));
    assert!(std::panic::catch_unwind(shutdown).is_err());
    assert_eq!(woken.get(), 10);
    let other = SleepGate::new();
    let (_sleeps, woken) = ten(&other);
    other.shutdown();
    assert_eq!(woken.get(), 10, "a later shutdown wakes at once");
}
