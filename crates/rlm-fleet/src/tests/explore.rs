//! Explores all states of a model, and reports the first step that breaks an invariant.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::hash::{BuildHasher as _, Hash};
use std::rc::Rc;

use foldhash::HashSet;
use foldhash::fast::FixedState;

/// The number of states that a model can have at most, so that a mistake in a model ends its test.
const MAX_STATES: usize = 3_000_000;

/// A model of workers and a server, with everything that can happen next.
pub(super) trait World: Clone + Hash {
    /// The description of a step.
    type What: Debug;

    /// Returns each next state, with a description of the step and the names of the invariants that the step breaks.
    fn next(&self) -> Vec<Step<Self>>;
}

/// One step of a model.
pub(super) struct Step<W: World> {
    pub(super) what: W::What,
    pub(super) after: W,
    pub(super) broken: Vec<&'static str>,
}

/// The size of an exploration.
#[derive(Debug)]
pub(super) struct Explored {
    pub(super) states: usize,
    pub(super) steps: usize,
}

/// The steps that led to a state, newest first.
struct Path<What> {
    what: What,
    before: Option<Rc<Self>>,
}

/// The states whose next steps are not known yet.
type Open<W> = VecDeque<(W, Option<Rc<Path<<W as World>::What>>>)>;

/// Returns a hash that is the same in each process, so that a state has one order of its messages.
pub(super) fn hash(value: &impl Hash) -> u64 {
    FixedState::default().hash_one(value)
}

/// Explores all states that a model can reach, the shortest histories first. Returns an error with the steps that led to a broken invariant.
pub(super) fn explore<W: World>(first: W) -> Result<Explored, String> {
    let mut known = HashSet::default();
    known.insert(hash(&first));
    let mut steps = 0;
    let mut open: Open<W> = [(first, None)].into();
    while let Some((world, path)) = open.pop_front() {
        assert!(known.len() < MAX_STATES, "the model is too large");
        for step in world.next() {
            steps += 1;
            if !step.broken.is_empty() {
                return Err(report(&step, path.as_deref()));
            }
            if known.insert(hash(&step.after)) {
                let path = Path {
                    what: step.what,
                    before: path.clone(),
                };
                open.push_back((step.after, Some(Rc::new(path))));
            }
        }
    }
    let states = known.len();
    Ok(Explored { states, steps })
}

fn report<W: World>(step: &Step<W>, mut path: Option<&Path<W::What>>) -> String {
    let mut lines = vec![format!("{:?} broken by: {:?}", step.broken, step.what)];
    while let Some(step) = path {
        lines.push(format!("{:?}", step.what));
        path = step.before.as_deref();
    }
    lines[1..].reverse();
    lines.join("\n  ")
}
