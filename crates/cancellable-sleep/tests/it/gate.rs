use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use cancellable_sleep::{SleepGate, Wake};
use tokio::{
    task::yield_now,
    time::{Instant, advance},
};

const TEN: Duration = Duration::from_secs(10);

/// Polls once, with nobody to wake.
fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Lets a hundred tasks run until each waits: a scheduler's turn ends after some sixty of them.
async fn settle() {
    for _ in 0..8 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn c54_sleep_says_elapsed_or_shutdown() {
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
    assert!(gate.is_shutdown() && gate.token().is_cancelled());
    assert_eq!(gate.sleep(TEN).await, Wake::Shutdown);
    assert!(gate.wait_or_shutdown(TEN).await, "shutdown is sticky");
    assert_eq!(began.elapsed(), Duration::from_secs(4));
}

#[test]
fn c54_shutdown_before_sleep_makes_no_timer() {
    // There is no runtime here: making a timer would panic, as the open gate shows.
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

#[tokio::test(start_paused = true)]
async fn c55_everybody_wakes_and_the_loops_go_on() {
    let gate = SleepGate::new();
    let loops: Vec<_> = (0..100)
        .map(|_| {
            let gate = gate.clone();
            tokio::spawn(async move {
                let mut kicks = 0;
                while gate.sleep(TEN * 100).await == Wake::Kicked {
                    kicks += 1;
                }
                kicks
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
async fn shutdown_beats_a_kick_and_a_kick_beats_the_time() {
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
    assert_eq!(poll_once(first), Poll::Ready(Wake::Kicked));
    gate.shutdown();
    assert_eq!(poll_once(second), Poll::Ready(Wake::Shutdown));
}

#[tokio::test(start_paused = true)]
async fn zero_and_past_yield_once_and_max_never_elapses() {
    let gate = SleepGate::new();
    for mut sleep in [
        Box::pin(gate.sleep_until(Instant::now() - TEN)),
        Box::pin(gate.sleep_until(Instant::now())),
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
    assert_eq!(poll_once(long), Poll::Ready(Wake::Kicked));
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
async fn a_gate_shares_the_token_it_was_made_from() {
    let token = tokio_util::sync::CancellationToken::new();
    let gate = SleepGate::from_token(token.clone());
    let mut sleep = pin!(gate.wait_or_shutdown(TEN));
    assert!(poll_once(sleep.as_mut()).is_pending());
    token.cancel();
    assert_eq!(poll_once(sleep), Poll::Ready(true));
    assert_eq!(gate.wake_all(), 0);
    assert!(!SleepGate::default().wait_or_shutdown(TEN).await);
}

#[test]
fn types_are_send_and_sync() {
    fn check<T: Send + Sync + 'static>(_: &T) {}
    let gate = SleepGate::new();
    check(&gate);
    fn send<T: Send>(_: T) {}
    send(gate.sleep(TEN));
}
