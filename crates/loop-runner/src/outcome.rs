//! How a run ended for this process.

use agent_duplex::ProcessName;
use loop_state::{StopReason, Usage};
use rlm_store::Uncommitted;

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
