//! Tests of each kind of wait at a gate: its result, and the effect of a drop, of `wake_all` and of a shutdown.

use std::{
    pin::{Pin, pin},
    task::Poll,
    time::{Duration, SystemTime},
};

use cancellable_sleep::{SleepGate, Wake};
use tokio::time::{Instant, advance};

use crate::{TEN, now, poll_once, settle};

#[tokio::test(start_paused = true)]
async fn c54a_c54b_c54c_c54d_sleep_returns_elapsed_or_shutdown() {
    let gate = SleepGate::new();
    let start = Instant::now();
    assert_eq!(gate.sleep(TEN).await, Wake::Elapsed);
    assert_eq!(start.elapsed(), TEN);

    let (waits, began) = (gate.clone(), Instant::now());
    let task = tokio::spawn(async move { waits.sleep(TEN).await });
    advance(Duration::from_secs(4)).await;
    gate.shutdown();
    gate.shutdown();
    assert_eq!(task.await.unwrap(), Wake::Shutdown);
    assert_eq!(began.elapsed(), Duration::from_secs(4));
    assert!(gate.is_shutdown());
    assert_eq!(gate.sleep(TEN).await, Wake::Shutdown);
    assert!(gate.wait_or_shutdown(TEN).await, "shutdown is sticky");
    assert_eq!(began.elapsed(), Duration::from_secs(4));
}

#[test]
fn c54c_shutdown_before_sleep_makes_no_timer() {
    // There is no runtime here: creating a timer panics, as the open gate shows.
    let gate = SleepGate::new();
    let open = std::panic::AssertUnwindSafe(|| poll_once(pin!(gate.sleep(TEN))));
    assert!(std::panic::catch_unwind(open).is_err());
    gate.shutdown();
    assert_eq!(
        poll_once(pin!(gate.sleep(TEN))),
        Poll::Ready(Wake::Shutdown)
    );
    assert_eq!(
        poll_once(pin!(gate.sleep(Duration::ZERO))),
        Poll::Ready(Wake::Shutdown)
    );
}

/// Without tokio's cooperative budget the loop would end before any other task runs.
#[tokio::test]
async fn a_loop_of_ready_sleeps_lets_others_run() {
    let gate = SleepGate::new();
    gate.shutdown();
    let other = tokio::spawn(async {});
    for _ in 0..1_000 {
        assert_eq!(gate.sleep(TEN).await, Wake::Shutdown);
    }
    assert!(other.is_finished());
}

#[tokio::test(start_paused = true)]
async fn c55a_c55b_all_sleepers_wake_and_the_loops_continue() {
    let gate = SleepGate::new();
    let loops: Vec<_> = (0..100)
        .map(|_| {
            let gate = gate.clone();
            tokio::spawn(async move {
                let mut wakes = 0;
                while gate.sleep(TEN * 100).await == Wake::Woken {
                    wakes += 1;
                }
                wakes
            })
        })
        .collect();
    for _ in 0..3 {
        settle().await;
        assert_eq!(gate.wake_all(), 100);
    }
    settle().await;
    gate.shutdown();
    for task in loops {
        assert_eq!(task.await.unwrap(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn c58_a_second_run_takes_a_new_gate() {
    let process = SleepGate::new();
    for _ in 0..2 {
        let run = process.child();
        assert_eq!(run.sleep(TEN).await, Wake::Elapsed);
        run.shutdown();
        assert_eq!(run.sleep(TEN).await, Wake::Shutdown);
        assert!(!process.is_shutdown());
    }
    let run = process.child();
    assert_eq!((process.wake_all(), run.wake_all()), (0, 0));
    process.shutdown();
    assert_eq!(run.sleep(TEN).await, Wake::Shutdown);
    assert!(process.child().is_shutdown());
}

#[tokio::test(start_paused = true)]
async fn shutdown_beats_wake_all_and_wake_all_beats_the_time() {
    for _ in 0..20 {
        let gate = SleepGate::new();
        let mut sleep = pin!(gate.sleep(TEN));
        assert!(poll_once(sleep.as_mut()).is_pending());
        advance(TEN).await;
        gate.shutdown();
        assert_eq!(poll_once(sleep), Poll::Ready(Wake::Shutdown));
    }
    let gate = SleepGate::new();
    let (mut first, mut second) = (pin!(gate.sleep(TEN)), pin!(gate.sleep(TEN)));
    assert!(poll_once(first.as_mut()).is_pending());
    assert!(poll_once(second.as_mut()).is_pending());
    advance(TEN).await;
    assert_eq!(gate.wake_all(), 2);
    assert_eq!(poll_once(first), Poll::Ready(Wake::Woken));
    gate.shutdown();
    assert_eq!(poll_once(second), Poll::Ready(Wake::Shutdown));
}

#[tokio::test(start_paused = true)]
async fn zero_and_past_yield_once_and_max_never_elapses() {
    let gate = SleepGate::new();
    for mut sleep in [
        Box::pin(gate.sleep_until(now() - TEN)),
        Box::pin(gate.sleep_until(now())),
    ] {
        assert!(poll_once(sleep.as_mut()).is_pending());
        assert_eq!(poll_once(sleep.as_mut()), Poll::Ready(Wake::Elapsed));
    }
    let mut zero = pin!(gate.sleep(Duration::ZERO));
    assert!(poll_once(zero.as_mut()).is_pending());
    gate.shutdown();
    assert_eq!(poll_once(zero), Poll::Ready(Wake::Shutdown));

    let gate = SleepGate::new();
    let mut long = pin!(gate.sleep(Duration::MAX));
    assert!(poll_once(long.as_mut()).is_pending());
    advance(Duration::from_secs(60 * 60 * 24 * 365 * 50)).await;
    assert!(poll_once(long.as_mut()).is_pending());
    assert_eq!(gate.wake_all(), 1);
    assert_eq!(poll_once(long), Poll::Ready(Wake::Woken));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_sleep_leaves_the_gate() {
    let gate = SleepGate::new();
    for _ in 0..3 {
        let mut sleep = Box::pin(gate.sleep(TEN));
        assert!(poll_once(sleep.as_mut()).is_pending());
        drop(sleep);
    }
    assert_eq!(gate.wake_all(), 0);
    assert_eq!(gate.sleep(TEN).await, Wake::Elapsed);
    assert_eq!(gate.wake_all(), 0, "an elapsed sleep has left as well");
}

#[tokio::test(start_paused = true)]
async fn x131b_wait_or_shutdown_returns_early() {
    let (gate, start) = (SleepGate::new(), Instant::now());
    let waits = gate.clone();
    let task = tokio::spawn(async move { waits.wait_or_shutdown(TEN).await });
    advance(Duration::from_secs(4)).await;
    gate.shutdown();
    assert!(task.await.unwrap());
    assert_eq!(start.elapsed(), Duration::from_secs(4));
}

#[tokio::test(start_paused = true)]
async fn gate_shares_the_token_it_was_created_from() {
    let token = tokio_util::sync::CancellationToken::new();
    let gate = SleepGate::from_token(token.child_token());
    let mut sleeps = Vec::from_iter([gate.clone(), gate.child()].map(|g| Box::pin(g.sleep(TEN))));
    for sleep in &mut sleeps {
        assert!(poll_once(sleep.as_mut()).is_pending());
    }
    token.cancel();
    for sleep in &mut sleeps {
        assert_eq!(poll_once(sleep.as_mut()), Poll::Ready(Wake::Shutdown));
    }
    assert_eq!(gate.wake_all(), 0);
    assert!(SleepGate::from_token(token).wait_or_shutdown(TEN).await);

    let gate = SleepGate::default();
    assert!(!gate.wait_or_shutdown(TEN).await);
    gate.shutdown();
    assert!(gate.token().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn woken_sleep_can_continue_to_its_deadline() {
    let (gate, start) = (SleepGate::new(), Instant::now());
    let mut sleep = pin!(gate.sleep(TEN));
    for _ in 0..3 {
        assert!(poll_once(sleep.as_mut()).is_pending());
        advance(TEN / 5).await;
        assert_eq!(gate.wake_all(), 1);
        assert_eq!(poll_once(sleep.as_mut()), Poll::Ready(Wake::Woken));
    }
    assert_eq!(gate.wake_all(), 0);
    assert_eq!(sleep.await, Wake::Elapsed);
    assert_eq!(start.elapsed(), TEN);
}

/// A wait that doesn't end on shutdown would return `Elapsed` an hour later.
#[tokio::test(start_paused = true)]
async fn c56b_every_kind_of_wait_ends_at_shutdown() {
    let (gate, start) = (SleepGate::new(), Instant::now());
    let hour = TEN * 360;
    let mut beat = gate.interval(hour);
    let mut waits: Vec<Pin<Box<dyn Future<Output = Wake> + Send>>> = vec![
        Box::pin(gate.sleep(hour)),
        Box::pin(gate.sleep(Duration::MAX)),
        Box::pin(gate.sleep_until(now() + hour)),
        Box::pin(gate.sleep_until_wall(SystemTime::now() + hour)),
        Box::pin(async move { beat.tick().await }),
    ];
    let blocked = std::thread::spawn({
        let gate = gate.clone();
        move || gate.blocking_sleep(hour)
    });
    for wait in &mut waits {
        assert!(poll_once(wait.as_mut()).is_pending());
    }
    gate.shutdown();
    for wait in waits {
        assert_eq!(wait.await, Wake::Shutdown);
    }
    assert_eq!(blocked.join().unwrap(), Wake::Shutdown);
    assert_eq!(start.elapsed(), Duration::ZERO);
}

/// The size of the future decides the memory of many sleeps. The reference is the structure that `select!` makes of a sleep and a token.
#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the reference of the comparison")]
async fn a_sleep_is_no_larger_than_a_select_by_hand() {
    let (gate, token) = (SleepGate::new(), tokio_util::sync::CancellationToken::new());
    let floor = async {
        tokio::select! {
            biased;
            () = token.cancelled() => false,
            () = tokio::time::sleep(TEN) => true,
        }
    };
    let (ours, floor) = (size_of_val(&gate.sleep(TEN)), size_of_val(&floor));
    assert!(ours <= floor, "{ours} bytes against {floor}");
}

#[test]
fn types_are_send_and_sync() {
    fn check<T: Send + Sync + 'static>(_: &T) {}
    let gate = SleepGate::new();
    check(&gate);
    check(&gate.sleep(TEN));
    check(&gate.interval(TEN));
}
