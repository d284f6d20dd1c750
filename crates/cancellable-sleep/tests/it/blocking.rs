//! Tests of `blocking_sleep` on real threads, without paused time.

use std::{
    thread::{JoinHandle, spawn, yield_now},
    time::{Duration, Instant},
};

use cancellable_sleep::{SleepGate, Wake};

const LONG: Duration = Duration::from_secs(3_600);

fn blocked(gate: &SleepGate, duration: Duration) -> JoinHandle<Wake> {
    let gate = gate.clone();
    spawn(move || gate.blocking_sleep(duration))
}

/// Calls `wake_all` until it has counted `count` sleepers, because they may not have begun.
fn wake_all_of(gate: &SleepGate, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut counted = 0;
    while counted < count {
        assert!(Instant::now() < deadline, "{counted} of {count}");
        counted += gate.wake_all();
        yield_now();
    }
    assert_eq!(counted, count);
}

#[test]
fn c54a_c54b_c54c_thread_sleep_returns_its_wake_reason() {
    let gate = SleepGate::new();
    let (short, began) = (Duration::from_millis(2), Instant::now());
    assert_eq!(gate.blocking_sleep(Duration::ZERO), Wake::Elapsed);
    assert_eq!(gate.blocking_sleep(short), Wake::Elapsed);
    assert!(began.elapsed() >= short);
    assert_eq!(gate.wake_all(), 0, "the sleeper has left");

    let woken = [blocked(&gate, LONG), blocked(&gate, Duration::MAX)];
    wake_all_of(&gate, 2);
    for thread in woken {
        assert_eq!(thread.join().unwrap(), Wake::Woken);
    }

    let run = gate.child();
    let shut = [blocked(&run, LONG), blocked(&run.child(), Duration::MAX)];
    gate.shutdown();
    for thread in shut {
        assert_eq!(thread.join().unwrap(), Wake::Shutdown);
    }
    assert_eq!(run.blocking_sleep(LONG), Wake::Shutdown);
}

#[test]
fn c55a_token_cancelled_elsewhere_wakes_threads() {
    let token = tokio_util::sync::CancellationToken::new();
    let gate = SleepGate::from_token(token.clone());
    let thread = blocked(&gate, LONG);
    wake_all_of(&gate, 1); // the sleep has begun
    assert_eq!(thread.join().unwrap(), Wake::Woken);
    let threads = [0; 4].map(|_| blocked(&gate, LONG));
    token.cancel();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), Wake::Shutdown);
    }
}
