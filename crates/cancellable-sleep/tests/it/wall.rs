//! Tests of `sleep_until_wall` with simulated suspends and jumps of the clock.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    task::Poll,
    time::{Duration, SystemTime},
};

use cancellable_sleep::{SleepGate, Wake};
use proptest::prelude::*;
use tokio::time::{Instant, advance};

use crate::{TEN, now, poll_once, settle};

const SECOND: Duration = Duration::from_secs(1);

/// The time of day under paused time. It follows tokio's clock, plus the jumps.
#[derive(Clone)]
pub(crate) struct Day {
    began: Instant,
    ahead_ms: Arc<AtomicI64>,
}

impl Day {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            ahead_ms: Arc::default(),
        }
    }

    pub(crate) fn gate(&self) -> SleepGate {
        let day = self.clone();
        SleepGate::with_wall_clock(move || day.now())
    }

    pub(crate) fn now(&self) -> SystemTime {
        let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let ahead = self.ahead_ms.load(Relaxed);
        let by = Duration::from_millis(ahead.unsigned_abs());
        let now = noon + self.began.elapsed();
        if ahead < 0 { now - by } else { now + by }
    }

    /// Sets the clock forwards or backwards. To a program, a suspend looks like a jump forwards.
    pub(crate) fn jump(&self, ms: i64) {
        self.ahead_ms.fetch_add(ms, Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn c57a_a_suspend_does_not_extend_a_wait_for_a_wall_clock_time() {
    let (day, start) = (Day::new(), Instant::now());
    let gate = day.gate().child();
    let mut wall = tokio::spawn(gate.sleep_until_wall(day.now() + 360 * TEN));
    // The control: a suspend extends a wait on the monotonic clock.
    let mut monotonic = pin!(gate.sleep_until(now() + 360 * TEN));
    assert!(poll_once(monotonic.as_mut()).is_pending());
    advance(TEN).await;
    assert!(poll_once(pin!(&mut wall)).is_pending());

    day.jump(3_600_000);
    assert_eq!(wall.await.unwrap(), Wake::Elapsed);
    assert!(start.elapsed() <= TEN + SECOND);
    advance(SECOND).await;
    assert!(poll_once(monotonic.as_mut()).is_pending());
    assert_eq!(monotonic.await, Wake::Elapsed);
    assert_eq!(start.elapsed(), 360 * TEN);
}

#[tokio::test(start_paused = true)]
async fn c57b_a_clock_set_back_does_not_end_a_wait_early() {
    let (day, start) = (Day::new(), Instant::now());
    let deadline = day.now() + TEN;
    let sleep = tokio::spawn(day.gate().sleep_until_wall(deadline));
    settle().await;
    day.jump(-60_000);
    assert_eq!(sleep.await.unwrap(), Wake::Elapsed);
    assert_eq!(day.now(), deadline);
    assert_eq!(start.elapsed(), 7 * TEN);
}

#[tokio::test(start_paused = true)]
async fn without_a_jump_the_wait_is_exact() {
    let (day, start) = (Day::new(), Instant::now());
    let gate = day.gate();
    let wait = Duration::from_millis(2_500);
    assert_eq!(gate.sleep_until_wall(day.now() + wait).await, Wake::Elapsed);
    assert_eq!(start.elapsed(), wait);
    for past in [day.now(), SystemTime::UNIX_EPOCH] {
        let mut sleep = pin!(gate.sleep_until_wall(past));
        assert!(poll_once(sleep.as_mut()).is_pending(), "yields once");
        assert_eq!(poll_once(sleep), Poll::Ready(Wake::Elapsed));
    }
    assert_eq!(start.elapsed(), wait);
}

/// The sleep stays at the gate between two checks of the clock, so `wake_all` always reaches it.
#[tokio::test(start_paused = true)]
async fn clock_check_does_not_leave_the_gate() {
    let day = Day::new();
    let gate = day.gate();
    let mut sleep = pin!(gate.sleep_until_wall(day.now() + TEN));
    for _ in 0..9 {
        assert!(poll_once(sleep.as_mut()).is_pending());
        advance(SECOND).await;
    }
    assert_eq!(gate.wake_all(), 1);
    assert_eq!(poll_once(sleep.as_mut()), Poll::Ready(Wake::Woken));
    assert_eq!(sleep.await, Wake::Elapsed);
    assert_eq!(
        SleepGate::new()
            .sleep_until_wall(SystemTime::UNIX_EPOCH)
            .await,
        Wake::Elapsed,
        "the system clock is the default"
    );
}

async fn end_of(steps: Vec<(u64, i64)>, wait_ms: u64) {
    let day = Day::new();
    let deadline = day.now() + Duration::from_millis(wait_ms);
    let sleep = tokio::spawn(day.gate().sleep_until_wall(deadline));
    // The time that the machine has been awake since the deadline.
    let mut late = Duration::ZERO;
    for (ms, jump) in steps {
        settle().await;
        let step = Duration::from_millis(ms);
        advance(step).await;
        settle().await;
        if sleep.is_finished() {
            assert!(day.now() >= deadline, "the sleep ended too early");
            return;
        }
        late = if day.now() < deadline {
            Duration::ZERO
        } else {
            late + step
        };
        // The deadline may have passed at any time in the first of these steps.
        assert!(late < SECOND + step, "still asleep, {late:?} late");
        day.jump(jump);
    }
    let now = day.now().max(deadline);
    let why = sleep.await.expect("a sleep does not panic");
    assert_eq!(why, Wake::Elapsed);
    assert!(day.now() <= now + SECOND);
}

proptest! {
    #[test]
    fn c57a_c57b_whatever_the_clock_does_a_wait_ends_within_a_second(
        steps in prop::collection::vec((1..1_500_u64, prop_oneof![4 => Just(0), 1 => -20_000..20_000_i64]), 0..40),
        wait_ms in 0..40_000_u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(end_of(steps, wait_ms));
    }
}
