//! The events of the exploration.

use interrupt_stack::{Cause, PressSource, ladder::Resolution};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Press(PressSource),
    Tick(Tick),
    Push,
    /// Drops the handler at this place, counted from the lowest.
    Drop(usize),
    Take,
    Resolve(Resolution),
    Terminate(Cause),
    /// A request for the handler at this place.
    Request(usize),
    Resumed,
}

/// The end of a time step. Each time limit of the ladder lies between "one millisecond before" and "at".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tick {
    Before,
    At,
    /// An hour at once, as after a suspend of the machine: due deadlines are noticed only then.
    Late,
}
