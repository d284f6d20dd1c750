//! Tests of intervals: the due times of ticks after slow work, late ticks, `wake_all` and drops.

use std::{pin::pin, time::Duration};

use cancellable_sleep::{SleepGate, Wake};
use tokio::time::{Instant, advance};

use crate::{TEN, poll_once};

#[tokio::test(start_paused = true)]
async fn first_tick_follows_one_period_and_slow_work_keeps_the_schedule() {
    let (gate, start) = (SleepGate::new(), Instant::now());
    let mut beat = gate.interval(TEN);
    for n in 1..5 {
        assert_eq!(beat.tick().await, Wake::Elapsed);
        assert_eq!(start.elapsed(), n * TEN);
        advance(TEN / 2).await; // the work
    }
}

#[tokio::test(start_paused = true)]
async fn a_missed_tick_delays_the_later_ones() {
    let (gate, start) = (SleepGate::new(), Instant::now());
    let mut beat = gate.interval(TEN);
    advance(TEN + TEN / 4).await;
    assert_eq!(beat.tick().await, Wake::Elapsed);
    assert_eq!(beat.tick().await, Wake::Elapsed);
    assert_eq!(start.elapsed(), 2 * TEN, "a little late: the regular time");
    advance(3 * TEN + TEN / 2).await;
    assert_eq!(beat.tick().await, Wake::Elapsed);
    let late = start.elapsed();
    assert_eq!(late, 5 * TEN + TEN / 2, "at once, and once only");
    assert_eq!(beat.tick().await, Wake::Elapsed);
    assert_eq!(start.elapsed(), late + TEN);
}

#[tokio::test(start_paused = true)]
async fn tick_late_by_half_a_period_shifts_the_schedule() {
    let little = Duration::from_millis(1);
    for (late, next) in [(TEN / 2 - little, 2 * TEN), (TEN / 2, 2 * TEN + TEN / 2)] {
        let (gate, start) = (SleepGate::new(), Instant::now());
        let mut beat = gate.interval(TEN);
        advance(TEN + late).await;
        assert_eq!(beat.tick().await, Wake::Elapsed);
        assert_eq!(start.elapsed(), TEN + late, "at once");
        assert_eq!(beat.tick().await, Wake::Elapsed);
        assert_eq!(start.elapsed(), next, "{late:?} late");
    }
}

#[tokio::test(start_paused = true)]
async fn wake_all_or_a_drop_loses_no_tick() {
    let (gate, start) = (SleepGate::new(), Instant::now());
    let mut beat = gate.interval(TEN);
    {
        let mut tick = pin!(beat.tick());
        assert!(poll_once(tick.as_mut()).is_pending());
        advance(TEN / 2).await;
        assert_eq!(gate.wake_all(), 1);
        assert_eq!(tick.await, Wake::Woken);
    }
    {
        let mut dropped = pin!(beat.tick());
        assert!(poll_once(dropped.as_mut()).is_pending());
        advance(TEN).await;
    }
    assert_eq!(beat.tick().await, Wake::Elapsed);
    assert_eq!(start.elapsed(), TEN + TEN / 2);
    gate.shutdown();
    assert_eq!(beat.tick().await, Wake::Shutdown);
}

#[tokio::test(start_paused = true)]
async fn zero_ticks_at_every_turn_and_max_never() {
    let (gate, start) = (SleepGate::new(), Instant::now());
    let (mut always, mut never) = (gate.interval(Duration::ZERO), gate.interval(Duration::MAX));
    for _ in 0..3 {
        assert_eq!(always.tick().await, Wake::Elapsed);
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    let mut tick = pin!(never.tick());
    assert!(poll_once(tick.as_mut()).is_pending());
    advance(TEN * 1_000_000).await;
    assert!(poll_once(tick.as_mut()).is_pending());
}
