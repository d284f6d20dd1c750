//! What is counted: failures in a row, waits of the present iteration, totals of the run, what agents used (in a type of
//! this crate, which knows no agent), and a budget that is used up.

use std::fmt;

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

/// What the agent used, by its own reckoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// Tokens that the model read.
    pub input_tokens: u64,
    /// Tokens that the model wrote.
    pub output_tokens: u64,
    /// Millionths of a US dollar.
    pub cost_microusd: u64,
}

impl Usage {
    /// Returns the tokens read and written.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    pub(crate) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_sub(other.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(other.output_tokens),
            cost_microusd: self.cost_microusd.saturating_sub(other.cost_microusd),
        }
    }

    pub(crate) fn add(&mut self, more: Self) {
        self.input_tokens = self.input_tokens.saturating_add(more.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(more.output_tokens);
        self.cost_microusd = self.cost_microusd.saturating_add(more.cost_microusd);
    }
}

/// A budget that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Budget {
    /// Money, in millionths of a US dollar.
    Cost {
        /// What the run may cost.
        limit: u64,
        /// What it has cost.
        used: u64,
    },
    /// Tokens, read and written.
    Tokens {
        /// How many the run may use.
        limit: u64,
        /// How many it has used.
        used: u64,
    },
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Cost { limit, used } => {
                write!(f, "{} of {} USD used", dollars(used), dollars(limit))
            }
            Self::Tokens { limit, used } => write!(f, "{used} of {limit} tokens used"),
        }
    }
}

/// Cents, and what is below them only where there is something.
pub(crate) fn dollars(micro: u64) -> String {
    let text = format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000);
    let zeros = text.len() - text.trim_end_matches('0').len();
    text[..text.len() - zeros.min(4)].to_owned()
}
