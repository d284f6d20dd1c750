//! Explores all short histories of a small run: each input in each reachable state. After each step, all invariants are checked.

use std::time::Duration;

use foldhash::HashSet;
use loop_state::{
    Autonomy, CheckResult, Head, Machine, MachineInput, PauseAfter, PhaseLimits, PhaseRules,
    ProcessTreeOutcome, RedoScope, Request, ResumeOptions, ReviewDecision, RuleChange, Rules,
    RunLimits, SessionPolicy, StopCause, StopRequest, StopTiming, TimedInput, Timestamp,
    TurnOutcome, UsageTotal,
};

use crate::invariants::{INVARIANTS, MachineStep, broken};

/// Returns rules with two short phases, small budgets and short waits, so that every limit is near.
fn world(autonomy: Autonomy) -> Rules {
    let phase = |name: &str, until, session, max| PhaseRules {
        name: name.into(),
        has_check: until,
        session,
        limits: PhaseLimits {
            max_iterations: Some(max),
            iteration_timeout: Some(Duration::from_secs(9)),
            ..PhaseLimits::default()
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
        first_check: false,
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

/// Returns rules with one short phase and a check before the first iteration.
fn checked_first() -> Rules {
    let mut rules = world(Autonomy::Full);
    rules.phases.remove(0);
    rules.first_check = true;
    rules
}

fn alphabet(at: Timestamp) -> Vec<MachineInput> {
    let turn = MachineInput::TurnEnded;
    let stop = |when| {
        let by = StopCause::Person;
        MachineInput::StopRequested(StopRequest { by, when })
    };
    let attended = ResumeOptions {
        attended: true,
        ..ResumeOptions::default()
    };
    vec![
        turn(TurnOutcome::Completed),
        turn(TurnOutcome::Failed("exit status 1".into())),
        turn(TurnOutcome::Interrupted),
        turn(TurnOutcome::Stopped),
        turn(TurnOutcome::SessionLost),
        turn(TurnOutcome::Transient("no JSON".into())),
        turn(TurnOutcome::ServiceUnavailable {
            reset: Some(at + Duration::from_secs(30)),
            why: "limit".into(),
        }),
        MachineInput::CheckEnded(CheckResult::Passed),
        MachineInput::CheckEnded(CheckResult::Failed("red".into())),
        MachineInput::CheckEnded(CheckResult::NotRun("no such command".into())),
        MachineInput::LeftoversEnded(ProcessTreeOutcome::default()),
        MachineInput::UsageReported(UsageTotal {
            cost_microusd: 1,
            ..UsageTotal::default()
        }),
        stop(StopTiming::Now),
        stop(StopTiming::AfterIteration),
        MachineInput::Requested(Request::Steer {
            text: "mind".into(),
            now: true,
        }),
        MachineInput::Requested(Request::Continue),
        MachineInput::Requested(Request::Pause {
            reason: None,
            after: PauseAfter::Iteration,
        }),
        MachineInput::Requested(Request::Pause {
            reason: None,
            after: PauseAfter::Tool,
        }),
        MachineInput::Requested(Request::Interrupt),
        MachineInput::Requested(Request::Abort),
        MachineInput::Requested(Request::FreshSession),
        MachineInput::Thawed(Duration::from_secs(2)),
        MachineInput::Requested(Request::Skip),
        MachineInput::Requested(Request::Redo {
            what: RedoScope::Iteration,
        }),
        MachineInput::Requested(Request::Redo {
            what: RedoScope::Phase,
        }),
        MachineInput::Attended(false),
        MachineInput::Requested(Request::Review(ReviewDecision::Continue)),
        MachineInput::Requested(Request::Review(ReviewDecision::Revise("smaller".into()))),
        MachineInput::Requested(Request::Review(ReviewDecision::Exit)),
        MachineInput::Requested(Request::Set(RuleChange::MaxCost(Some(1)))),
        MachineInput::Requested(Request::Set(RuleChange::WaitOnLimit(Duration::ZERO))),
        MachineInput::SessionKnown("s".into()),
        MachineInput::Resumed(ResumeOptions::default()),
        MachineInput::Resumed(attended),
        MachineInput::Resumed(ResumeOptions {
            rules: Some(longer()),
            ..ResumeOptions::default()
        }),
        MachineInput::Resumed(ResumeOptions {
            from_iteration: Some(1),
            ..ResumeOptions::default()
        }),
    ]
}

/// Returns the starting points of the exploration, with the inputs that lead to each.
fn places() -> Vec<(&'static str, Vec<MachineInput>)> {
    let turn = MachineInput::TurnEnded;
    let done = || turn(TurnOutcome::Completed);
    let settled = || MachineInput::LeftoversEnded(ProcessTreeOutcome::default());
    let limited = || {
        let (reset, why) = (None, "limit".into());
        turn(TurnOutcome::ServiceUnavailable { reset, why })
    };
    let next = || MachineInput::Requested(Request::Review(ReviewDecision::Continue));
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
                MachineInput::Requested(Request::Pause {
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
                MachineInput::CheckEnded(CheckResult::Passed),
                settled(),
            ],
        ),
    ]
}

type Spoil = fn(Head) -> Head;

/// Explores all histories of `depth` steps from a starting point; returns the number of states and steps, or the first step that broke an invariant.
fn explore(
    rules: Rules,
    place: &[MachineInput],
    depth: u64,
    spoil: Spoil,
) -> Result<(usize, usize), String> {
    let mut first = Machine::new(rules).unwrap();
    for what in [MachineInput::Started, MachineInput::Attended(true)] {
        first.step(crate::at(0, what));
    }
    for what in place {
        first.step(crate::at(0, what.clone()));
    }
    let mut level = vec![first];
    let (mut states, mut steps) = (1, 0);
    for nth in 1..=depth {
        let mut known = HashSet::default();
        let mut next = Vec::new();
        for machine in &level {
            let at = Timestamp::from_millis(nth * 20_000);
            for what in alphabet(at).into_iter().chain(machine.due_input(at)) {
                let mut after = machine.clone();
                let event = TimedInput { at, what };
                let effects = after.step(event.clone());
                steps += 1;
                let head = spoil(after.head().clone());
                let seen = MachineStep {
                    before: machine.head(),
                    event: &event,
                    effects: &effects,
                    after: &head,
                };
                let broken = broken(&seen);
                if !broken.is_empty() {
                    let stood = &machine.head().step;
                    return Err(format!(
                        "{broken:?}: step {stood:?}, input {event:?}, effects {effects:?}"
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
fn all_short_histories_keep_the_invariants() {
    let kinds = [Autonomy::Checkpoint, Autonomy::Batch(1), Autonomy::Full];
    for ((place, way), autonomy) in places().iter().zip(kinds.into_iter().cycle()) {
        match explore(world(autonomy), way, 4, |head| head) {
            Ok((states, steps)) => {
                println!("{place}, {autonomy:?}: {states} states, {steps} steps");
                assert!(states > 500 && steps > 10_000, "{states} {steps}");
            }
            Err(broken) => panic!("{place}, {autonomy:?}: {broken}"),
        }
    }
}

#[test]
fn short_histories_with_a_first_check_keep_the_invariants() {
    let (states, steps) = explore(checked_first(), &[], 4, |head| head).unwrap();
    assert!(states > 200 && steps > 5_000, "{states} {steps}");
}

/// Checks for each invariant that the exploration detects a head that breaks it.
#[test]
fn search_finds_injected_faults() {
    let spoils: [(&str, Spoil); 7] = [
        ("totals only grow", |mut head| {
            head.counts.attempts = 0;
            head
        }),
        ("a used-up budget is always noticed", |mut head| {
            head.is_stopping_step = false;
            head
        }),
        ("no rate-limit wait exceeds its limit", |mut head| {
            head.retries.rate_limit_wait_ms += 100_000;
            head
        }),
        ("waits and retries don't count as failures", |mut head| {
            head.streaks.failures += u32::from(head.retries.rate_limits > 0);
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
            head.finished_phases.clear();
            head
        }),
    ];
    for (invariant, spoil) in spoils {
        assert!(INVARIANTS.iter().any(|(name, _)| *name == invariant));
        let found = explore(world(Autonomy::Checkpoint), &[], 4, spoil).unwrap_err();
        assert!(found.contains(invariant), "{invariant}: {found}");
    }
}
