//! Resumes with options, and redos.

use std::time::Duration;

use loop_state::{
    CheckResult, Effect, Evidence, MachineInput, ProcessTreeOutcome, RedoScope, Request,
    ResumeOptions, Rules, SessionPolicy, StopCause, StopReason, StopTiming, Streak, TurnOutcome,
    UsageTotal,
};

use crate::person::started;
use crate::rules;
use crate::traces::{Trace, failed, stop};

#[test]
fn s13e_feedback_to_a_resume_is_in_the_prompt_of_the_next_attempt() {
    let resume_with_feedback = |text: &str| {
        MachineInput::Resumed(ResumeOptions {
            feedback: Some(text.into()),
            ..ResumeOptions::default()
        })
    };
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].has_check = false;
        rules.phases[0].limits.max_iterations = Some(3);
    }));
    let effects = trace.then(resume_with_feedback("mind the docs"));
    assert_eq!(started(&effects).steers[0].text, "mind the docs");
    assert!(matches!(effects[0], Effect::Save), "the save comes first");
    // With a check, the check runs first, in case the unfinished attempt had done the work. The feedback waits meanwhile.
    let mut trace = Trace::new(rules(|_| {}));
    let effects = trace.then(resume_with_feedback("mind the docs"));
    assert!(effects.contains(&Effect::RunCheck));
    trace.crash_and_resume();
    let effects = trace.then(MachineInput::CheckEnded(failed("red")));
    assert_eq!(started(&effects).steers[0].text, "mind the docs");
}

#[test]
fn f2_iteration_whose_work_was_not_committed_runs_again_on_another_machine() {
    let no_check: fn(&mut Rules) = |rules| {
        rules.phases[0].has_check = false;
        rules.phases[0].limits.max_iterations = Some(3);
    };
    let required: fn(&mut Rules) = |rules| rules.phases[0].required_checks = 1;
    let check: fn(&mut Rules) = |_| {};
    for change in [no_check, required, check] {
        let mut trace = Trace::new(rules(change));
        trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
        let saved = trace.machine.head().clone();
        let moved = saved.clone().without_uncommitted_work();
        assert_eq!(moved.resume_point().iteration, 1);
        assert!(moved.resume_point().is_unfinished, "{:?}", saved.step);
        // The control: on the same machine the work is there, and the iteration is judged.
        assert!(!saved.resume_point().is_unfinished, "{:?}", saved.step);
        let mut trace = Trace::resumed(moved, ResumeOptions::default());
        assert_eq!(trace.machine.head().counts.iterations, 0);
        // With a check, it runs first, in case earlier commits have all the work.
        if trace.machine.head().phase_rules().has_check {
            for _ in 0..trace.machine.head().phase_rules().required_checks {
                trace.then(MachineInput::RequiredCheckEnded(CheckResult::Passed));
            }
            let effects = trace.then(MachineInput::CheckEnded(failed("red")));
            let brief = started(&effects);
            assert_eq!((brief.iteration, brief.attempt), (1, 2));
        }
        let head = trace.machine.head();
        assert_eq!((head.iteration, head.attempt), (1, 2));
    }
}

#[test]
fn s25a_stop_during_a_restart_ends_the_run_and_resume_restarts() {
    let mut trace = Trace::new(rules(|rules| rules.phases[0].required_checks = 1));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    trace.then(MachineInput::Requested(Request::Redo {
        what: RedoScope::Iteration,
    }));
    trace.then(MachineInput::RequiredCheckEnded(CheckResult::Stopped));
    trace.then(stop(StopTiming::Now));
    let effects = trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    let begun = effects
        .iter()
        .any(|it| matches!(it, Effect::StartAttempt(_)));
    assert!(!begun, "{effects:?}");
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
    let brief = started(&trace.then(MachineInput::Resumed(ResumeOptions::default()))).clone();
    assert_eq!((brief.iteration, brief.attempt), (1, 2));
}

#[test]
fn s25a_repeated_iteration_counts_one_failure() {
    let mut trace = Trace::new(rules(|rules| rules.limits.sleep = Duration::from_secs(9)));
    for _ in 0..2 {
        trace.then(MachineInput::TurnEnded(TurnOutcome::Failed("died".into())));
        trace.then(MachineInput::CheckEnded(failed("red")));
        trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
        let head = trace.machine.head();
        assert_eq!(
            (head.iterations_complete(), head.iterations_failed()),
            (1, 1)
        );
        trace.then(MachineInput::Requested(Request::Redo {
            what: RedoScope::Iteration,
        }));
        let head = trace.machine.head();
        assert_eq!((head.iterations_failed(), &head.last_iteration), (0, &None));
    }
}

#[test]
fn s13c_iteration_selected_by_from_begins_with_its_prompt() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].session = SessionPolicy::Continue;
    }));
    trace.then(MachineInput::SessionKnown("s1".into()));
    trace.then(MachineInput::PromptReceived);
    trace.then(stop(StopTiming::Now));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    let effects = trace.then(MachineInput::Resumed(ResumeOptions {
        from_iteration: Some(1),
        ..ResumeOptions::default()
    }));
    let brief = started(&effects);
    assert_eq!((brief.session.as_deref(), brief.has_prompt), (None, false));
}

#[test]
fn s13c_discarded_iterations_do_not_count() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.iteration(failed("red"));
    trace.iteration(failed("red"));
    assert_eq!(trace.machine.head().iterations_complete(), 2);
    trace.then(MachineInput::Resumed(ResumeOptions {
        from_iteration: Some(1),
        ..ResumeOptions::default()
    }));
    let head = trace.machine.head();
    assert_eq!(
        (head.iterations_complete(), &head.last_iteration),
        (0, &None)
    );
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
        rules.phases[0].has_check = false;
        rules.phases[0].limits.max_iterations = Some(max);
    })
}

fn turn(trace: &mut Trace, outcome: TurnOutcome) {
    trace.then(MachineInput::UsageReported(UsageTotal {
        cost_microusd: 2,
        ..UsageTotal::default()
    }));
    trace.then(MachineInput::TurnEnded(outcome));
    trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
}

#[test]
fn s13a_resumed_phase_is_unfinished_and_keeps_its_result() {
    let mut trace = Trace::new(planned(2));
    trace.then(MachineInput::ResultReported("half of it".into()));
    turn(&mut trace, TurnOutcome::Failed("exit status 1".into()));
    turn(&mut trace, TurnOutcome::Completed);
    assert_eq!(trace.reason(), StopReason::AllIterationsRan);
    assert_eq!(trace.machine.head().iterations_failed(), 1);
    // With nothing more to do, the phase stays finished.
    trace.crash_and_resume();
    assert_eq!(trace.reason(), StopReason::AllIterationsRan);
    assert_eq!(trace.machine.head().finished_phases.len(), 1);

    trace.then(MachineInput::Resumed(ResumeOptions {
        rules: Some(planned(3)),
        ..ResumeOptions::default()
    }));
    let head = trace.machine.head();
    assert_eq!((head.iteration, head.finished_phases.len()), (3, 0));
    assert_eq!(head.iterations_failed(), 1);
    turn(&mut trace, TurnOutcome::Completed);
    assert_eq!(trace.reason(), StopReason::AllIterationsRan);
    let [over] = trace.machine.head().finished_phases.as_slice() else {
        panic!("{:?}", trace.machine.head().finished_phases);
    };
    assert_eq!((over.iterations, over.usage.cost_microusd), (3, 6));
    assert_eq!(over.errors.len(), 1);
    assert_eq!(over.result.as_deref(), Some("half of it"));
}

#[test]
fn finished_phase_is_not_saved_again_under_the_same_rules() {
    let mut trace = Trace::new(planned(2));
    turn(&mut trace, TurnOutcome::Completed);
    turn(&mut trace, TurnOutcome::Completed);
    let effects = trace.then(MachineInput::Resumed(ResumeOptions {
        rules: Some(planned(2)),
        ..ResumeOptions::default()
    }));
    let seals = |effect: &Effect| matches!(effect, Effect::SavePhase { .. });
    assert!(!effects.iter().any(seals), "{effects:?}");
    assert_eq!(trace.reason(), StopReason::AllIterationsRan);
}

/// An attempt that is redone doesn't affect the result of the iteration before it.
#[test]
fn redo_of_an_iteration_keeps_the_previous_result() {
    let mut trace = Trace::new(planned(3));
    trace.then(MachineInput::ResultReported("half of it".into()));
    turn(&mut trace, TurnOutcome::Completed);
    trace.then(MachineInput::Requested(Request::Redo {
        what: RedoScope::Iteration,
    }));
    let effects = trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    assert_eq!(started(&effects).iteration, 2);
    assert_eq!(
        trace.machine.head().last_message.as_deref(),
        Some("half of it")
    );
}

#[test]
fn s13c_discarded_iterations_of_a_finished_phase_do_not_count() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Failed("no".into())));
    trace.then(MachineInput::CheckEnded(failed("red")));
    trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    trace.iteration(CheckResult::Passed);
    assert_eq!(trace.reason(), StopReason::Done(Evidence::Check));
    assert_eq!(trace.machine.head().iterations_failed(), 1);
    let mut again = |from| {
        trace.then(MachineInput::Resumed(ResumeOptions {
            from_iteration: Some(from),
            ..ResumeOptions::default()
        }));
        let head = trace.machine.head();
        (head.finished_phases.len(), head.iterations_failed())
    };
    assert_eq!(again(2), (0, 1));
    assert_eq!(again(1), (0, 0));
}

#[test]
fn phase_with_a_new_successor_passes_its_result() {
    let mut trace = Trace::new(planned(2));
    trace.then(MachineInput::ResultReported("all of it".into()));
    turn(&mut trace, TurnOutcome::Failed("exit status 1".into()));
    turn(&mut trace, TurnOutcome::Completed);
    let mut more = planned(2);
    more.phases.push(more.phases[0].clone());
    trace.then(MachineInput::Resumed(ResumeOptions {
        rules: Some(more),
        ..ResumeOptions::default()
    }));
    let effects = trace.then(MachineInput::Requested(Request::Skip));
    assert_eq!(started(&effects).result.as_deref(), Some("all of it"));
    let head = trace.machine.head();
    assert_eq!((head.phase, head.iterations_failed()), (1, 1));
}

#[test]
fn x108d_failures_in_a_row_survive_a_crash() {
    let mut trace = Trace::new(rules(|_| {}));
    let fails = |trace: &mut Trace| {
        let died = TurnOutcome::Failed("exit status 1".into());
        trace.then(MachineInput::TurnEnded(died));
        trace.then(MachineInput::CheckEnded(failed("no")));
        trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    };
    fails(&mut trace);
    fails(&mut trace);
    trace.crash_and_resume();
    trace.then(MachineInput::CheckEnded(failed("no")));
    fails(&mut trace);
    assert_eq!(
        trace.reason(),
        StopReason::Stuck {
            streak: Streak::Failures,
            count: 3
        }
    );
}

/// The settings may have changed the check since the last process, so an earlier run of the check proves nothing.
#[test]
fn check_that_ran_only_before_a_resume_ends_the_run_if_it_cannot_run() {
    let unrun = || CheckResult::NotRun("sh: 1: cagro: not found".into());
    let mut trace = Trace::new(rules(|rules| rules.limits.max_failures = 2));
    trace.iteration(failed("red"));
    trace.crash_and_resume();
    trace.then(MachineInput::CheckEnded(unrun()));
    trace.iteration(unrun());
    let (streak, count) = (Streak::CheckNotRun, 2);
    assert_eq!(trace.reason(), StopReason::Stuck { streak, count });
}
