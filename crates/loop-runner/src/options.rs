//! How a run is carried out, and how it ended.

use std::time::Duration;

use agent_duplex::ProcessName;
use cancellable_sleep::SleepGate;
use loop_state::{StopReason, Usage, times};
use rlm_store::Uncommitted;

/// How a run is carried out by this process; none of it is saved.
#[derive(Clone, Debug)]
pub struct Options {
    /// The one budget of a stop, all its stages together; 8 s by default.
    pub stop_budget: Duration,
    /// Whether a person can be asked; otherwise the agent's questions are answered with no at once, and no phase waits for a person's word. By
    /// default nobody can.
    pub interactive: bool,
    /// Whether a run that was exported, and goes on elsewhere, is taken up here all the same: its first save lifts the seal. By default it is not.
    pub take_back: bool,
    /// The gate of every wait for work: the sleep between two iterations, a pause, a rate limit, a back-off.
    ///
    /// Shut down, it stops the run as [`Control::Stop`](crate::Control::Stop) now does. Who shuts it sends that too, for the reason; where none comes within a second, the reason
    /// is [`StopCause::Terminated`](loop_state::StopCause::Terminated). Nothing begins in between.
    pub gate: SleepGate,
}

impl Options {
    /// Makes the usual ones for a run whose waits hang on `gate`: a child of the one that ends when the program shuts down. A program that has no such
    /// gate, because it stops its runs by [`Control::Stop`](crate::Control::Stop) alone, makes one of its own.
    #[must_use]
    pub fn new(gate: SleepGate) -> Self {
        Self {
            stop_budget: times::STOP_BUDGET,
            interactive: false,
            take_back: false,
            gate,
        }
    }
}

/// How a run ended for this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Why.
    pub reason: StopReason,
    /// The processes that the last stop ended.
    pub ended: Vec<ProcessName>,
    /// The processes that could not be ended.
    pub survivors: Vec<ProcessName>,
    /// Whether that nothing else is left is known, rather than nothing being found.
    pub proven: bool,
    /// The usage of the run, all its processes together, as its agents report it.
    pub usage: Usage,
    /// The changes that should have been committed and are not.
    pub uncommitted: Option<Uncommitted>,
}
