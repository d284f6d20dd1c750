//! Timelines of runs of the real machine: one story with most kinds of events, and arbitrary histories.

use std::time::Duration;

use agent_drivers::AgentConfig;
use loop_state::{
    Autonomy, CheckResult, Effect, Head, Machine, MachineInput, PauseAfter, PhaseRules,
    ProcessTreeOutcome, Request, ResumeOptions, ReviewDecision, RuleChange, Rules, RunLimits,
    SteerState, StopCause, StopRequest, StopTiming, TimedInput, Timestamp, TurnOutcome,
    UnfinishedCause, UsageTotal,
};
use proptest::prelude::*;

use super::fold::timeline;
use super::*;
use crate::{PhaseSettings, PromptSource, Settings};

fn phase(name: &str) -> PhaseRules {
    let mut phase = PhaseRules {
        name: name.into(),
        required_checks: 1,
        reports_cost: true,
        reports_tokens: true,
        ..PhaseRules::default()
    };
    phase.limits.max_iterations = Some(3);
    phase
}

fn rules() -> Rules {
    Rules {
        phases: vec![phase("plan"), phase("build")],
        autonomy: Autonomy::Checkpoint,
        first_check: false,
        limits: RunLimits {
            sleep: Duration::from_secs(5),
            max_failures: 0,
            ..RunLimits::default()
        },
    }
}

fn head(machine: &Head) -> RunHead {
    let phase = |rules: &PhaseRules| {
        let agent = AgentConfig::command(vec!["agent".into()]);
        let prompt = PromptSource::Text("do it".into());
        let mut phase = PhaseSettings::new(&*rules.name, prompt, agent);
        phase.required_checks = vec!["true".into()];
        phase.check = rules.has_check.then(|| "true".into());
        phase.promise = rules.has_promise.then(|| "DONE".into());
        phase.limits = rules.limits.clone();
        phase
    };
    let phases = machine.rules.phases.iter().map(phase).collect();
    let settings = Settings::new("/srv/project", phases);
    RunHead::new("r1".parse().unwrap(), machine.clone(), settings)
}

/// A run that receives inputs, and its saved state.
struct RecordedRun {
    machine: Machine,
    saved: RunHead,
    events: Vec<TimedInput>,
    at: u64,
}

impl RecordedRun {
    fn new(rules: Rules) -> Self {
        let machine = Machine::new(rules).unwrap();
        let mut recorded = Self {
            saved: head(machine.head()),
            machine,
            events: Vec::new(),
            at: 1_000,
        };
        recorded.apply(MachineInput::Started);
        recorded.apply(MachineInput::Attended(true));
        recorded
    }

    fn apply(&mut self, what: MachineInput) {
        let mut due = vec![what];
        while let Some(what) = due.pop() {
            self.at += 1_000;
            let at = Timestamp::from_millis(self.at);
            let event = TimedInput { at, what };
            self.events.push(event.clone());
            for effect in self.machine.step(event) {
                match effect {
                    Effect::EndLeftovers => {
                        due.push(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()))
                    }
                    Effect::Save | Effect::SavePhase { .. } => {
                        self.saved.advance(self.machine.head())
                    }
                    _ => {}
                }
            }
        }
        // Not every input is saved at once.
        self.saved.advance(self.machine.head());
    }

    fn pass(&mut self) {
        if let Some(at) = self.machine.next_deadline() {
            self.at = self.at.max(at.as_millis());
            if let Some(what) = self.machine.due_input(Timestamp::from_millis(self.at)) {
                self.apply(what);
            }
        }
    }

    fn all(&mut self, inputs: impl IntoIterator<Item = MachineInput>) {
        inputs.into_iter().for_each(|what| self.apply(what));
    }

    fn timeline(&self, state: RunState) -> Timeline {
        // Read the state as from disk.
        let saved = serde_json::to_value(&self.saved).unwrap();
        let saved = serde_json::from_value(saved).unwrap();
        timeline(saved, state, &self.events, None)
    }
}

fn ended(outcome: TurnOutcome) -> MachineInput {
    MachineInput::TurnEnded(outcome)
}

fn gate(passed: bool) -> MachineInput {
    MachineInput::RequiredCheckEnded(match passed {
        true => CheckResult::Passed,
        false => CheckResult::Failed("1 test failed\n".into()),
    })
}

fn used(cost_microusd: u64) -> MachineInput {
    MachineInput::UsageReported(UsageTotal {
        cost_microusd,
        input_tokens: 100,
        output_tokens: 7,
    })
}

fn stop() -> MachineInput {
    let (by, when) = (StopCause::Person, StopTiming::Now);
    MachineInput::StopRequested(StopRequest { by, when })
}

fn resume(from: Option<u32>) -> MachineInput {
    MachineInput::Resumed(ResumeOptions {
        from_iteration: from,
        attended: true,
        ..ResumeOptions::default()
    })
}

/// Returns a story with most kinds of events of a run.
fn story() -> RecordedRun {
    let mut recorded = RecordedRun::new(rules());
    recorded.all([used(10), ended(TurnOutcome::Completed), gate(true)]);
    recorded.pass();
    recorded.all([used(20), ended(TurnOutcome::Completed), gate(false)]);
    recorded.pass();
    let limited = TurnOutcome::ServiceUnavailable {
        reset: None,
        why: "come back later".into(),
    };
    recorded.apply(ended(limited));
    recorded.pass();
    let text = "use tabs".into();
    recorded.apply(MachineInput::Requested(Request::Steer { text, now: true }));
    let (id, state) = (1, SteerState::Seen);
    recorded.apply(MachineInput::SteerAdvanced { id, state });
    recorded.apply(ended(TurnOutcome::Interrupted));
    recorded.at += 60_000;
    recorded.all([MachineInput::Requested(Request::Continue), used(5)]);
    // The process is killed, and another one takes over.
    recorded.at += 600_000;
    recorded.all([resume(None), ended(TurnOutcome::Completed), gate(true)]);
    recorded.at += 60_000;
    recorded.all([
        MachineInput::Requested(Request::Review(ReviewDecision::Continue)),
        stop(),
    ]);
    recorded.apply(ended(TurnOutcome::Stopped));
    recorded.at += 60_000;
    recorded
}

#[test]
fn timeline_is_in_order() {
    let mut recorded = story();
    recorded.all([resume(None), ended(TurnOutcome::Completed), gate(true)]);
    recorded.pass();
    recorded.apply(ended(TurnOutcome::Completed));
    recorded.apply(gate(true));
    recorded.pass();
    recorded.all([stop(), ended(TurnOutcome::Stopped), resume(Some(1))]);
    let timeline = recorded.timeline(RunState::Running);
    let Timeline {
        phases,
        attempts,
        waits,
        processes,
        steers,
        events: moments,
        unknown,
        ..
    } = &timeline;
    assert!(unknown.is_empty(), "{unknown:?}");
    let attempts: Vec<String> = attempts
        .iter()
        .map(|it| {
            let gates: Vec<_> = it.commands.iter().map(|it| &it.result).collect();
            format!(
                "{}/{}-{} process {}, {}..{:?}, {:?}{}, {} microusd, {gates:?}",
                it.phase,
                it.iteration,
                it.attempt,
                it.process,
                it.began.as_millis(),
                it.ended.map(|at| at.as_millis()),
                it.outcome,
                if it.discarded { ", discarded" } else { "" },
                it.usage.cost_microusd,
            )
        })
        .collect();
    insta::assert_debug_snapshot!((phases, attempts, waits, processes, steers, moments));
}

#[test]
fn crashed_attempt_ends_at_its_last_record() {
    let mut recorded = RecordedRun::new(rules());
    recorded.apply(used(10));
    let last = Timestamp::from_millis(recorded.at);
    for state in [RunState::Crashed, RunState::Running] {
        let timeline = recorded.timeline(state);
        let [attempt] = &timeline.attempts[..] else {
            panic!("{:?}", timeline.attempts);
        };
        let (fate, end, process) = match state {
            RunState::Crashed => (
                AttemptOutcome::Unfinished(Some(UnfinishedCause::ProcessDied)),
                Some(last),
                ProcessEnd::Died,
            ),
            _ => (AttemptOutcome::Open, None, ProcessEnd::Live),
        };
        assert_eq!((&attempt.outcome, attempt.ended), (&fate, end));
        assert_eq!(timeline.processes[0].end, process);
    }
    recorded.at += 3_600_000;
    recorded.apply(resume(None));
    let timeline = recorded.timeline(RunState::Running);
    assert_eq!(timeline.attempts[0].ended, Some(last));
    assert_eq!(timeline.processes[0].ended, Some(last));
    assert_eq!(timeline.attempts[1].process, 2);
}

#[test]
fn process_stopped_before_its_first_event_is_no_crash() {
    let rules = Rules {
        limits: RunLimits {
            max_failures: 2,
            ..rules().limits
        },
        ..rules()
    };
    let mut recorded = RecordedRun::new(rules);
    recorded.apply(resume(None));
    let (by, when) = (StopCause::Terminated, StopTiming::Now);
    recorded.apply(MachineInput::StoppedBeforeStart(StopRequest { by, when }));
    recorded.all([resume(None), ended(TurnOutcome::Completed), gate(true)]);
    let timeline = recorded.timeline(RunState::Running);
    assert!(timeline.unknown.is_empty(), "{:?}", timeline.unknown);
    let fates: Vec<_> = timeline
        .attempts
        .iter()
        .map(|it| it.outcome.clone())
        .collect();
    let (crash, stop) = (
        Some(UnfinishedCause::ProcessDied),
        Some(UnfinishedCause::Stop),
    );
    assert_eq!(
        fates,
        [
            AttemptOutcome::Unfinished(crash),
            AttemptOutcome::Unfinished(stop),
            AttemptOutcome::Complete
        ]
    );
}

#[test]
fn timeline_uses_the_rules_of_that_time() {
    let mut recorded = RecordedRun::new(Rules {
        limits: RunLimits {
            max_cost_microusd: Some(50),
            ..rules().limits
        },
        ..rules()
    });
    recorded.all([used(50), ended(TurnOutcome::Stopped)]);
    let more = Rules {
        limits: RunLimits {
            max_cost_microusd: Some(500),
            ..rules().limits
        },
        ..rules()
    };
    let resume = ResumeOptions {
        rules: Some(more),
        ..ResumeOptions::default()
    };
    recorded.all([
        MachineInput::Resumed(resume),
        used(50),
        ended(TurnOutcome::Completed),
        gate(true),
    ]);
    recorded.apply(MachineInput::Requested(Request::Set(RuleChange::MaxCost(
        Some(900),
    ))));
    let timeline = recorded.timeline(RunState::Running);
    assert!(timeline.unknown.is_empty(), "{:?}", timeline.unknown);
    assert_eq!(
        timeline.attempts[0].outcome,
        AttemptOutcome::Unfinished(Some(UnfinishedCause::Budget))
    );
    assert!(matches!(&timeline.processes[0].end, ProcessEnd::Ended(why) if why.contains("budget")));

    recorded.saved.origin = None;
    let unsure = recorded.timeline(RunState::Running);
    assert_eq!(unsure.unknown.len(), 1, "the gap is reported");
}

#[test]
fn output_of_oldest_required_checks_is_omitted() {
    let mut recorded = RecordedRun::new(Rules {
        phases: vec![{
            let mut phase = phase("main");
            phase.limits.max_iterations = Some(2000);
            phase
        }],
        limits: RunLimits {
            sleep: Duration::ZERO,
            ..rules().limits
        },
        ..rules()
    });
    let said = "x".repeat(8000);
    for _ in 0..1000 {
        let failed = CheckResult::Failed(said.clone());
        recorded.all([
            ended(TurnOutcome::Completed),
            MachineInput::RequiredCheckEnded(failed),
        ]);
    }
    let timeline = recorded.timeline(RunState::Running);
    let kept = |attempt: &AttemptSpan| match &attempt.commands[0].result {
        CheckResult::Failed(text) => (text.len(), attempt.commands[0].left_out),
        other => panic!("{other:?}"),
    };
    assert_eq!(kept(&timeline.attempts[0]), (400, 7600));
    assert_eq!(kept(&timeline.attempts[999]), (8000, 0));
    let all = timeline.attempts[..1000].iter().map(kept);
    assert!(all.map(|(kept, _)| kept).sum::<usize>() < 5 << 20);
}

fn machine_input() -> impl Strategy<Value = MachineInput> {
    let text = || "[a-z]{0,9}";
    prop_oneof![
        6 => Just(ended(TurnOutcome::Completed)),
        2 => Just(ended(TurnOutcome::Stopped)),
        1 => Just(ended(TurnOutcome::Interrupted)),
        1 => text().prop_map(|why| ended(TurnOutcome::Failed(why))),
        1 => text().prop_map(|why| ended(TurnOutcome::Transient(why))),
        1 => text().prop_map(|why| ended(TurnOutcome::NotStarted(why))),
        1 => Just(ended(TurnOutcome::SessionLost)),
        6 => any::<bool>().prop_map(gate),
        3 => (1..40u64).prop_map(used),
        2 => proptest::option::of(1..4u32).prop_map(resume),
        1 => Just(stop()),
        1 => Just(MachineInput::Requested(Request::Interrupt)),
        1 => Just(MachineInput::Requested(Request::Pause { reason: None, after: PauseAfter::Iteration })),
        2 => Just(MachineInput::Requested(Request::Continue)),
        1 => Just(MachineInput::Requested(Request::Review(ReviewDecision::StartOver))),
        1 => Just(MachineInput::Requested(Request::Review(ReviewDecision::Continue))),
        1 => Just(MachineInput::Requested(Request::Redo { what: RedoScope::Iteration})),
        1 => Just(MachineInput::Requested(Request::Redo { what: RedoScope::Phase})),
        1 => (text(), any::<bool>()).prop_map(|(text, now)| MachineInput::Requested(Request::Steer { text, now })),
        1 => Just(MachineInput::PermissionDenied),
        1 => (1..9u32).prop_map(|n| MachineInput::Requested(Request::Set(RuleChange::MaxIterations(Some(n))))),
        2 => Just(MachineInput::Requested(Request::Skip)),
    ]
}

proptest! {
    /// For any inputs, the timeline agrees with the totals of the machine.
    #[test]
    fn a_timeline_adds_up(inputs in proptest::collection::vec(machine_input(), 0..80)) {
        let mut recorded = RecordedRun::new(rules());
        recorded.all(inputs);
        let machine = recorded.machine.head();
        for state in [RunState::Running, RunState::Crashed] {
            let timeline = recorded.timeline(state);
            prop_assert!(timeline.unknown.is_empty(), "{:?}", timeline.unknown);
            prop_assert_eq!(timeline.attempts.len(), machine.counts.attempts as usize);
            prop_assert_eq!(timeline.processes.len(), machine.counts.processes as usize);
            prop_assert_eq!(timeline.steers.len(), machine.counts.steers as usize);
            let cost = timeline.attempts.iter().map(|it| it.usage.cost_microusd);
            prop_assert_eq!(cost.sum::<u64>(), machine.usage.cost_microusd);
            let denied: u32 = timeline.attempts.iter().map(|it| it.denied).sum();
            prop_assert_eq!(denied, machine.counts.denied);
            let (last, before) = timeline.attempts.split_last().unwrap();
            prop_assert!(before.iter().all(|it| it.ended.is_some() && !matches!(it.outcome, AttemptOutcome::Open | AttemptOutcome::Checking)));
            prop_assert!(!last.discarded);
            let whole = timeline.attempts.iter().filter(|it| !it.discarded && matches!(it.outcome, AttemptOutcome::Complete | AttemptOutcome::Failed(_)));
            prop_assert_eq!(whole.count() as u32, machine.iterations_complete());
            for pair in timeline.attempts.windows(2) {
                prop_assert!(pair[0].ended.unwrap() <= pair[1].began);
            }
            let open = timeline.waits.iter().filter(|it| it.ended.is_none()).count();
            prop_assert!(open <= usize::from(state == RunState::Running && machine.end.is_none()));
        }
    }
}
