//! A stop's deadline only moves earlier.

use std::time::{Duration, Instant};

use loop_state::StopDeadline;
use loop_state::times::{ABORT, STOP_BUDGET};

#[test]
fn no_sequence_of_requests_moves_a_deadline_later() {
    let epoch = Instant::now();
    // Each bit is a request: a stop or an abort, a second apart.
    for requests in 0..64_u32 {
        let (mut deadline, mut aborted) = (StopDeadline::default(), false);
        assert!(!deadline.is_stop());
        for nth in 0..6 {
            let now = epoch + Duration::from_secs(nth);
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
    let now = Instant::now();
    assert_eq!(StopDeadline::Open.budget(now, STOP_BUDGET), STOP_BUDGET);
}
