//! What can happen to the ladder, as the exploration names it.

use interrupt_stack::{Cause, PressSource, ladder::Resolution};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Press(PressSource),
    Tick(Tick),
    Push,
    /// The handler at this place, counted from the lowest.
    Drop(usize),
    Take,
    Resolve(Resolution),
    Terminate(Cause),
    /// For the handler at this place.
    Request(usize),
    Resumed,
}

/// How far time goes. Between "one millisecond before" and "at" lies each boundary of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tick {
    Before,
    At,
    /// An hour at once, as after a sleep of the machine: what was due is noticed only then.
    Late,
}
