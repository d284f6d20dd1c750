//! What a person can ask of a run when they take it up again.

use loop_state::{
    Again, CheckResult, Effect, Happening, Resume, SessionPolicy, StopCause, StopReason, Tree,
    TurnOutcome, When,
};

use crate::person::started;
use crate::rules;
use crate::traces::{Trace, failed, stop};

#[test]
fn s13_what_is_said_with_a_resume_is_in_the_prompt_of_the_next_attempt() {
    let said = |text: &str| {
        Happening::Resumed(Resume {
            feedback: Some(text.into()),
            ..Resume::default()
        })
    };
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].until = false;
        rules.phases[0].limits.max_iterations = Some(3);
    }));
    let effects = trace.then(said("mind the docs"));
    assert_eq!(started(&effects).steers[0].text, "mind the docs");
    assert!(matches!(effects[0], Effect::Save), "it is on disk first");
    // With a check it is asked first whether the cut attempt had done the work; what was said waits, whatever comes between.
    let mut trace = Trace::new(rules(|_| {}));
    let effects = trace.then(said("mind the docs"));
    assert!(effects.contains(&Effect::RunCheck));
    trace.crash_and_resume();
    let effects = trace.then(Happening::CheckEnded(failed("red")));
    assert_eq!(started(&effects).steers[0].text, "mind the docs");
}

#[test]
fn s25_a_stop_while_a_restart_waits_for_its_tree_ends_the_run_and_a_resume_restarts() {
    let mut trace = Trace::new(rules(|rules| rules.phases[0].gates = 1));
    trace.then(Happening::TurnEnded(TurnOutcome::Completed));
    trace.then(Happening::AgainRequested(Again::Iteration));
    trace.then(Happening::GateEnded(CheckResult::Stopped));
    trace.then(stop(When::Now));
    let effects = trace.then(Happening::Settled(Tree::default()));
    let begun = effects
        .iter()
        .any(|it| matches!(it, Effect::StartAttempt(_)));
    assert!(!begun, "{effects:?}");
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
    let brief = started(&trace.then(Happening::Resumed(Resume::default()))).clone();
    assert_eq!((brief.iteration, brief.attempt), (1, 2));
}

#[test]
fn s13_what_is_gone_back_to_begins_with_its_prompt() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].session = SessionPolicy::Continue;
    }));
    trace.then(Happening::SessionKnown("s1".into()));
    trace.then(Happening::Prompted);
    trace.then(stop(When::Now));
    trace.then(Happening::TurnEnded(TurnOutcome::Stopped));
    trace.then(Happening::Settled(Tree::default()));
    let effects = trace.then(Happening::Resumed(Resume {
        from: Some(1),
        ..Resume::default()
    }));
    let brief = started(&effects);
    assert_eq!((brief.session.as_deref(), brief.prompted), (None, false));
}

#[test]
fn s13_what_is_discarded_does_not_count() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.iteration(failed("red"));
    trace.iteration(failed("red"));
    assert_eq!(trace.machine.head().iterations_complete(), 2);
    trace.then(Happening::Resumed(Resume {
        from: Some(1),
        ..Resume::default()
    }));
    let head = trace.machine.head();
    assert_eq!((head.iterations_complete(), &head.last), (0, &None));
    assert_eq!(head.counts.iterations, 2, "they were made all the same");
    trace.iteration(failed("red"));
    assert_eq!(trace.machine.head().iterations_complete(), 1);
}
