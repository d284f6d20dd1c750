//! Resumes with options, and redos.

use std::time::Duration;

use loop_state::{
    Again, CheckResult, Effect, Evidence, Happening, Request, Resume, Rules, SessionPolicy,
    StopCause, StopReason, Streak, Tree, TurnOutcome, Usage, When,
};

use crate::person::started;
use crate::rules;
use crate::traces::{Trace, failed, stop};

#[test]
fn s13e_feedback_to_a_resume_is_in_the_prompt_of_the_next_attempt() {
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
    assert!(matches!(effects[0], Effect::Save), "the save comes first");
    // With a check, the check runs first, in case the unfinished attempt had done the work. The feedback waits meanwhile.
    let mut trace = Trace::new(rules(|_| {}));
    let effects = trace.then(said("mind the docs"));
    assert!(effects.contains(&Effect::RunCheck));
    trace.crash_and_resume();
    let effects = trace.then(Happening::CheckEnded(failed("red")));
    assert_eq!(started(&effects).steers[0].text, "mind the docs");
}

#[test]
fn s25a_a_stop_while_a_restart_waits_for_its_tree_ends_the_run_and_a_resume_restarts() {
    let mut trace = Trace::new(rules(|rules| rules.phases[0].gates = 1));
    trace.then(Happening::TurnEnded(TurnOutcome::Completed));
    trace.then(Happening::Requested(Request::Again {
        what: Again::Iteration,
    }));
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
fn s25a_an_iteration_that_is_done_again_fails_once() {
    let mut trace = Trace::new(rules(|rules| rules.limits.sleep = Duration::from_secs(9)));
    for _ in 0..2 {
        trace.then(Happening::TurnEnded(TurnOutcome::Failed("died".into())));
        trace.then(Happening::CheckEnded(failed("red")));
        trace.then(Happening::Settled(Tree::default()));
        let head = trace.machine.head();
        assert_eq!(
            (head.iterations_complete(), head.iterations_failed()),
            (1, 1)
        );
        trace.then(Happening::Requested(Request::Again {
            what: Again::Iteration,
        }));
        let head = trace.machine.head();
        assert_eq!((head.iterations_failed(), &head.last), (0, &None));
    }
}

#[test]
fn s13c_an_iteration_that_from_goes_back_to_begins_with_its_prompt() {
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
fn s13c_discarded_iterations_do_not_count() {
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
    assert_eq!(
        head.counts.iterations, 2,
        "discarded iterations stay in the total"
    );
    trace.iteration(failed("red"));
    assert_eq!(trace.machine.head().iterations_complete(), 1);
}

/// Returns rules with a plan of `max` iterations.
fn planned(max: u32) -> Rules {
    rules(|rules| {
        rules.phases[0].until = false;
        rules.phases[0].limits.max_iterations = Some(max);
    })
}

fn turn(trace: &mut Trace, outcome: TurnOutcome) {
    trace.then(Happening::Used(Usage {
        cost_microusd: 2,
        ..Usage::default()
    }));
    trace.then(Happening::TurnEnded(outcome));
    trace.then(Happening::Settled(Tree::default()));
}

#[test]
fn s13a_a_resumed_phase_is_not_over_and_keeps_its_result() {
    let mut trace = Trace::new(planned(2));
    trace.then(Happening::Said("half of it".into()));
    turn(&mut trace, TurnOutcome::Failed("exit status 1".into()));
    turn(&mut trace, TurnOutcome::Completed);
    assert_eq!(trace.reason(), StopReason::Planned);
    assert_eq!(trace.machine.head().iterations_failed(), 1);
    // With nothing more to do, the phase stays finished.
    trace.crash_and_resume();
    assert_eq!(trace.reason(), StopReason::Planned);
    assert_eq!(trace.machine.head().finished.len(), 1);

    trace.then(Happening::Resumed(Resume {
        rules: Some(planned(3)),
        ..Resume::default()
    }));
    let head = trace.machine.head();
    assert_eq!((head.iteration, head.finished.len()), (3, 0));
    assert_eq!(head.iterations_failed(), 1);
    turn(&mut trace, TurnOutcome::Completed);
    assert_eq!(trace.reason(), StopReason::Planned);
    let [over] = trace.machine.head().finished.as_slice() else {
        panic!("{:?}", trace.machine.head().finished);
    };
    assert_eq!((over.iterations, over.usage.cost_microusd), (3, 6));
    assert_eq!(over.errors.len(), 1);
    assert_eq!(over.result.as_deref(), Some("half of it"));
}

#[test]
fn a_phase_that_is_over_by_the_same_rules_is_not_sealed_again() {
    let mut trace = Trace::new(planned(2));
    turn(&mut trace, TurnOutcome::Completed);
    turn(&mut trace, TurnOutcome::Completed);
    let effects = trace.then(Happening::Resumed(Resume {
        rules: Some(planned(2)),
        ..Resume::default()
    }));
    let seals = |effect: &Effect| matches!(effect, Effect::SealPhase { .. });
    assert!(!effects.iter().any(seals), "{effects:?}");
    assert_eq!(trace.reason(), StopReason::Planned);
}

/// An attempt that is redone doesn't affect the result of the iteration before it.
#[test]
fn what_was_said_before_an_iteration_that_is_begun_again_is_kept() {
    let mut trace = Trace::new(planned(3));
    trace.then(Happening::Said("half of it".into()));
    turn(&mut trace, TurnOutcome::Completed);
    trace.then(Happening::Requested(Request::Again {
        what: Again::Iteration,
    }));
    let effects = trace.then(Happening::TurnEnded(TurnOutcome::Stopped));
    assert_eq!(started(&effects).iteration, 2);
    assert_eq!(trace.machine.head().said.as_deref(), Some("half of it"));
}

#[test]
fn s13c_discarded_iterations_of_a_phase_that_was_over_count_no_more() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(Happening::TurnEnded(TurnOutcome::Failed("no".into())));
    trace.then(Happening::CheckEnded(failed("red")));
    trace.then(Happening::Settled(Tree::default()));
    trace.iteration(CheckResult::Passed);
    assert_eq!(trace.reason(), StopReason::Done(Evidence::Check));
    assert_eq!(trace.machine.head().iterations_failed(), 1);
    let mut again = |from| {
        trace.then(Happening::Resumed(Resume {
            from: Some(from),
            ..Resume::default()
        }));
        let head = trace.machine.head();
        (head.finished.len(), head.iterations_failed())
    };
    assert_eq!(again(2), (0, 1));
    assert_eq!(again(1), (0, 0));
}

#[test]
fn a_phase_that_another_one_follows_now_hands_its_result_over() {
    let mut trace = Trace::new(planned(2));
    trace.then(Happening::Said("all of it".into()));
    turn(&mut trace, TurnOutcome::Failed("exit status 1".into()));
    turn(&mut trace, TurnOutcome::Completed);
    let mut more = planned(2);
    more.phases.push(more.phases[0].clone());
    trace.then(Happening::Resumed(Resume {
        rules: Some(more),
        ..Resume::default()
    }));
    let effects = trace.then(Happening::Requested(Request::Skip));
    assert_eq!(started(&effects).result.as_deref(), Some("all of it"));
    let head = trace.machine.head();
    assert_eq!((head.phase, head.iterations_failed()), (1, 1));
}

#[test]
fn x108d_failures_in_a_row_survive_a_crash() {
    let mut trace = Trace::new(rules(|_| {}));
    let fails = |trace: &mut Trace| {
        let died = TurnOutcome::Failed("exit status 1".into());
        trace.then(Happening::TurnEnded(died));
        trace.then(Happening::CheckEnded(failed("no")));
        trace.then(Happening::Settled(Tree::default()));
    };
    fails(&mut trace);
    fails(&mut trace);
    trace.crash_and_resume();
    trace.then(Happening::CheckEnded(failed("no")));
    fails(&mut trace);
    assert_eq!(trace.reason(), StopReason::Stuck(Streak::Failures, 3));
}
