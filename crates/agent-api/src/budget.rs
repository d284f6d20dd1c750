//! Limits of tokens and money. All numbers are integers; money is in millionths of a US dollar.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};
use crate::usage::Usage;

/// The prices of a model, in millionths of a US dollar per million tokens: 3 dollars per million are 3,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prices {
    /// Input that came from no cache.
    pub input: u64,
    /// Input from a cache.
    pub cached_input: u64,
    /// Input that was written to a cache.
    pub cache_write: u64,
    /// Output, including thinking.
    pub output: u64,
}

impl Prices {
    /// Returns the cost of a call in millionths of a US dollar, rounded up.
    ///
    /// ```
    /// use agent_api::{Prices, Usage};
    ///
    /// let prices = Prices { input: 3_000_000, cached_input: 300_000, cache_write: 3_750_000, output: 15_000_000 };
    /// let usage = Usage { input_tokens: 1_000, cached_input_tokens: 800, output_tokens: 100, ..Usage::default() };
    /// assert_eq!(prices.cost(&usage), 600 + 240 + 1_500); // 0.00234 dollars
    /// ```
    #[must_use]
    pub fn cost(&self, usage: &Usage) -> u64 {
        let fresh = { usage.input_tokens }
            .saturating_sub(usage.cached_input_tokens)
            .saturating_sub(usage.cache_write_tokens);
        let amounts = [
            (fresh, self.input),
            (usage.cached_input_tokens, self.cached_input),
            (usage.cache_write_tokens, self.cache_write),
            (usage.output_tokens, self.output),
        ];
        let cost = amounts.iter().fold(0_u128, |sum, (tokens, price)| {
            sum.saturating_add(u128::from(*tokens) * u128::from(*price))
        });
        u64::try_from(cost.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// The limits of a session and its spending so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    max_tokens: Option<u64>,
    max_microusd: Option<u64>,
    prices: Option<Prices>,
    #[serde(default)]
    spent: Usage,
    #[serde(default)]
    spent_microusd: u64,
}

/// The limit that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exceeded {
    /// The limit of tokens.
    Tokens {
        /// The limit.
        limit: u64,
    },
    /// The limit of money.
    Cost {
        /// The limit in millionths of a US dollar.
        limit_microusd: u64,
    },
}

impl Budget {
    /// Creates a budget. `None` is no limit.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Settings`] if there is a limit of money and no prices: it could never act.
    pub fn new(
        max_tokens: Option<u64>,
        max_microusd: Option<u64>,
        prices: Option<Prices>,
    ) -> Result<Self, Error> {
        if max_microusd.is_some() && prices.is_none() {
            let message =
                "a limit of money needs the prices of the model; set prices, or limit the tokens";
            return Err(Error::new(ErrorKind::Settings, message));
        }
        Ok(Self {
            max_tokens,
            max_microusd,
            prices,
            ..Self::default()
        })
    }

    /// Checks before a call whether it may begin. It may not if its input alone would exceed a limit.
    ///
    /// # Errors
    ///
    /// The limit that is used up, or that the input would exceed.
    pub fn check_start(&self, input_tokens: u64) -> Result<(), Exceeded> {
        // The model writes at least one token.
        self.check(&Usage {
            input_tokens,
            // The cheapest case: the caller doesn't know what the cache has.
            cached_input_tokens: input_tokens,
            output_tokens: 1,
            ..Usage::default()
        })
    }

    /// Checks during a call whether its usage so far exceeds a limit. The call should then be interrupted.
    ///
    /// # Errors
    ///
    /// The limit that is exceeded.
    pub fn check(&self, call: &Usage) -> Result<(), Exceeded> {
        let tokens = self.spent.total().saturating_add(call.total());
        if let Some(limit) = self.max_tokens.filter(|limit| tokens > *limit) {
            return Err(Exceeded::Tokens { limit });
        }
        let cost = self.spent_microusd.saturating_add(self.cost(call));
        match self.max_microusd.filter(|limit| cost > *limit) {
            Some(limit_microusd) => Err(Exceeded::Cost { limit_microusd }),
            None => Ok(()),
        }
    }

    /// Adds the usage of a call that has ended, also of an interrupted one.
    pub fn spend(&mut self, call: &Usage) {
        // Each call is rounded up by itself, as it is billed.
        self.spent_microusd = self.spent_microusd.saturating_add(self.cost(call));
        self.spent += *call;
    }

    /// Returns the tokens that were spent.
    #[must_use]
    pub const fn spent(&self) -> Usage {
        self.spent
    }

    /// Returns the money that was spent, in millionths of a US dollar; `None` without prices.
    #[must_use]
    pub fn spent_microusd(&self) -> Option<u64> {
        self.prices.map(|_| self.spent_microusd)
    }

    /// Returns this budget with the spending of an earlier part of the session.
    #[cfg(feature = "agent")]
    pub(crate) fn after(self, earlier: &Self) -> Self {
        Self {
            spent: earlier.spent,
            spent_microusd: earlier.spent_microusd,
            ..self
        }
    }

    fn cost(&self, usage: &Usage) -> u64 {
        self.prices.map_or(0, |prices| prices.cost(usage))
    }
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tokens { limit } => write!(f, "the budget of {limit} tokens is used up"),
            Self::Cost { limit_microusd } => {
                let (dollars, micros) = (limit_microusd / 1_000_000, limit_microusd % 1_000_000);
                let cents = micros.div_ceil(10_000);
                match cents {
                    100 => write!(f, "the budget of ${}.00 is used up", dollars + 1),
                    cents => write!(f, "the budget of ${dollars}.{cents:02} is used up"),
                }
            }
        }
    }
}

impl std::error::Error for Exceeded {}
