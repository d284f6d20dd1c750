//! What an agent was told that may never have read it.

use loop_state::{CheckResult, Effect, Feedback, FeedbackSource, Happening, Tree, TurnOutcome};

use crate::person::{started, steer};
use crate::rules;
use crate::traces::{Trace, failed};

fn gone() -> Happening {
    Happening::TurnEnded(TurnOutcome::Failed("it is gone".into()))
}

/// Ends an iteration whose agent failed, after its gate or check; returns what the next one begins with.
fn next(trace: &mut Trace, check: Happening) -> Vec<Effect> {
    trace.then(check);
    trace.then(Happening::Settled(Tree::default()))
}

/// Also one that did not come so far as to name its session.
#[test]
fn x109_a_steer_is_told_again_after_an_agent_that_failed_without_a_word() {
    let mut trace = Trace::new(rules(|rules| rules.max_failures = 0));
    trace.then(steer("mind the docs", false));
    trace.iteration(failed("it is red"));
    for answers in [false, false, true] {
        if answers {
            trace.then(Happening::Prompted);
        }
        trace.then(gone());
        let check = Happening::CheckEnded(failed("it is red"));
        let effects = next(&mut trace, check);
        assert_eq!(started(&effects).steers.len(), usize::from(!answers));
    }
}

/// With a promise that is not made, the check is not asked again.
#[test]
fn x105_the_output_of_a_check_is_told_until_an_agent_has_read_it() {
    let mut trace = Trace::new(rules(|rules| rules.phases[0].promise = true));
    trace.then(Happening::TurnEnded(TurnOutcome::Claimed));
    trace.then(Happening::CheckEnded(failed("it is red")));
    let feedback = Feedback {
        source: FeedbackSource::Check,
        text: "it is red".into(),
    };
    let mut effects = trace.then(Happening::Settled(Tree::default()));
    assert_eq!(started(&effects).feedback, Some(feedback.clone()));
    trace.then(gone());
    effects = trace.then(Happening::Settled(Tree::default()));
    assert_eq!(started(&effects).feedback, Some(feedback));
    trace.then(Happening::Prompted);
    trace.then(gone());
    effects = trace.then(Happening::Settled(Tree::default()));
    assert_eq!(started(&effects).feedback, None);
}

#[test]
fn the_output_of_a_gate_that_passes_now_is_told_to_nobody() {
    let mut trace = Trace::new(rules(|rules| {
        let phase = &mut rules.phases[0];
        (phase.gates, phase.until) = (1, false);
        phase.limits.max_iterations = Some(9);
    }));
    trace.then(Happening::TurnEnded(TurnOutcome::Completed));
    let effects = next(&mut trace, Happening::GateEnded(failed("not formatted")));
    assert!(started(&effects).feedback.is_some());
    trace.then(gone());
    let effects = next(&mut trace, Happening::GateEnded(CheckResult::Passed));
    assert_eq!(started(&effects).feedback, None);
}
