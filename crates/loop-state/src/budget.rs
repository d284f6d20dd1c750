//! When a budget is used up, and how that is said.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Head;

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

impl Head {
    /// Returns the budget that is used up, if one is: at its limit there is nothing left to spend.
    #[must_use]
    pub fn spent(&self) -> Option<Budget> {
        let (cost, tokens) = (self.usage.cost_microusd, self.usage.tokens());
        let cost = self
            .rules
            .max_cost_microusd
            .map(|limit| Budget::Cost { limit, used: cost });
        let tokens = self.rules.max_tokens.map(|limit| Budget::Tokens {
            limit,
            used: tokens,
        });
        let is_spent = |budget: &Budget| match *budget {
            Budget::Cost { limit, used } | Budget::Tokens { limit, used } => used >= limit,
        };
        [cost, tokens].into_iter().flatten().find(is_spent)
    }
}
