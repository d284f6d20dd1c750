//! Usage belongs to an iteration and a phase, and waits are spread.

use std::collections::BTreeSet;
use std::time::Duration;

use loop_state::{
    CheckResult, Effect, Head, IterationStep, Machine, MachineInput, ProcessTreeOutcome, Request,
    RuleChange, RunUpdate, TurnOutcome, UnfinishedCause,
};

use crate::limits::{HOUR, garbled, limited, metered, used, wait};
use crate::person::started;
use crate::traces::Trace;
use crate::{at, rules};

/// A thousand runs have the same reset time. Their retries are spread: each tenth of the random time has between 50 and 200 of them.
#[test]
fn x107i_runs_with_the_same_reset_retry_at_different_times() {
    let mut tenths = [0; 10];
    for run in 0..1000u64 {
        let mut machine = Machine::new(rules(|_| {})).unwrap();
        machine.step(at(1_000_000 + run * 7, MachineInput::Started));
        let again = machine
            .clone()
            .step(at(9_000_000, limited(Some(9_100_000))));
        let effects = machine.step(at(9_000_000, limited(Some(9_100_000))));
        assert_eq!(effects, again, "the same state gives the same wait");
        let IterationStep::Waiting { until, .. } = machine.head().step else {
            panic!("{effects:?}")
        };
        let more = until.as_millis() - 9_110_000;
        tenths[(more / 2201) as usize] += 1;
    }
    assert!(
        tenths.iter().all(|tenth| (50..200).contains(tenth)),
        "{tenths:?}"
    );
}

/// If a run reaches the limit again after each wait, the random part of each wait is different.
#[test]
fn x107i_each_attempt_of_a_run_waits_a_different_time() {
    let mut machine = Machine::new(rules(|rules| {
        rules.limits.wait_on_limit = Duration::from_secs(1_000_000);
    }))
    .unwrap();
    let mut now = 1_800_000_000_000;
    machine.step(at(now, MachineInput::Started));
    let mut more = BTreeSet::new();
    for _ in 0..8 {
        let reset = now + HOUR;
        machine.step(at(now, limited(Some(reset))));
        let IterationStep::Waiting { until, .. } = machine.head().step else {
            panic!("{:?}", machine.head().step)
        };
        more.insert(until.as_millis() - reset);
        now = until.as_millis();
        let due = machine.due_input(until).unwrap();
        machine.step(at(now, due));
    }
    assert_eq!(more.len(), 8, "{more:?}");
}

/// All usage, at any point of the run, belongs to one iteration and to one phase.
#[test]
fn x108e_usage_is_reported_by_iteration_and_phase() {
    let mut trace = metered(|rules| {
        rules.limits.max_cost_microusd = Some(9_000_000);
        rules.phases[0].limits.max_iterations = Some(2);
        rules.phases[0].has_check = false;
        rules.phases.push(rules.phases[0].clone());
    });
    let end = |trace: &mut Trace, micro: u64| {
        trace.then(used(micro, 1));
        trace.then(garbled());
        wait(trace);
        trace.then(used(micro, 1));
        trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
        let effects = trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
        let told = effects.iter().find_map(|effect| match effect {
            Effect::Emit(RunUpdate::IterationEnded { usage, .. }) => Some(*usage),
            _ => None,
        });
        assert_eq!(told.unwrap().cost_microusd, 2 * micro);
        effects
    };
    end(&mut trace, 100);
    let effects = end(&mut trace, 10);
    let phase = effects.iter().find_map(|effect| match effect {
        Effect::Emit(RunUpdate::PhaseEnded { usage, .. }) => Some(*usage),
        _ => None,
    });
    assert_eq!(phase.unwrap().cost_microusd, 220);
    wait(&mut trace);
    trace.then(used(5, 1));
    let head = trace.machine.head();
    assert_eq!(
        head.last_iteration.as_ref().unwrap().usage.cost_microusd,
        20
    );
    let saved = serde_json::to_string(head).unwrap();
    let loaded: Head = serde_json::from_str(&saved).unwrap();
    assert_eq!(&loaded, head);
    assert_eq!(head.iteration_usage.cost_microusd, 5);
}

#[test]
fn x107g_jitter_alone_does_not_exceed_the_wait_limit() {
    for run in 0..50 {
        let mut machine = Machine::new(rules(|rules| {
            rules.limits.wait_on_limit = Duration::from_secs(6);
        }))
        .unwrap();
        machine.step(at(1_000_000 + run, MachineInput::Started));
        machine.step(at(2_000_000, limited(None)));
        let IterationStep::Waiting { since, until, .. } = machine.head().step else {
            panic!("{:?}", machine.head().end)
        };
        assert!((5_000..=6_000).contains(&(until.as_millis() - since.as_millis())));
    }
}

/// A person raises a budget while the turn that used up the budget is being ended. The run then continues.
#[test]
fn x108f_limit_raised_while_its_turn_ends_continues_the_run() {
    let mut trace = metered(|rules| rules.limits.max_cost_microusd = Some(100));
    trace.then(used(100, 1));
    assert!(trace.machine.head().is_stopping_step);
    trace.then(MachineInput::Requested(Request::Set(RuleChange::MaxCost(
        Some(900),
    ))));
    let effects = trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    let again = started(&effects);
    assert_eq!((again.iteration, again.attempt), (1, 2));
    assert_eq!(again.unfinished.unwrap().cause, UnfinishedCause::Budget);

    let mut trace = metered(|rules| rules.limits.max_duration = Some(Duration::from_millis(500)));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    trace.now = 1000;
    let effects = trace.then(MachineInput::TimerExpired(loop_state::Timer::MaxDuration));
    assert_eq!(effects, [Effect::StopCheck]);
    trace.then(MachineInput::Requested(Request::Set(
        RuleChange::MaxDuration(None),
    )));
    let effects = trace.then(MachineInput::CheckEnded(CheckResult::Stopped));
    assert_eq!(effects, [Effect::RunCheck], "{}", trace.text);
}
