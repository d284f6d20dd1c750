//! A longer history as one snapshot: which sleep wakes when, and why.

use std::{fmt::Write, num::NonZeroUsize, time::Duration};

use tokio::{task::JoinSet, time::Instant};

use crate::{now, poll_once, settle, wall::Day};

/// A process with a run as its child, and the results of their waits.
#[tokio::test(start_paused = true)]
async fn a_run_pauses_skips_a_wait_and_stops() {
    let (day, start, mut trace) = (Day::new(), Instant::now(), String::new());
    let process = day.gate();
    let run = process.child();
    let secs = Duration::from_secs;
    let mut tasks = JoinSet::new();
    let mut beat = process.interval(secs(15));
    for (name, sleep) in [
        ("pause", process.sleep(secs(5))),
        ("back-off", run.sleep(secs(60))),
        ("deadline", process.sleep_until(now() + secs(3_600))),
        (
            "limit until 15:00",
            process.sleep_until_wall(day.now() + secs(1_800)),
        ),
    ] {
        tasks.spawn(async move { (name, sleep.await) });
    }
    tasks.spawn(async move { ("heartbeat", beat.tick().await) });
    settle().await;
    for what in [
        "nothing",
        "wake the run",
        "suspend for an hour",
        "wake the process",
        "shut down",
    ] {
        tokio::time::advance(secs(10)).await;
        let mut stop = None;
        let counted = match what {
            "wake the run" => run.wake_all(),
            "wake the process" => process.wake_all(),
            "suspend for an hour" => {
                day.jump(3_600_000);
                0
            }
            "shut down" => {
                stop = Some(Box::pin(process.shutdown_in_batches(NonZeroUsize::MIN)));
                0
            }
            _ => 0,
        };
        let at = start.elapsed().as_secs();
        writeln!(trace, "{at:>3} s  {what} ({counted})").unwrap();
        if what == "wake the run" {
            let late = run.sleep(secs(3_600));
            tasks.spawn(async move { ("rate limit", late.await) });
            let other = process.sleep_until_wall(day.now() + secs(7_200));
            tasks.spawn(async move { ("janitor", other.await) });
        }
        while stop
            .as_mut()
            .is_some_and(|stop| poll_once(stop.as_mut()).is_pending())
        {}
        settle().await;
        let mut woken = Vec::new();
        while let Some(done) = tasks.try_join_next() {
            woken.push(done.unwrap());
        }
        woken.sort_unstable_by_key(|(name, _)| *name);
        for (name, why) in woken {
            writeln!(trace, "         {name}: {why:?}").unwrap();
        }
    }
    insta::assert_snapshot!(trace);
}
