//! Forks: runs that continue from the state of another run.

use loop_state::{
    Again, Effect, Happening, Head, Lineage, Request, Resume, Step, Then, TurnOutcome,
};

use crate::pipeline::{next_phase, pipeline, plan};
use crate::traces::{Trace, failed};

#[test]
fn x111a_x111e_a_fork_goes_on_where_its_parent_stood_and_has_spent_what_that_had() {
    let mut trace = pipeline(|_| {});
    plan(&mut trace);
    next_phase(&mut trace);
    trace.then(Happening::Used(loop_state::Usage {
        cost_microusd: 5,
        ..Default::default()
    }));
    trace.iteration(failed("red"));
    let parent = Lineage {
        run: "first".into(),
        iteration: 1,
        seq: 7,
    };
    let fork: Head = trace.machine.head().clone().fork(parent.clone());
    assert_eq!(fork.usage.cost_microusd, 5);
    assert_eq!(fork.counts, trace.machine.head().counts);
    let trace = Trace::resumed(fork, Resume::default());
    let head = trace.machine.head();
    assert_eq!((head.phase, head.iteration), (1, 2));
    assert_eq!(head.parent.as_ref(), Some(&parent));
    assert_eq!(head.finished.len(), 1);
}

#[test]
fn x111a_a_turn_that_began_with_the_save_that_is_forked_is_not_the_forks() {
    let mut trace = pipeline(|_| {});
    plan(&mut trace);
    next_phase(&mut trace);
    trace.then(Happening::SessionKnown("its own".into()));
    // Without a sleep, one save ends the first iteration and begins the second.
    trace.iteration(failed("red"));
    let head = trace.machine.head().clone();
    assert!(matches!(head.step, Step::Turn { .. }) && head.session.is_some());
    let begun = head.attempt;
    let parent = Lineage {
        run: "first".into(),
        iteration: 1,
        seq: 7,
    };
    let fork = head.fork(parent);
    assert_eq!(fork.resumes_at(), (2, false));
    let mut trace = Trace::resumed(fork, Resume::default());
    let head = trace.machine.head();
    // The number is not used again, and the next attempt gets the output of the check.
    assert_eq!(
        (head.iteration, head.attempt, head.cut),
        (2, begun + 1, None)
    );
    assert!(head.feedback.is_some() && head.session.is_none());
    trace.iteration(failed("red"));
    assert_eq!(trace.machine.head().iteration, 3);
}

#[test]
fn x111a_a_wish_to_begin_again_was_the_other_runs() {
    let mut trace = Trace::new(crate::rules(|_| {}));
    trace.iteration(failed("red"));
    let lineage = || Lineage {
        run: "first".into(),
        iteration: 2,
        seq: 7,
    };
    // The redo was ending a turn.
    trace.then(Happening::Requested(Request::Again { what: Again::Phase }));
    let fork = trace.machine.head().clone().fork(lineage());
    let trace = Trace::resumed(fork, Resume::default());
    assert_eq!(trace.machine.head().iteration, 2);
    // The redo had ended the check, and the leftovers of the attempt were being ended.
    let mut trace = Trace::new(crate::rules(|_| {}));
    trace.iteration(failed("red"));
    trace.then(Happening::TurnEnded(TurnOutcome::Completed));
    trace.then(Happening::Requested(Request::Again { what: Again::Phase }));
    trace.then(Happening::CheckEnded(failed("ended")));
    let then = Then::Again(Again::Phase);
    assert_eq!(trace.machine.head().step, Step::Settling { then });
    let fork = trace.machine.head().clone().fork(lineage());
    let mut trace = Trace::resumed(fork, Resume::default());
    assert!(trace.text.ends_with("    RunCheck\n"), "{}", trace.text);
    let effects = trace.then(Happening::CheckEnded(failed("red")));
    assert_eq!(effects, [Effect::EndLeftovers]);
}
