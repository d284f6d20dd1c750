//! Phases, the boundaries between them, and reviews.

use std::time::Duration;

use insta::assert_snapshot;
use loop_state::{
    Autonomy, CheckResult, Effect, Evidence, IterationStep, MAX_ERRORS, Machine, MachineInput,
    PauseAfter, PhaseRules, ProcessTreeOutcome, RedoScope, Request, ResumeOptions, ReviewDecision,
    ReviewPoint, Rules, RunLimits, RunUpdate, SessionPolicy, StopCause, StopReason, StopTiming,
    Timer, TurnOutcome,
};

use crate::person::started;
use crate::traces::{Trace, failed, is_rejected, stop};

/// Returns a run with three phases: `plan` has two iterations, `build` has a check and one continuing session, `polish` has a promise.
pub(crate) fn pipeline(change: impl FnOnce(&mut Rules)) -> Trace {
    let plan = PhaseRules {
        name: "plan".into(),
        limits: loop_state::PhaseLimits {
            max_iterations: Some(2),
            ..Default::default()
        },
        ..PhaseRules::default()
    };
    let build = PhaseRules {
        name: "build".into(),
        has_check: true,
        session: SessionPolicy::Continue,
        limits: loop_state::PhaseLimits {
            iteration_timeout: Some(Duration::from_secs(60)),
            ..Default::default()
        },
        ..PhaseRules::default()
    };
    let polish = PhaseRules {
        name: "polish".into(),
        has_promise: true,
        ..PhaseRules::default()
    };
    let mut rules = Rules {
        phases: vec![plan, build, polish],
        limits: RunLimits {
            sleep: Duration::ZERO,
            ..RunLimits::default()
        },
        ..Rules::default()
    };
    change(&mut rules);
    Trace::new(rules)
}

fn reviewed(autonomy: Autonomy) -> Trace {
    let mut trace = pipeline(|rules| rules.autonomy = autonomy);
    trace.then(MachineInput::Attended(true));
    trace
}

/// Runs an iteration without a check.
fn plain(trace: &mut Trace, outcome: TurnOutcome) -> Vec<Effect> {
    trace.then(MachineInput::TurnEnded(outcome));
    trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()))
}

/// Runs both iterations of `plan`.
pub(crate) fn plan(trace: &mut Trace) -> Vec<Effect> {
    plain(trace, TurnOutcome::Completed);
    trace.then(MachineInput::ResultReported("build it small".into()));
    plain(trace, TurnOutcome::Completed)
}

pub(crate) fn next_phase(trace: &mut Trace) -> Vec<Effect> {
    trace.then(MachineInput::TimerExpired(Timer::Sleep))
}

#[test]
fn x119a_each_phase_has_its_own_stop_condition_limits_numbers_and_session() {
    let mut trace = pipeline(|_| {});
    assert_eq!(trace.machine.next_deadline(), None);
    plain(&mut trace, TurnOutcome::Completed);
    trace.then(MachineInput::SessionKnown("s0".into()));
    trace.then(MachineInput::ResultReported("build it small".into()));
    plain(&mut trace, TurnOutcome::Completed);
    let effects = next_phase(&mut trace);
    assert_eq!(
        started(&effects).session,
        None,
        "the phase continues its own session"
    );
    let deadline = trace.machine.next_deadline().unwrap();
    assert_eq!(
        deadline.as_millis(),
        trace.now + 60_000,
        "the limit of `build`"
    );
    trace.then(MachineInput::SessionKnown("s1".into()));
    trace.then(MachineInput::PromptReceived);
    let effects = trace.iteration(failed("red"));
    assert_eq!(started(&effects).session.as_deref(), Some("s1"));
    trace.iteration(CheckResult::Passed);
    let effects = next_phase(&mut trace);
    assert_eq!(
        started(&effects).session,
        None,
        "another phase, another session"
    );
    plain(&mut trace, TurnOutcome::PromiseMade);
    assert_eq!(trace.reason(), StopReason::Done(Evidence::Promise));
    assert_snapshot!(trace.text);
}

#[test]
fn x119b_phase_result_reaches_only_next_prompts() {
    let mut trace = pipeline(|_| {});
    plan(&mut trace);
    let effects = next_phase(&mut trace);
    assert_eq!(started(&effects).result.as_deref(), Some("build it small"));
    let effects = trace.iteration(failed("red"));
    assert_eq!(started(&effects).result.as_deref(), Some("build it small"));
    trace.iteration(CheckResult::Passed);
    let effects = next_phase(&mut trace);
    assert_eq!(started(&effects).result, None, "`build` has no result");
}

#[test]
fn x119c_phase_is_saved_at_boundary_before_next_start() {
    let mut trace = pipeline(|_| {});
    let effects = plan(&mut trace);
    let phase = "plan".into();
    assert_eq!(effects[0], Effect::SavePhase { phase });
    assert_eq!(effects.len(), 3, "{effects:?}");
    let sealed = trace.machine.head().clone();
    assert_eq!((sealed.phase, sealed.iteration, sealed.attempt), (1, 0, 0));
    assert_eq!(
        trace.machine.due_input(sealed.last_at),
        Some(MachineInput::TimerExpired(Timer::Sleep))
    );
    // A process that resumes from the checkpoint is in the next phase and uses no attempt number again.
    let mut other = Machine::from(sealed);
    let resume = MachineInput::Resumed(ResumeOptions::default());
    let effects = other.step(crate::at(9_999, resume));
    let brief = started(&effects);
    assert_eq!((brief.phase, brief.iteration, brief.attempt), (1, 1, 2));
}

#[test]
fn x119c_resume_continues_in_the_saved_phase() {
    let mut trace = pipeline(|_| {});
    plan(&mut trace);
    next_phase(&mut trace);
    trace.iteration(failed("red"));
    trace.crash_and_resume();
    let effects = trace.then(MachineInput::CheckEnded(failed("red")));
    let brief = started(&effects);
    assert_eq!((brief.phase, brief.iteration), (1, 2));
    assert_eq!(brief.result.as_deref(), Some("build it small"));
}

#[test]
fn x119d_errors_of_finished_phases_survive_and_are_limited() {
    let mut trace = pipeline(|rules| {
        rules.limits.max_failures = 0;
        rules.phases[0].limits.max_iterations = Some(12);
    });
    for nth in 1..=11 {
        plain(&mut trace, TurnOutcome::Failed(format!("error {nth}")));
    }
    plain(&mut trace, TurnOutcome::Completed);
    next_phase(&mut trace);
    trace.crash_and_resume();
    let finished = &trace.machine.head().finished_phases[0];
    assert_eq!((finished.name.as_str(), finished.iterations), ("plan", 12));
    assert_eq!(finished.errors.len(), MAX_ERRORS);
    assert_eq!(finished.errors[0].what, "error 4");
    assert_eq!(finished.errors[7].iteration, 11);
    assert!(
        trace.machine.head().errors.is_empty(),
        "`build` has no failures yet"
    );
}

#[test]
fn x119b_phase_with_failed_last_iteration_passes_no_result() {
    let mut trace = reviewed(Autonomy::Checkpoint);
    plain(&mut trace, TurnOutcome::Completed);
    let effects = plain(&mut trace, TurnOutcome::Failed("exit status 1".into()));
    assert_eq!(effects[0], Effect::Save, "no phase is finished");
    assert!(matches!(
        trace.reason(),
        StopReason::LastIterationFailed { iteration: 2, .. }
    ));
    // With the same rules there is nothing to do; with another iteration there is.
    trace.crash_and_resume();
    assert!(matches!(
        trace.reason(),
        StopReason::LastIterationFailed { iteration: 2, .. }
    ));
    let mut rules = trace.machine.head().rules.clone();
    rules.phases[0].limits.max_iterations = Some(3);
    let effects = trace.then(MachineInput::Resumed(ResumeOptions {
        rules: Some(rules),
        ..ResumeOptions::default()
    }));
    let brief = started(&effects);
    assert_eq!((brief.phase, brief.iteration), (0, 3));
    assert_eq!(trace.machine.head().errors[0].what, "exit status 1");
}

#[test]
fn x120a_continue_starts_the_next_phase() {
    let mut trace = reviewed(Autonomy::Checkpoint);
    let effects = plan(&mut trace);
    let review = Effect::Emit(RunUpdate::Review(ReviewPoint::Phase));
    assert_eq!(effects.last(), Some(&review));
    assert!(trace.machine.head().awaits_person());
    assert_eq!(trace.machine.next_deadline(), None, "there is no timer");
    let effects = trace.then(MachineInput::Requested(Request::Review(
        ReviewDecision::Continue,
    )));
    assert_eq!(started(&effects).phase, 1);
    assert_snapshot!(trace.text);
}

#[test]
fn x120b_revise_runs_the_phase_again_with_the_text() {
    let mut trace = reviewed(Autonomy::Checkpoint);
    plan(&mut trace);
    let effects = trace.then(MachineInput::Requested(Request::Review(
        ReviewDecision::Revise("use fewer crates".into()),
    )));
    let brief = started(&effects);
    assert_eq!((brief.phase, brief.iteration, brief.attempt), (0, 1, 2));
    assert_eq!(brief.steers[0].text, "use fewer crates");
    assert!(trace.machine.head().finished_phases.is_empty());
    // The steer is sent once, and the phase finishes as before.
    let effects = plain(&mut trace, TurnOutcome::Completed);
    assert!(started(&effects).steers.is_empty());
    plain(&mut trace, TurnOutcome::Completed);
    assert_eq!(trace.machine.head().finished_phases.len(), 1);
    assert!(matches!(
        trace.machine.head().step,
        IterationStep::Review { .. }
    ));
}

#[test]
fn x120c_start_over_runs_the_phase_again_in_a_fresh_session() {
    for word in [
        MachineInput::Requested(Request::Review(ReviewDecision::StartOver)),
        MachineInput::Requested(Request::Redo {
            what: RedoScope::Phase,
        }),
    ] {
        let mut trace = reviewed(Autonomy::Checkpoint);
        trace.then(MachineInput::Requested(Request::Review(
            ReviewDecision::StartOver,
        )));
        plan(&mut trace);
        trace.then(MachineInput::Requested(Request::Review(
            ReviewDecision::Continue,
        )));
        trace.then(MachineInput::SessionKnown("s1".into()));
        trace.iteration(CheckResult::Passed);
        let effects = trace.then(word);
        let brief = started(&effects);
        assert_eq!((brief.phase, brief.iteration), (1, 1));
        assert_eq!((brief.session.as_deref(), brief.steers.len()), (None, 0));
        assert_eq!(
            brief.result.as_deref(),
            Some("build it small"),
            "the result of the previous phase"
        );
    }
}

#[test]
fn x120d_exit_stops_and_resume_repeats_the_review() {
    let mut trace = reviewed(Autonomy::Checkpoint);
    plan(&mut trace);
    trace.then(MachineInput::Requested(Request::Review(
        ReviewDecision::Exit,
    )));
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
    let head = trace.machine.head().clone();
    let attended = ResumeOptions {
        attended: true,
        ..ResumeOptions::default()
    };
    let effects = trace.then(MachineInput::Resumed(attended));
    assert_eq!(
        effects[1],
        Effect::Emit(RunUpdate::Review(ReviewPoint::Phase))
    );
    trace.then(MachineInput::Requested(Request::Review(
        ReviewDecision::Continue,
    )));
    assert_eq!(trace.machine.head().phase, 1);
    // If nobody can be asked, the resume itself continues the run.
    let mut trace = Trace::resumed(head, ResumeOptions::default());
    assert!(matches!(
        trace.machine.head().step,
        IterationStep::Turn { .. }
    ));
    assert!(is_rejected(&trace.then(MachineInput::Requested(
        Request::Review(ReviewDecision::Exit)
    ))));
}

/// Resumes the run with a person present.
fn resumed(trace: &mut Trace, from: Option<u32>) -> Vec<Effect> {
    trace.then(MachineInput::Resumed(ResumeOptions {
        from_iteration: from,
        attended: true,
        ..ResumeOptions::default()
    }))
}

#[test]
fn x120d_stop_after_the_last_iteration_keeps_the_review() {
    let mut trace = reviewed(Autonomy::Checkpoint);
    plain(&mut trace, TurnOutcome::Completed);
    trace.then(stop(StopTiming::AfterIteration));
    let effects = plain(&mut trace, TurnOutcome::Completed);
    assert_eq!(effects.last(), Some(&Effect::EndRun));
    let asked = |of| Effect::Emit(RunUpdate::Review(of));
    assert!(!effects.contains(&asked(ReviewPoint::Phase)), "{effects:?}");
    // The next phase has not begun, so there is nothing to discard, and the review stays open.
    for from in [None, Some(1)] {
        let effects = resumed(&mut trace, from);
        assert_eq!(
            effects,
            [Effect::Save, asked(ReviewPoint::Phase)],
            "{from:?}"
        );
    }

    let mut trace = reviewed(Autonomy::Batch(1));
    trace.then(stop(StopTiming::AfterIteration));
    plain(&mut trace, TurnOutcome::Completed);
    assert_eq!(resumed(&mut trace, None)[1], asked(ReviewPoint::Batch));
}

#[test]
fn x120a_shorter_plan_during_a_review_ends_the_phase_and_not_the_run() {
    let mut trace = reviewed(Autonomy::Batch(1));
    plain(&mut trace, TurnOutcome::Completed);
    let mut rules = trace.machine.head().rules.clone();
    rules.phases[0].limits.max_iterations = Some(1);
    trace.then(MachineInput::Resumed(ResumeOptions {
        rules: Some(rules),
        attended: true,
        ..ResumeOptions::default()
    }));
    let head = trace.machine.head();
    assert_eq!((head.phase, &head.end), (1, &None));
    assert_eq!(head.finished_phases[0].name, "plan");
}

#[test]
fn x120b_resume_with_feedback_revises_reviewed_phase() {
    let mut trace = reviewed(Autonomy::Checkpoint);
    plan(&mut trace);
    trace.then(MachineInput::Requested(Request::Review(
        ReviewDecision::Exit,
    )));
    let effects = trace.then(MachineInput::Resumed(ResumeOptions {
        feedback: Some("shorter".into()),
        ..ResumeOptions::default()
    }));
    let brief = started(&effects);
    assert_eq!((brief.phase, brief.iteration), (0, 1));
    assert_eq!(brief.steers[0].text, "shorter");
}

#[test]
fn s23a_full_autonomy_never_asks_for_a_review() {
    let mut trace = reviewed(Autonomy::Full);
    plan(&mut trace);
    next_phase(&mut trace);
    trace.iteration(failed("red"));
    trace.iteration(CheckResult::Passed);
    assert!(!trace.text.contains("Review"), "{}", trace.text);
    assert_eq!(trace.machine.head().phase, 2);
}

#[test]
fn s23b_s23d_batch_review_follows_every_n_iterations_and_is_no_phase() {
    let mut trace = reviewed(Autonomy::Batch(3));
    plan(&mut trace);
    assert!(
        matches!(trace.machine.head().step, IterationStep::Sleeping { .. }),
        "the end of a phase is not a batch"
    );
    next_phase(&mut trace);
    let effects = trace.iteration(failed("red"));
    let review = Effect::Emit(RunUpdate::Review(ReviewPoint::Batch));
    assert_eq!(effects.last(), Some(&review));
    // Within a phase nothing runs again: the next prompt contains the text.
    let effects = trace.then(MachineInput::Requested(Request::Review(
        ReviewDecision::Revise("mind the docs".into()),
    )));
    let brief = started(&effects);
    assert_eq!((brief.phase, brief.iteration), (1, 2));
    assert_eq!(brief.steers[0].text, "mind the docs");
    for _ in 0..2 {
        assert!(!trace.iteration(failed("red")).contains(&review));
    }
    assert!(trace.iteration(failed("red")).contains(&review));
    let effects = trace.then(MachineInput::Requested(Request::Review(
        ReviewDecision::StartOver,
    )));
    assert_eq!(
        (started(&effects).phase, started(&effects).iteration),
        (1, 1)
    );
}

#[test]
fn s23c_checkpoint_autonomy_reviews_each_phase_and_no_iteration() {
    let mut trace = reviewed(Autonomy::Checkpoint);
    let review = Effect::Emit(RunUpdate::Review(ReviewPoint::Phase));
    assert!(!plain(&mut trace, TurnOutcome::Completed).contains(&review));
    let effects = plain(&mut trace, TurnOutcome::Completed);
    assert_eq!(effects.last(), Some(&review));
    trace.then(MachineInput::Requested(Request::Review(
        ReviewDecision::Continue,
    )));
    assert!(!trace.iteration(failed("red")).contains(&review));
    assert_eq!(trace.iteration(CheckResult::Passed).last(), Some(&review));
}

#[test]
fn s23e_without_a_person_there_is_no_review() {
    for autonomy in [Autonomy::Checkpoint, Autonomy::Batch(1)] {
        let mut trace = pipeline(|rules| rules.autonomy = autonomy);
        plan(&mut trace);
        let effects = next_phase(&mut trace);
        assert_eq!(started(&effects).phase, 1);
        assert!(!trace.text.contains("Review"), "{}", trace.text);
    }
    // The person leaves while the review is open.
    let mut trace = reviewed(Autonomy::Checkpoint);
    plan(&mut trace);
    let effects = trace.then(MachineInput::Attended(false));
    assert_eq!(started(&effects).phase, 1);
    // Each process reports again whether a person can be asked.
    let mut trace = reviewed(Autonomy::Checkpoint);
    trace.crash_and_resume();
    assert!(!trace.machine.head().attended);
}

#[test]
fn last_phase_ends_the_run_without_a_review() {
    let mut trace = reviewed(Autonomy::Checkpoint);
    plan(&mut trace);
    trace.then(MachineInput::Requested(Request::Continue));
    trace.iteration(CheckResult::Passed);
    trace.then(MachineInput::Requested(Request::Review(
        ReviewDecision::Continue,
    )));
    let effects = plain(&mut trace, TurnOutcome::PromiseMade);
    assert_eq!(
        effects[0],
        Effect::SavePhase {
            phase: "polish".into()
        }
    );
    assert_eq!(trace.reason(), StopReason::Done(Evidence::Promise));
    assert_eq!(trace.machine.head().finished_phases.len(), 3);
}

#[test]
fn stop_during_a_review_acts_at_once_and_a_review_satisfies_a_pause() {
    let mut trace = reviewed(Autonomy::Checkpoint);
    trace.then(MachineInput::Requested(Request::Pause {
        reason: None,
        after: PauseAfter::Iteration,
    }));
    plan(&mut trace);
    trace.then(MachineInput::Requested(Request::Continue));
    plan(&mut trace);
    assert!(matches!(
        trace.machine.head().step,
        IterationStep::Review { .. }
    ));
    assert!(
        is_rejected(&trace.then(MachineInput::Requested(Request::Pause {
            reason: None,
            after: PauseAfter::Iteration
        }))),
        "the run already waits"
    );
    trace.then(stop(StopTiming::AfterIteration));
    assert!(trace.reason().is_stopped());
}

#[test]
fn pause_works_between_phases() {
    let mut trace = pipeline(|_| {});
    plain(&mut trace, TurnOutcome::Completed);
    trace.then(MachineInput::Requested(Request::Pause {
        reason: None,
        after: PauseAfter::Iteration,
    }));
    plain(&mut trace, TurnOutcome::Completed);
    assert!(matches!(
        trace.machine.head().step,
        IterationStep::Paused { .. }
    ));
    assert!(is_rejected(&trace.then(MachineInput::Requested(
        Request::Redo {
            what: RedoScope::Iteration
        }
    ))));
    let mut over = trace.machine.clone();
    let effects = over.step(crate::at(
        9_999,
        MachineInput::Requested(Request::Redo {
            what: RedoScope::Phase,
        }),
    ));
    assert_eq!(
        (started(&effects).phase, started(&effects).iteration),
        (0, 1)
    );
    let effects = trace.then(MachineInput::Requested(Request::Continue));
    assert_eq!(started(&effects).phase, 1);
}

#[test]
fn steer_during_review_revises() {
    let mut trace = reviewed(Autonomy::Checkpoint);
    plan(&mut trace);
    let mut other = trace.machine.clone();
    let text = || "smaller".to_owned();
    let said = Request::Steer {
        text: text(),
        now: true,
    };
    let revised = Request::Review(ReviewDecision::Revise(text()));
    let effects = trace
        .machine
        .step(crate::at(9_999, MachineInput::Requested(said)));
    assert_eq!(
        effects,
        other.step(crate::at(9_999, MachineInput::Requested(revised)))
    );
    assert_eq!(trace.machine.head(), other.head());
    assert!(matches!(other.head().step, IterationStep::Turn { .. }));
}
