//! Properties of a hand-over, for inputs in any order.

use std::time::Duration;

use proptest::prelude::*;

use crate::times::HANDOVER;
use crate::{
    AppendEnd, AppendOutput, Handover, HandoverInput, HandoverOutput, Moment, RecordId, RunEnding,
};

fn inputs() -> impl Strategy<Value = Vec<(u64, HandoverInput)>> {
    let done = AppendOutput::Done {
        id: RecordId::new(1),
        seq: 1,
    };
    let input = prop_oneof![
        6 => Just(HandoverInput::Time),
        2 => Just(HandoverInput::RunGone(RunEnding::Stopped)),
        1 => Just(HandoverInput::RunGone(RunEnding::Ended)),
        2 => Just(HandoverInput::Append(done)),
        1 => Just(HandoverInput::Append(AppendOutput::Ended(AppendEnd::GaveUp))),
        2 => Just(HandoverInput::Returned),
        1 => Just(HandoverInput::LeaseLost),
    ];
    prop::collection::vec((0..700_u64, input), 0..12)
}

proptest! {
    #[test]
    fn handover_releases_a_run_only_after_its_end_and_takes_two_seconds_at_most(inputs in inputs()) {
        let began = Moment::from_millis(500);
        let (mut handover, _) = Handover::begin(began);
        let (mut now, mut gone, mut is_over) = (began, None, false);
        for (millis, input) in inputs {
            now = now + Duration::from_millis(millis);
            if let (HandoverInput::RunGone(ending), None) = (input, gone) {
                gone = Some(ending);
            }
            let outputs = handover.step(input, now);
            prop_assert!(!is_over || outputs.is_empty(), "nothing follows the end");
            for output in &outputs {
                match output {
                    HandoverOutput::AppendRelease => prop_assert_eq!(gone, Some(RunEnding::Stopped)),
                    HandoverOutput::Return => {
                        prop_assert_eq!(gone, Some(RunEnding::Stopped));
                        let released = matches!(input, HandoverInput::Append(AppendOutput::Done { .. }));
                        prop_assert!(released, "a run is returned only after its release is stored");
                    }
                    HandoverOutput::Acknowledge => prop_assert_eq!(gone, Some(RunEnding::Ended)),
                    HandoverOutput::WakeAt(at) => prop_assert!(*at > now && *at <= began + HANDOVER),
                    HandoverOutput::Over => is_over = true,
                    HandoverOutput::KillRun => prop_assert!(gone.is_none()),
                    HandoverOutput::StopRun { .. } => {}
                }
            }
            prop_assert!(is_over || now < began + HANDOVER);
        }
    }
}

#[test]
fn handover_kills_a_run_that_does_not_stop_and_then_releases_it() {
    let at = Moment::from_millis;
    let (mut handover, _) = Handover::begin(at(0));
    let killed = [HandoverOutput::KillRun, HandoverOutput::WakeAt(at(2000))];
    assert_eq!(handover.step(HandoverInput::Time, at(1500)), killed);
    let gone = HandoverInput::RunGone(RunEnding::Stopped);
    let release = [
        HandoverOutput::AppendRelease,
        HandoverOutput::WakeAt(at(2000)),
    ];
    assert_eq!(handover.step(gone, at(1700)), release);
    let done = HandoverInput::Append(AppendOutput::Done {
        id: RecordId::new(1),
        seq: 9,
    });
    let back = [HandoverOutput::Return, HandoverOutput::WakeAt(at(2000))];
    assert_eq!(handover.step(done, at(1800)), back);
    let returned = handover.step(HandoverInput::Returned, at(1900));
    assert_eq!(returned, [HandoverOutput::Over]);
}

#[test]
fn handover_that_takes_too_long_leaves_the_run_to_the_lease() {
    let at = Moment::from_millis;
    let (mut handover, _) = Handover::begin(at(0));
    drop(handover.step(HandoverInput::Time, at(1500)));
    let outputs = handover.step(HandoverInput::Time, at(2000));
    assert_eq!(outputs, [HandoverOutput::KillRun, HandoverOutput::Over]);
    let gone = HandoverInput::RunGone(RunEnding::Stopped);
    assert!(handover.step(gone, at(2100)).is_empty());
}
