//! Phases, the boundaries between them, and reviews.

use std::time::Duration;

use insta::assert_snapshot;
use loop_state::{
    Again, Autonomy, CheckResult, Effect, Evidence, Happening, MAX_ERRORS, Machine, Notice,
    Occasion, PauseAfter, PhaseRules, Request, Resume, Rules, RunLimits, SessionPolicy, Step,
    StopCause, StopReason, Timer, Tree, TurnOutcome, Verdict, When,
};

use crate::person::started;
use crate::traces::{Trace, failed, in_vain, stop};

/// Returns a run with three phases: `plan` has two iterations, `build` has a check and one continuing session, `polish` has a promise.
pub(crate) fn pipeline(change: impl FnOnce(&mut Rules)) -> Trace {
    let plan = PhaseRules {
        name: "plan".into(),
        limits: loop_state::Limits {
            max_iterations: Some(2),
            ..Default::default()
        },
        ..PhaseRules::default()
    };
    let build = PhaseRules {
        name: "build".into(),
        until: true,
        session: SessionPolicy::Continue,
        limits: loop_state::Limits {
            iteration_timeout: Some(Duration::from_secs(60)),
            ..Default::default()
        },
        ..PhaseRules::default()
    };
    let polish = PhaseRules {
        name: "polish".into(),
        promise: true,
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
    trace.then(Happening::Attended(true));
    trace
}

/// Runs an iteration without a check.
fn plain(trace: &mut Trace, outcome: TurnOutcome) -> Vec<Effect> {
    trace.then(Happening::TurnEnded(outcome));
    trace.then(Happening::Settled(Tree::default()))
}

/// Runs both iterations of `plan`.
pub(crate) fn plan(trace: &mut Trace) -> Vec<Effect> {
    plain(trace, TurnOutcome::Completed);
    trace.then(Happening::Said("build it small".into()));
    plain(trace, TurnOutcome::Completed)
}

pub(crate) fn next_phase(trace: &mut Trace) -> Vec<Effect> {
    trace.then(Happening::TimeUp(Timer::Sleep))
}

#[test]
fn x119a_each_phase_has_its_own_end_limits_numbers_and_session() {
    let mut trace = pipeline(|_| {});
    assert_eq!(trace.machine.next_deadline(), None);
    plain(&mut trace, TurnOutcome::Completed);
    trace.then(Happening::SessionKnown("s0".into()));
    trace.then(Happening::Said("build it small".into()));
    plain(&mut trace, TurnOutcome::Completed);
    let effects = next_phase(&mut trace);
    assert_eq!(
        started(&effects).session,
        None,
        "the phase continues its own session"
    );
    let deadline = trace.machine.next_deadline().unwrap();
    assert_eq!(deadline.0, trace.now + 60_000, "the limit of `build`");
    trace.then(Happening::SessionKnown("s1".into()));
    trace.then(Happening::Prompted);
    let effects = trace.iteration(failed("red"));
    assert_eq!(started(&effects).session.as_deref(), Some("s1"));
    trace.iteration(CheckResult::Passed);
    let effects = next_phase(&mut trace);
    assert_eq!(
        started(&effects).session,
        None,
        "another phase, another session"
    );
    plain(&mut trace, TurnOutcome::Claimed);
    assert_eq!(trace.reason(), StopReason::Done(Evidence::Claim));
    assert_snapshot!(trace.text);
}

#[test]
fn x119b_what_a_phase_came_to_reaches_the_prompts_of_the_next_one_and_no_other() {
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
fn x119c_what_is_sealed_is_the_boundary_and_nothing_is_started_beside_it() {
    let mut trace = pipeline(|_| {});
    let effects = plan(&mut trace);
    let phase = "plan".into();
    assert_eq!(effects[0], Effect::SealPhase { phase });
    assert_eq!(effects.len(), 3, "{effects:?}");
    let sealed = trace.machine.head().clone();
    assert_eq!((sealed.phase, sealed.iteration, sealed.attempt), (1, 0, 0));
    assert_eq!(
        trace.machine.due(sealed.last_at),
        Some(Happening::TimeUp(Timer::Sleep))
    );
    // A process that resumes from the checkpoint is in the next phase and uses no attempt number again.
    let mut other = Machine::from(sealed);
    let resume = Happening::Resumed(Resume::default());
    let effects = other.step(crate::at(9_999, resume));
    let brief = started(&effects);
    assert_eq!((brief.phase, brief.iteration, brief.attempt), (1, 1, 2));
}

#[test]
fn x119c_a_resume_lands_in_the_phase_that_was_left() {
    let mut trace = pipeline(|_| {});
    plan(&mut trace);
    next_phase(&mut trace);
    trace.iteration(failed("red"));
    trace.crash_and_resume();
    let effects = trace.then(Happening::CheckEnded(failed("red")));
    let brief = started(&effects);
    assert_eq!((brief.phase, brief.iteration), (1, 2));
    assert_eq!(brief.result.as_deref(), Some("build it small"));
}

#[test]
fn x119d_errors_of_finished_phases_survive_and_are_bounded() {
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
    let finished = &trace.machine.head().finished[0];
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
fn x119b_a_phase_whose_last_planned_iteration_failed_hands_nothing_over() {
    let mut trace = reviewed(Autonomy::Checkpoint);
    plain(&mut trace, TurnOutcome::Completed);
    let effects = plain(&mut trace, TurnOutcome::Failed("exit status 1".into()));
    assert_eq!(effects[0], Effect::Save, "no phase is finished");
    assert!(matches!(trace.reason(), StopReason::LastFailed(2, _)));
    // With the same rules there is nothing to do; with another iteration there is.
    trace.crash_and_resume();
    assert!(matches!(trace.reason(), StopReason::LastFailed(2, _)));
    let mut rules = trace.machine.head().rules.clone();
    rules.phases[0].limits.max_iterations = Some(3);
    let effects = trace.then(Happening::Resumed(Resume {
        rules: Some(rules),
        ..Resume::default()
    }));
    let brief = started(&effects);
    assert_eq!((brief.phase, brief.iteration), (0, 3));
    assert_eq!(trace.machine.head().errors[0].what, "exit status 1");
}

#[test]
fn x120a_continue_goes_on_in_the_next_phase() {
    let mut trace = reviewed(Autonomy::Checkpoint);
    let effects = plan(&mut trace);
    let review = Effect::Announce(Notice::Review(Occasion::Phase));
    assert_eq!(effects.last(), Some(&review));
    assert!(trace.machine.head().is_waiting());
    assert_eq!(trace.machine.next_deadline(), None, "there is no timer");
    let effects = trace.then(Happening::Requested(Request::Review(Verdict::Continue)));
    assert_eq!(started(&effects).phase, 1);
    assert_snapshot!(trace.text);
}

#[test]
fn x120b_revise_runs_the_phase_again_with_the_text() {
    let mut trace = reviewed(Autonomy::Checkpoint);
    plan(&mut trace);
    let effects = trace.then(Happening::Requested(Request::Review(Verdict::Revise(
        "use fewer crates".into(),
    ))));
    let brief = started(&effects);
    assert_eq!((brief.phase, brief.iteration, brief.attempt), (0, 1, 2));
    assert_eq!(brief.steers[0].text, "use fewer crates");
    assert!(trace.machine.head().finished.is_empty());
    // The steer is sent once, and the phase finishes as before.
    let effects = plain(&mut trace, TurnOutcome::Completed);
    assert!(started(&effects).steers.is_empty());
    plain(&mut trace, TurnOutcome::Completed);
    assert_eq!(trace.machine.head().finished.len(), 1);
    assert!(matches!(trace.machine.head().step, Step::Review { .. }));
}

#[test]
fn x120c_start_over_runs_the_phase_again_in_a_fresh_session() {
    for word in [
        Happening::Requested(Request::Review(Verdict::StartOver)),
        Happening::Requested(Request::Again { what: Again::Phase }),
    ] {
        let mut trace = reviewed(Autonomy::Checkpoint);
        trace.then(Happening::Requested(Request::Review(Verdict::StartOver)));
        plan(&mut trace);
        trace.then(Happening::Requested(Request::Review(Verdict::Continue)));
        trace.then(Happening::SessionKnown("s1".into()));
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
fn x120d_exit_stops_and_a_resume_comes_back_to_the_question() {
    let mut trace = reviewed(Autonomy::Checkpoint);
    plan(&mut trace);
    trace.then(Happening::Requested(Request::Review(Verdict::Exit)));
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
    let head = trace.machine.head().clone();
    let attended = Resume {
        attended: true,
        ..Resume::default()
    };
    let effects = trace.then(Happening::Resumed(attended));
    assert_eq!(
        effects[1],
        Effect::Announce(Notice::Review(Occasion::Phase))
    );
    trace.then(Happening::Requested(Request::Review(Verdict::Continue)));
    assert_eq!(trace.machine.head().phase, 1);
    // If nobody can be asked, the resume itself continues the run.
    let mut trace = Trace::resumed(head, Resume::default());
    assert!(matches!(trace.machine.head().step, Step::Turn { .. }));
    assert!(in_vain(
        &trace.then(Happening::Requested(Request::Review(Verdict::Exit)))
    ));
}

/// Resumes the run with a person present.
fn resumed(trace: &mut Trace, from: Option<u32>) -> Vec<Effect> {
    trace.then(Happening::Resumed(Resume {
        from,
        attended: true,
        ..Resume::default()
    }))
}

#[test]
fn x120d_a_stop_behind_the_last_iteration_takes_no_question_away() {
    let mut trace = reviewed(Autonomy::Checkpoint);
    plain(&mut trace, TurnOutcome::Completed);
    trace.then(stop(When::AfterIteration));
    let effects = plain(&mut trace, TurnOutcome::Completed);
    assert_eq!(effects.last(), Some(&Effect::Finish));
    let asked = |of| Effect::Announce(Notice::Review(of));
    assert!(!effects.contains(&asked(Occasion::Phase)), "{effects:?}");
    // The next phase has not begun, so there is nothing to discard, and the review stays open.
    for from in [None, Some(1)] {
        let effects = resumed(&mut trace, from);
        assert_eq!(effects, [Effect::Save, asked(Occasion::Phase)], "{from:?}");
    }

    let mut trace = reviewed(Autonomy::Batch(1));
    trace.then(stop(When::AfterIteration));
    plain(&mut trace, TurnOutcome::Completed);
    assert_eq!(resumed(&mut trace, None)[1], asked(Occasion::Batch));
}

#[test]
fn x120a_a_shorter_plan_at_a_question_ends_the_phase_and_not_the_run() {
    let mut trace = reviewed(Autonomy::Batch(1));
    plain(&mut trace, TurnOutcome::Completed);
    let mut rules = trace.machine.head().rules.clone();
    rules.phases[0].limits.max_iterations = Some(1);
    trace.then(Happening::Resumed(Resume {
        rules: Some(rules),
        attended: true,
        ..Resume::default()
    }));
    let head = trace.machine.head();
    assert_eq!((head.phase, &head.end), (1, &None));
    assert_eq!(head.finished[0].name, "plan");
}

#[test]
fn x120b_what_is_said_with_a_resume_revises_the_phase_that_is_asked_about() {
    let mut trace = reviewed(Autonomy::Checkpoint);
    plan(&mut trace);
    trace.then(Happening::Requested(Request::Review(Verdict::Exit)));
    let effects = trace.then(Happening::Resumed(Resume {
        feedback: Some("shorter".into()),
        ..Resume::default()
    }));
    let brief = started(&effects);
    assert_eq!((brief.phase, brief.iteration), (0, 1));
    assert_eq!(brief.steers[0].text, "shorter");
}

#[test]
fn s23a_full_autonomy_never_asks() {
    let mut trace = reviewed(Autonomy::Full);
    plan(&mut trace);
    next_phase(&mut trace);
    trace.iteration(failed("red"));
    trace.iteration(CheckResult::Passed);
    assert!(!trace.text.contains("Review"), "{}", trace.text);
    assert_eq!(trace.machine.head().phase, 2);
}

#[test]
fn s23b_s23d_a_batch_is_reviewed_each_n_iterations_and_is_no_phase() {
    let mut trace = reviewed(Autonomy::Batch(3));
    plan(&mut trace);
    assert!(
        matches!(trace.machine.head().step, Step::Sleeping { .. }),
        "the end of a phase is not a batch"
    );
    next_phase(&mut trace);
    let effects = trace.iteration(failed("red"));
    let review = Effect::Announce(Notice::Review(Occasion::Batch));
    assert_eq!(effects.last(), Some(&review));
    // Within a phase nothing runs again: the next prompt contains the text.
    let effects = trace.then(Happening::Requested(Request::Review(Verdict::Revise(
        "mind the docs".into(),
    ))));
    let brief = started(&effects);
    assert_eq!((brief.phase, brief.iteration), (1, 2));
    assert_eq!(brief.steers[0].text, "mind the docs");
    for _ in 0..2 {
        assert!(!trace.iteration(failed("red")).contains(&review));
    }
    assert!(trace.iteration(failed("red")).contains(&review));
    let effects = trace.then(Happening::Requested(Request::Review(Verdict::StartOver)));
    assert_eq!(
        (started(&effects).phase, started(&effects).iteration),
        (1, 1)
    );
}

#[test]
fn s23c_checkpoint_autonomy_reviews_each_phase_and_no_iteration() {
    let mut trace = reviewed(Autonomy::Checkpoint);
    let review = Effect::Announce(Notice::Review(Occasion::Phase));
    assert!(!plain(&mut trace, TurnOutcome::Completed).contains(&review));
    let effects = plain(&mut trace, TurnOutcome::Completed);
    assert_eq!(effects.last(), Some(&review));
    trace.then(Happening::Requested(Request::Review(Verdict::Continue)));
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
    let effects = trace.then(Happening::Attended(false));
    assert_eq!(started(&effects).phase, 1);
    // Each process reports again whether a person can be asked.
    let mut trace = reviewed(Autonomy::Checkpoint);
    trace.crash_and_resume();
    assert!(!trace.machine.head().attended);
}

#[test]
fn the_last_phase_ends_the_run_without_a_question() {
    let mut trace = reviewed(Autonomy::Checkpoint);
    plan(&mut trace);
    trace.then(Happening::Requested(Request::Continue));
    trace.iteration(CheckResult::Passed);
    trace.then(Happening::Requested(Request::Review(Verdict::Continue)));
    let effects = plain(&mut trace, TurnOutcome::Claimed);
    assert_eq!(
        effects[0],
        Effect::SealPhase {
            phase: "polish".into()
        }
    );
    assert_eq!(trace.reason(), StopReason::Done(Evidence::Claim));
    assert_eq!(trace.machine.head().finished.len(), 3);
}

#[test]
fn a_stop_acts_at_once_where_a_person_is_asked_and_a_wish_to_pause_is_met() {
    let mut trace = reviewed(Autonomy::Checkpoint);
    trace.then(Happening::Requested(Request::Pause {
        reason: None,
        after: PauseAfter::Iteration,
    }));
    plan(&mut trace);
    trace.then(Happening::Requested(Request::Continue));
    plan(&mut trace);
    assert!(matches!(trace.machine.head().step, Step::Review { .. }));
    assert!(
        in_vain(&trace.then(Happening::Requested(Request::Pause {
            reason: None,
            after: PauseAfter::Iteration
        }))),
        "the run already waits"
    );
    trace.then(stop(When::AfterIteration));
    assert!(trace.reason().is_stopped());
}

#[test]
fn a_pause_holds_between_phases_too() {
    let mut trace = pipeline(|_| {});
    plain(&mut trace, TurnOutcome::Completed);
    trace.then(Happening::Requested(Request::Pause {
        reason: None,
        after: PauseAfter::Iteration,
    }));
    plain(&mut trace, TurnOutcome::Completed);
    assert!(matches!(trace.machine.head().step, Step::Paused { .. }));
    assert!(in_vain(&trace.then(Happening::Requested(Request::Again {
        what: Again::Iteration
    }))));
    let mut over = trace.machine.clone();
    let effects = over.step(crate::at(
        9_999,
        Happening::Requested(Request::Again { what: Again::Phase }),
    ));
    assert_eq!(
        (started(&effects).phase, started(&effects).iteration),
        (0, 1)
    );
    let effects = trace.then(Happening::Requested(Request::Continue));
    assert_eq!(started(&effects).phase, 1);
}

#[test]
fn what_is_said_where_a_person_is_asked_revises() {
    let mut trace = reviewed(Autonomy::Checkpoint);
    plan(&mut trace);
    let mut other = trace.machine.clone();
    let text = || "smaller".to_owned();
    let said = Request::Steer {
        text: text(),
        now: true,
    };
    let revised = Request::Review(Verdict::Revise(text()));
    let effects = trace
        .machine
        .step(crate::at(9_999, Happening::Requested(said)));
    assert_eq!(
        effects,
        other.step(crate::at(9_999, Happening::Requested(revised)))
    );
    assert_eq!(trace.machine.head(), other.head());
    assert!(matches!(other.head().step, Step::Turn { .. }));
}
