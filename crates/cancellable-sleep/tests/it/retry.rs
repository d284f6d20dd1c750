//! Tests of `backon` retries at a gate: a shutdown ends them, even without `when`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use backon::{BlockingRetryable, ExponentialBuilder, Retryable};
use cancellable_sleep::SleepGate;
use tokio::time::{Instant, advance};

use crate::{TEN, settle};

fn back_off() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(TEN)
        .with_max_times(10)
}

#[tokio::test(start_paused = true)]
async fn j45_shutdown_ends_a_back_off() {
    for asks in [true, false] {
        let (gate, tries, start) = (
            SleepGate::new(),
            Arc::new(AtomicUsize::new(0)),
            Instant::now(),
        );
        let retry = {
            let (gate, tries) = (gate.clone(), tries.clone());
            async move {
                (|| async {
                    tries.fetch_add(1, Relaxed);
                    Err::<(), _>("overloaded")
                })
                .retry(back_off())
                .when(|_| !(asks && gate.is_shutdown()))
                .sleep(gate.clone())
                .await
            }
        };
        let task = tokio::spawn(retry);
        settle().await;
        advance(TEN).await;
        settle().await;
        assert_eq!(tries.load(Relaxed), 2);
        gate.shutdown();
        assert_eq!(task.await.unwrap(), Err("overloaded"));
        assert_eq!(start.elapsed(), TEN);
        // Without `when`, backon makes all its tries without a wait, as the documentation says.
        assert_eq!(tries.load(Relaxed), if asks { 3 } else { 11 });
    }
}

/// The token also ends a retry that never waits, because each sleep lets the runtime check the token.
#[tokio::test]
async fn j45_token_ends_a_retry_without_waits() {
    let gate = SleepGate::new();
    let retry = (|| async {
        gate.shutdown();
        Err::<(), _>("overloaded")
    })
    .retry(back_off().with_max_times(100_000)) // a limit, so that a failing test ends
    .sleep(gate.clone());
    assert_eq!(gate.token().run_until_cancelled(retry).await, None);
}

#[test]
fn j45_shutdown_ends_a_back_off_on_a_thread() {
    let gate = SleepGate::new();
    let thread = std::thread::spawn({
        let gate = gate.clone();
        move || {
            (|| Err::<(), _>("overloaded"))
                .retry(back_off().with_min_delay(Duration::from_secs(3_600)))
                .when(|_| !gate.is_shutdown())
                .sleep(gate.clone())
                .call()
        }
    });
    gate.shutdown();
    assert_eq!(thread.join().unwrap(), Err("overloaded"));
}
