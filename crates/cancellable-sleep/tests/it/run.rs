//! Tests of `run`: the output of the work, or why the gate ended it, and that no run stays in the gate.

use std::{
    future::{pending, poll_fn, ready},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use cancellable_sleep::{SleepGate, Wake};

use crate::{Count, TEN, poll_once, settle};

#[tokio::test(start_paused = true)]
async fn k5a_run_returns_the_output_of_its_future() {
    let gate = SleepGate::new();
    assert_eq!(gate.run(ready(7)).await, Ok(7));
    let sleeps = gate.clone();
    let work = gate.run(async move { sleeps.child().sleep(TEN).await });
    assert_eq!(tokio::spawn(work).await.unwrap(), Ok(Wake::Elapsed));
    assert_eq!(gate.wake_all(), 0, "a run that has ended left the gate");
}

#[tokio::test(start_paused = true)]
async fn k5b_shutdown_and_wake_all_end_a_run_with_their_reason() {
    let gate = SleepGate::new();
    let (woken, shut) = (Arc::new(Count::default()), Arc::new(Count::default()));
    let mut run = pin!(gate.run(pending::<()>()));
    assert!(woken.poll(run.as_mut()).is_pending());
    assert_eq!((gate.wake_all(), woken.get()), (1, 1));
    assert_eq!(poll_once(run), Poll::Ready(Err(Wake::Woken)));

    let mut run = pin!(gate.run(pending::<()>()));
    assert!(shut.poll(run.as_mut()).is_pending());
    gate.shutdown();
    assert_eq!(shut.get(), 1);
    assert_eq!(poll_once(run), Poll::Ready(Err(Wake::Shutdown)));
}

#[tokio::test(start_paused = true)]
async fn gate_that_is_shut_down_never_polls_the_future() {
    let gate = SleepGate::new();
    gate.shutdown();
    let mut polls = 0;
    // More runs than one turn of tokio's budget allows.
    for _ in 0..1_000 {
        let work = poll_fn(|_| {
            polls += 1;
            Poll::Ready(())
        });
        assert_eq!(gate.run(work).await, Err(Wake::Shutdown));
    }
    assert_eq!(polls, 0);
}

#[tokio::test]
async fn a_loop_of_runs_that_end_at_once_lets_others_run() {
    let gate = SleepGate::new();
    gate.shutdown();
    let other = tokio::spawn(async {});
    for _ in 0..1_000 {
        assert_eq!(gate.run(pending::<()>()).await, Err(Wake::Shutdown));
    }
    assert!(other.is_finished());
}

#[tokio::test(start_paused = true)]
async fn dropped_run_leaves_the_gate() {
    let gate = SleepGate::new();
    let mut run = Box::pin(gate.run(pending::<()>()));
    assert!(poll_once(run.as_mut()).is_pending());
    drop(run);
    drop(gate.run(pending::<()>())); // never polled
    assert_eq!(gate.wake_all(), 0);
}

#[tokio::test(start_paused = true)]
async fn output_wins_over_a_wake_during_the_poll_of_the_work() {
    let gate = SleepGate::new();
    let waker = gate.clone();
    let work = poll_fn(move |_| Poll::Ready(waker.wake_all()));
    assert_eq!(gate.run(work).await, Ok(1), "the run is counted");
    let waker = gate.clone();
    let work = async move { waker.shutdown() };
    assert_eq!(gate.run(work).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn poll_now_wakes_only_its_group() {
    let gate = SleepGate::new();
    let (polls, nights) = (gate.child(), gate.child());
    let poll = tokio::spawn(polls.sleep(TEN));
    let night = tokio::spawn(nights.sleep_until_wall(std::time::SystemTime::now() + TEN));
    let work = tokio::spawn(gate.run(pending::<()>()));
    settle().await;
    assert_eq!(polls.wake_all(), 1);
    assert_eq!(poll.await.unwrap(), Wake::Woken);
    settle().await;
    assert!(!night.is_finished() && !work.is_finished());
    gate.shutdown();
    assert_eq!(night.await.unwrap(), Wake::Shutdown);
    assert_eq!(work.await.unwrap(), Err(Wake::Shutdown));
}
