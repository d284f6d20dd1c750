//! Random rules and histories: every invariant holds after each step, also across saves and resumes.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use loop_state::{
    Autonomy, CheckResult, Effect, Head, MAX_TEXT, Machine, MachineInput, PauseAfter, PhaseLimits,
    PhaseRules, ProcessTreeOutcome, RedoScope, Request, ResumeOptions, ReviewDecision, RuleChange,
    Rules, RunLimits, RunUpdate, SessionPolicy, SteerState, StopCause, StopRequest, StopTiming,
    TimedInput, Timer, Timestamp, TurnOutcome, UsageTotal,
};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::invariants::{MachineStep, broken};

pub(crate) fn any_rules() -> impl Strategy<Value = Rules> {
    let limits = (
        proptest::option::of(1u32..4),
        proptest::option::of(1u64..50),
        proptest::option::of(1u64..50),
    )
        .prop_map(|(max_iterations, turn, idle)| PhaseLimits {
            max_iterations,
            iteration_timeout: turn.map(Duration::from_millis),
            idle_timeout: idle.map(Duration::from_millis),
            ..PhaseLimits::default()
        });
    let phase = (limits, any::<[bool; 4]>(), 0u32..3).prop_map(
        |(limits, [until, promise, keep, durable], gates)| PhaseRules {
            name: "p".into(),
            required_checks: gates,
            has_check: until || limits.max_iterations.is_none(),
            has_promise: promise,
            session: if keep {
                SessionPolicy::Continue
            } else {
                SessionPolicy::Fresh
            },
            durable_session: durable,
            limits,
            reports_cost: true,
            reports_tokens: true,
        },
    );
    (
        proptest::collection::vec(phase, 1..3),
        proptest::option::of(1u64..200),
        0u32..4,
        prop_oneof![Just(0u64), Just(10)],
        (
            proptest::option::of(1u64..30),
            proptest::option::of(1u64..60),
        ),
        (any_autonomy(), any::<bool>()),
        prop_oneof![Just(0u64), Just(60_000), Just(21_600_000)],
    )
        .prop_map(
            |(phases, max, max_failures, sleep, (cost, tokens), kind, wait)| Rules {
                phases,
                autonomy: kind.0,
                first_check: kind.1,
                limits: RunLimits {
                    max_duration: max.map(Duration::from_millis),
                    max_failures,
                    sleep: Duration::from_millis(sleep),
                    max_cost_microusd: cost,
                    max_tokens: tokens,
                    wait_on_limit: Duration::from_millis(wait),
                },
            },
        )
}

fn any_autonomy() -> impl Strategy<Value = Autonomy> {
    prop_oneof![
        Just(Autonomy::Full),
        Just(Autonomy::Checkpoint),
        (1u32..3).prop_map(Autonomy::Batch),
    ]
}

fn any_review_decision() -> impl Strategy<Value = ReviewDecision> {
    prop_oneof![
        3 => Just(ReviewDecision::Continue),
        1 => Just(ReviewDecision::Revise("smaller".into())),
        1 => Just(ReviewDecision::StartOver),
        1 => Just(ReviewDecision::Exit),
    ]
}

fn any_change() -> impl Strategy<Value = RuleChange> {
    prop_oneof![
        proptest::option::of(0u32..4).prop_map(RuleChange::MaxIterations),
        proptest::option::of(0u64..30).prop_map(RuleChange::MaxCost),
        proptest::option::of(0u64..60).prop_map(RuleChange::MaxTokens),
        (0u64..100_000).prop_map(|ms| RuleChange::WaitOnLimit(Duration::from_millis(ms))),
        any_autonomy().prop_map(RuleChange::Autonomy),
        (0u32..3).prop_map(RuleChange::MaxFailures),
    ]
}

fn any_use() -> impl Strategy<Value = UsageTotal> {
    (0u64..4, 0u64..4, 0u64..4).prop_map(|(input_tokens, output_tokens, cost_microusd)| {
        UsageTotal {
            input_tokens,
            output_tokens,
            cost_microusd,
        }
    })
}

/// Generates texts, a few of them longer than the head allows.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        20 => Just("so it is".to_owned()),
        1 => Just("\u{e4}".repeat(MAX_TEXT)),
    ]
}

fn any_result() -> impl Strategy<Value = CheckResult> {
    prop_oneof![
        Just(CheckResult::Passed),
        any_text().prop_map(CheckResult::Failed),
        any_text().prop_map(CheckResult::NotRun),
        Just(CheckResult::Stopped),
    ]
}

fn any_outcome() -> impl Strategy<Value = TurnOutcome> {
    prop_oneof![
        4 => Just(TurnOutcome::Completed),
        2 => any_text().prop_map(TurnOutcome::Failed),
        1 => Just(TurnOutcome::Stopped),
        1 => any_text().prop_map(TurnOutcome::NotStarted),
        2 => Just(TurnOutcome::PromiseMade),
        2 => Just(TurnOutcome::Interrupted),
        2 => any_text().prop_map(TurnOutcome::Transient),
        2 => (proptest::option::of(0u64..100_000), any_text()).prop_map(|(reset, why)| TurnOutcome::ServiceUnavailable {
            reset: reset.map(Timestamp::from_millis),
            why,
        }),
        1 => Just(TurnOutcome::SessionLost),
        1 => any_text().prop_map(TurnOutcome::SessionInUse),
        1 => any_text().prop_map(TurnOutcome::AgentUnusable),
    ]
}

fn any_request() -> impl Strategy<Value = StopRequest> {
    let by = prop_oneof![Just(StopCause::Person), Just(StopCause::Terminated)];
    let when = prop_oneof![Just(StopTiming::Now), Just(StopTiming::AfterIteration)];
    (by, when).prop_map(|(by, when)| StopRequest { by, when })
}

fn any_timer() -> impl Strategy<Value = Timer> {
    prop_oneof![
        Just(Timer::Iteration),
        Just(Timer::Idle),
        Just(Timer::Sleep),
        Just(Timer::RateLimit),
        Just(Timer::Retry),
        Just(Timer::MaxDuration),
        Just(Timer::Shutdown)
    ]
}

fn any_input() -> impl Strategy<Value = MachineInput> {
    prop_oneof![
        1 => Just(MachineInput::Started),
        2 => (proptest::option::of(0u32..6), proptest::option::of(any_rules()), any_number(), any::<bool>(), any_agent(), any_agent(), proptest::option::of((0u64..9, proptest::collection::vec(0u32..4, 0..3))), any::<bool>())
            .prop_map(|(from_iteration, rules, highest_used_attempt, attended, previous_agent, feedback, session, taken_over)| {
                // A caller that knows of unsaved attempts also knows their iterations.
                let last_begun_iteration = highest_used_attempt;
                let (session_position, session_steers) = session.map_or((None, Vec::new()), |(position, steers)| (Some(position), steers));
                MachineInput::Resumed(ResumeOptions { rules, from_iteration, highest_used_attempt, last_begun_iteration, attended, previous_agent, feedback, session_position, session_steers, taken_over })
            }),
        2 => any_use().prop_map(MachineInput::UsageReported),
        2 => any_review_decision().prop_map(|it| MachineInput::Requested(Request::Review(it))),
        1 => any::<bool>().prop_map(MachineInput::Attended),
        1 => any_change().prop_map(|it| MachineInput::Requested(Request::Set(it))),
        1 => (0u32..4, any_change()).prop_map(|(phase, change)| MachineInput::PhaseRuleChanged { phase, change }),
        1 => any_text().prop_map(MachineInput::ResultReported),
        6 => any_outcome().prop_map(MachineInput::TurnEnded),
        4 => any_result().prop_map(MachineInput::RequiredCheckEnded),
        4 => any_result().prop_map(MachineInput::CheckEnded),
        6 => (0u32..3).prop_map(|ended| MachineInput::LeftoversEnded(ProcessTreeOutcome { ended, survivors: 0 })),
        3 => any_timer().prop_map(MachineInput::TimerExpired),
        1 => any_request().prop_map(MachineInput::StopRequested),
        1 => any::<bool>().prop_map(|now| MachineInput::Requested(Request::Steer { text: "say".into(), now })),
        1 => (0u32..4, any_state()).prop_map(|(id, state)| MachineInput::SteerAdvanced { id, state }),
        1 => any_user_request(),
        1 => any_text().prop_map(MachineInput::SessionKnown),
        1 => any::<u64>().prop_map(|position| MachineInput::SessionSaved { position }),
        1 => Just(MachineInput::NoProgress),
        1 => Just(MachineInput::Thawed(Duration::from_millis(30))),
    ]
}

fn any_agent() -> impl Strategy<Value = Option<String>> {
    prop_oneof![3 => Just(None), 1 => any_text().prop_map(Some)]
}

fn any_number() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![4 => Just(None), 2 => (0u32..9).prop_map(Some), 1 => Just(Some(u32::MAX))]
}

fn any_state() -> impl Strategy<Value = SteerState> {
    prop_oneof![
        Just(SteerState::Recorded),
        Just(SteerState::Delivered),
        Just(SteerState::Seen)
    ]
}

fn any_user_request() -> impl Strategy<Value = MachineInput> {
    prop_oneof![
        Just(MachineInput::Requested(Request::Interrupt)),
        Just(MachineInput::Requested(Request::Pause {
            reason: None,
            after: PauseAfter::Iteration
        })),
        Just(MachineInput::Requested(Request::Continue)),
        Just(MachineInput::Requested(Request::Skip)),
        Just(MachineInput::Requested(Request::Redo {
            what: RedoScope::Iteration
        })),
        Just(MachineInput::Requested(Request::Redo {
            what: RedoScope::Phase
        })),
        Just(MachineInput::Requested(Request::FreshSession)),
        Just(MachineInput::Requested(Request::Abort)),
        Just(MachineInput::Requested(Request::Pause {
            reason: Some("lunch".into()),
            after: PauseAfter::Tool
        })),
    ]
}

#[derive(Clone, Copy, Debug)]
enum WaitCause {
    Some(u64),
    Back,
}

pub(crate) fn any_history() -> impl Strategy<Value = (Rules, Vec<TimedInput>)> {
    // Clocks stop, jump and go back.
    let wait = prop_oneof![
        30 => (0u64..40).prop_map(WaitCause::Some),
        3 => (0u64..30_000_000).prop_map(WaitCause::Some),
        1 => Just(WaitCause::Some(u64::MAX)),
        1 => Just(WaitCause::Back),
    ];
    let events = proptest::collection::vec((wait, any_input()), 0..60);
    (any_rules(), events).prop_map(|(rules, steps)| {
        let mut now = 0u64;
        let begin = TimedInput {
            at: Timestamp::from_millis(0),
            what: MachineInput::Started,
        };
        let later = steps.into_iter().map(|(wait, what)| {
            now = match wait {
                WaitCause::Some(wait) => now.saturating_add(wait),
                WaitCause::Back => now / 2,
            };
            TimedInput {
                at: Timestamp::from_millis(now),
                what,
            }
        });
        (rules, [begin].into_iter().chain(later).collect())
    })
}

/// Serialises and deserialises a head, as a save and a load do.
fn through_disk(head: &Head) -> Head {
    serde_json::from_slice(&serde_json::to_vec(head).unwrap()).unwrap()
}

/// Generates steps with arbitrary numbers, including steps that no machine reaches.
fn any_step() -> impl Strategy<Value = Value> {
    let index = prop_oneof![0u32..4, Just(u32::MAX)];
    let time = prop_oneof![0u64..1000, Just(u64::MAX)];
    (0usize..10, index, time).prop_map(|(kind, index, time)| match kind {
        0 => json!("ready"),
        1 => json!({"turn": {"since": time}}),
        2 => json!({"interrupted": {"since": time}}),
        3 => json!({"gate": {"index": index}}),
        4 => json!("check"),
        5 => json!({"recheck": {"index": index}}),
        6 => json!({"settling": {"then": "next"}}),
        7 => json!({"waiting": {"since": 0, "until": time, "why": "limit"}}),
        8 => json!({"settling": {"then": {"again": "phase"}}}),
        _ => json!({"review": {"since": time, "of": "batch"}}),
    })
}

/// Returns all numbers of a saved state, in order.
fn numbers(value: &mut Value) -> Vec<&mut Value> {
    match value {
        Value::Number(_) => vec![value],
        Value::Array(all) => all.iter_mut().flat_map(numbers).collect(),
        Value::Object(all) => all.values_mut().flat_map(numbers).collect(),
        _ => Vec::new(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Every possible head and every input is deserialised as it was serialised, in JSON and in CBOR.
    #[test]
    fn any_head_and_input_round_trips((rules, events) in any_history()) {
        fn both<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) {
            let text = serde_json::to_string(value).unwrap();
            assert_eq!(&serde_json::from_str::<T>(&text).unwrap(), value);
            let mut bytes = Vec::new();
            ciborium::into_writer(value, &mut bytes).unwrap();
            assert_eq!(&ciborium::from_reader::<T, _>(bytes.as_slice()).unwrap(), value);
        }
        let mut machine = Machine::new(rules).unwrap();
        for event in events {
            both(&event);
            machine.step(event);
            both(machine.head());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// For any inputs in any state there is no panic, every invariant holds, and no attempt number occurs twice in a run.
    #[test]
    fn any_history_keeps_the_invariants((rules, events) in any_history()) {
        let mut machine = Machine::new(rules).unwrap();
        let mut seen = HashSet::new();
        for event in events {
            let before = machine.head().clone();
            let effects = machine.step(event.clone());
            for effect in &effects {
                if let Effect::StartAttempt(brief) = effect {
                    prop_assert!(seen.insert((brief.iteration, brief.attempt)), "{brief:?} came twice");
                }
            }
            let (event, effects, after) = (&event, effects.as_slice(), machine.head());
            let broken = broken(&MachineStep { before: &before, event, effects, after });
            prop_assert!(broken.is_empty(), "{broken:?}: step {:?}, input {event:?}, effects {effects:?}", before.step);
        }
    }

    /// If `may_resume` refuses a resume, a run that has ended ends again, and any other run ignores `from`. If it allows the resume, the run begins
    /// where requested.
    #[test]
    fn resume_agrees_with_may_resume(
        (rules, events) in any_history(),
        from in proptest::option::of(1u32..5),
        reached in proptest::option::of(1u32..5),
        rules_now in proptest::option::of(any_rules()),
    ) {
        let mut machine = Machine::new(rules).unwrap();
        for event in events {
            machine.step(event);
        }
        let head = machine.head().clone();
        let at = head.last_at;
        let options = |from| ResumeOptions { from_iteration: from, last_begun_iteration: reached, rules: rules_now.clone(), ..ResumeOptions::default() };
        let resumed = |from| {
            let resume = options(from);
            let mut machine = Machine::from(head.clone());
            machine.step(TimedInput { at, what: MachineInput::Resumed(resume) });
            machine.head().clone()
        };
        let is_over = head.end.as_ref().is_some_and(|end| end.reason.is_final());
        match (head.may_resume(&options(from)), from) {
            (Err(_), _) if is_over => prop_assert_eq!(resumed(from), head),
            (Err(why), None) => prop_assert!(false, "{why}: only a run that has ended can't be resumed at its current step"),
            (Err(_), Some(_)) => prop_assert_eq!(resumed(from), resumed(None)),
            (Ok(()), Some(from)) if rules_now.is_none() => prop_assert_eq!(resumed(Some(from)).iteration, from),
            (Ok(()), _) => prop_assert_ne!(resumed(from), head),
        }
    }

    /// The machine refuses a state that another program wrote, or handles all inputs on it without a panic.
    #[test]
    fn foreign_saved_state_is_refused_or_runs(
        (rules, before) in any_history(),
        lies in proptest::collection::vec(
            (any::<prop::sample::Index>(), prop_oneof![Just(0), Just(1), Just(1 << 30), Just(u64::from(u32::MAX)), Just(u64::MAX)]),
            0..3,
        ),
        step in proptest::option::of(any_step()),
        again in proptest::option::of(prop_oneof![Just("iteration"), Just("phase")]),
        from in proptest::option::of(0u32..4),
        after in proptest::collection::vec((0u64..40_000, any_input()), 1..8),
    ) {
        let mut machine = Machine::new(rules).unwrap();
        for event in before {
            machine.step(event);
        }
        let mut saved = serde_json::to_value(machine.head()).unwrap();
        for (at, lie) in lies {
            let mut numbers = numbers(&mut saved);
            let at = at.index(numbers.len());
            *numbers[at] = lie.into();
        }
        if let Some(step) = step {
            saved["step"] = step;
        }
        if let Some(again) = again {
            saved["again"] = again.into();
        }
        if let Ok(head) = serde_json::from_value::<Head>(saved) {
            let (mut machine, mut now) = (Machine::from(head), 0);
            let resumed = MachineInput::Resumed(ResumeOptions { from_iteration: from, ..ResumeOptions::default() });
            for (wait, what) in [(0, resumed)].into_iter().chain(after) {
                now += wait;
                let due = machine.due_input(Timestamp::from_millis(now));
                for what in due.into_iter().chain([what]) {
                    machine.step(TimedInput { at: Timestamp::from_millis(now), what });
                }
            }
        }
    }

    /// The head is the state and the inputs are the history: applying all inputs gives the same head, with a save and a load at any point.
    #[test]
    fn applying_the_inputs_gives_the_head((rules, events) in any_history(), cut in any::<prop::sample::Index>()) {
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

    /// With a runner that does all effects, and random outcomes, presses and crashes, every run ends.
    #[test]
    fn every_run_ends(
        rules in any_rules(),
        outcomes in proptest::collection::vec(any_outcome(), 40),
        results in proptest::collection::vec(any_result(), 120),
        crashes in proptest::collection::vec(0usize..200, 0..3),
        verdicts in proptest::collection::vec(any_review_decision(), 8),
        uses in proptest::collection::vec(any_use(), 20),
    ) {
        // Without an iteration limit only a lucky outcome ends a run, so these runs have a limit.
        let rules = Rules {
            phases: rules.phases.into_iter().map(|mut phase| {
                phase.limits.max_iterations.get_or_insert(5);
                phase
            }).collect(),
            ..rules
        };
        let mut machine = Machine::new(rules).unwrap();
        let (mut outcomes, mut results) = (outcomes.into_iter().cycle(), results.into_iter().cycle());
        // A person who always requests a redo would also prevent an end.
        let mut verdicts = verdicts.into_iter().chain(std::iter::repeat(ReviewDecision::Continue));
        let mut uses = uses.into_iter().cycle();
        let mut todo = vec![MachineInput::Attended(true), MachineInput::Started];
        for step in 0..2000u64 {
            // Some steps take long, so that long waits end.
            let now = Timestamp::from_millis(step * if step % 7 == 0 { 100_000 } else { 1 });
            let what = match (crashes.contains(&(step as usize)), todo.pop(), machine.due_input(now)) {
                (true, ..) if step > 0 => {
                    todo.clear();
                    machine = Machine::from(through_disk(machine.head()));
                    MachineInput::Resumed(ResumeOptions { attended: true, ..ResumeOptions::default() })
                }
                (_, Some(what), _) | (_, None, Some(what)) => what,
                (_, None, None) => continue,
            };
            for effect in machine.step(TimedInput { at: now, what }) {
                match effect {
                    Effect::StartAttempt(_) => {
                        todo.push(MachineInput::TurnEnded(outcomes.next().unwrap()));
                        todo.push(MachineInput::UsageReported(uses.next().unwrap()));
                    }
                    Effect::Emit(RunUpdate::Review(_)) => todo.push(MachineInput::Requested(Request::Review(verdicts.next().unwrap()))),
                    Effect::Emit(RunUpdate::Interrupted) => todo.push(MachineInput::Requested(Request::Continue)),
                    Effect::ContinueTurn => todo.push(MachineInput::TurnEnded(TurnOutcome::Completed)),
                    Effect::StopAttempt { .. } => todo = vec![MachineInput::TurnEnded(TurnOutcome::Stopped)],
                    Effect::RunRequiredCheck(_) => todo.push(MachineInput::RequiredCheckEnded(results.next().unwrap())),
                    Effect::RunCheck => todo.push(MachineInput::CheckEnded(results.next().unwrap())),
                    Effect::EndLeftovers => todo.push(MachineInput::LeftoversEnded(ProcessTreeOutcome::default())),
                    _ => {}
                }
            }
        }
        prop_assert!(machine.head().end.is_some(), "still at {:?}", machine.head().step);
    }

    /// If agents answer and end their turns, each steer reaches an agent exactly once: in a prompt or within a turn.
    #[test]
    fn steer_is_reported_once(
        rules in any_rules(),
        outcomes in proptest::collection::vec(prop_oneof![Just(TurnOutcome::Completed), Just(TurnOutcome::Failed("no".into()))], 40),
        heard in proptest::collection::vec(0u8..3, 40),
        said in proptest::collection::vec(1usize..60, 0..12),
    ) {
        // No limit ends these runs before all steers are sent.
        let limits = RunLimits { max_failures: 0, max_duration: None, ..rules.limits };
        let rules = Rules { limits, ..rules };
        let phases = rules.phases.into_iter().map(|phase| PhaseRules { has_check: true, limits: PhaseLimits::default(), ..phase });
        let rules = Rules { phases: phases.collect(), ..rules };
        let mut machine = Machine::new(rules).unwrap();
        let mut told: HashMap<u32, u32> = HashMap::new();
        let (mut outcomes, mut heard) = (outcomes.into_iter().cycle(), heard.into_iter().cycle());
        let mut todo = vec![MachineInput::Started];
        for step in 0..200usize {
            let now = Timestamp::from_millis(step as u64);
            let what = match (said.contains(&step), todo.pop(), machine.due_input(now)) {
                (true, next, _) => {
                    todo.extend(next);
                    MachineInput::Requested(Request::Steer { text: "mind".into(), now: false })
                }
                (_, Some(what), _) | (_, None, Some(what)) => what,
                _ => continue,
            };
            for effect in machine.step(TimedInput { at: now, what }) {
                match effect {
                    Effect::StartAttempt(brief) => {
                        todo.extend([MachineInput::TurnEnded(outcomes.next().unwrap()), MachineInput::PromptReceived]);
                        brief.steers.iter().for_each(|steer| *told.entry(steer.id).or_default() += 1);
                    }
                    // The agent accepts the steer, accepts it too late, or can't accept it.
                    Effect::Deliver(id) => match heard.next().unwrap() {
                        0 => {
                            *told.entry(id).or_default() += 1;
                            todo.push(MachineInput::SteerAdvanced { id, state: SteerState::Seen });
                        }
                        1 => todo.push(MachineInput::SteerAdvanced { id, state: SteerState::Delivered }),
                        _ => {}
                    },
                    Effect::StopAttempt { .. } => todo = vec![MachineInput::TurnEnded(outcomes.next().unwrap())],
                    Effect::RunRequiredCheck(_) => todo.push(MachineInput::RequiredCheckEnded(CheckResult::Failed("no".into()))),
                    Effect::RunCheck => todo.push(MachineInput::CheckEnded(CheckResult::Failed("no".into()))),
                    Effect::EndLeftovers => todo.push(MachineInput::LeftoversEnded(ProcessTreeOutcome::default())),
                    _ => {}
                }
            }
        }
        let head = machine.head();
        prop_assert_eq!(head.counts.steers as usize, said.iter().collect::<HashSet<_>>().len());
        for id in 1..=head.counts.steers {
            let times = told.get(&id).copied().unwrap_or_default();
            let waits = head.unseen_steers().any(|steer| steer.id == id);
            prop_assert!(times == 1 || (times == 0 && waits), "steer {id} was sent {times} times");
        }
    }
}
