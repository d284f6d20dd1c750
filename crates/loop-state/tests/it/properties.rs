use std::collections::HashSet;
use std::time::Duration;

use loop_state::{
    Again, CheckResult, Counts, Effect, Event, Happening, Head, Limits, Machine, Notice,
    PhaseRules, Resume, Rules, SessionPolicy, SteerState, Step, StopCause, StopRequest, Timer,
    Timestamp, Tree, TurnOutcome, When,
};
use proptest::prelude::*;

fn any_rules() -> impl Strategy<Value = Rules> {
    let limits = (
        proptest::option::of(1u32..4),
        proptest::option::of(1u64..50),
        proptest::option::of(1u64..50),
    )
        .prop_map(|(max_iterations, turn, idle)| Limits {
            max_iterations,
            iteration_timeout: turn.map(Duration::from_millis),
            idle_timeout: idle.map(Duration::from_millis),
        });
    let phase = (limits, any::<[bool; 3]>(), 0u32..3).prop_map(
        |(limits, [until, promise, keep], gates)| PhaseRules {
            name: "p".into(),
            gates,
            until: until || limits.max_iterations.is_none(),
            promise,
            session: if keep {
                SessionPolicy::Continue
            } else {
                SessionPolicy::Fresh
            },
            limits,
            ..PhaseRules::default()
        },
    );
    (
        proptest::collection::vec(phase, 1..3),
        proptest::option::of(1u64..200),
        0u32..4,
        prop_oneof![Just(0u64), Just(10)],
    )
        .prop_map(|(phases, max, max_failures, sleep)| Rules {
            phases,
            max_duration: max.map(Duration::from_millis),
            max_failures,
            sleep: Duration::from_millis(sleep),
            ..Rules::default()
        })
}

fn any_result() -> impl Strategy<Value = CheckResult> {
    prop_oneof![
        Just(CheckResult::Passed),
        Just(CheckResult::Failed("no".into())),
        Just(CheckResult::Stopped),
    ]
}

fn any_outcome() -> impl Strategy<Value = TurnOutcome> {
    prop_oneof![
        4 => Just(TurnOutcome::Completed),
        2 => Just(TurnOutcome::Failed("exit status 1".into())),
        1 => Just(TurnOutcome::Stopped),
        1 => Just(TurnOutcome::NotStarted("gone".into())),
        2 => Just(TurnOutcome::Claimed),
        2 => Just(TurnOutcome::Interrupted),
        1 => Just(TurnOutcome::SessionLost),
        1 => Just(TurnOutcome::Hopeless("log in".into())),
    ]
}

fn any_request() -> impl Strategy<Value = StopRequest> {
    let by = prop_oneof![Just(StopCause::Person), Just(StopCause::Terminated)];
    let when = prop_oneof![Just(When::Now), Just(When::AfterIteration)];
    (by, when).prop_map(|(by, when)| StopRequest { by, when })
}

fn any_timer() -> impl Strategy<Value = Timer> {
    prop_oneof![
        Just(Timer::Iteration),
        Just(Timer::Idle),
        Just(Timer::Sleep),
        Just(Timer::Run)
    ]
}

fn any_happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        1 => Just(Happening::Started),
        2 => (proptest::option::of(0u32..6), proptest::option::of(any_rules()), proptest::option::of(0u32..9))
            .prop_map(|(from, rules, used_attempts)| Happening::Resumed(Resume { rules, from, used_attempts, ..Resume::default() })),
        6 => any_outcome().prop_map(Happening::TurnEnded),
        4 => any_result().prop_map(Happening::GateEnded),
        4 => any_result().prop_map(Happening::CheckEnded),
        6 => (0u32..3).prop_map(|ended| Happening::Settled(Tree { ended, survivors: 0 })),
        3 => any_timer().prop_map(Happening::TimeUp),
        1 => any_request().prop_map(Happening::StopRequested),
        1 => any::<bool>().prop_map(|now| Happening::SteerAdded { text: "say".into(), now }),
        1 => (0u32..4, any_state()).prop_map(|(id, state)| Happening::SteerMoved { id, state }),
        1 => any_wish(),
        1 => Just(Happening::SessionKnown("s".into())),
        1 => Just(Happening::NothingDone),
        1 => Just(Happening::Thawed(Duration::from_millis(30))),
    ]
}

fn any_state() -> impl Strategy<Value = SteerState> {
    prop_oneof![
        Just(SteerState::Recorded),
        Just(SteerState::Delivered),
        Just(SteerState::Seen)
    ]
}

fn any_wish() -> impl Strategy<Value = Happening> {
    prop_oneof![
        Just(Happening::InterruptRequested),
        Just(Happening::PauseRequested),
        Just(Happening::ContinueRequested),
        Just(Happening::SleepSkipped),
        Just(Happening::AgainRequested(Again::Iteration)),
        Just(Happening::AgainRequested(Again::Phase)),
        Just(Happening::FreshRequested),
    ]
}

fn any_history() -> impl Strategy<Value = (Rules, Vec<Event>)> {
    let events = proptest::collection::vec((0u64..40, any_happening()), 0..60);
    (any_rules(), events).prop_map(|(rules, steps)| {
        let mut now = 0;
        let begin = Event {
            at: Timestamp(0),
            what: Happening::Started,
        };
        let later = steps.into_iter().map(|(wait, what)| {
            now += wait;
            Event {
                at: Timestamp(now),
                what,
            }
        });
        (rules, [begin].into_iter().chain(later).collect())
    })
}

fn totals(c: Counts) -> [u32; 5] {
    [c.iterations, c.attempts, c.failed, c.cuts, c.processes]
}

/// Serialises and deserialises, as a save and a load do.
fn through_disk(head: &Head) -> Head {
    serde_json::from_slice(&serde_json::to_vec(head).unwrap()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Any event in any state: no panic, totals only grow, no attempt comes twice, nothing starts unsaved, every end has its reason.
    #[test]
    fn any_history_keeps_the_promises((rules, events) in any_history()) {
        let mut machine = Machine::new(rules).unwrap();
        let mut seen = HashSet::new();
        for event in events {
            let before = machine.head().clone();
            let resumed = matches!(event.what, Happening::Resumed(_));
            let effects = machine.step(event);
            let head = machine.head();
            prop_assert!(totals(before.counts).iter().zip(totals(head.counts)).all(|(a, b)| *a <= b));
            prop_assert!(before.highest_attempt <= head.highest_attempt);
            if before.end.is_some() && !resumed {
                prop_assert!(effects.is_empty(), "an ended run did {effects:?}");
                prop_assert_eq!(&before, head);
            }
            let mut saved = false;
            for effect in &effects {
                match effect {
                    Effect::Save | Effect::SealPhase { .. } => saved = true,
                    Effect::StartAttempt(brief) => {
                        prop_assert!(saved, "started before it was saved");
                        prop_assert!(seen.insert((brief.iteration, brief.attempt)), "{brief:?} came twice");
                        let turn = matches!(head.step, Step::Turn { .. });
                        prop_assert!(turn);
                    }
                    Effect::Announce(_) => prop_assert!(saved || before.end.is_some(), "told before it was saved"),
                    _ => {}
                }
            }
            prop_assert_eq!(effects.contains(&Effect::Finish), !effects.is_empty() && head.end.is_some());
        }
    }

    /// The head is authoritative and the events are history: folding them gives the head, wherever a save and a load come between.
    #[test]
    fn folding_the_events_gives_the_head((rules, events) in any_history(), cut in any::<prop::sample::Index>()) {
        let mut live = Machine::new(rules.clone()).unwrap();
        let mut folded = Machine::new(rules).unwrap();
        let cut = cut.index(events.len());
        for (i, event) in events.into_iter().enumerate() {
            live.step(event.clone());
            folded.step(event);
            if i == cut {
                folded = Machine::from(through_disk(folded.head()));
            }
        }
        prop_assert_eq!(live.head(), folded.head());
    }

    /// In a world that does what it is told, with random luck, presses and crashes, every run comes to an end.
    #[test]
    fn every_run_ends(
        rules in any_rules(),
        outcomes in proptest::collection::vec(any_outcome(), 40),
        results in proptest::collection::vec(any_result(), 120),
        crashes in proptest::collection::vec(0usize..200, 0..3),
    ) {
        // Without a limit on iterations only luck ends a run, so these runs have one.
        let rules = Rules {
            phases: rules.phases.into_iter().map(|mut phase| {
                phase.limits.max_iterations.get_or_insert(5);
                phase
            }).collect(),
            ..rules
        };
        let mut machine = Machine::new(rules).unwrap();
        let (mut outcomes, mut results) = (outcomes.into_iter().cycle(), results.into_iter().cycle());
        let mut todo = vec![Happening::Started];
        for step in 0..500 {
            let now = Timestamp(step);
            let what = match (crashes.contains(&(step as usize)), todo.pop(), machine.due(now)) {
                (true, ..) if step > 0 => {
                    todo.clear();
                    machine = Machine::from(through_disk(machine.head()));
                    Happening::Resumed(Resume::default())
                }
                (_, Some(what), _) | (_, None, Some(what)) => what,
                (_, None, None) => continue,
            };
            for effect in machine.step(Event { at: now, what }) {
                match effect {
                    Effect::StartAttempt(_) => todo.push(Happening::TurnEnded(outcomes.next().unwrap())),
                    Effect::Announce(Notice::Interrupted) => todo.push(Happening::ContinueRequested),
                    Effect::GoOn => todo.push(Happening::TurnEnded(TurnOutcome::Completed)),
                    Effect::StopAttempt => todo = vec![Happening::TurnEnded(TurnOutcome::Stopped)],
                    Effect::RunGate(_) => todo.push(Happening::GateEnded(results.next().unwrap())),
                    Effect::RunCheck => todo.push(Happening::CheckEnded(results.next().unwrap())),
                    Effect::EndLeftovers => todo.push(Happening::Settled(Tree::default())),
                    _ => {}
                }
            }
        }
        prop_assert!(machine.head().end.is_some(), "still at {:?}", machine.head().step);
    }
}
