use std::{fmt::Write, time::Duration};

use cancellable_sleep::SleepGate;
use tokio::{
    task::JoinSet,
    time::{Instant, advance},
};

#[tokio::test(start_paused = true)]
async fn a_run_pauses_skips_a_wait_and_stops() {
    let (process, start, mut trace) = (SleepGate::new(), Instant::now(), String::new());
    let run = process.child();
    let mut tasks = JoinSet::new();
    for (name, gate, secs) in [
        ("heartbeat", &process, 5),
        ("back-off", &run, 60),
        ("rate limit", &run, 3600),
        ("janitor", &process, 7200),
    ] {
        let gate = gate.clone();
        tasks.spawn(async move { (name, gate.sleep(Duration::from_secs(secs)).await) });
    }
    tokio::task::yield_now().await;
    for (secs, what) in [
        (10, "nothing"),
        (20, "kick the run"),
        (30, "shut the process down"),
    ] {
        advance(Duration::from_secs(10)).await;
        let counted = match secs {
            20 => run.wake_all(),
            30 => {
                process.shutdown();
                0
            }
            _ => 0,
        };
        writeln!(trace, "{secs:>3} s  {what} ({counted})").unwrap();
        tokio::task::yield_now().await;
        let mut woken = Vec::new();
        while let Some(done) = tasks.try_join_next() {
            woken.push(done.unwrap());
        }
        woken.sort_unstable_by_key(|(name, _)| *name);
        for (name, why) in woken {
            writeln!(
                trace,
                "{:>3} s    {name}: {why:?}",
                start.elapsed().as_secs()
            )
            .unwrap();
        }
    }
    insta::assert_snapshot!(trace);
}
