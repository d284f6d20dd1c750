//! What an agent used, in units that are the same for each agent, so that it can be added up.

use std::ops::AddAssign;

/// What an agent used. Amounts add up; a reader that missed none has the totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Usage {
    /// Tokens that the model read, those from a cache included.
    pub input_tokens: u64,
    /// Tokens that the model wrote.
    pub output_tokens: u64,
    /// Millionths of a US dollar, by the agent's own reckoning; 0 when it does not say.
    pub cost_microusd: u64,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cost_microusd = self.cost_microusd.saturating_add(other.cost_microusd);
    }
}
