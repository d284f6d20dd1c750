//! Reports the seconds that are left until the deadline of a stop.
//!
//! The countdown runs beside the loop, because the loop itself can hang in a save.

use std::time::Duration;

use loop_state::{Timestamp, times};
use rlm_store::deadline::sleep_until;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::event_channel::RunEventSender;
use crate::run_event::RunEvent;
use crate::stop_progress::{Awaited, StopProgress};

/// A shorter wait is not reported: it would be over when its line appears.
const MIN_NAMED_WAIT: Duration = Duration::from_millis(250);
/// The longest time between two lines of the countdown.
const SLOWEST: Duration = Duration::from_secs(60);

/// Sends the awaited part and the seconds that are left. The first event comes one second after the stop began. The next events come each time the
/// elapsed time has doubled, but at least once a minute, and soon after the awaited part or the deadline changes. Sends nothing before a stop begins
/// or after its deadline.
///
/// # Cancel safety
///
/// Cancel safe: after a drop it sends nothing more.
pub(crate) async fn run_countdown(
    mut stop: watch::Receiver<Option<StopProgress>>,
    mut events: RunEventSender,
) -> std::convert::Infallible {
    let Some(since) = since(&mut stop).await else {
        return std::future::pending().await;
    };
    let began = Instant::now();
    let (mut due, mut shown, mut shown_at) = (times::COUNTDOWN_STEP, None, Duration::ZERO);
    loop {
        tokio::select! {
            biased;
            changed = stop.changed() => {
                if changed.is_err() {
                    return std::future::pending().await;
                }
                let is_new = shown.is_some() && shown != key(*stop.borrow_and_update());
                if is_new {
                    due = due.min((began.elapsed() + MIN_NAMED_WAIT).max(shown_at + times::COUNTDOWN_STEP));
                }
                continue;
            }
            () = sleep_until(began + due) => {}
        }
        let elapsed = began.elapsed();
        let state = *stop.borrow_and_update();
        due = elapsed + elapsed.clamp(times::COUNTDOWN_STEP, SLOWEST);
        shown_at = elapsed;
        let now = since + elapsed;
        let Some((awaited, shutdown)) = state.and_then(|it| it.awaited.zip(Some(it))) else {
            due = elapsed + times::COUNTDOWN_STEP;
            continue;
        };
        shown = key(state);
        let left = shutdown.left(now);
        if !left.is_zero() {
            events.send(now, RunEvent::StopAwaits { awaited, left });
        }
    }
}

/// Waits until a stop begins, and returns its time; `None` if none can begin any more.
async fn since(stop: &mut watch::Receiver<Option<StopProgress>>) -> Option<Timestamp> {
    let begun = stop.wait_for(Option::is_some).await.ok()?;
    begun.map(|begun| begun.since)
}

/// Returns the values that a line of the countdown shows.
fn key(shutdown: Option<StopProgress>) -> Option<(Option<Awaited>, Timestamp)> {
    shutdown.map(|it| (it.awaited, it.until))
}

#[cfg(test)]
mod tests {
    use cancellable_sleep::SleepGate;

    use super::*;
    use crate::event_channel;

    fn shutdown(awaited: Awaited, until: u64) -> StopProgress {
        StopProgress {
            awaited: Some(awaited),
            since: Timestamp::from_millis(0),
            until: Timestamp::from_millis(until),
        }
    }

    /// Simulates a stop of `seconds`, in which the awaited part changes after 5.5 s; returns the lines with their times.
    async fn lines(seconds: u64) -> Vec<(u64, String, u64)> {
        let (events, mut receiver) = event_channel::channel();
        let (stop, seen) = watch::channel(None);
        let play = async {
            let gate = SleepGate::new();
            stop.send_replace(Some(shutdown(
                Awaited::Agent { pid: Some(7) },
                seconds * 1000,
            )));
            let _ = gate.sleep(Duration::from_millis(5500)).await;
            stop.send_replace(Some(shutdown(Awaited::Check, seconds * 1000)));
            let _ = gate.sleep(Duration::from_secs(2 * seconds)).await;
        };
        tokio::select! {
            biased;
            never = run_countdown(seen, events) => match never {},
            () = play => {}
        }
        let mut lines = Vec::new();
        while let Some((at, RunEvent::StopAwaits { awaited, left })) = receiver.recv().await {
            lines.push((at.as_millis() / 100, awaited.to_string(), left.as_secs()));
        }
        lines
    }

    #[tokio::test(start_paused = true)]
    async fn j41c_countdown_decreases_names_its_wait_and_ends_at_the_deadline() {
        let lines = lines(8).await;
        let agent = || "the agent (pid 7)".to_owned();
        let check = || "the check".to_owned();
        assert_eq!(
            lines,
            [
                (10, agent(), 7),
                (20, agent(), 6),
                (40, agent(), 4),
                (57, check(), 3),
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn j41d_deadline_of_a_stop_only_moves_earlier() {
        let by = |seconds: u64| Timestamp::from_millis(seconds * 1000);
        let now = Timestamp::from_millis(0);
        let first = StopProgress::now(None, by(8), None, now);
        let later = StopProgress::now(Some(first), by(60), None, now);
        let sooner = StopProgress::now(Some(later), by(1), None, now);
        let until = [first, later, sooner].map(|it| it.until.as_millis());
        assert_eq!(until, [8000, 8000, 1000]);
    }

    #[tokio::test(start_paused = true)]
    async fn j41c_a_long_stop_does_not_fill_the_log() {
        let lines = lines(3600).await;
        let minutes = lines.iter().filter(|line| line.0 > 640).count();
        assert!((55..=60).contains(&minutes), "{lines:?}");
        assert!(lines.is_sorted_by(|a, b| a.0 + 10 <= b.0), "{lines:?}");
    }
}
