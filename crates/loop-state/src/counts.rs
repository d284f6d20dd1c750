//! What is counted: failures in a row, waits of the present iteration, totals of the run.

use serde::{Deserialize, Serialize};

/// Failures in a row, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Streaks {
    /// Turns that failed.
    pub failures: u32,
    /// Iterations whose gates failed.
    pub gates: u32,
    /// Turns cut by the death of the loop's process.
    pub crashes: u32,
    /// Turns that did nothing.
    pub idle: u32,
    /// Checks that could not be run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unrun: u32,
}

/// What the present iteration was cut by, and will be done again after a while. Nothing of it is a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Waits {
    /// Tries that failed in a way that may not come again.
    pub tries: u32,
    /// Rate limits.
    pub limits: u32,
    /// How many milliseconds were waited for rate limits, the present wait not included.
    pub limit_ms: u64,
}

/// Totals of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counts {
    /// Complete iterations.
    pub iterations: u32,
    /// Attempts that were begun.
    pub attempts: u32,
    /// Iterations whose turn failed.
    pub failed: u32,
    /// Attempts that were cut.
    pub cuts: u32,
    /// Steers that were recorded.
    pub steers: u32,
    /// What the agent asked for and was denied.
    pub denied: u32,
    /// Processes that took the run, the first one included.
    pub processes: u32,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
fn is_zero(n: &u32) -> bool {
    *n == 0
}
