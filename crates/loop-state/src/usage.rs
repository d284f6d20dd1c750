//! What agents used, in the machine's own type: this crate knows no agent.

use serde::{Deserialize, Serialize};

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
