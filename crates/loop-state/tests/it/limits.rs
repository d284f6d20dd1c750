//! Budgets, rate limits, retries, and rules that change while the run is live.

use std::time::Duration;

use insta::assert_snapshot;
use loop_state::{
    Autonomy, CheckResult, Effect, IterationStep, MachineInput, PhaseRules, ProcessTreeOutcome,
    RedoScope, Request, ResumeOptions, Retries, RuleChange, Rules, RunUpdate, SpentBudget,
    StopCause, StopReason, StopTiming, Streak, Timer, Timestamp, TurnOutcome, UnfinishedCause,
    UsageTotal, WaitCause,
};

use crate::person::started;
use crate::rules;
use crate::traces::{Trace, failed, is_rejected, stop, stop_attempt};

pub(crate) const HOUR: u64 = 3_600_000;

pub(crate) fn used(cost_microusd: u64, tokens: u64) -> MachineInput {
    MachineInput::UsageReported(UsageTotal {
        input_tokens: tokens / 2,
        output_tokens: tokens - tokens / 2,
        cost_microusd,
    })
}

pub(crate) fn metered(change: impl FnOnce(&mut Rules)) -> Trace {
    Trace::new(rules(|rules| {
        rules.phases[0].reports_cost = true;
        rules.phases[0].reports_tokens = true;
        change(rules);
    }))
}

fn costly() -> Trace {
    metered(|rules| rules.limits.max_cost_microusd = Some(2_000_000))
}

pub(crate) fn limited(reset: Option<u64>) -> MachineInput {
    MachineInput::TurnEnded(TurnOutcome::ServiceUnavailable {
        reset: reset.map(Timestamp::from_millis),
        why: "usage limit reached".into(),
    })
}

pub(crate) fn garbled() -> MachineInput {
    MachineInput::TurnEnded(TurnOutcome::Transient("line 3 is no JSON".into()))
}

fn waits_until(trace: &Trace) -> u64 {
    match trace.machine.head().step {
        IterationStep::Waiting { until, .. } => until.as_millis(),
        ref step => panic!("{step:?}"),
    }
}

/// Asserts that a wait in milliseconds has the expected length, plus at most the random part.
fn assert_about(wait: u64, expected: u64) {
    let most = expected + (expected / 5).min(60_000);
    assert!((expected..=most).contains(&wait), "{wait} of {expected}");
}

/// Lets the current wait end.
pub(crate) fn wait(trace: &mut Trace) -> Vec<Effect> {
    let deadline = trace.machine.next_deadline().unwrap();
    assert_eq!(
        trace
            .machine
            .due_input(Timestamp::from_millis(deadline.as_millis() - 1)),
        None
    );
    trace.now = deadline.as_millis() - 100;
    let due = trace.machine.due_input(deadline).unwrap();
    trace.then(due)
}

#[test]
fn x108a_turn_beyond_the_budget_is_interrupted_and_not_awaited() {
    let mut trace = costly();
    assert_eq!(trace.then(used(1_999_999, 10)), [Effect::Save]);
    assert_eq!(
        trace.then(used(2, 10)),
        [
            Effect::Save,
            stop_attempt(Some("2.000001 of 2.00 USD used"))
        ]
    );
    assert_eq!(trace.then(used(2, 10)), [Effect::Save], "reported once");
    trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    let head = trace.machine.head();
    assert_eq!(head.unfinished.unwrap().cause, UnfinishedCause::Budget);
    assert_eq!(head.streaks.failures, 0, "a spent budget is no failure");
    assert_snapshot!(trace.text);
}

#[test]
fn x108a_token_and_cost_budgets_name_the_usage() {
    let mut trace = metered(|rules| rules.limits.max_tokens = Some(1000));
    trace.then(used(0, 1500));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    let (limit, used) = (1000, 1500);
    let tokens = StopReason::BudgetSpent(SpentBudget::Tokens { limit, used });
    assert_eq!(trace.reason(), tokens);
    let cost = |used| {
        let limit = 2_000_000;
        StopReason::BudgetSpent(SpentBudget::Cost { limit, used }).to_string()
    };
    assert_snapshot!([tokens.to_string(), cost(2_000_001), cost(12_345_600)].join("\n"), @"
    budget: 1500 of 1000 tokens used
    budget: 2.000001 of 2.00 USD used
    budget: 12.3456 of 2.00 USD used
    ");
}

#[test]
fn x108c_budget_survives_a_crash_and_a_higher_one_continues() {
    let mut trace = costly();
    trace.then(used(1_500_000, 10));
    trace.crash_and_resume();
    trace.then(MachineInput::CheckEnded(failed("no")));
    trace.then(used(500_000, 10));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    assert!(matches!(trace.reason(), StopReason::BudgetSpent(_)));
    assert_eq!(crate::resume_point(trace.machine.head()), (1, true));
    // Another resume with the same budget starts nothing.
    trace.then(MachineInput::Resumed(ResumeOptions::default()));
    let effects = trace.then(MachineInput::CheckEnded(failed("no")));
    assert!(effects.contains(&Effect::EndRun), "{effects:?}");
    let mut rules = trace.machine.head().rules.clone();
    rules.limits.max_cost_microusd = Some(3_000_000);
    trace.then(MachineInput::Resumed(ResumeOptions {
        rules: Some(rules),
        ..ResumeOptions::default()
    }));
    let effects = trace.then(MachineInput::CheckEnded(failed("no")));
    let brief = started(&effects);
    assert_eq!((brief.iteration, brief.attempt), (1, 3));
}

#[test]
fn x108a_late_usage_starts_no_iteration() {
    let mut trace = metered(|rules| {
        rules.limits.max_cost_microusd = Some(2_000_000);
        rules.limits.sleep = Duration::from_secs(10);
    });
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    assert_eq!(trace.then(used(9_000_000, 1)), [Effect::Save]);
    trace.then(MachineInput::CheckEnded(failed("no")));
    trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    assert!(matches!(trace.reason(), StopReason::BudgetSpent(_)));
    assert_eq!(trace.machine.head().counts.iterations, 1);
    // Work that is done counts as done, even above the budget.
    let mut trace = costly();
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    trace.then(used(9_000_000, 1));
    trace.then(MachineInput::CheckEnded(loop_state::CheckResult::Passed));
    trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    assert!(trace.reason().is_final());
}

#[test]
fn x108a_session_that_waits_for_a_message_is_ended_too() {
    let mut trace = costly();
    trace.then(MachineInput::Requested(Request::Interrupt));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Interrupted));
    let effects = trace.then(used(2_000_000, 1));
    assert_eq!(
        effects,
        [Effect::Save, stop_attempt(Some("2.00 of 2.00 USD used"))]
    );
    assert!(is_rejected(
        &trace.then(MachineInput::Requested(Request::Continue))
    ));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    assert!(matches!(trace.reason(), StopReason::BudgetSpent(_)));
}

#[test]
fn x129a_x129b_a_budget_that_no_agent_reports_is_an_error() {
    let wrong = |change: fn(&mut Rules)| rules(change).validate().unwrap_err();
    let cost = wrong(|rules| rules.limits.max_cost_microusd = Some(1));
    let tokens = wrong(|rules| {
        // The token budget is an error even if only one phase reports no tokens.
        rules.phases[0].reports_tokens = true;
        rules.phases.push(PhaseRules {
            reports_tokens: false,
            name: "polish".into(),
            ..rules.phases[0].clone()
        });
        rules.limits.max_tokens = Some(1);
    });
    assert_eq!(cost.unreported_cost(), Some("main"));
    assert_eq!(cost.unreported_tokens(), None);
    assert_eq!(tokens.unreported_tokens(), Some("polish"));
    assert_eq!(tokens.unreported_cost(), None);
    let budget = wrong(|rules| rules.limits.max_tokens = Some(0));
    let batch = wrong(|rules| rules.autonomy = Autonomy::Batch(0));
    let many = wrong(|rules| rules.phases = vec![rules.phases[0].clone(); 33]);
    assert_snapshot!([cost, tokens, budget, batch, many].map(|error| error.to_string()).join("\n"), @"
    the agent of phase `main` doesn't report its cost, so a cost limit can't be enforced; leave the limit out or use another agent
    the agent of phase `polish` doesn't report its tokens, so a token limit can't be enforced; leave the limit out or use another agent
    a budget of 0 allows nothing; raise it or leave it out
    a batch of 0 iterations is not possible; use at least 1
    33 phases are too many; the maximum is 32
    ");
}

#[test]
fn c77a_c77c_rate_limit_wait_lasts_until_reset_plus_margin_and_is_no_failure() {
    let mut trace = Trace::new(rules(|rules| rules.limits.max_failures = 1));
    trace.iteration(failed("no"));
    trace.then(limited(Some(2 * HOUR)));
    assert_about(
        waits_until(&trace) - trace.now,
        2 * HOUR + 10_000 - trace.now,
    );
    let effects = wait(&mut trace);
    let brief = started(&effects);
    assert_eq!(
        (brief.iteration, brief.attempt),
        (2, 2),
        "another attempt of the same iteration"
    );
    assert_eq!(brief.unfinished.unwrap().cause, UnfinishedCause::RateLimit);
    assert_eq!(brief.feedback.as_ref().unwrap().text, "no", "repeated");
    let head = trace.machine.head();
    assert_eq!((head.counts.iterations, head.counts.failed), (1, 0));
    assert_snapshot!(trace.text);
}

#[test]
fn x107f_wait_uses_up_no_iteration() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].limits.max_iterations = Some(2);
    }));
    for _ in 0..5 {
        trace.then(limited(Some(trace.now + 1000)));
        wait(&mut trace);
    }
    trace.iteration(failed("no"));
    trace.then(limited(None));
    wait(&mut trace);
    trace.iteration(failed("no"));
    assert_eq!(trace.reason(), StopReason::IterationLimit(2));
    let counts = trace.machine.head().counts;
    assert_eq!(
        (
            counts.iterations,
            counts.attempts,
            counts.unfinished_attempts
        ),
        (2, 8, 6)
    );
}

#[test]
fn c77d_a_wait_beyond_the_cap_ends_the_run_at_once() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(limited(Some(7 * HOUR)));
    let cap = Duration::from_secs(6 * 3600);
    let StopReason::RateLimit { until, cap: told } = trace.reason() else {
        panic!("{:?}", trace.reason())
    };
    assert_about(until.as_millis(), 7 * HOUR + 10_000);
    assert_eq!(told, cap);
    // A resume tries again at once.
    trace.then(MachineInput::Resumed(ResumeOptions::default()));
    let effects = trace.then(MachineInput::CheckEnded(failed("no")));
    assert_eq!(started(&effects).attempt, 2);

    let mut trace = Trace::new(rules(|rules| rules.limits.wait_on_limit = Duration::ZERO));
    trace.then(limited(None));
    assert_snapshot!(trace.reason(), @"rate limit reached, and the run doesn't wait for it");
}

#[test]
fn c77d_waits_in_a_row_share_the_cap() {
    let mut trace = Trace::new(rules(|_| {}));
    for _ in 0..2 {
        trace.then(limited(Some(trace.now + 5 * HOUR / 2)));
        wait(&mut trace);
    }
    let mut another = Trace::resumed(trace.machine.head().clone(), ResumeOptions::default());
    trace.then(limited(Some(trace.now + 5 * HOUR / 2)));
    assert!(matches!(trace.reason(), StopReason::RateLimit { .. }));
    // After a crash the waits still count together; after a completed turn the count starts again.
    another.then(MachineInput::CheckEnded(failed("no")));
    another.then(limited(Some(another.now + 5 * HOUR / 2)));
    assert!(matches!(another.reason(), StopReason::RateLimit { .. }));
    let mut trace = Trace::new(rules(|_| {}));
    for _ in 0..3 {
        trace.then(limited(Some(trace.now + 5 * HOUR / 2)));
        wait(&mut trace);
        trace.iteration(failed("no"));
    }
    assert_eq!(trace.machine.head().retries, Retries::default());
}

#[test]
fn c77d_c77e_waits_without_reset_time_grow_and_end() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.now = HOUR;
    let mut steps = Vec::new();
    for nth in 0..100 {
        // A reset time in the past counts as no reset time.
        trace.then(limited((nth % 2 == 0).then_some(1)));
        if trace.machine.head().end.is_some() {
            break;
        }
        steps.push(waits_until(&trace) - trace.now);
        wait(&mut trace);
    }
    let expected = [5, 10, 20, 40, 80, 160, 320, 640, 900, 900];
    { steps.iter().zip(expected) }
        .for_each(|(step, expected)| assert_about(*step, expected * 1000));
    let all: u64 = steps.iter().sum();
    let cap = 6 * HOUR;
    assert!(all <= cap && all + 960_000 > cap, "{all}");
    assert!(matches!(trace.reason(), StopReason::RateLimit { .. }));
}

#[test]
fn repeated_short_resets_do_not_cause_constant_retries() {
    let mut trace = Trace::new(rules(|_| {}));
    for _ in 0..40 {
        trace.then(limited(Some(trace.now + 1000)));
        if trace.machine.head().end.is_none() {
            wait(&mut trace);
        }
    }
    assert!(matches!(trace.reason(), StopReason::RateLimit { .. }));
}

#[test]
fn x107d_person_can_end_the_wait_stop_or_redo() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(limited(Some(HOUR)));
    let mut other = trace.machine.clone();
    let effects = trace.then(MachineInput::Requested(Request::Skip));
    assert_eq!(started(&effects).attempt, 2);
    assert_eq!(
        trace.machine.head().retries.rate_limit_wait_ms,
        100,
        "only the time spent waiting counts"
    );
    let again = MachineInput::Requested(Request::Redo {
        what: RedoScope::Iteration,
    });
    assert_eq!(
        started(&other.clone().step(crate::at(HOUR, again))).attempt,
        2
    );
    let effects = other.step(crate::at(300, stop(StopTiming::AfterIteration)));
    assert!(effects.contains(&Effect::EndRun));
    // A resume continues the wait; if the time has passed, it doesn't wait.
    let head = other.head().clone();
    let waiting = Trace::resumed(head.clone(), ResumeOptions::default());
    assert_about(waits_until(&waiting), HOUR + 10_000);
    assert!(waiting.text.contains("Waiting"), "{}", waiting.text);
    let mut late = loop_state::Machine::from(head);
    let effects = late.step(crate::at(
        9 * HOUR,
        MachineInput::Resumed(ResumeOptions::default()),
    ));
    assert_eq!(
        (started(&effects).iteration, started(&effects).attempt),
        (1, 2)
    );
}

#[test]
fn rate_limit_at_a_stop_or_beyond_the_run_limit_is_not_awaited() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(stop(StopTiming::AfterIteration));
    trace.then(limited(Some(HOUR)));
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(stop(StopTiming::Now));
    trace.then(limited(Some(HOUR)));
    assert_eq!(
        trace.machine.head().unfinished.unwrap().cause,
        UnfinishedCause::Stop
    );
    let mut trace = Trace::new(rules(|rules| {
        rules.limits.max_duration = Some(Duration::from_secs(60));
    }));
    trace.then(limited(Some(HOUR)));
    assert_eq!(
        trace.machine.due_input(Timestamp::from_millis(60_100)),
        Some(MachineInput::TimerExpired(Timer::MaxDuration))
    );
    trace.then(MachineInput::TimerExpired(Timer::MaxDuration));
    assert!(matches!(trace.reason(), StopReason::TimeLimit(_)));
    let mut trace = costly();
    trace.then(limited(Some(HOUR)));
    assert!(
        trace
            .then(MachineInput::TimerExpired(Timer::Retry))
            .is_empty(),
        "a different timer"
    );
}

#[test]
fn c78a_c78b_transient_failure_has_four_tries_and_counts_once() {
    let mut trace = Trace::new(rules(|_| {}));
    let mut waits = Vec::new();
    for attempt in 2..=4 {
        trace.then(garbled());
        waits.push(waits_until(&trace) - trace.now);
        let effects = wait(&mut trace);
        let brief = started(&effects);
        assert_eq!((brief.iteration, brief.attempt), (1, attempt));
        assert_eq!(brief.unfinished.unwrap().cause, UnfinishedCause::Transient);
        assert_eq!(trace.machine.head().counts.failed, 0);
    }
    { waits.iter().zip([1000, 4000, 16_000]) }
        .for_each(|(wait, expected)| assert_about(*wait, expected));
    trace.then(garbled());
    assert_eq!(trace.machine.head().streaks.failures, 1, "exhausted");
    assert_eq!(trace.machine.head().step, IterationStep::Check);
    trace.then(MachineInput::CheckEnded(failed("no")));
    let effects = trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    assert_eq!(
        (started(&effects).iteration, started(&effects).attempt),
        (2, 1)
    );
    assert_eq!(
        trace.machine.head().retries,
        Retries::default(),
        "the next iteration has four tries again"
    );
}

#[test]
fn c78a_c78b_tries_survive_a_crash_and_rate_limits_between_them() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(garbled());
    trace.crash_and_resume();
    wait(&mut trace);
    trace.then(limited(Some(trace.now)));
    wait(&mut trace);
    trace.then(garbled());
    wait(&mut trace);
    assert_eq!(trace.machine.head().retries.transient_failures, 2);
    trace.then(garbled());
    wait(&mut trace);
    trace.then(garbled());
    assert_eq!(trace.machine.head().streaks.failures, 1);
    assert_eq!(trace.machine.head().counts.attempts, 5);
}

#[test]
fn c78b_three_iterations_of_transient_failures_are_stuck() {
    let mut trace = Trace::new(rules(|_| {}));
    for _ in 0..3 {
        for _ in 0..3 {
            trace.then(garbled());
            wait(&mut trace);
        }
        trace.then(garbled());
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
    assert_eq!(trace.machine.head().counts.attempts, 12);
}

#[test]
fn wait_names_its_reason() {
    let mut trace = Trace::new(rules(|_| {}));
    let effects = trace.then(garbled());
    let Effect::Emit(RunUpdate::Waiting { why, until, what }) = &effects[1] else {
        panic!("{effects:?}")
    };
    assert_eq!(*why, WaitCause::Retry);
    assert_about(until.as_millis() - trace.now, 1000);
    assert_eq!(what.as_deref(), Some("line 3 is no JSON"));
}

#[test]
fn clock_that_was_ahead_costs_time_only_once() {
    let mut trace = Trace::new(rules(|rules| {
        rules.limits.max_duration = Some(Duration::from_secs(200 * 3600))
    }));
    trace.now += 24 * HOUR;
    trace.then(MachineInput::PermissionDenied);
    trace.now -= 24 * HOUR;
    for _ in 0..9 {
        trace.crash_and_resume();
    }
    let active = Duration::from_millis(trace.machine.head().active_ms);
    assert!(active < Duration::from_secs(25 * 3600), "{active:?}");
}

#[test]
fn x126c_suspended_time_does_not_count_as_run_time() {
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    let mut trace = Trace::new(rules(|rules| {
        rules.limits.max_duration = Some(hours(2));
        rules.phases[0].limits.iteration_timeout = Some(hours(1));
    }));
    trace.now += 8 * HOUR;
    trace.then(MachineInput::Thawed(hours(8)));
    let now = Timestamp::from_millis(trace.now);
    assert!(trace.machine.due_input(now).is_none());
    trace.iteration(CheckResult::Failed("red".into()));
    assert!(trace.machine.head().end.is_none(), "{}", trace.text);
}

#[test]
fn a_time_of_zero_is_refused() {
    let refused = |change: fn(&mut Rules)| rules(change).validate().unwrap_err().to_string();
    let all = [
        refused(|rules| rules.limits.max_duration = Some(Duration::ZERO)),
        refused(|rules| rules.phases[0].limits.iteration_timeout = Some(Duration::ZERO)),
        refused(|rules| rules.phases[0].limits.idle_timeout = Some(Duration::ZERO)),
    ];
    assert!(
        all.iter().all(|it| it.contains("of 0 allows nothing")),
        "{all:?}"
    );
}

/// Returns a run whose check began at 100 ms and has a limit of two seconds.
fn checking() -> Trace {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].limits.check_timeout = Duration::from_secs(2);
    }));
    let effects = trace.machine.step(crate::at(
        100,
        MachineInput::TurnEnded(TurnOutcome::Completed),
    ));
    assert!(effects.contains(&Effect::RunCheck));
    trace
}

#[test]
fn check_that_times_out_is_ended_once_and_fails() {
    let mut trace = checking();
    let machine = &mut trace.machine;
    assert_eq!(machine.due_input(Timestamp::from_millis(2_099)), None);
    let due = MachineInput::TimerExpired(Timer::Check);
    assert_eq!(
        machine.due_input(Timestamp::from_millis(2_100)),
        Some(due.clone())
    );
    let limit = Duration::from_secs(2);
    let effects = machine.step(crate::at(2_100, due.clone()));
    assert_eq!(effects, [Effect::TimeOutCheck(limit)]);
    assert_eq!(
        machine.due_input(Timestamp::from_millis(9_000)),
        None,
        "the check is being ended"
    );
    assert_eq!(machine.step(crate::at(9_000, due)), []);
    let failed = CheckResult::Failed("it took longer than 2s".into());
    machine.step(crate::at(9_100, MachineInput::CheckEnded(failed)));
    let feedback = machine.head().feedback.as_ref().unwrap();
    assert_eq!(feedback.text, "it took longer than 2s");
}

#[test]
fn changed_check_timeout_applies_to_the_running_check() {
    let mut trace = checking();
    let machine = &mut trace.machine;
    for seconds in [5, 1] {
        let change = RuleChange::CheckTimeout(Duration::from_secs(seconds));
        let request = MachineInput::Requested(Request::Set(change));
        machine.step(crate::at(200, request));
        let due = Timestamp::from_millis(100 + seconds * 1_000);
        assert_eq!(machine.next_deadline(), Some(due));
    }
    // Suspended time doesn't count.
    let thawed = MachineInput::Thawed(Duration::from_secs(3));
    machine.step(crate::at(3_500, thawed));
    assert_eq!(machine.next_deadline(), Some(Timestamp::from_millis(4_100)));
}
