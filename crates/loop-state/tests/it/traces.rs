//! Readable traces of inputs and effects.

use std::fmt::Write as _;
use std::time::Duration;

use insta::assert_snapshot;
use loop_state::{
    CheckOutcome, CheckResult, CutCause, Effect, Event, Evidence, Happening, Head, Machine, Notice,
    Resume, Rules, RulesError, Step, StopCause, StopReason, StopRequest, Streak, Timer, Timestamp,
    Tree, TurnOutcome, When,
};

use crate::{at, rules};

pub(crate) struct Trace {
    pub(crate) machine: Machine,
    pub(crate) now: u64,
    pub(crate) text: String,
}

/// Returns the effect that ends a turn, with the reported reason.
pub(crate) fn halt(why: Option<&str>) -> Effect {
    let (why, at_once) = (why.map(str::to_owned), false);
    Effect::StopAttempt { why, at_once }
}

impl Trace {
    pub(crate) fn new(rules: Rules) -> Self {
        let mut trace = Self {
            machine: Machine::new(rules).unwrap(),
            now: 0,
            text: String::new(),
        };
        trace.then(Happening::Started);
        trace
    }

    /// Resumes a saved run.
    pub(crate) fn resumed(head: Head, resume: Resume) -> Self {
        let mut trace = Self {
            now: head.last_at.0,
            machine: Machine::from(head),
            text: String::new(),
        };
        trace.then(Happening::Resumed(resume));
        trace
    }

    pub(crate) fn then(&mut self, what: Happening) -> Vec<Effect> {
        self.now += 100;
        let effects = self.machine.step(at(self.now, what.clone()));
        writeln!(self.text, "{} {}", self.now, short(&what)).unwrap();
        for effect in &effects {
            writeln!(self.text, "    {}", short(effect)).unwrap();
        }
        effects
    }

    /// Runs a turn that completes, a check with this result, and the end of the leftovers.
    pub(crate) fn iteration(&mut self, check: CheckResult) -> Vec<Effect> {
        self.then(Happening::TurnEnded(TurnOutcome::Completed));
        self.then(Happening::CheckEnded(check));
        self.then(Happening::Settled(Tree::default()))
    }

    /// Simulates the death of the process and a resume by another one.
    pub(crate) fn crash_and_resume(&mut self) -> Vec<Effect> {
        self.machine = Machine::from(self.machine.head().clone());
        self.then(Happening::Resumed(Resume::default()))
    }

    pub(crate) fn reason(&self) -> StopReason {
        self.machine.head().end.clone().unwrap().reason
    }
}

/// Formats a value in its derived form without uninteresting parts.
fn short(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}")
        .replace("TurnEnded(Completed)", "turn completed")
        .replace(", steers: []", "")
        .replace(", result: None", "")
        .replace(", predecessor: None", "")
        .replace(
            ", usage: Usage { input_tokens: 0, output_tokens: 0, cost_microusd: 0 }",
            "",
        )
        .replace("cut: None, feedback: None", "plain")
}

/// Returns whether a request changed nothing, and the person gets the reason.
pub(crate) fn in_vain(effects: &[Effect]) -> bool {
    let is_nothing = |it: &Effect| matches!(it, Effect::Refuse(_) | Effect::PauseAt(_));
    effects.iter().all(is_nothing) && matches!(effects.last(), Some(Effect::Refuse(_)))
}

pub(crate) fn failed(text: &str) -> CheckResult {
    CheckResult::Failed(text.into())
}

pub(crate) fn stop(when: When) -> Happening {
    Happening::StopRequested(StopRequest {
        by: StopCause::Person,
        when,
    })
}

#[test]
fn s1a_repeats_until_the_check_passes() {
    let mut trace = Trace::new(rules(|r| r.limits.sleep = Duration::from_secs(10)));
    trace.iteration(failed("1 of 3"));
    trace.then(Happening::TimeUp(Timer::Sleep));
    trace.iteration(CheckResult::Passed);
    assert_snapshot!(trace.text);
}

#[test]
fn s2c_completion_is_decided_before_the_sleep() {
    let mut trace = Trace::new(rules(|r| r.limits.sleep = Duration::from_secs(600)));
    let effects = trace.iteration(CheckResult::Passed);
    assert!(effects.contains(&Effect::Finish));
    assert_eq!(trace.reason(), StopReason::Done(Evidence::Check));
}

#[test]
fn s3a_s3b_the_iteration_limit_ends_the_run_by_name() {
    let mut trace = Trace::new(rules(|r| r.phases[0].limits.max_iterations = Some(3)));
    for _ in 0..3 {
        trace.iteration(failed("no"));
    }
    assert_eq!(trace.reason(), StopReason::IterationLimit(3));
    assert_eq!(trace.machine.head().counts.attempts, 3);
}

#[test]
fn s5a_s5b_a_silent_or_long_turn_is_ended_and_counts_as_failed() {
    for (timer, limit) in [(Timer::Iteration, 900), (Timer::Idle, 500)] {
        let mut trace = Trace::new(rules(|r| {
            r.phases[0].limits.iteration_timeout = Some(Duration::from_millis(900));
            r.phases[0].limits.idle_timeout = Some(Duration::from_millis(500));
        }));
        if timer == Timer::Iteration {
            trace.machine.step(crate::at(900, Happening::Alive));
        }
        let due = Timestamp(100 + limit);
        assert_eq!(trace.machine.next_deadline(), Some(due));
        assert_eq!(trace.machine.due(Timestamp(due.0 - 1)), None);
        let what = trace.machine.due(due).unwrap();
        assert_eq!(what, Happening::TimeUp(timer));
        let why = match timer {
            Timer::Iteration => "the turn took longer than 900ms",
            _ => "no output for 500ms",
        };
        assert_eq!(trace.then(what), [halt(Some(why))]);
        assert_eq!(trace.machine.next_deadline(), None, "reported once");
        trace.then(Happening::TurnEnded(TurnOutcome::Stopped));
        assert_eq!(trace.machine.head().streaks.failures, 1);
        assert_eq!(
            trace.machine.head().step,
            Step::Check,
            "the work may be complete anyway"
        );
    }
}

#[test]
fn s6b_failures_in_a_row_end_the_run() {
    let mut trace = Trace::new(rules(|_| {}));
    for _ in 0..3 {
        trace.then(Happening::TurnEnded(TurnOutcome::Failed(
            "exit status 1".into(),
        )));
        trace.then(Happening::CheckEnded(failed("no")));
        trace.then(Happening::Settled(Tree::default()));
    }
    assert_eq!(trace.reason(), StopReason::Stuck(Streak::Failures, 3));
    assert_snapshot!(trace.text);
}

#[test]
fn s13a_a_stop_in_a_turn_cuts_it_and_a_resume_does_it_again() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.iteration(failed("no"));
    trace.then(stop(When::Now));
    trace.then(Happening::TurnEnded(TurnOutcome::Stopped));
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
    assert_eq!(trace.machine.head().resumes_at(), (2, true));
    trace.crash_and_resume();
    trace.then(Happening::CheckEnded(failed("still no")));
    assert_snapshot!(trace.text);
}

#[test]
fn s13c_from_goes_back_and_never_numbers_an_attempt_twice() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.iteration(failed("no"));
    trace.iteration(failed("no"));
    trace.then(stop(When::Now));
    trace.then(Happening::TurnEnded(TurnOutcome::Stopped));
    let effects = trace.then(Happening::Resumed(Resume {
        from: Some(1),
        ..Resume::default()
    }));
    let Some(Effect::StartAttempt(brief)) = effects.last() else {
        panic!("{effects:?}")
    };
    assert_eq!((brief.iteration, brief.attempt), (1, 2));
}

#[test]
fn s14a_s14b_a_crash_in_a_turn_is_named_and_checked_before_the_turn_runs_again() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.iteration(failed("no"));
    let effects = trace.crash_and_resume();
    assert_eq!(effects, [Effect::Save, Effect::RunCheck]);
    let cut = trace.machine.head().cut.unwrap();
    assert_eq!((cut.attempt, cut.cause), (1, CutCause::Crash));
    let effects = trace.then(Happening::CheckEnded(failed("no")));
    let Some(Effect::StartAttempt(brief)) = effects.last() else {
        panic!("{effects:?}")
    };
    assert_eq!(
        (brief.iteration, brief.attempt, brief.cut),
        (2, 2, Some(cut))
    );
}

#[test]
fn s14a_work_that_was_finished_before_the_crash_is_not_done_again() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.crash_and_resume();
    trace.then(Happening::CheckEnded(CheckResult::Passed));
    trace.then(Happening::Settled(Tree::default()));
    assert_eq!(trace.reason(), StopReason::Done(Evidence::Check));
    assert_eq!(trace.machine.head().counts.attempts, 1);
}

#[test]
fn a_recheck_asks_the_gates_before_the_check() {
    let mut trace = Trace::new(rules(|r| r.phases[0].gates = 2));
    assert_eq!(trace.crash_and_resume(), [Effect::Save, Effect::RunGate(0)]);
    assert_eq!(
        trace.then(Happening::GateEnded(CheckResult::Passed)),
        [Effect::RunGate(1)]
    );
    let mut failing = trace.machine.clone();
    assert_eq!(
        trace.then(Happening::GateEnded(CheckResult::Passed)),
        [Effect::RunCheck]
    );
    trace.then(Happening::CheckEnded(CheckResult::Passed));
    trace.then(Happening::Settled(Tree::default()));
    assert_eq!(trace.reason(), StopReason::Done(Evidence::Check));
    let effects = failing.step(at(9999, Happening::GateEnded(failed("lint"))));
    assert!(
        matches!(effects.last(), Some(Effect::StartAttempt(_))),
        "{effects:?}"
    );
}

#[test]
fn s14a_a_crash_among_the_gates_costs_no_turn() {
    let mut trace = Trace::new(rules(|r| r.phases[0].gates = 1));
    let effects = trace.then(Happening::TurnEnded(TurnOutcome::Completed));
    assert_eq!(effects, [Effect::Save, Effect::RunGate(0)]);
    assert_eq!(trace.crash_and_resume(), [Effect::Save, Effect::RunGate(0)]);
    assert_eq!(trace.machine.head().counts.cuts, 0);
    assert_eq!(trace.machine.head().streaks.crashes, 0);
}

#[test]
fn s18c_a_plan_is_fulfilled_or_its_last_iteration_failed() {
    let plan = |outcome: TurnOutcome| {
        let mut trace = Trace::new(rules(|r| {
            r.phases[0].until = false;
            r.phases[0].limits.max_iterations = Some(2);
        }));
        trace.then(Happening::TurnEnded(TurnOutcome::Completed));
        trace.then(Happening::Settled(Tree::default()));
        trace.then(Happening::TurnEnded(outcome));
        trace.then(Happening::Settled(Tree::default()));
        trace.reason()
    };
    assert_eq!(plan(TurnOutcome::Completed), StopReason::Planned);
    let failed = plan(TurnOutcome::Failed("exit status 2".into()));
    assert_eq!(
        failed.to_string(),
        "failed: iteration 2, the last one planned: exit status 2"
    );
}

#[test]
fn s18a_rules_without_an_end_make_no_run() {
    let endless = rules(|r| r.phases[0].until = false);
    assert_eq!(endless.validate(), Err(RulesError::Endless("main".into())));
    let none = rules(|r| r.phases.clear());
    assert_eq!(none.validate(), Err(RulesError::NoPhase));
    let zero = rules(|r| r.phases[0].limits.max_iterations = Some(0));
    assert_eq!(
        zero.validate(),
        Err(RulesError::ZeroIterations("main".into()))
    );
}

#[test]
fn a_failing_gate_feeds_the_next_prompt_and_has_a_streak_of_its_own() {
    let mut trace = Trace::new(rules(|r| {
        r.phases[0].gates = 2;
        r.limits.max_failures = 2;
    }));
    for _ in 0..2 {
        trace.then(Happening::TurnEnded(TurnOutcome::Completed));
        trace.then(Happening::GateEnded(CheckResult::Passed));
        trace.then(Happening::GateEnded(failed("lint: 1 error")));
        trace.then(Happening::Settled(Tree {
            ended: 1,
            survivors: 0,
        }));
    }
    assert_eq!(trace.reason(), StopReason::Stuck(Streak::Gates, 2));
    assert_snapshot!(trace.text);
}

#[test]
fn a_check_that_was_never_run_ends_the_run_and_one_that_was_does_not() {
    let unrun = || CheckResult::NotRun("sh: 1: cagro: not found\n(exit status 127)".into());
    let mut trace = Trace::new(rules(|r| r.limits.max_failures = 3));
    for _ in 0..3 {
        trace.iteration(unrun());
    }
    assert_eq!(trace.reason(), StopReason::Stuck(Streak::Unrun, 3));
    trace.crash_and_resume();
    assert_eq!(
        trace.machine.head().streaks.unrun,
        0,
        "a resume resets the count"
    );
    let mut trace = Trace::new(rules(|r| r.limits.max_failures = 3));
    trace.iteration(failed("red"));
    for _ in 0..5 {
        trace.iteration(unrun());
    }
    assert_eq!(trace.machine.head().end, None);
    assert_eq!(trace.machine.head().streaks.unrun, 5);
    trace.iteration(CheckResult::Passed);
    assert_eq!(trace.reason(), StopReason::Done(Evidence::Check));
}

#[test]
fn the_last_check_is_saved_and_a_stopped_one_changes_nothing() {
    let mut trace = Trace::new(rules(|r| r.limits.max_failures = 0));
    let last = |trace: &Trace| {
        let check = trace.machine.head().last_check?;
        Some((check.phase, check.iteration, check.outcome))
    };
    assert_eq!(last(&trace), None);
    trace.iteration(failed("red"));
    assert_eq!(last(&trace), Some((0, 1, CheckOutcome::Failed)));
    trace.iteration(CheckResult::Stopped);
    assert_eq!(last(&trace), Some((0, 1, CheckOutcome::Failed)));
    trace.iteration(CheckResult::NotRun("no such command".into()));
    assert_eq!(last(&trace), Some((0, 3, CheckOutcome::NotRun)));
    trace.crash_and_resume();
    assert_eq!(last(&trace), Some((0, 3, CheckOutcome::NotRun)));
    trace.then(Happening::TurnEnded(TurnOutcome::Completed));
    trace.then(Happening::CheckEnded(CheckResult::Passed));
    let iteration = trace.machine.head().iteration;
    assert_eq!(last(&trace), Some((0, iteration, CheckOutcome::Passed)));
}

#[test]
fn a_stop_while_a_gate_runs_keeps_the_turn() {
    let mut trace = Trace::new(rules(|r| r.phases[0].gates = 1));
    trace.then(Happening::TurnEnded(TurnOutcome::Completed));
    let effects = trace.then(stop(When::Now));
    assert_eq!(
        effects,
        [
            Effect::StopBy(trace.machine.deadline()),
            Effect::Save,
            Effect::Announce(Notice::Stopping),
            Effect::StopCheck
        ]
    );
    trace.then(Happening::GateEnded(CheckResult::Stopped));
    trace.then(Happening::Settled(Tree::default()));
    assert_eq!(trace.machine.head().resumes_at(), (1, false));
    assert_eq!(trace.crash_and_resume(), [Effect::Save, Effect::RunGate(0)]);
    assert_eq!(
        trace.machine.head().counts.attempts,
        1,
        "the turn is not redone"
    );
}

#[test]
fn a_stop_in_the_sleep_is_immediate_and_one_after_the_iteration_waits_for_it() {
    let mut trace = Trace::new(rules(|r| r.limits.sleep = Duration::from_secs(600)));
    trace.iteration(failed("no"));
    assert!(
        trace
            .then(stop(When::AfterIteration))
            .contains(&Effect::Finish)
    );
    assert_eq!(trace.machine.head().resumes_at(), (2, false));
    trace.crash_and_resume();
    assert_eq!(
        trace.then(stop(When::AfterIteration)),
        [Effect::Save, Effect::Announce(Notice::StoppingLater)]
    );
    trace.iteration(failed("no"));
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
    assert_eq!(trace.machine.head().resumes_at(), (3, false));
}

#[test]
fn x110e_crashes_in_a_row_do_not_spend_for_ever() {
    let mut trace = Trace::new(rules(|r| {
        r.phases[0].until = false;
        r.phases[0].limits.max_iterations = Some(9);
    }));
    for _ in 0..2 {
        trace.crash_and_resume();
    }
    assert!(trace.crash_and_resume().contains(&Effect::Finish));
    assert_eq!(trace.reason(), StopReason::Stuck(Streak::Crashes, 3));
    // A person who resumes the run anyway knows why it stopped.
    let effects = trace.crash_and_resume();
    assert!(
        matches!(effects.last(), Some(Effect::StartAttempt(_))),
        "{effects:?}"
    );
}

#[test]
fn time_used_by_earlier_processes_counts() {
    let limit = Duration::from_millis(500);
    let mut trace = Trace::new(rules(|r| r.limits.max_duration = Some(limit)));
    assert_eq!(trace.machine.next_deadline(), Some(Timestamp(600)));
    trace.then(stop(When::Now));
    trace.then(Happening::TurnEnded(TurnOutcome::Stopped));
    trace.now = 10_000;
    trace.crash_and_resume();
    assert_eq!(trace.machine.next_deadline(), Some(Timestamp(10_100 + 300)));
    let what = trace.machine.due(Timestamp(10_400)).unwrap();
    assert_eq!(what, Happening::TimeUp(Timer::Run));
    trace.now = 10_300;
    trace.then(what);
    trace.then(Happening::CheckEnded(CheckResult::Stopped));
    assert_eq!(trace.reason(), StopReason::TimeLimit(limit));
}

#[test]
fn a_pipeline_goes_from_phase_to_phase() {
    let mut trace = Trace::new(rules(|r| {
        let mut plan = r.phases[0].clone();
        plan.name = "plan".into();
        plan.until = false;
        plan.limits.max_iterations = Some(1);
        r.phases.insert(0, plan);
    }));
    trace.then(Happening::TurnEnded(TurnOutcome::Completed));
    trace.then(Happening::Settled(Tree::default()));
    trace.then(Happening::TimeUp(Timer::Sleep));
    trace.iteration(CheckResult::Passed);
    assert_snapshot!(trace.text);
}

#[test]
fn an_agent_that_cannot_be_started_ends_the_run() {
    let mut trace = Trace::new(rules(|_| {}));
    let effects = trace.then(Happening::TurnEnded(TurnOutcome::NotStarted(
        "`x` was not found".into(),
    )));
    assert!(
        effects.contains(&Effect::Announce(Notice::Ended(StopReason::Failed(
            "`x` was not found".into()
        ))))
    );
    assert_eq!(trace.machine.head().resumes_at(), (1, false));
}

#[test]
fn a_session_that_another_process_has_ends_the_run_and_it_can_be_resumed() {
    let mut trace = Trace::new(rules(|_| {}));
    let held = || Happening::TurnEnded(TurnOutcome::SessionHeld("by pid 7".into()));
    trace.then(held());
    let end = trace.machine.head().end.clone().unwrap();
    assert_eq!(end.reason, StopReason::Held("by pid 7".into()));
    assert!(!end.reason.is_final());
    assert_eq!(trace.machine.head().resumes_at(), (1, false));
    // Later the session may be in use only for a while.
    trace.then(Happening::Resumed(Resume::default()));
    trace.iteration(failed("no"));
    trace.then(Happening::TimeUp(Timer::Sleep));
    trace.then(held());
    assert!(trace.machine.head().end.is_none());
    assert_eq!(trace.machine.head().streaks.failures, 1);
}

#[test]
fn an_agent_that_cannot_be_started_later_is_a_failed_turn() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.iteration(failed("no"));
    trace.then(Happening::TurnEnded(TurnOutcome::NotStarted(
        "`x` is being replaced".into(),
    )));
    assert!(trace.machine.head().end.is_none());
    assert_eq!(trace.machine.head().streaks.failures, 1);
}

#[test]
fn done_is_done() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.iteration(CheckResult::Passed);
    let head = trace.machine.head().clone();
    assert!(head.end.as_ref().unwrap().reason.is_final());
    trace.crash_and_resume();
    assert_eq!(trace.machine.head(), &head);
    let again = Resume {
        from: Some(1),
        ..Resume::default()
    };
    let effects = trace
        .machine
        .clone()
        .step(at(9999, Happening::Resumed(again)));
    assert!(
        matches!(effects.last(), Some(Effect::StartAttempt(_))),
        "unless a person requests it"
    );
    let late = Event {
        at: Timestamp(9999),
        what: Happening::TurnEnded(TurnOutcome::Completed),
    };
    assert!(trace.machine.step(late).is_empty());
}
