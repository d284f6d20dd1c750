//! A used-up budget, and its words.

use std::fmt;

use serde::{Deserialize, Serialize};

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
