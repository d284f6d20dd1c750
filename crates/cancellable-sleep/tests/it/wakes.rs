//! Tests `wake_all` with real threads: the one race that paused time can't show.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread::{spawn, yield_now},
    time::{Duration, Instant},
};

use cancellable_sleep::{SleepGate, Wake};

/// Every sleep that `wake_all` counts returns `Woken`, so the two sums become equal. After a lost wake-up a sleep would never return,
/// and the sums would differ.
#[test]
fn no_wake_is_lost_between_check_and_park() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .enable_time()
        .build()
        .unwrap();
    let (gate, woken) = (SleepGate::new(), Arc::new(AtomicUsize::new(0)));
    // Half of the sleeps end by themselves all the time, so that `wake_all` meets sleeps that are ending.
    let durations = [Duration::MAX, Duration::ZERO];
    let tasks = [0, 1, 2, 3].map(|n| {
        let (gate, woken) = (gate.clone(), woken.clone());
        let duration = durations[n % 2];
        runtime.spawn(async move { while continues(gate.sleep(duration).await, &woken) {} })
    });
    let threads = durations.map(|duration| {
        let (gate, woken) = (gate.clone(), woken.clone());
        spawn(move || while continues(gate.blocking_sleep(duration), &woken) {})
    });

    let (mut counted, began) = (0, Instant::now());
    for _ in 0..5_000 {
        counted += gate.wake_all();
        yield_now();
        if counted > 0 && began.elapsed() > Duration::from_secs(1) {
            break; // on a busy machine fewer rounds are enough
        }
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while woken.load(Relaxed) != counted {
        let woke = woken.load(Relaxed);
        assert!(Instant::now() < deadline, "{counted} counted, {woke} woke");
        yield_now();
    }
    assert!(counted > 0);
    gate.shutdown();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(woken.load(Relaxed), counted, "shutdown doesn't count");
}

fn continues(why: Wake, woken: &AtomicUsize) -> bool {
    if why == Wake::Woken {
        woken.fetch_add(1, Relaxed);
    }
    why != Wake::Shutdown
}
