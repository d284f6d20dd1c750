use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use cancellable_sleep::{SleepGate, Wake};

/// Real threads: every sleeper that a kick counted comes back and says so, so the two sums meet. A lost wake would park its sleeper
/// for ever and the sums would stay apart.
#[test]
fn no_wake_is_lost_between_check_and_park() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .enable_time()
        .build()
        .unwrap();
    let (gate, kicked) = (SleepGate::new(), Arc::new(AtomicUsize::new(0)));
    let sleepers: Vec<_> = (0..4)
        .map(|n| {
            let (gate, kicked) = (gate.clone(), kicked.clone());
            // Two of four end by themselves all the time, so that kicks meet them on their way out.
            let duration = if n % 2 == 0 {
                Duration::MAX
            } else {
                Duration::ZERO
            };
            runtime.spawn(async move {
                loop {
                    match gate.sleep(duration).await {
                        Wake::Kicked => _ = kicked.fetch_add(1, Relaxed),
                        Wake::Elapsed => {}
                        Wake::Shutdown => break,
                    }
                }
            })
        })
        .collect();
    let (mut counted, began) = (0, Instant::now());
    for _ in 0..5_000 {
        counted += gate.wake_all();
        std::thread::yield_now();
        if counted > 0 && began.elapsed() > Duration::from_secs(1) {
            break; // a busy machine: these are enough
        }
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while kicked.load(Relaxed) != counted {
        assert!(
            Instant::now() < deadline,
            "{counted} counted, {} woke",
            kicked.load(Relaxed)
        );
        std::thread::yield_now();
    }
    assert!(counted > 0);
    gate.shutdown();
    runtime.block_on(async {
        for sleeper in sleepers {
            sleeper.await.unwrap();
        }
    });
}
