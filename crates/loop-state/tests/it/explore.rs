//! Explores all short histories of a small run: each input in each reachable state, with all promises checked after each step.

use std::collections::HashSet;
use std::time::Duration;

use loop_state::{
    Again, Autonomy, CheckResult, Event, Happening, Head, Limits, Machine, PauseAfter, PhaseRules,
    Request, Resume, RuleChange, Rules, RunLimits, SessionPolicy, StopCause, StopRequest,
    Timestamp, Tree, TurnOutcome, Usage, Verdict, When,
};

use crate::promises::{PROMISES, Seen, broken};

/// Returns rules with two short phases, small budgets and short waits, so that every limit is near.
fn world(autonomy: Autonomy) -> Rules {
    let phase = |name: &str, until, session, max| PhaseRules {
        name: name.into(),
        until,
        session,
        limits: Limits {
            max_iterations: Some(max),
            iteration_timeout: Some(Duration::from_secs(9)),
            ..Limits::default()
        },
        reports_cost: true,
        ..PhaseRules::default()
    };
    Rules {
        phases: vec![
            phase("plan", false, SessionPolicy::Continue, 1),
            phase("build", true, SessionPolicy::Fresh, 2),
        ],
        autonomy,
        limits: RunLimits {
            max_duration: Some(Duration::from_secs(600)),
            max_failures: 2,
            sleep: Duration::ZERO,
            max_cost_microusd: Some(2),
            wait_on_limit: Duration::from_secs(100),
            ..RunLimits::default()
        },
    }
}

/// Returns the same rules with longer phases.
fn longer() -> Rules {
    let mut rules = world(Autonomy::Full);
    for phase in &mut rules.phases {
        phase.limits.max_iterations = Some(3);
    }
    rules.limits.max_cost_microusd = Some(5);
    rules
}

fn alphabet(at: Timestamp) -> Vec<Happening> {
    let turn = Happening::TurnEnded;
    let stop = |when| {
        let by = StopCause::Person;
        Happening::StopRequested(StopRequest { by, when })
    };
    let attended = Resume {
        attended: true,
        ..Resume::default()
    };
    vec![
        turn(TurnOutcome::Completed),
        turn(TurnOutcome::Failed("exit status 1".into())),
        turn(TurnOutcome::Interrupted),
        turn(TurnOutcome::Stopped),
        turn(TurnOutcome::SessionLost),
        turn(TurnOutcome::Transient("no JSON".into())),
        turn(TurnOutcome::RateLimited {
            reset: Some(at + Duration::from_secs(30)),
            why: "limit".into(),
        }),
        Happening::CheckEnded(CheckResult::Passed),
        Happening::CheckEnded(CheckResult::Failed("red".into())),
        Happening::CheckEnded(CheckResult::NotRun("no such command".into())),
        Happening::Settled(Tree::default()),
        Happening::Used(Usage {
            cost_microusd: 1,
            ..Usage::default()
        }),
        stop(When::Now),
        stop(When::AfterIteration),
        Happening::Requested(Request::Steer {
            text: "mind".into(),
            now: true,
        }),
        Happening::Requested(Request::Continue),
        Happening::Requested(Request::Pause {
            reason: None,
            after: PauseAfter::Iteration,
        }),
        Happening::Requested(Request::Pause {
            reason: None,
            after: PauseAfter::Tool,
        }),
        Happening::Requested(Request::Interrupt),
        Happening::Requested(Request::Abort),
        Happening::Requested(Request::Fresh),
        Happening::Thawed(Duration::from_secs(2)),
        Happening::Requested(Request::Skip),
        Happening::Requested(Request::Again {
            what: Again::Iteration,
        }),
        Happening::Requested(Request::Again { what: Again::Phase }),
        Happening::Attended(false),
        Happening::Requested(Request::Review(Verdict::Continue)),
        Happening::Requested(Request::Review(Verdict::Revise("smaller".into()))),
        Happening::Requested(Request::Review(Verdict::Exit)),
        Happening::Requested(Request::Set(RuleChange::MaxCost(Some(1)))),
        Happening::Requested(Request::Set(RuleChange::WaitOnLimit(Duration::ZERO))),
        Happening::SessionKnown("s".into()),
        Happening::Resumed(Resume::default()),
        Happening::Resumed(attended),
        Happening::Resumed(Resume {
            rules: Some(longer()),
            ..Resume::default()
        }),
        Happening::Resumed(Resume {
            from: Some(1),
            ..Resume::default()
        }),
    ]
}

/// Returns the starting points of the exploration, with the inputs that lead to each.
fn places() -> Vec<(&'static str, Vec<Happening>)> {
    let turn = Happening::TurnEnded;
    let done = || turn(TurnOutcome::Completed);
    let settled = || Happening::Settled(Tree::default());
    let limited = || {
        let (reset, why) = (None, "limit".into());
        turn(TurnOutcome::RateLimited { reset, why })
    };
    let next = || Happening::Requested(Request::Review(Verdict::Continue));
    vec![
        ("the first turn", vec![]),
        ("the boundary", vec![done(), settled()]),
        ("a rate limit", vec![limited()]),
        (
            "a retry",
            vec![turn(TurnOutcome::Transient("no JSON".into()))],
        ),
        ("the next phase", vec![done(), settled(), next(), done()]),
        ("an interrupted turn", vec![turn(TurnOutcome::Interrupted)]),
        (
            "a pause",
            vec![
                Happening::Requested(Request::Pause {
                    reason: None,
                    after: PauseAfter::Iteration,
                }),
                done(),
                settled(),
            ],
        ),
        (
            "the end",
            vec![
                done(),
                settled(),
                next(),
                turn(TurnOutcome::Failed("exit status 1".into())),
                Happening::CheckEnded(CheckResult::Passed),
                settled(),
            ],
        ),
    ]
}

type Spoil = fn(Head) -> Head;

/// Explores all histories of `depth` steps from a starting point; returns the number of states and steps, or the first step that broke a promise.
fn explore(
    autonomy: Autonomy,
    place: &[Happening],
    depth: u64,
    spoil: Spoil,
) -> Result<(usize, usize), String> {
    let mut first = Machine::new(world(autonomy)).unwrap();
    for what in [Happening::Started, Happening::Attended(true)] {
        first.step(crate::at(0, what));
    }
    for what in place {
        first.step(crate::at(0, what.clone()));
    }
    let mut level = vec![first];
    let (mut states, mut steps) = (1, 0);
    for nth in 1..=depth {
        let mut known = HashSet::new();
        let mut next = Vec::new();
        for machine in &level {
            let at = Timestamp(nth * 20_000);
            for what in alphabet(at).into_iter().chain(machine.due(at)) {
                let mut after = machine.clone();
                let event = Event { at, what };
                let effects = after.step(event.clone());
                steps += 1;
                let head = spoil(after.head().clone());
                let seen = Seen {
                    before: machine.head(),
                    event: &event,
                    effects: &effects,
                    after: &head,
                };
                let broken = broken(&seen);
                if !broken.is_empty() {
                    let stood = &machine.head().step;
                    return Err(format!(
                        "{broken:?}: at {stood:?} came {event:?}: {effects:?}"
                    ));
                }
                // The last step is not explored further.
                let is_new = nth < depth && after.head() != machine.head();
                if is_new && known.insert(format!("{:?}", after.head())) {
                    next.push(after);
                }
            }
        }
        states += next.len();
        level = next;
    }
    Ok((states, steps))
}

#[test]
fn all_short_histories_keep_the_promises() {
    let kinds = [Autonomy::Checkpoint, Autonomy::Batch(1), Autonomy::Full];
    for ((place, way), autonomy) in places().iter().zip(kinds.into_iter().cycle()) {
        match explore(autonomy, way, 4, |head| head) {
            Ok((states, steps)) => {
                println!("{place}, {autonomy:?}: {states} states, {steps} steps");
                assert!(states > 500 && steps > 10_000, "{states} {steps}");
            }
            Err(broken) => panic!("{place}, {autonomy:?}: {broken}"),
        }
    }
}

/// Checks that the exploration finds a head that breaks each promise.
#[test]
fn the_search_finds_what_is_broken() {
    let spoils: [(&str, Spoil); 7] = [
        ("totals only grow", |mut head| {
            head.counts.attempts = 0;
            head
        }),
        ("a used-up budget is always noticed", |mut head| {
            head.halting = false;
            head
        }),
        ("no rate-limit wait exceeds its limit", |mut head| {
            head.waits.limit_ms += 100_000;
            head
        }),
        ("waits and retries don't count as failures", |mut head| {
            head.streaks.failures += u32::from(head.waits.limits > 0);
            head
        }),
        (
            "a review is only open if a person can answer",
            |mut head| {
                head.attended = false;
                head
            },
        ),
        ("a checkpoint is always a boundary", |mut head| {
            head.iteration = head.iteration.max(1);
            head
        }),
        ("phases finish in order and are recorded", |mut head| {
            head.finished.clear();
            head
        }),
    ];
    for (promise, spoil) in spoils {
        assert!(PROMISES.iter().any(|(name, _)| *name == promise));
        let found = explore(Autonomy::Checkpoint, &[], 4, spoil).unwrap_err();
        assert!(found.contains(promise), "{promise}: {found}");
    }
}
