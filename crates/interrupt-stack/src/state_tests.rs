//! Tests of deadlines that a process misses because it was stopped, and of the stage that the router publishes to the signal handler.

use crate::{ladder::LadderTimes, press_word::PressOutcome};

use super::*;

const SHUTDOWN: Duration = Duration::from_secs(1);
const LITTLE: Duration = Duration::from_millis(1);

/// Returns a state in shutdown, and the time when the shutdown becomes a hard exit.
fn shutting_down(catcher: Option<&Arc<SignalCatcher>>) -> (State, Instant) {
    let times = LadderTimes {
        shutdown_deadline: Some(SHUTDOWN),
        ..LadderTimes::default()
    };
    let mut state = State::new(Ladder::new(times), Inbox::new(catcher.cloned()));
    let now = Instant::now();
    let begun = state.ladder.terminate(Cause::Terminate, now);
    assert!(state.note(begun));
    (state, now + SHUTDOWN)
}

fn catch() -> Arc<SignalCatcher> {
    let catcher = SignalCatcher::new(Duration::ZERO, Duration::ZERO, u64::MAX, false);
    Arc::new(catcher.unwrap())
}

#[test]
fn deadline_that_is_missed_by_a_little_is_due() {
    for late in [Duration::ZERO, MISSED_AFTER] {
        let (mut state, deadline) = shutting_down(Some(&catch()));
        assert!(!state.catch_up(deadline - LITTLE) && state.exit.is_none());
        assert!(state.catch_up(deadline + late));
        assert!(state.exit.is_some(), "{late:?} late");
    }
}

#[test]
fn deadline_that_is_missed_by_more_waits_for_a_suspend_report() {
    let (mut state, deadline) = shutting_down(Some(&catch()));
    let found = deadline + MISSED_AFTER + LITTLE;
    for now in [found, found + STOP_SIGNAL_GRACE - LITTLE] {
        assert!(!state.catch_up(now) && state.exit.is_none());
        assert_eq!(state.time_until_next(now), Some(STOP_SIGNAL_GRACE));
    }
    assert!(
        state.catch_up(found + STOP_SIGNAL_GRACE),
        "the process was not stopped"
    );
    assert!(state.exit.is_some());
}

#[test]
fn suspend_report_extends_the_shutdown_deadline() {
    let catcher = catch();
    let (mut state, deadline) = shutting_down(Some(&catcher));
    let found = deadline + MISSED_AFTER + LITTLE;
    assert!(!state.catch_up(found));
    assert!(catcher.word.post(PostKind::Resume, catcher.micros(found)));
    assert!(state.catch_up(found + STOP_SIGNAL_GRACE) && state.exit.is_none());
    assert!(state.resumed, "the resume hook runs");
    let anew = state.next_deadline().unwrap();
    assert!(anew > found + STOP_SIGNAL_GRACE, "{:?}", anew - found);
    assert!(state.catch_up(anew) && state.exit.is_some());
}

/// A detached ladder gets no `SIGCONT`.
#[test]
fn detached_ladder_does_not_wait_for_a_suspend_report() {
    let (mut state, deadline) = shutting_down(None);
    assert!(state.catch_up(deadline + 9 * MISSED_AFTER) && state.exit.is_some());
}

/// The signal handler decides alone whether a press ends the process. It also counts presses that are not signals.
#[test]
fn signal_handler_reads_stage_and_time_of_the_ladder() {
    let debounce = LadderTimes::default().debounce;
    let catcher = catch();
    let mut state = State::new(
        Ladder::new(LadderTimes::default()),
        Inbox::new(Some(catcher.clone())),
    );
    let signal = |at: Instant| {
        let (at, debounce) = (catcher.micros(at), debounce.as_micros() as u64);
        catcher.word.press(at, debounce, 2)
    };
    let mut now = Instant::now() + SHUTDOWN;
    let handler = state.ladder.push();
    let notified = state.press(PressSource::RawByte, now);
    assert_eq!(notified, LadderEffect::Notify(handler));
    state.publish_stage();
    assert_eq!(signal(now + debounce / 2), PressOutcome::Debounced);

    now += SHUTDOWN;
    let begun = state.press(PressSource::RawByte, now);
    assert_eq!(begun, LadderEffect::BeginShutdown(Cause::Press));
    state.publish_stage();
    assert_eq!(signal(now + debounce / 2), PressOutcome::Debounced);
    assert_eq!(signal(now + SHUTDOWN), PressOutcome::HardExit);
    assert!(!catcher.word.is_ending());
}

/// While a notice is open, the signal handler posts one more press to the router; the press after that ends the process.
#[test]
fn open_notice_leaves_the_signal_handler_one_press() {
    let catcher = catch();
    let mut state = State::new(
        Ladder::new(LadderTimes::default()),
        Inbox::new(Some(catcher.clone())),
    );
    let now = Instant::now() + SHUTDOWN;
    state.ladder.push();
    let _notified = state.ladder.press(PressSource::RawByte, now);
    state.publish_stage();
    let verdicts = [1, 2].map(|n| catcher.word.press(catcher.micros(now + n * SHUTDOWN), 0, 2));
    assert_eq!(verdicts, [PressOutcome::Posted, PressOutcome::HardExit]);
}
