//! Readable traces of inputs and effects.

use std::fmt::Write as _;
use std::time::Duration;

use insta::assert_snapshot;
use loop_state::{
    CheckOutcome, CheckResult, Effect, Evidence, Head, IterationStep, Machine, MachineInput,
    ProcessTreeOutcome, ResumeOptions, Rules, RunUpdate, StopCause, StopReason, StopRequest,
    StopTiming, Streak, TimedInput, Timer, Timestamp, TurnOutcome, UnfinishedCause,
};

use crate::{at, rules};

pub(crate) struct Trace {
    pub(crate) machine: Machine,
    pub(crate) now: u64,
    pub(crate) text: String,
}

/// Returns the effect that ends a turn, with the reported reason.
pub(crate) fn stop_attempt(why: Option<&str>) -> Effect {
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
        trace.then(MachineInput::Started);
        trace
    }

    /// Resumes a saved run.
    pub(crate) fn resumed(head: Head, resume: ResumeOptions) -> Self {
        let mut trace = Self {
            now: head.last_at.as_millis(),
            machine: Machine::from(head),
            text: String::new(),
        };
        trace.then(MachineInput::Resumed(resume));
        trace
    }

    pub(crate) fn then(&mut self, what: MachineInput) -> Vec<Effect> {
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
        self.then(MachineInput::TurnEnded(TurnOutcome::Completed));
        self.then(MachineInput::CheckEnded(check));
        self.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()))
    }

    /// Simulates the death of the process and a resume by another one.
    pub(crate) fn crash_and_resume(&mut self) -> Vec<Effect> {
        self.machine = Machine::from(self.machine.head().clone());
        self.then(MachineInput::Resumed(ResumeOptions::default()))
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
        .replace(", previous_agent: None", "")
        .replace(", session_position: None", "")
        .replace(", session_steers: []", "")
        .replace(", taken_over: false", "")
        .replace(", new_session: None", "")
        .replace(
            ", usage: UsageTotal { input_tokens: 0, output_tokens: 0, cost_microusd: 0 }",
            "",
        )
        .replace("unfinished: None, feedback: None", "plain")
}

/// Returns whether a request changed nothing, and the person gets the reason.
pub(crate) fn is_rejected(effects: &[Effect]) -> bool {
    let is_nothing = |it: &Effect| matches!(it, Effect::RejectRequest(_) | Effect::PauseAt(_));
    effects.iter().all(is_nothing) && matches!(effects.last(), Some(Effect::RejectRequest(_)))
}

pub(crate) fn failed(text: &str) -> CheckResult {
    CheckResult::Failed(text.into())
}

pub(crate) fn stop(when: StopTiming) -> MachineInput {
    MachineInput::StopRequested(StopRequest {
        by: StopCause::Person,
        when,
    })
}

#[test]
fn s1a_repeats_until_the_check_passes() {
    let mut trace = Trace::new(rules(|r| r.limits.sleep = Duration::from_secs(10)));
    trace.iteration(failed("1 of 3"));
    trace.then(MachineInput::TimerExpired(Timer::Sleep));
    trace.iteration(CheckResult::Passed);
    assert_snapshot!(trace.text);
}

#[test]
fn s2c_completion_is_decided_before_the_sleep() {
    let mut trace = Trace::new(rules(|r| r.limits.sleep = Duration::from_secs(600)));
    let effects = trace.iteration(CheckResult::Passed);
    assert!(effects.contains(&Effect::EndRun));
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
            trace
                .machine
                .step(crate::at(900, MachineInput::AgentActive));
        }
        let due = Timestamp::from_millis(100 + limit);
        assert_eq!(trace.machine.next_deadline(), Some(due));
        assert_eq!(
            trace
                .machine
                .due_input(Timestamp::from_millis(due.as_millis() - 1)),
            None
        );
        let what = trace.machine.due_input(due).unwrap();
        assert_eq!(what, MachineInput::TimerExpired(timer));
        let why = match timer {
            Timer::Iteration => "the turn took longer than 900ms",
            _ => "no output for 500ms",
        };
        assert_eq!(trace.then(what), [stop_attempt(Some(why))]);
        assert_eq!(trace.machine.next_deadline(), None, "reported once");
        trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
        assert_eq!(trace.machine.head().streaks.failures, 1);
        assert_eq!(
            trace.machine.head().step,
            IterationStep::Check,
            "the work may be complete anyway"
        );
    }
}

#[test]
fn s6b_failures_in_a_row_end_the_run() {
    let mut trace = Trace::new(rules(|_| {}));
    for _ in 0..3 {
        trace.then(MachineInput::TurnEnded(TurnOutcome::Failed(
            "exit status 1".into(),
        )));
        trace.then(MachineInput::CheckEnded(failed("no")));
        trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    }
    assert_eq!(
        trace.reason(),
        StopReason::Stuck {
            streak: Streak::Failures,
            count: 3
        }
    );
    assert_snapshot!(trace.text);
}

#[test]
fn s13a_stop_during_a_turn_leaves_it_unfinished_and_resume_repeats_it() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.iteration(failed("no"));
    trace.then(stop(StopTiming::Now));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
    assert_eq!(crate::resume_point(trace.machine.head()), (2, true));
    trace.crash_and_resume();
    trace.then(MachineInput::CheckEnded(failed("still no")));
    assert_snapshot!(trace.text);
}

#[test]
fn s13c_from_never_reuses_an_attempt_number() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.iteration(failed("no"));
    trace.iteration(failed("no"));
    trace.then(stop(StopTiming::Now));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    let effects = trace.then(MachineInput::Resumed(ResumeOptions {
        from_iteration: Some(1),
        ..ResumeOptions::default()
    }));
    let Some(Effect::StartAttempt(brief)) = effects.last() else {
        panic!("{effects:?}")
    };
    assert_eq!((brief.iteration, brief.attempt), (1, 2));
}

#[test]
fn s14a_s14b_crash_during_a_turn_is_reported_and_checked_before_a_retry() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.iteration(failed("no"));
    let effects = trace.crash_and_resume();
    assert_eq!(effects, [Effect::Save, Effect::RunCheck]);
    let cut = trace.machine.head().unfinished.unwrap();
    assert_eq!((cut.attempt, cut.cause), (1, UnfinishedCause::ProcessDied));
    let effects = trace.then(MachineInput::CheckEnded(failed("no")));
    let Some(Effect::StartAttempt(brief)) = effects.last() else {
        panic!("{effects:?}")
    };
    assert_eq!(
        (brief.iteration, brief.attempt, brief.unfinished),
        (2, 2, Some(cut))
    );
}

#[test]
fn s14a_work_finished_before_the_crash_is_not_repeated() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.crash_and_resume();
    trace.then(MachineInput::CheckEnded(CheckResult::Passed));
    trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    assert_eq!(trace.reason(), StopReason::Done(Evidence::Check));
    assert_eq!(trace.machine.head().counts.attempts, 1);
}

#[test]
fn recheck_runs_the_required_checks_before_the_check() {
    let mut trace = Trace::new(rules(|r| r.phases[0].required_checks = 2));
    assert_eq!(
        trace.crash_and_resume(),
        [Effect::Save, Effect::RunRequiredCheck(0)]
    );
    assert_eq!(
        trace.then(MachineInput::RequiredCheckEnded(CheckResult::Passed)),
        [Effect::RunRequiredCheck(1)]
    );
    let mut failing = trace.machine.clone();
    assert_eq!(
        trace.then(MachineInput::RequiredCheckEnded(CheckResult::Passed)),
        [Effect::RunCheck]
    );
    trace.then(MachineInput::CheckEnded(CheckResult::Passed));
    trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    assert_eq!(trace.reason(), StopReason::Done(Evidence::Check));
    let effects = failing.step(at(9999, MachineInput::RequiredCheckEnded(failed("lint"))));
    assert!(
        matches!(effects.last(), Some(Effect::StartAttempt(_))),
        "{effects:?}"
    );
}

#[test]
fn s14a_crash_during_required_checks_keeps_the_turn() {
    let mut trace = Trace::new(rules(|r| r.phases[0].required_checks = 1));
    let effects = trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    assert_eq!(effects, [Effect::Save, Effect::RunRequiredCheck(0)]);
    assert_eq!(
        trace.crash_and_resume(),
        [Effect::Save, Effect::RunRequiredCheck(0)]
    );
    assert_eq!(trace.machine.head().counts.unfinished_attempts, 0);
    assert_eq!(trace.machine.head().streaks.crashes, 0);
}

#[test]
fn s18c_plan_passes_or_fails_with_its_last_iteration() {
    let plan = |outcome: TurnOutcome| {
        let mut trace = Trace::new(rules(|r| {
            r.phases[0].has_check = false;
            r.phases[0].limits.max_iterations = Some(2);
        }));
        trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
        trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
        trace.then(MachineInput::TurnEnded(outcome));
        trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
        trace.reason()
    };
    assert_eq!(plan(TurnOutcome::Completed), StopReason::AllIterationsRan);
    let failed = plan(TurnOutcome::Failed("exit status 2".into()));
    assert_eq!(
        failed.to_string(),
        "failed: the last planned iteration (2): exit status 2"
    );
}

#[test]
fn s18a_rules_without_stop_condition_are_refused() {
    let wrong = |change: fn(&mut Rules)| rules(change).validate().unwrap_err().to_string();
    assert_eq!(
        wrong(|r| r.phases[0].has_check = false),
        "phase `main` needs a stop condition: a check, a completion promise or a number of iterations"
    );
    assert_eq!(
        wrong(|r| r.phases.clear()),
        "the run needs at least one phase"
    );
    assert_eq!(
        wrong(|r| r.phases[0].limits.max_iterations = Some(0)),
        "phase `main` allows 0 iterations; allow at least 1"
    );
}

#[test]
fn failing_required_check_is_in_the_next_prompt_and_has_its_own_streak() {
    let mut trace = Trace::new(rules(|r| {
        r.phases[0].required_checks = 2;
        r.limits.max_failures = 2;
    }));
    for _ in 0..2 {
        trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
        trace.then(MachineInput::RequiredCheckEnded(CheckResult::Passed));
        trace.then(MachineInput::RequiredCheckEnded(failed("lint: 1 error")));
        trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome {
            ended: 1,
            survivors: 0,
        }));
    }
    assert_eq!(
        trace.reason(),
        StopReason::Stuck {
            streak: Streak::RequiredChecks,
            count: 2
        }
    );
    assert_snapshot!(trace.text);
}

#[test]
fn check_that_never_ran_ends_the_run_and_one_that_ran_does_not() {
    let unrun = || CheckResult::NotRun("sh: 1: cagro: not found\n(exit status 127)".into());
    let mut trace = Trace::new(rules(|r| r.limits.max_failures = 3));
    for _ in 0..3 {
        trace.iteration(unrun());
    }
    assert_eq!(
        trace.reason(),
        StopReason::Stuck {
            streak: Streak::CheckNotRun,
            count: 3
        }
    );
    trace.crash_and_resume();
    assert_eq!(
        trace.machine.head().streaks.checks_not_run,
        0,
        "a resume resets the count"
    );
    let mut trace = Trace::new(rules(|r| r.limits.max_failures = 3));
    trace.iteration(failed("red"));
    for _ in 0..5 {
        trace.iteration(unrun());
    }
    assert_eq!(trace.machine.head().end, None);
    assert_eq!(trace.machine.head().streaks.checks_not_run, 5);
    trace.iteration(CheckResult::Passed);
    assert_eq!(trace.reason(), StopReason::Done(Evidence::Check));
}

#[test]
fn last_check_is_saved_and_a_stopped_check_changes_nothing() {
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
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    trace.then(MachineInput::CheckEnded(CheckResult::Passed));
    let iteration = trace.machine.head().iteration;
    assert_eq!(last(&trace), Some((0, iteration, CheckOutcome::Passed)));
}

#[test]
fn stop_during_a_required_check_keeps_the_turn() {
    let mut trace = Trace::new(rules(|r| r.phases[0].required_checks = 1));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    let effects = trace.then(stop(StopTiming::Now));
    assert_eq!(
        effects,
        [
            Effect::StopBy(trace.machine.deadline()),
            Effect::Save,
            Effect::Emit(RunUpdate::Stopping),
            Effect::StopCheck
        ]
    );
    trace.then(MachineInput::RequiredCheckEnded(CheckResult::Stopped));
    trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    assert_eq!(crate::resume_point(trace.machine.head()), (1, false));
    assert_eq!(
        trace.crash_and_resume(),
        [Effect::Save, Effect::RunRequiredCheck(0)]
    );
    assert_eq!(
        trace.machine.head().counts.attempts,
        1,
        "the turn is not redone"
    );
}

#[test]
fn stop_during_sleep_is_immediate_and_stop_after_iteration_waits() {
    let mut trace = Trace::new(rules(|r| r.limits.sleep = Duration::from_secs(600)));
    trace.iteration(failed("no"));
    assert!(
        trace
            .then(stop(StopTiming::AfterIteration))
            .contains(&Effect::EndRun)
    );
    assert_eq!(crate::resume_point(trace.machine.head()), (2, false));
    trace.crash_and_resume();
    assert_eq!(
        trace.then(stop(StopTiming::AfterIteration)),
        [
            Effect::Save,
            Effect::Emit(RunUpdate::StoppingAfterIteration)
        ]
    );
    trace.iteration(failed("no"));
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
    assert_eq!(crate::resume_point(trace.machine.head()), (3, false));
}

#[test]
fn x110e_crash_streak_limits_the_spending() {
    let mut trace = Trace::new(rules(|r| {
        r.phases[0].has_check = false;
        r.phases[0].limits.max_iterations = Some(9);
    }));
    for _ in 0..2 {
        trace.crash_and_resume();
    }
    assert!(trace.crash_and_resume().contains(&Effect::EndRun));
    assert_eq!(
        trace.reason(),
        StopReason::Stuck {
            streak: Streak::Crashes,
            count: 3
        }
    );
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
    assert_eq!(
        trace.machine.next_deadline(),
        Some(Timestamp::from_millis(600))
    );
    trace.then(stop(StopTiming::Now));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    trace.now = 10_000;
    trace.crash_and_resume();
    assert_eq!(
        trace.machine.next_deadline(),
        Some(Timestamp::from_millis(10_100 + 300))
    );
    let what = trace
        .machine
        .due_input(Timestamp::from_millis(10_400))
        .unwrap();
    assert_eq!(what, MachineInput::TimerExpired(Timer::MaxDuration));
    trace.now = 10_300;
    trace.then(what);
    trace.then(MachineInput::CheckEnded(CheckResult::Stopped));
    assert_eq!(trace.reason(), StopReason::TimeLimit(limit));
}

#[test]
fn pipeline_runs_its_phases_in_order() {
    let mut trace = Trace::new(rules(|r| {
        let mut plan = r.phases[0].clone();
        plan.name = "plan".into();
        plan.has_check = false;
        plan.limits.max_iterations = Some(1);
        r.phases.insert(0, plan);
    }));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    trace.then(MachineInput::TimerExpired(Timer::Sleep));
    trace.iteration(CheckResult::Passed);
    assert_snapshot!(trace.text);
}

#[test]
fn an_agent_that_cannot_be_started_ends_the_run() {
    let mut trace = Trace::new(rules(|_| {}));
    let effects = trace.then(MachineInput::TurnEnded(TurnOutcome::NotStarted(
        "`x` was not found".into(),
    )));
    assert!(
        effects.contains(&Effect::Emit(RunUpdate::Ended(StopReason::Failed(
            "`x` was not found".into()
        ))))
    );
    assert_eq!(crate::resume_point(trace.machine.head()), (1, false));
}

#[test]
fn session_of_another_process_ends_the_run_resumably() {
    let mut trace = Trace::new(rules(|_| {}));
    let held = || MachineInput::TurnEnded(TurnOutcome::SessionInUse("by pid 7".into()));
    trace.then(held());
    let end = trace.machine.head().end.clone().unwrap();
    assert_eq!(end.reason, StopReason::InUse("by pid 7".into()));
    assert!(!end.reason.is_final());
    assert_eq!(crate::resume_point(trace.machine.head()), (1, false));
    // Later the session may be in use only for a while.
    trace.then(MachineInput::Resumed(ResumeOptions::default()));
    trace.iteration(failed("no"));
    trace.then(MachineInput::TimerExpired(Timer::Sleep));
    trace.then(held());
    assert!(trace.machine.head().end.is_none());
    assert_eq!(trace.machine.head().streaks.failures, 1);
}

#[test]
fn an_agent_that_cannot_be_started_later_is_a_failed_turn() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.iteration(failed("no"));
    trace.then(MachineInput::TurnEnded(TurnOutcome::NotStarted(
        "`x` is being replaced".into(),
    )));
    assert!(trace.machine.head().end.is_none());
    assert_eq!(trace.machine.head().streaks.failures, 1);
}

#[test]
fn finished_run_stays_finished() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.iteration(CheckResult::Passed);
    let head = trace.machine.head().clone();
    assert!(head.end.as_ref().unwrap().reason.is_final());
    trace.crash_and_resume();
    assert_eq!(trace.machine.head(), &head);
    let again = ResumeOptions {
        from_iteration: Some(1),
        ..ResumeOptions::default()
    };
    let effects = trace
        .machine
        .clone()
        .step(at(9999, MachineInput::Resumed(again)));
    assert!(
        matches!(effects.last(), Some(Effect::StartAttempt(_))),
        "unless a person requests it"
    );
    let late = TimedInput {
        at: Timestamp::from_millis(9999),
        what: MachineInput::TurnEnded(TurnOutcome::Completed),
    };
    assert!(trace.machine.step(late).is_empty());
}
