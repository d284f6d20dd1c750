//! The check before the first iteration.

use loop_state::{
    CheckOutcome, CheckResult, Effect, IterationStep, LoopCommand, MachineInput, PhaseRules,
    ProcessTreeOutcome, RedoScope, Request, ResumeOptions, Rules, StopCause, StopReason,
    StopTiming,
};

use crate::person::started;
use crate::rules;
use crate::traces::{Trace, failed, stop};

/// Starts a run with a first check, and returns the effects of the start.
fn begin(change: impl FnOnce(&mut Rules)) -> (Trace, String) {
    let trace = Trace::new(rules(|rules| {
        rules.first_check = true;
        change(rules);
    }));
    let effects = trace.text.clone();
    (trace, effects)
}

#[test]
fn passed_first_check_ends_the_run_without_an_iteration() {
    let (mut trace, text) = begin(|_| {});
    assert!(text.ends_with("    Save\n    RunCheck\n"), "{text}");
    trace.then(MachineInput::CheckEnded(CheckResult::Passed));
    assert_eq!(trace.reason(), StopReason::AlreadyDone);
    let head = trace.machine.head();
    assert!(trace.reason().is_final());
    assert_eq!((head.counts.iterations, head.counts.attempts), (0, 0));
}

#[test]
fn failed_first_check_begins_the_first_iteration_with_its_output() {
    let (mut trace, _) = begin(|_| {});
    let effects = trace.then(MachineInput::CheckEnded(failed("2 of 9 tests failed")));
    let brief = started(&effects);
    assert_eq!((brief.iteration, brief.attempt), (1, 1));
    let feedback = brief.feedback.as_ref().unwrap();
    assert_eq!(feedback.text, "2 of 9 tests failed");
    let check = trace.machine.head().last_check.unwrap();
    assert_eq!((check.iteration, check.outcome), (0, CheckOutcome::Failed));
}

#[test]
fn first_check_includes_the_required_checks() {
    let (mut trace, text) = begin(|rules| rules.phases[0].required_checks = 1);
    assert!(text.ends_with("    RunRequiredCheck(0)\n"), "{text}");
    let effects = trace.then(MachineInput::RequiredCheckEnded(CheckResult::Passed));
    assert_eq!(effects, [Effect::RunCheck]);
    let (mut trace, _) = begin(|rules| rules.phases[0].required_checks = 1);
    let effects = trace.then(MachineInput::RequiredCheckEnded(failed("lint")));
    assert_eq!(started(&effects).iteration, 1);
    assert_eq!(trace.machine.head().streaks.required_checks, 0);
}

#[test]
fn command_that_cannot_run_ends_the_run_before_the_first_iteration() {
    let no_such = || CheckResult::NotRun("sh: 1: carg: not found\n".into());
    let (mut trace, _) = begin(|rules| rules.phases[0].required_checks = 1);
    trace.then(MachineInput::RequiredCheckEnded(CheckResult::Passed));
    let effects = trace.then(MachineInput::CheckEnded(no_such()));
    let has_warning = effects.iter().any(|it| matches!(it, Effect::Warn(_)));
    assert!(!has_warning, "the end says it");
    assert_eq!(
        trace.reason().to_string(),
        "failed: the check can't run: sh: 1: carg: not found"
    );
    assert!(!trace.reason().is_final());
    let (mut trace, _) = begin(|rules| rules.phases[0].required_checks = 1);
    trace.then(MachineInput::RequiredCheckEnded(no_such()));
    let reason = trace.reason();
    let StopReason::FirstCheckNotRun { command, .. } = &reason else {
        panic!("{reason:?}");
    };
    assert_eq!(*command, LoopCommand::RequiredCheck(0));
    assert_eq!(
        reason.to_string(),
        "failed: required check 1 can't run: sh: 1: carg: not found"
    );
    // The resume comes with a corrected command, and begins with the iteration.
    let effects = trace.then(MachineInput::Resumed(ResumeOptions::default()));
    assert_eq!(started(&effects).iteration, 1);
}

#[test]
fn only_a_run_with_one_phase_and_only_a_check_begins_with_it() {
    let changes: [fn(&mut Rules); 4] = [
        |rules| rules.first_check = false,
        |rules| rules.phases[0].has_promise = true,
        |rules| {
            rules.phases[0].has_check = false;
            rules.phases[0].limits.max_iterations = Some(2);
        },
        |rules| {
            let second = PhaseRules {
                name: "second".into(),
                ..rules.phases[0].clone()
            };
            rules.phases.push(second);
        },
    ];
    for change in changes {
        let (trace, text) = begin(change);
        let step = &trace.machine.head().step;
        assert!(matches!(step, IterationStep::Turn { .. }), "{text}");
    }
}

#[test]
fn resume_after_a_stop_or_a_crash_has_no_first_check() {
    let (mut trace, _) = begin(|_| {});
    trace.then(stop(StopTiming::Now));
    trace.then(MachineInput::CheckEnded(CheckResult::Stopped));
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
    let effects = trace.then(MachineInput::Resumed(ResumeOptions::default()));
    assert_eq!(started(&effects).iteration, 1);
    let (mut trace, _) = begin(|_| {});
    let effects = trace.crash_and_resume();
    assert_eq!(
        (started(&effects).iteration, started(&effects).attempt),
        (1, 1)
    );
}

#[test]
fn restart_during_the_first_check_begins_the_iteration() {
    for what in [RedoScope::Iteration, RedoScope::Phase] {
        let (mut trace, _) = begin(|_| {});
        let redo = MachineInput::Requested(Request::Redo { what });
        assert!(trace.then(redo).contains(&Effect::StopCheck));
        let mut effects = trace.then(MachineInput::CheckEnded(CheckResult::Stopped));
        if effects.contains(&Effect::EndLeftovers) {
            let settled = MachineInput::LeftoversEnded(ProcessTreeOutcome::default());
            effects = trace.then(settled);
        }
        assert_eq!(started(&effects).iteration, 1, "{what:?}");
    }
}
