//! What was used: tokens by turn, and money by the difference of what a session has cost.

use agent_duplex::Usage;
use serde_json::Value;

/// What a session has cost by what the agent said last.
#[derive(Debug)]
pub(super) struct Cost {
    /// In millionths of a US dollar; `None` while it is not known what it had cost before.
    last: Option<u64>,
}

impl Cost {
    pub(super) fn new(is_fresh: bool) -> Self {
        let last = is_fresh.then_some(0);
        Cost { last }
    }

    /// Returns what was spent since the total before, if anything was. A total that shrinks began again.
    pub(super) fn advance(&mut self, cost: &Value) -> Option<Usage> {
        let amount = cost["amount"]
            .as_f64()
            .filter(|_| cost["currency"] == "USD")?;
        // Saturates, and takes what is no number for 0.
        let now = (amount * 1e6).round() as u64;
        let last = self.last.replace(now)?;
        let cost_microusd = now.checked_sub(last).unwrap_or(now);
        let used = Usage {
            cost_microusd,
            ..Usage::default()
        };
        Some(used).filter(|used| *used != Usage::default())
    }
}

/// Returns the tokens of a turn by the answer that ends it, if it names any. By its name `usage` would be of all turns; the
/// agents that have it tell the turn's.
pub(super) fn of_turn(result: &Value) -> Option<Usage> {
    let number = |object: &Value, key: &str| object[key].as_u64().unwrap_or_default();
    let sum = |object: &Value, keys: [&str; 3]| {
        { keys.iter() }.fold(0, |sum: u64, key| sum.saturating_add(number(object, key)))
    };
    let usage = &result["usage"];
    let quota = &result["_meta"]["quota"]["token_count"];
    let used = match usage.is_object() {
        true => Usage {
            input_tokens: sum(
                usage,
                ["inputTokens", "cachedReadTokens", "cachedWriteTokens"],
            ),
            output_tokens: number(usage, "outputTokens"),
            cost_microusd: 0,
        },
        false => Usage {
            input_tokens: number(quota, "input_tokens"),
            output_tokens: number(quota, "output_tokens"),
            cost_microusd: 0,
        },
    };
    Some(used).filter(|used| *used != Usage::default())
}
