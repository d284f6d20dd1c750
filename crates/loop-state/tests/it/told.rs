//! Messages to an agent that may not have read them.

use loop_state::{
    CheckResult, Command, Effect, Feedback, Happening, MAX_STEER_BYTES, Resume, SessionPolicy,
    SteerState, Tree, TurnOutcome, Warning, When,
};

use crate::person::{started, steer};
use crate::rules;
use crate::traces::{Trace, failed, stop};

fn gone() -> Happening {
    Happening::TurnEnded(TurnOutcome::Failed("it is gone".into()))
}

/// Ends an iteration whose agent failed, including its required check or check; returns the first effects of the next iteration.
fn next(trace: &mut Trace, check: Happening) -> Vec<Effect> {
    trace.then(check);
    trace.then(Happening::Settled(Tree::default()))
}

/// An agent that failed before it reported its session is included.
#[test]
fn x109c_a_steer_is_told_again_after_an_agent_that_failed_without_a_word() {
    let mut trace = Trace::new(rules(|rules| rules.limits.max_failures = 0));
    trace.then(steer("mind the docs", false));
    trace.iteration(failed("it is red"));
    for answers in [false, false, true] {
        if answers {
            trace.then(Happening::Prompted);
        }
        trace.then(gone());
        let check = Happening::CheckEnded(failed("it is red"));
        let effects = next(&mut trace, check);
        assert_eq!(started(&effects).steers.len(), usize::from(!answers));
    }
}

/// If the promise is required but not made, the check doesn't run again.
#[test]
fn x105b_the_output_of_a_check_is_told_until_an_agent_has_read_it() {
    let mut trace = Trace::new(rules(|rules| rules.phases[0].promise = true));
    trace.then(Happening::TurnEnded(TurnOutcome::Claimed));
    trace.then(Happening::CheckEnded(failed("it is red")));
    let feedback = Feedback {
        source: Command::Check,
        text: "it is red".into(),
    };
    let mut effects = trace.then(Happening::Settled(Tree::default()));
    assert_eq!(started(&effects).feedback, Some(feedback.clone()));
    trace.then(gone());
    effects = trace.then(Happening::Settled(Tree::default()));
    assert_eq!(started(&effects).feedback, Some(feedback));
    trace.then(Happening::Prompted);
    trace.then(gone());
    effects = trace.then(Happening::Settled(Tree::default()));
    assert_eq!(started(&effects).feedback, None);
}

#[test]
fn the_output_of_a_gate_that_passes_now_is_told_to_nobody() {
    let mut trace = Trace::new(rules(|rules| {
        let phase = &mut rules.phases[0];
        (phase.gates, phase.until) = (1, false);
        phase.limits.max_iterations = Some(9);
    }));
    trace.then(Happening::TurnEnded(TurnOutcome::Completed));
    let effects = next(&mut trace, Happening::GateEnded(failed("not formatted")));
    assert!(started(&effects).feedback.is_some());
    trace.then(gone());
    let effects = next(&mut trace, Happening::GateEnded(CheckResult::Passed));
    assert_eq!(started(&effects).feedback, None);
}

/// A person who looks at a waiting run sees which steers its agent has not read.
#[test]
fn what_was_delivered_to_an_agent_that_is_gone_was_said_to_nobody() {
    let states = |trace: &Trace| {
        let steers = trace.machine.head().steers.iter();
        steers.map(|steer| steer.state).collect::<Vec<_>>()
    };
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(steer("mind the docs", false));
    trace.then(Happening::SteerMoved {
        id: 1,
        state: SteerState::Delivered,
    });
    trace.then(Happening::TurnEnded(TurnOutcome::Completed));
    assert_eq!(states(&trace), [SteerState::Recorded]);

    // The first agent of a process that can't be started has not read its prompt either.
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(stop(When::Now));
    trace.then(Happening::TurnEnded(TurnOutcome::Stopped));
    let said = Resume {
        feedback: Some("mind the docs".into()),
        ..Resume::default()
    };
    trace.then(Happening::Resumed(said));
    trace.then(Happening::CheckEnded(failed("no")));
    assert_eq!(
        states(&trace),
        [SteerState::Seen],
        "the steer is in the prompt"
    );
    trace.then(Happening::TurnEnded(TurnOutcome::NotStarted("no".into())));
    assert_eq!(states(&trace), [SteerState::Recorded]);
}

/// The first answer to a prompt is recorded, and each answer to a later prompt with new steers.
#[test]
fn an_answer_to_the_prompt_is_noted_where_it_says_something_new() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].session = SessionPolicy::Continue;
    }));
    trace.then(Happening::SessionKnown("s1".into()));
    assert_eq!(trace.then(Happening::Prompted), [Effect::Save]);
    assert_eq!(trace.then(Happening::Prompted), []);
    trace.then(steer("mind the docs", false));
    trace.then(Happening::TurnEnded(TurnOutcome::Completed));
    assert_eq!(trace.then(Happening::Prompted), [], "no turn runs");
    trace.then(Happening::CheckEnded(failed("no")));
    trace.then(Happening::Settled(Tree::default()));
    assert_eq!(trace.then(Happening::Prompted), [Effect::Save]);
    assert_eq!(trace.then(Happening::Prompted), []);
    // A crash doesn't send it again.
    trace.crash_and_resume();
    assert_eq!(trace.machine.head().unseen_steers().count(), 0);
}

#[test]
fn steers_fill_their_room_to_the_last_byte() {
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
fn an_agent_that_says_the_same_again_says_nothing_new() {
    let mut trace = Trace::new(rules(|_| {}));
    let known = || Happening::SessionKnown("s1".into());
    assert_eq!(trace.then(known()), [Effect::Save]);
    assert_eq!(trace.then(known()), []);
    trace.then(Happening::Said("half of it".into()));
    trace.then(Happening::Said(" \n".into()));
    assert_eq!(trace.machine.head().said.as_deref(), Some("half of it"));
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
fn a_command_that_cannot_run_is_warned_of_once_until_it_runs() {
    for (max, stuck_after) in [(0, None), (9, Some(9))] {
        let mut trace = Trace::new(rules(|r| r.limits.max_failures = max));
        let said = "no such command".to_owned();
        let mut check = |result| {
            trace.then(Happening::TurnEnded(TurnOutcome::Completed));
            let effects = trace.then(Happening::CheckEnded(result));
            trace.then(Happening::Settled(Tree::default()));
            effects
        };
        let slip = Warning::CommandNotRun {
            command: Command::Check,
            said: said.clone(),
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
fn a_run_that_is_over_warns_of_steers_that_no_agent_saw() {
    let ended = |end: Happening| {
        let mut trace = Trace::new(rules(|_| {}));
        trace.then(Happening::TurnEnded(TurnOutcome::Completed));
        trace.then(steer("mind the docs", false));
        trace.then(Happening::CheckEnded(CheckResult::Passed));
        let effects = trace.then(end);
        assert_eq!(effects.last(), Some(&Effect::Finish));
        effects
    };
    let effects = ended(Happening::Settled(Tree::default()));
    assert_eq!(warnings(&effects), [&Warning::SteersUnseen { count: 1 }]);

    let mut trace = Trace::new(rules(|_| {}));
    trace.then(steer("mind the docs", false));
    trace.then(stop(When::Now));
    let effects = trace.then(Happening::TurnEnded(TurnOutcome::Stopped));
    let effects = match effects.contains(&Effect::Finish) {
        true => effects,
        false => trace.then(Happening::Settled(Tree::default())),
    };
    assert!(effects.contains(&Effect::Finish), "{effects:?}");
    assert!(warnings(&effects).is_empty(), "a resume sends them");
}
