//! Forks: runs that continue from the state of another run.

use loop_state::{
    AfterLeftovers, Effect, ForkedSession, Head, IterationStep, Lineage, MachineInput, RedoScope,
    Request, ResumeOptions, TurnOutcome,
};

use crate::pipeline::{next_phase, pipeline, plan};
use crate::traces::{Trace, failed};

#[test]
fn x111a_x111e_fork_continues_from_its_parent_with_its_usage() {
    let mut trace = pipeline(|_| {});
    plan(&mut trace);
    next_phase(&mut trace);
    trace.then(MachineInput::UsageReported(loop_state::UsageTotal {
        cost_microusd: 5,
        ..Default::default()
    }));
    trace.iteration(failed("red"));
    let parent = Lineage {
        run: "first".into(),
        iteration: 1,
        seq: 7,
    };
    let fork: Head = trace
        .machine
        .head()
        .clone()
        .fork(parent.clone(), ForkedSession::None);
    assert_eq!(fork.usage.cost_microusd, 5);
    assert_eq!(fork.counts, trace.machine.head().counts);
    let trace = Trace::resumed(fork, ResumeOptions::default());
    let head = trace.machine.head();
    assert_eq!((head.phase, head.iteration), (1, 2));
    assert_eq!(head.parent.as_ref(), Some(&parent));
    assert_eq!(head.finished_phases.len(), 1);
}

#[test]
fn x111a_turn_started_by_the_forked_save_is_not_in_the_fork() {
    let mut trace = pipeline(|_| {});
    plan(&mut trace);
    next_phase(&mut trace);
    trace.then(MachineInput::SessionKnown("its own".into()));
    // Without a sleep, one save ends the first iteration and begins the second.
    trace.iteration(failed("red"));
    let head = trace.machine.head().clone();
    assert!(matches!(head.step, IterationStep::Turn { .. }) && head.session.is_some());
    let begun = head.attempt;
    let parent = Lineage {
        run: "first".into(),
        iteration: 1,
        seq: 7,
    };
    let fork = head.fork(parent, ForkedSession::None);
    assert_eq!(crate::resume_point(&fork), (2, false));
    let mut trace = Trace::resumed(fork, ResumeOptions::default());
    let head = trace.machine.head();
    // The attempt number is not used again, and the next attempt gets the output of the check.
    assert_eq!(
        (head.iteration, head.attempt, head.unfinished),
        (2, begun + 1, None)
    );
    assert!(head.feedback.is_some() && head.session.is_none());
    trace.iteration(failed("red"));
    assert_eq!(trace.machine.head().iteration, 3);
}

#[test]
fn x111a_redo_request_of_the_parent_is_not_in_the_fork() {
    let mut trace = Trace::new(crate::rules(|_| {}));
    trace.iteration(failed("red"));
    let lineage = || Lineage {
        run: "first".into(),
        iteration: 2,
        seq: 7,
    };
    // The redo was ending a turn.
    trace.then(MachineInput::Requested(Request::Redo {
        what: RedoScope::Phase,
    }));
    let fork = trace
        .machine
        .head()
        .clone()
        .fork(lineage(), ForkedSession::None);
    let trace = Trace::resumed(fork, ResumeOptions::default());
    assert_eq!(trace.machine.head().iteration, 2);
    // The redo had ended the check, and the leftovers of the attempt were being ended.
    let mut trace = Trace::new(crate::rules(|_| {}));
    trace.iteration(failed("red"));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    trace.then(MachineInput::Requested(Request::Redo {
        what: RedoScope::Phase,
    }));
    trace.then(MachineInput::CheckEnded(failed("ended")));
    let then = AfterLeftovers::Redo(RedoScope::Phase);
    assert_eq!(
        trace.machine.head().step,
        IterationStep::EndingLeftovers { then }
    );
    let fork = trace
        .machine
        .head()
        .clone()
        .fork(lineage(), ForkedSession::None);
    let mut trace = Trace::resumed(fork, ResumeOptions::default());
    assert!(trace.text.ends_with("    RunCheck\n"), "{}", trace.text);
    let effects = trace.then(MachineInput::CheckEnded(failed("red")));
    assert_eq!(effects, [Effect::EndLeftovers]);
}
