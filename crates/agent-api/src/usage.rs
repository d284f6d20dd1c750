//! The tokens of one model call, as the server reports them.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// The tokens of a call, or the sum of several calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens that the model read, including those from and for a cache.
    pub input_tokens: u64,
    /// The input tokens that came from a cache.
    #[serde(default)]
    pub cached_input_tokens: u64,
    /// The input tokens that were written to a cache, which some servers price separately.
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// Tokens that the model wrote, including its thinking.
    pub output_tokens: u64,
}

impl Usage {
    /// Returns the input and output tokens together.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.input_tokens, other.input_tokens);
        add(&mut self.cached_input_tokens, other.cached_input_tokens);
        add(&mut self.cache_write_tokens, other.cache_write_tokens);
        add(&mut self.output_tokens, other.output_tokens);
    }
}
