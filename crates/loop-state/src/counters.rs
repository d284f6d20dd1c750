//! The counters: failures in a row, retries of the current iteration, totals of the run, the usage of agents (in a separate type, because this crate
//! depends on no agent), and a used-up budget.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Failures in a row, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Streaks {
    /// Failed turns.
    pub failures: u32,
    /// Iterations with a failed required check.
    pub required_checks: u32,
    /// Turns that are unfinished because the process of the loop died.
    pub crashes: u32,
    /// Turns without progress.
    pub no_progress: u32,
    /// Checks that could not run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub checks_not_run: u32,
}

/// The retries of the current iteration, by the cause that left the earlier attempt unfinished. No retry counts as a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Retries {
    /// Transient failures.
    pub transient_failures: u32,
    /// Rate limits.
    pub rate_limits: u32,
    /// Milliseconds of waiting for rate limits, without the current wait.
    pub rate_limit_wait_ms: u64,
}

/// The totals of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Counts {
    /// Complete iterations.
    pub iterations: u32,
    /// Attempts that began.
    pub attempts: u32,
    /// Iterations with a failed turn.
    pub failed: u32,
    /// Unfinished attempts.
    pub unfinished_attempts: u32,
    /// Recorded steers.
    pub steers: u32,
    /// Denied permission requests.
    pub denied: u32,
    /// Processes that worked on the run, the first one included.
    pub processes: u32,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// The tokens and the cost of an agent, as the agent reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsageTotal {
    /// Tokens that the model read.
    pub input_tokens: u64,
    /// Tokens that the model wrote.
    pub output_tokens: u64,
    /// The cost in millionths of a US dollar.
    pub cost_microusd: u64,
}

impl UsageTotal {
    /// Returns the number of input and output tokens together.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    pub(crate) fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn saturating_sub(self, other: Self) -> Self {
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
pub enum SpentBudget {
    /// A cost, in millionths of a US dollar.
    Cost {
        /// The maximum cost of the run.
        limit: u64,
        /// The cost so far.
        used: u64,
    },
    /// Input and output tokens.
    Tokens {
        /// The maximum number of tokens of the run.
        limit: u64,
        /// The number of tokens so far.
        used: u64,
    },
}

impl fmt::Display for SpentBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Cost { limit, used } => {
                write!(f, "{} of {} USD used", dollars(used), dollars(limit))
            }
            Self::Tokens { limit, used } => write!(f, "{used} of {limit} tokens used"),
        }
    }
}

/// Formats an amount in dollars with cents, and with smaller digits only if they are not zero.
pub(crate) fn dollars(micro: u64) -> String {
    let text = format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000);
    let zeros = text.len() - text.trim_end_matches('0').len();
    text[..text.len() - zeros.min(4)].to_owned()
}
