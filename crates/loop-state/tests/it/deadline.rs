//! Requests can only move the deadline of a stop earlier.

use std::time::Duration;

use loop_state::times::{ABORT, NOTIFY_RESERVE, NOTIFY_STOPPED, STOP_BUDGET};
use loop_state::{StopDeadline, Timestamp};

#[test]
fn requests_never_move_a_deadline_later() {
    // Each bit is a request, one second after the other: a stop or an abort.
    for requests in 0..64_u32 {
        let (mut deadline, mut aborted) = (StopDeadline::default(), false);
        assert!(!deadline.is_stop());
        for nth in 0..6 {
            let now = Timestamp::from_millis(nth * 1000);
            let (before, is_abort) = (deadline.by(), requests & 1 << nth != 0);
            aborted |= is_abort;
            let budget = match is_abort {
                true => {
                    deadline.abort(now);
                    ABORT
                }
                false => {
                    deadline.stop(now, STOP_BUDGET);
                    STOP_BUDGET
                }
            };
            let by = deadline.by().unwrap();
            assert_eq!(
                by,
                before.map_or(now + budget, |before| before.min(now + budget))
            );
            assert_eq!((deadline.is_stop(), deadline.is_abort()), (true, aborted));
            assert_eq!(deadline.budget(by + ABORT, STOP_BUDGET), Duration::ZERO);
        }
    }
}

#[test]
fn a_run_that_is_not_stopped_has_the_usual_budget() {
    let now = Timestamp::from_millis(7);
    assert_eq!(StopDeadline::Unset.budget(now, STOP_BUDGET), STOP_BUDGET);
}

#[test]
fn suspended_time_does_not_use_up_the_deadline() {
    let mut deadline = StopDeadline::default();
    deadline.resumed_after_freeze(ABORT);
    assert_eq!(deadline, StopDeadline::Unset);
    deadline.stop(Timestamp::from_millis(0), STOP_BUDGET);
    deadline.resumed_after_freeze(Duration::from_secs(60));
    assert_eq!(
        deadline.by(),
        Some(Timestamp::from_millis(0) + STOP_BUDGET + Duration::from_secs(60))
    );
}

#[test]
fn last_call_of_the_notify_command_ends_before_the_deadline() {
    let (now, usual) = (Timestamp::from_millis(7), Duration::from_secs(10));
    assert_eq!(StopDeadline::Unset.last_call(now, usual), usual);
    for (left, expected) in [
        (STOP_BUDGET, NOTIFY_STOPPED),
        (NOTIFY_RESERVE + ABORT, ABORT),
        (NOTIFY_RESERVE, Duration::ZERO),
        (Duration::ZERO, Duration::ZERO),
    ] {
        let by = now + left;
        let time = StopDeadline::Stop { by }.last_call(now, usual);
        assert_eq!(time, expected, "{left:?} left");
        let aborted = StopDeadline::Abort { by };
        assert_eq!(aborted.last_call(now, usual), Duration::ZERO);
    }
}
