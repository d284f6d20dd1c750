//! Tests of the machine through its public interface.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod agent;
mod attempt;
mod attempt_explore;
mod changes;
mod deadline;
mod durable_crashes;
mod durable_sessions;
mod examples;
mod explore;
mod first_check;
mod forks;
mod handover;
mod inbox;
mod invariants;
mod limits;
mod moments;
mod money;
mod person;
mod pipeline;
mod properties;
mod rehearsal;
mod resumes;
mod saved;
mod silence;
mod simulate;
mod stopping;
mod stopping_explore;
mod taken_up;
mod traces;
mod unread_messages;

use loop_state::{Head, MachineInput, PhaseRules, Rules, RunLimits, TimedInput, Timestamp};
use std::time::Duration;

/// Returns rules with one phase that has a check, a limit of three failures, and no sleep.
fn rules(change: impl FnOnce(&mut Rules)) -> Rules {
    let mut rules = Rules {
        phases: vec![PhaseRules {
            name: "main".into(),
            has_check: true,
            ..PhaseRules::default()
        }],
        limits: RunLimits {
            sleep: Duration::ZERO,
            ..RunLimits::default()
        },
        ..Rules::default()
    };
    change(&mut rules);
    rules
}

fn resume_point(head: &Head) -> (u32, bool) {
    let point = head.resume_point();
    (point.iteration, point.is_unfinished)
}

fn at(millis: u64, what: MachineInput) -> TimedInput {
    TimedInput {
        at: Timestamp::from_millis(millis),
        what,
    }
}

#[test]
fn machine_inputs_and_effects_are_send() {
    fn check<T: Send + Sync + Clone + std::fmt::Debug + 'static>() {}
    check::<loop_state::Machine>();
    check::<loop_state::TimedInput>();
    check::<loop_state::Effect>();
    check::<loop_state::Head>();
    check::<loop_state::HeadError>();
}
