//! Runs that begin where another one stood.

use loop_state::{Happening, Head, Lineage, Resume, Step};

use crate::pipeline::{next_phase, pipeline, plan};
use crate::traces::{Trace, failed};

#[test]
fn x111_a_fork_goes_on_where_its_parent_stood_and_has_spent_what_that_had() {
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
fn x111_a_turn_that_began_with_the_save_that_is_forked_is_not_the_forks() {
    let mut trace = pipeline(|_| {});
    plan(&mut trace);
    next_phase(&mut trace);
    trace.then(Happening::SessionKnown("its own".into()));
    // Nothing lies between two iterations, so that one save ends the first and begins the second.
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
    // Its number is not used again, and it gets what the check had said.
    assert_eq!(
        (head.iteration, head.attempt, head.cut),
        (2, begun + 1, None)
    );
    assert!(head.feedback.is_some() && head.session.is_none());
    trace.iteration(failed("red"));
    assert_eq!(trace.machine.head().iteration, 3);
}
