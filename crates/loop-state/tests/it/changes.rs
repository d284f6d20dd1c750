//! Rules that change while the run is live.

use std::time::Duration;

use insta::assert_snapshot;
use loop_state::{
    Autonomy, Effect, MAX_PHASES, MachineInput, PauseAfter, PhaseLimits, ProcessTreeOutcome,
    Request, RuleChange, RunUpdate, StopReason, Streak, Timer, Timestamp, TurnOutcome,
};

use crate::limits::{HOUR, limited, metered, used};
use crate::person::started;
use crate::rules;
use crate::traces::{Trace, failed, is_rejected, stop_attempt};

#[test]
fn changed_rule_is_in_effect_at_once() {
    let mut trace = metered(|_| {});
    trace.then(used(3_000_000, 10));
    let change = RuleChange::MaxCost(Some(3_500_000));
    let told = Effect::Emit(RunUpdate::RuleChanged(change));
    assert_eq!(
        trace.then(MachineInput::Requested(Request::Set(change))),
        [Effect::Save, told]
    );
    let change = RuleChange::MaxCost(Some(2_000_000));
    let effects = trace.then(MachineInput::Requested(Request::Set(change)));
    assert_eq!(
        effects.last(),
        Some(&stop_attempt(Some("3.00 of 2.00 USD used")))
    );
    assert_eq!(
        trace.machine.head().rules.limits.max_cost_microusd,
        Some(2_000_000)
    );

    let mut trace = Trace::new(rules(|_| {}));
    let change = RuleChange::IterationTimeout(Some(Duration::from_secs(5)));
    trace.then(MachineInput::Requested(Request::Set(change)));
    assert_eq!(
        trace.machine.next_deadline(),
        Some(Timestamp::from_millis(5_100))
    );
    trace.then(limited(Some(HOUR)));
    trace.then(MachineInput::Requested(Request::Set(
        RuleChange::WaitOnLimit(Duration::from_secs(60)),
    )));
    assert!(matches!(trace.reason(), StopReason::RateLimit { .. }));
}

#[test]
fn run_rule_change_is_reported_without_phase() {
    let mut trace = metered(|rules| {
        let next = rules.phases[0].clone();
        rules.phases.push(next);
    });
    let mut alone = metered(|_| {});
    let minute = Duration::from_secs(60);
    for (change, is_of_phase) in [
        (RuleChange::MaxIterations(Some(9)), true),
        (RuleChange::IterationTimeout(Some(minute)), true),
        (RuleChange::IdleTimeout(None), true),
        (RuleChange::CheckTimeout(minute), true),
        (RuleChange::MaxDuration(Some(minute)), false),
        (RuleChange::MaxFailures(5), false),
        (RuleChange::Sleep(minute), false),
        (RuleChange::Autonomy(Autonomy::Full), false),
        (RuleChange::MaxCost(Some(9)), false),
        (RuleChange::MaxTokens(Some(9)), false),
        (RuleChange::WaitOnLimit(minute), false),
    ] {
        assert_eq!(change.is_phase_rule(), is_of_phase, "{change}");
        let phase = trace.machine.head().rules.phases[0].name.clone();
        let told = match is_of_phase {
            true => RunUpdate::PhaseRuleChanged { phase, change },
            false => RunUpdate::RuleChanged(change),
        };
        let effects = trace.then(MachineInput::Requested(Request::Set(change)));
        assert_eq!(effects, [Effect::Save, Effect::Emit(told)]);
        // With only one phase, the update doesn't name the phase.
        let effects = alone.then(MachineInput::Requested(Request::Set(change)));
        let told = RunUpdate::RuleChanged(change);
        assert_eq!(effects, [Effect::Save, Effect::Emit(told)]);
    }
}

/// A client's request is checked against the longest time by this value.
#[test]
fn time_of_a_change_is_the_time_that_it_sets() {
    let minute = Duration::from_secs(60);
    for change in [
        RuleChange::IterationTimeout(Some(minute)),
        RuleChange::IdleTimeout(Some(minute)),
        RuleChange::MaxDuration(Some(minute)),
        RuleChange::CheckTimeout(minute),
        RuleChange::Sleep(minute),
        RuleChange::WaitOnLimit(minute),
    ] {
        assert_eq!(change.time(), Some(minute), "{change}");
    }
    for change in [
        RuleChange::IterationTimeout(None),
        RuleChange::MaxFailures(60),
        RuleChange::MaxTokens(Some(60)),
    ] {
        assert_eq!(change.time(), None, "{change}");
    }
    let none = RuleChange::Sleep(Duration::ZERO).to_string();
    assert_eq!(none, "pause between iterations: none");
}

#[test]
fn number_of_phases_is_limited() {
    for (count, wrong) in [
        (0, Some("the run needs at least one phase")),
        (MAX_PHASES, None),
        (
            MAX_PHASES + 1,
            Some("33 phases are too many; the maximum is 32"),
        ),
    ] {
        let rules = rules(|rules| rules.phases = vec![rules.phases[0].clone(); count]);
        let error = rules.validate().err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), wrong);
    }
}

#[test]
fn limit_is_raised_by_larger_value_or_none() {
    let mut rules = rules(|rules| rules.limits.max_tokens = Some(5));
    rules.phases[0].limits.max_iterations = None;
    rules.phases.push(rules.phases[0].clone());
    rules.phases[1].limits.max_iterations = Some(5);
    let raises = |change| rules.is_raised_by(1, &change);
    assert!(raises(RuleChange::MaxTokens(Some(6))) && raises(RuleChange::MaxTokens(None)));
    assert!(!raises(RuleChange::MaxTokens(Some(5))) && !raises(RuleChange::MaxCost(Some(4))));
    let iterations = RuleChange::MaxIterations;
    assert!(raises(iterations(None)) && raises(iterations(Some(6))));
    assert!(!raises(iterations(Some(4))));
    assert!(!rules.is_raised_by(0, &iterations(Some(9))));
    assert!(raises(RuleChange::MaxFailures(0)) && !raises(RuleChange::MaxFailures(2)));
    assert!(raises(RuleChange::WaitOnLimit(Duration::MAX)));
    assert!(!raises(RuleChange::WaitOnLimit(rules.limits.wait_on_limit)));
    assert!(!raises(RuleChange::Sleep(Duration::MAX)));
}

#[test]
fn changed_rule_is_described_in_text() {
    let changes = [
        RuleChange::MaxIterations(Some(9)),
        RuleChange::MaxFailures(0),
        RuleChange::MaxCost(Some(2_500_000)),
        RuleChange::MaxDuration(None),
        RuleChange::Autonomy(Autonomy::Batch(5)),
        RuleChange::WaitOnLimit(Duration::from_secs(60)),
    ];
    assert_snapshot!(changes.map(|change| change.to_string()).join("\n"), @"
    iterations: 9
    failures in a row: no limit
    cost: 2.50 USD
    time limit: no limit
    autonomy: batch:5
    wait for rate limits: 1m
    ");
}

#[test]
fn invalid_rule_is_refused() {
    let mut trace = Trace::new(rules(|_| {}));
    let before = trace.machine.head().rules.clone();
    for change in [
        RuleChange::MaxIterations(Some(0)),
        RuleChange::MaxTokens(Some(5)),
        RuleChange::Autonomy(Autonomy::Batch(0)),
    ] {
        assert!(
            is_rejected(&trace.then(MachineInput::Requested(Request::Set(change)))),
            "{change:?}"
        );
    }
    assert_eq!(trace.machine.head().rules, before);
}

#[test]
fn shortened_plan_ends_its_phase_and_not_the_run() {
    let mut trace = Trace::new(rules(|rules| {
        rules.limits.sleep = Duration::from_secs(10);
        let mut plan = rules.phases[0].clone();
        plan.has_check = false;
        plan.limits.max_iterations = Some(5);
        rules.phases.insert(0, plan);
    }));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    trace.then(MachineInput::Requested(Request::Set(
        RuleChange::MaxIterations(Some(1)),
    )));
    let effects = trace.then(MachineInput::Requested(Request::Skip));
    assert!(
        matches!(effects[0], Effect::SavePhase { .. }),
        "{effects:?}"
    );
    let effects = trace.then(MachineInput::TimerExpired(Timer::Sleep));
    assert_eq!(started(&effects).phase, 1);
}

#[test]
fn shortened_plan_of_the_last_phase_is_saved_at_its_end() {
    let mut trace = Trace::new(rules(|rules| {
        rules.limits.sleep = Duration::from_secs(10);
        rules.phases[0].has_check = false;
        rules.phases[0].limits.max_iterations = Some(5);
    }));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    trace.then(MachineInput::Requested(Request::Set(
        RuleChange::MaxIterations(Some(1)),
    )));
    let effects = trace.then(MachineInput::TimerExpired(Timer::Sleep));
    assert!(
        matches!(effects[0], Effect::SavePhase { .. }),
        "{effects:?}"
    );
    assert_eq!(trace.reason(), StopReason::AllIterationsRan);
    assert_eq!(trace.machine.head().finished_phases.len(), 1);
    // The phase finishes only once: a resume finds it finished.
    let effects = trace.crash_and_resume();
    let ended = RunUpdate::Ended(StopReason::AllIterationsRan);
    assert_eq!(effects[0], Effect::Emit(ended));
    assert_eq!(trace.machine.head().finished_phases.len(), 1);
}

#[test]
fn lowered_failure_limit_prevents_the_next_iteration() {
    let rests = [
        (Autonomy::Full, None),
        (
            Autonomy::Full,
            Some(MachineInput::Requested(Request::Pause {
                reason: None,
                after: PauseAfter::Iteration,
            })),
        ),
        (Autonomy::Batch(1), None),
    ];
    for (autonomy, wish) in rests {
        let mut trace = Trace::new(rules(|rules| {
            rules.limits.sleep = Duration::from_secs(10);
            rules.autonomy = autonomy;
        }));
        trace.then(MachineInput::Attended(true));
        trace.then(MachineInput::TurnEnded(TurnOutcome::Failed("died".into())));
        trace.then(MachineInput::CheckEnded(failed("red")));
        trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
        wish.map(|wish| trace.then(wish));
        let change = |max| MachineInput::Requested(Request::Set(RuleChange::MaxFailures(max)));
        trace.then(change(2));
        assert_eq!(trace.machine.head().end, None);
        trace.then(change(1));
        assert_eq!(
            trace.reason(),
            StopReason::Stuck {
                streak: Streak::Failures,
                count: 1
            }
        );
        // After a resume by a person, the run is stuck only after another failure.
        let effects = trace.crash_and_resume();
        assert_eq!(started(&effects).iteration, 2);
    }
}

#[test]
fn lowered_failure_limit_does_not_end_the_running_turn() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Failed("no".into())));
    trace.then(MachineInput::CheckEnded(failed("red")));
    trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    assert_eq!(trace.machine.head().streaks.failures, 1);
    let change = RuleChange::MaxFailures(1);
    let told = Effect::Emit(RunUpdate::RuleChanged(change));
    assert_eq!(
        trace.then(MachineInput::Requested(Request::Set(change))),
        [Effect::Save, told]
    );
    assert_eq!(trace.machine.head().end, None);
}

#[test]
fn rule_of_a_later_phase_is_named_with_it_and_saved() {
    let mut trace = Trace::new(rules(|rules| {
        let mut build = rules.phases[0].clone();
        build.name = "build".into();
        rules.phases.push(build);
    }));
    let change = RuleChange::CheckTimeout(Duration::from_secs(7));
    let told = |phase: &str| {
        let phase = phase.to_owned();
        [
            Effect::Save,
            Effect::Emit(RunUpdate::PhaseRuleChanged { phase, change }),
        ]
    };
    let first = trace.machine.head().rules.phases[0].name.clone();
    let effects = trace.then(MachineInput::PhaseRuleChanged { phase: 1, change });
    assert_eq!(effects, told("build"));
    let time =
        |trace: &Trace, at: usize| trace.machine.head().rules.phases[at].limits.check_timeout;
    assert_eq!(
        (time(&trace, 0), time(&trace, 1)),
        (PhaseLimits::CHECK_TIMEOUT, Duration::from_secs(7))
    );
    let head = serde_json::to_string(trace.machine.head()).unwrap();
    let read: loop_state::Head = serde_json::from_str(&head).unwrap();
    assert_eq!(read, *trace.machine.head());
    assert_eq!(
        trace.then(MachineInput::Requested(Request::Set(change))),
        told(&first)
    );
    let nowhere = MachineInput::PhaseRuleChanged { phase: 2, change };
    assert!(trace.then(nowhere).is_empty());
    let nothing = RuleChange::CheckTimeout(Duration::ZERO);
    assert!(is_rejected(
        &trace.then(MachineInput::Requested(Request::Set(nothing)))
    ));
}
