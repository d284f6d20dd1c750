//! Explores all short histories of a stop, with the state of the live process: the deadline, a shutdown, a suspend, the end of the process.

use std::time::Duration;

use foldhash::HashSet;
use loop_state::{
    CheckResult, Effect, Machine, MachineInput, PauseAfter, ProcessTreeOutcome, Request,
    ResumeOptions, StopCause, StopRequest, StopTiming, TimedInput, Timer, Timestamp, TurnOutcome,
};

use crate::invariants::{INVARIANTS, MachineStep};
use crate::rules;

/// The inputs that the process got before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ProcessHistory {
    ending: bool,
    shut_down: bool,
}

impl ProcessHistory {
    fn then(self, what: &MachineInput) -> Self {
        let begins = matches!(what, MachineInput::Started | MachineInput::Resumed(_));
        Self {
            ending: (self.ending && !begins)
                || matches!(
                    what,
                    MachineInput::Ending | MachineInput::StoppedBeforeStart(_)
                ),
            shut_down: (self.shut_down && !begins) || matches!(what, MachineInput::ShutDown),
        }
    }
}

/// One step of a machine.
struct StopStep<'a> {
    told: ProcessHistory,
    before: &'a Machine,
    event: &'a TimedInput,
    effects: &'a [Effect],
    after: &'a Machine,
}

type Invariant = fn(&StopStep<'_>) -> bool;

const STOP_INVARIANTS: [(&str, Invariant); 8] = [
    ("only suspended time moves a deadline later", moves_earlier),
    ("a request to stop now returns the deadline", answered),
    ("an abort stays an abort", abort_stays),
    ("nothing begins after a stop now", begins_nothing),
    ("an ending process only accepts requests to stop", ending),
    ("no timer expires while the run is suspended", suspended),
    ("a shutdown waits for its reason once", shut_down_once),
    ("the last effect of a process is `EndRun`", finish_is_last),
];

fn begins_process(step: &StopStep<'_>) -> bool {
    matches!(
        step.event.what,
        MachineInput::Started | MachineInput::Resumed(_)
    )
}

fn moves_earlier(step: &StopStep<'_>) -> bool {
    let thawed = match step.event.what {
        MachineInput::Thawed(frozen) => frozen,
        _ => Duration::ZERO,
    };
    match (step.before.deadline().by(), step.after.deadline().by()) {
        (Some(before), Some(after)) => after <= before + thawed || begins_process(step),
        (Some(_), None) => begins_process(step),
        (None, _) => true,
    }
}

fn answered(step: &StopStep<'_>) -> bool {
    let is_now = { step.event.what.stop() }.is_some_and(|it| it.when == StopTiming::Now);
    let is_early = !step.before.has_begun() && step.before.head().end.is_none();
    let told = Effect::StopBy(step.after.deadline());
    !is_now || is_early || (step.effects.first() == Some(&told) && step.after.is_stopping())
}

fn abort_stays(step: &StopStep<'_>) -> bool {
    let stays = step.after.deadline().is_abort() || begins_process(step);
    !step.before.deadline().is_abort() || stays
}

fn begins_nothing(step: &StopStep<'_>) -> bool {
    let stops = { step.before.head().stopping }.is_some_and(|it| it.when == StopTiming::Now);
    let begins = |effect: &Effect| {
        matches!(
            effect,
            Effect::StartAttempt(_)
                | Effect::ContinueTurn
                | Effect::Deliver(_)
                | Effect::RunRequiredCheck(_)
                | Effect::RunCheck
        )
    };
    !stops || begins_process(step) || !step.effects.iter().any(begins)
}

fn ending(step: &StopStep<'_>) -> bool {
    let only = |effect: &Effect| matches!(effect, Effect::StopBy(_));
    let same = step.before.head() == step.after.head();
    !step.told.ending || begins_process(step) || (same && step.effects.iter().all(only))
}

fn suspended(step: &StopStep<'_>) -> bool {
    let machine = step.after;
    !machine.is_frozen() || (machine.next_deadline(), machine.silence()) == (None, None)
}

fn shut_down_once(step: &StopStep<'_>) -> bool {
    let waits = { step.effects.iter() }.any(|it| matches!(it, Effect::AwaitStop(_)));
    !waits || (!step.told.shut_down && !step.before.is_stopping())
}

fn finish_is_last(step: &StopStep<'_>) -> bool {
    let finish = step.effects.iter().position(|it| *it == Effect::EndRun);
    finish
        .is_none_or(|at| at + 1 == step.effects.len() && step.after.head().stop_reason().is_some())
}

fn alphabet() -> Vec<MachineInput> {
    let stop = |when| {
        let by = StopCause::Person;
        StopRequest { by, when }
    };
    vec![
        MachineInput::StopRequested(stop(StopTiming::Now)),
        MachineInput::StopRequested(stop(StopTiming::AfterIteration)),
        MachineInput::Requested(Request::Abort),
        MachineInput::StoppedBeforeStart(stop(StopTiming::Now)),
        MachineInput::StopForeseen { abort: false },
        MachineInput::StopForeseen { abort: true },
        MachineInput::ShutDown,
        MachineInput::TimerExpired(Timer::Shutdown),
        MachineInput::Frozen(true),
        MachineInput::Frozen(false),
        MachineInput::Thawed(Duration::from_secs(3)),
        MachineInput::Ending,
        MachineInput::AgentInterruptible(false),
        MachineInput::Requested(Request::Interrupt),
        MachineInput::Requested(Request::Continue),
        MachineInput::Requested(Request::Pause {
            reason: None,
            after: PauseAfter::Tool,
        }),
        MachineInput::TurnEnded(TurnOutcome::Completed),
        MachineInput::TurnEnded(TurnOutcome::Interrupted),
        MachineInput::TurnEnded(TurnOutcome::Stopped),
        MachineInput::CheckEnded(CheckResult::Passed),
        MachineInput::CheckEnded(CheckResult::Stopped),
        MachineInput::LeftoversEnded(ProcessTreeOutcome::default()),
        MachineInput::Resumed(ResumeOptions::default()),
    ]
}

type Spoil = fn(Machine, Vec<Effect>) -> (Machine, Vec<Effect>);

/// Explores all histories of four steps from a starting point; returns the number of states and steps, or the first step that broke an
/// invariant. With `only`, just the invariant of this name counts.
fn explore(
    place: &[MachineInput],
    only: Option<&str>,
    spoil: Spoil,
) -> Result<(usize, usize), String> {
    const DEPTH: u64 = 4;
    let rules = rules(|rules| {
        rules.phases[0].limits.idle_timeout = Some(Duration::from_secs(2));
        rules.limits.max_duration = Some(Duration::from_secs(600));
    });
    let mut first = Machine::new(rules).unwrap();
    for what in place {
        first.step(crate::at(0, what.clone()));
    }
    let told = ProcessHistory {
        ending: false,
        shut_down: false,
    };
    let mut level = vec![(first, told)];
    let (mut states, mut steps) = (1, 0);
    for nth in 1..=DEPTH {
        let mut known = HashSet::default();
        let mut next = Vec::new();
        for (before, told) in &level {
            let at = Timestamp::from_millis(nth * 1000);
            for what in alphabet().into_iter().chain(before.due_input(at)) {
                let mut after = before.clone();
                let event = TimedInput { at, what };
                let effects = after.step(event.clone());
                steps += 1;
                let (after, effects) = spoil(after, effects);
                let step = StopStep {
                    told: *told,
                    before,
                    event: &event,
                    effects: &effects,
                    after: &after,
                };
                let seen = MachineStep {
                    before: before.head(),
                    event: &event,
                    effects: &effects,
                    after: after.head(),
                };
                let broken = STOP_INVARIANTS.iter().filter(|(_, holds)| !holds(&step));
                let mut broken: Vec<&str> = broken.map(|(name, _)| *name).collect();
                let is_early = matches!(event.what, MachineInput::StoppedBeforeStart(_));
                if !is_early {
                    let others = INVARIANTS.iter().filter(|(_, holds)| !holds(&seen));
                    broken.extend(others.map(|(name, _)| *name));
                }
                broken.retain(|name| only.is_none_or(|only| only == *name));
                if !broken.is_empty() {
                    return Err(format!(
                        "{broken:?}: machine {before:?}, input {event:?}, effects {effects:?}"
                    ));
                }
                if nth < DEPTH {
                    let told = told.then(&event.what);
                    if known.insert(format!("{told:?} {after:?}")) {
                        next.push((after, told));
                    }
                }
            }
        }
        states += next.len();
        level = next;
    }
    Ok((states, steps))
}

#[test]
fn all_short_histories_of_a_stop_keep_the_invariants() {
    let started = || MachineInput::Started;
    let turn = MachineInput::TurnEnded;
    let places = [
        ("a process that has not begun", vec![]),
        ("a turn", vec![started()]),
        (
            "an interrupted turn",
            vec![started(), turn(TurnOutcome::Interrupted)],
        ),
        ("the check", vec![started(), turn(TurnOutcome::Completed)]),
        (
            "the end of the tree",
            vec![
                started(),
                turn(TurnOutcome::Completed),
                MachineInput::CheckEnded(CheckResult::Passed),
            ],
        ),
    ];
    for (place, way) in places {
        match explore(&way, None, |after, effects| (after, effects)) {
            Ok((states, steps)) => {
                println!("{place}: {states} states, {steps} steps");
                assert!(states > 200 && steps > 5_000, "{states} {steps}");
            }
            Err(broken) => panic!("{place}: {broken}"),
        }
    }
}

/// Checks for each invariant of a stop that the exploration detects a machine that breaks it.
#[test]
fn search_finds_a_broken_stop() {
    let spoils: [(&str, Spoil); 5] = [
        (
            "only suspended time moves a deadline later",
            |mut machine, effects| {
                machine.step(crate::at(0, MachineInput::Thawed(Duration::from_secs(60))));
                (machine, effects)
            },
        ),
        (
            "a request to stop now returns the deadline",
            |machine, effects| {
                let is_deadline = |effect: &Effect| matches!(effect, Effect::StopBy(_));
                let others = effects.into_iter().filter(|it| !is_deadline(it));
                (machine, others.collect())
            },
        ),
        ("an abort stays an abort", |mut machine, effects| {
            if machine.deadline().is_abort() && effects.is_empty() {
                machine = Machine::from(machine.head().clone());
            }
            (machine, effects)
        }),
        ("nothing begins after a stop now", |machine, mut effects| {
            effects.push(Effect::RunCheck);
            (machine, effects)
        }),
        (
            "the last effect of a process is `EndRun`",
            |machine, mut effects| {
                effects.reverse();
                (machine, effects)
            },
        ),
    ];
    for (invariant, spoil) in spoils {
        assert!(STOP_INVARIANTS.iter().any(|(name, _)| *name == invariant));
        let found = explore(&[MachineInput::Started], Some(invariant), spoil).unwrap_err();
        assert!(found.contains(invariant), "{invariant}: {found}");
    }
}
