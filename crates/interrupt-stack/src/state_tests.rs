//! Tests of deadlines that a process misses because it was stopped, and of the stage that the router publishes to the signal handler.

use crate::{ladder::Rules, word::Verdict};

use super::*;

const SHUTDOWN: Duration = Duration::from_secs(1);
const LITTLE: Duration = Duration::from_millis(1);

/// Returns a state in shutdown, and the time when the shutdown becomes a hard exit.
fn shutting_down(catch: Option<&Arc<Catch>>) -> (State, Instant) {
    let rules = Rules {
        shutdown_deadline: Some(SHUTDOWN),
        ..Rules::default()
    };
    let mut state = State::new(Ladder::new(rules), Inbox::new(catch.cloned()));
    let now = Instant::now();
    let begun = state.ladder.terminate(Cause::Terminate, now);
    assert!(state.note(begun));
    (state, now + SHUTDOWN)
}

fn catch() -> Arc<Catch> {
    let catch = Catch::new(Duration::ZERO, Duration::ZERO, u64::MAX, false);
    Arc::new(catch.unwrap())
}

#[test]
fn deadline_that_is_missed_by_a_little_is_due() {
    for late in [Duration::ZERO, LATE] {
        let (mut state, deadline) = shutting_down(Some(&catch()));
        assert!(!state.catch_up(deadline - LITTLE) && state.exit.is_none());
        assert!(state.catch_up(deadline + late));
        assert!(state.exit.is_some(), "{late:?} late");
    }
}

#[test]
fn deadline_that_is_missed_by_more_waits_for_the_news_of_a_stop() {
    let (mut state, deadline) = shutting_down(Some(&catch()));
    let found = deadline + LATE + LITTLE;
    for now in [found, found + NEWS - LITTLE] {
        assert!(!state.catch_up(now) && state.exit.is_none());
        assert_eq!(state.rest(now), Some(NEWS));
    }
    assert!(state.catch_up(found + NEWS), "the process was not stopped");
    assert!(state.exit.is_some());
}

#[test]
fn news_of_a_stop_in_that_time_give_the_shutdown_its_time_back() {
    let catch = catch();
    let (mut state, deadline) = shutting_down(Some(&catch));
    let found = deadline + LATE + LITTLE;
    assert!(!state.catch_up(found));
    assert!(catch.word.raise(Kind::Resume, catch.micros(found)));
    assert!(state.catch_up(found + NEWS) && state.exit.is_none());
    assert!(state.resumed, "the resume hook runs");
    let anew = state.next_deadline().unwrap();
    assert!(anew > found + NEWS, "{:?}", anew - found);
    assert!(state.catch_up(anew) && state.exit.is_some());
}

/// A detached ladder gets no `SIGCONT`.
#[test]
fn detached_ladder_waits_for_no_news() {
    let (mut state, deadline) = shutting_down(None);
    assert!(state.catch_up(deadline + 9 * LATE) && state.exit.is_some());
}

/// The signal handler decides alone whether a press ends the process. It also counts presses that are not signals.
#[test]
fn signal_handler_knows_how_far_the_ladder_has_climbed_and_since_when() {
    let debounce = Rules::default().debounce;
    let catch = catch();
    let mut state = State::new(
        Ladder::new(Rules::default()),
        Inbox::new(Some(catch.clone())),
    );
    let signal = |at: Instant| {
        let (at, debounce) = (catch.micros(at), debounce.as_micros() as u64);
        catch.word.press(at, debounce, 2)
    };
    let mut now = Instant::now() + SHUTDOWN;
    let handler = state.ladder.push();
    let notified = state.press(PressSource::RawByte, now);
    assert_eq!(notified, Effect::Notify(handler));
    state.settle();
    assert_eq!(signal(now + debounce / 2), Verdict::Part);

    now += SHUTDOWN;
    let begun = state.press(PressSource::RawByte, now);
    assert_eq!(begun, Effect::BeginShutdown(Cause::Press));
    state.settle();
    assert_eq!(signal(now + debounce / 2), Verdict::Part);
    assert_eq!(signal(now + SHUTDOWN), Verdict::LastRung);
    assert!(!catch.word.is_ending());
}

/// While a notice is open, the signal handler posts one more press to the router; the press after that ends the process.
#[test]
fn open_notice_leaves_the_signal_handler_one_press() {
    let catch = catch();
    let mut state = State::new(
        Ladder::new(Rules::default()),
        Inbox::new(Some(catch.clone())),
    );
    let now = Instant::now() + SHUTDOWN;
    state.ladder.push();
    let _notified = state.ladder.press(PressSource::RawByte, now);
    state.settle();
    let verdicts = [1, 2].map(|n| catch.word.press(catch.micros(now + n * SHUTDOWN), 0, 2));
    assert_eq!(verdicts, [Verdict::Posted, Verdict::LastRung]);
}
