//! Messages to an agent that may not have read them.

use loop_state::{
    CheckResult, Effect, Feedback, LoopCommand, MAX_STEER_BYTES, MachineInput, ProcessTreeOutcome,
    ResumeOptions, SessionPolicy, SteerState, StopTiming, TurnOutcome, Warning,
};

use crate::person::{started, steer};
use crate::rules;
use crate::traces::{Trace, failed, stop};

fn gone() -> MachineInput {
    MachineInput::TurnEnded(TurnOutcome::Failed("it is gone".into()))
}

/// Ends an iteration whose agent failed, including its required check or check; returns the first effects of the next iteration.
fn next(trace: &mut Trace, check: MachineInput) -> Vec<Effect> {
    trace.then(check);
    trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()))
}

/// This also applies to an agent that failed before it reported its session.
#[test]
fn x109c_steer_is_repeated_after_an_agent_without_output() {
    let mut trace = Trace::new(rules(|rules| rules.limits.max_failures = 0));
    trace.then(steer("mind the docs", false));
    trace.iteration(failed("it is red"));
    for answers in [false, false, true] {
        if answers {
            trace.then(MachineInput::PromptReceived);
        }
        trace.then(gone());
        let check = MachineInput::CheckEnded(failed("it is red"));
        let effects = next(&mut trace, check);
        assert_eq!(started(&effects).steers.len(), usize::from(!answers));
    }
}

/// If the promise is required but not made, the check doesn't run again.
#[test]
fn x105b_check_output_is_in_prompts_until_an_agent_reads_it() {
    let mut trace = Trace::new(rules(|rules| rules.phases[0].has_promise = true));
    trace.then(MachineInput::TurnEnded(TurnOutcome::PromiseMade));
    trace.then(MachineInput::CheckEnded(failed("it is red")));
    let feedback = Feedback {
        source: LoopCommand::Check,
        text: "it is red".into(),
    };
    let mut effects = trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    assert_eq!(started(&effects).feedback, Some(feedback.clone()));
    trace.then(gone());
    effects = trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    assert_eq!(started(&effects).feedback, Some(feedback));
    trace.then(MachineInput::PromptReceived);
    trace.then(gone());
    effects = trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    assert_eq!(started(&effects).feedback, None);
}

#[test]
fn output_of_a_passing_required_check_is_in_no_prompt() {
    let mut trace = Trace::new(rules(|rules| {
        let phase = &mut rules.phases[0];
        (phase.required_checks, phase.has_check) = (1, false);
        phase.limits.max_iterations = Some(9);
    }));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    let effects = next(
        &mut trace,
        MachineInput::RequiredCheckEnded(failed("not formatted")),
    );
    assert!(started(&effects).feedback.is_some());
    trace.then(gone());
    let effects = next(
        &mut trace,
        MachineInput::RequiredCheckEnded(CheckResult::Passed),
    );
    assert_eq!(started(&effects).feedback, None);
}

/// A person who looks at a waiting run sees which steers its agent has not read.
#[test]
fn message_to_dead_agent_counts_as_undelivered() {
    let states = |trace: &Trace| {
        let steers = trace.machine.head().steers.iter();
        steers.map(|steer| steer.state).collect::<Vec<_>>()
    };
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(steer("mind the docs", false));
    trace.then(MachineInput::SteerAdvanced {
        id: 1,
        state: SteerState::Delivered,
    });
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    assert_eq!(states(&trace), [SteerState::Recorded]);

    // If the first agent of a process can't be started, it has not read its prompt either.
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(stop(StopTiming::Now));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    let said = ResumeOptions {
        feedback: Some("mind the docs".into()),
        ..ResumeOptions::default()
    };
    trace.then(MachineInput::Resumed(said));
    trace.then(MachineInput::CheckEnded(failed("no")));
    assert_eq!(
        states(&trace),
        [SteerState::Seen],
        "the steer is in the prompt"
    );
    trace.then(MachineInput::TurnEnded(TurnOutcome::NotStarted(
        "no".into(),
    )));
    assert_eq!(states(&trace), [SteerState::Recorded]);
}

/// The machine records the first answer to a prompt, and the first answer to each later prompt with new steers.
#[test]
fn new_answer_to_the_prompt_is_recorded() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].session = SessionPolicy::Continue;
    }));
    trace.then(MachineInput::SessionKnown("s1".into()));
    assert_eq!(trace.then(MachineInput::PromptReceived), [Effect::Save]);
    assert_eq!(trace.then(MachineInput::PromptReceived), []);
    trace.then(steer("mind the docs", false));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    assert_eq!(trace.then(MachineInput::PromptReceived), [], "no turn runs");
    trace.then(MachineInput::CheckEnded(failed("no")));
    trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    assert_eq!(trace.then(MachineInput::PromptReceived), [Effect::Save]);
    assert_eq!(trace.then(MachineInput::PromptReceived), []);
    // After a crash, the steer is not sent again.
    trace.crash_and_resume();
    assert_eq!(trace.machine.head().unseen_steers().count(), 0);
}

#[test]
fn steers_use_their_limit_to_the_last_byte() {
    for (first, second, taken) in [
        (MAX_STEER_BYTES, 1, 1),
        (MAX_STEER_BYTES + 1, 1, 1),
        (MAX_STEER_BYTES - 1, 1, 2),
        (1, MAX_STEER_BYTES, 1),
    ] {
        let mut trace = Trace::new(rules(|_| {}));
        for len in [first, second] {
            trace.then(steer(&"x".repeat(len), false));
        }
        let count = trace.machine.head().steers.len();
        assert_eq!(count, taken, "{first} and {second} bytes");
    }
}

#[test]
fn known_session_id_and_empty_result_change_nothing() {
    let mut trace = Trace::new(rules(|_| {}));
    let known = || MachineInput::SessionKnown("s1".into());
    assert_eq!(trace.then(known()), [Effect::Save]);
    assert_eq!(trace.then(known()), []);
    trace.then(MachineInput::ResultReported("half of it".into()));
    trace.then(MachineInput::ResultReported(" \n".into()));
    assert_eq!(
        trace.machine.head().last_message.as_deref(),
        Some("half of it")
    );
}

fn warnings(effects: &[Effect]) -> Vec<&Warning> {
    let mut warnings = Vec::new();
    for effect in effects {
        if let Effect::Warn(warning) = effect {
            warnings.push(warning);
        }
    }
    warnings
}

#[test]
fn unrunnable_command_causes_one_warning_until_it_runs() {
    for (max, stuck_after) in [(0, None), (9, Some(9))] {
        let mut trace = Trace::new(rules(|r| r.limits.max_failures = max));
        let said = "no such command".to_owned();
        let mut check = |result| {
            trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
            let effects = trace.then(MachineInput::CheckEnded(result));
            trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
            effects
        };
        let slip = Warning::CommandNotRun {
            command: LoopCommand::Check,
            why: said.clone(),
            stuck_after,
        };
        let unrun = || CheckResult::NotRun(said.clone());
        assert_eq!(warnings(&check(unrun())), [&slip]);
        assert!(warnings(&check(unrun())).is_empty());
        assert!(warnings(&check(failed("red"))).is_empty());
        assert_eq!(warnings(&check(unrun())), [&slip]);
    }
}

#[test]
fn ended_run_warns_of_undelivered_steers() {
    let ended = |end: MachineInput| {
        let mut trace = Trace::new(rules(|_| {}));
        trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
        trace.then(steer("mind the docs", false));
        trace.then(MachineInput::CheckEnded(CheckResult::Passed));
        let effects = trace.then(end);
        assert_eq!(effects.last(), Some(&Effect::EndRun));
        effects
    };
    let effects = ended(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    assert_eq!(warnings(&effects), [&Warning::SteersUnseen { count: 1 }]);

    let mut trace = Trace::new(rules(|_| {}));
    trace.then(steer("mind the docs", false));
    trace.then(stop(StopTiming::Now));
    let effects = trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    let effects = match effects.contains(&Effect::EndRun) {
        true => effects,
        false => trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default())),
    };
    assert!(effects.contains(&Effect::EndRun), "{effects:?}");
    assert!(warnings(&effects).is_empty(), "a resume sends them");
}
