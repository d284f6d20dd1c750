//! What a turn used, from totals that the agent adds up over its process.

use super::json::Object;
use agent_duplex::Usage;

/// The totals at the last result.
#[derive(Debug, Default)]
pub(super) struct Totals {
    last: Usage,
    begun: bool,
}

impl Totals {
    /// Returns what was used since the result before.
    ///
    /// A total that shrinks began again. The first total of a resumed session holds what earlier processes used, or not:
    /// it is lost when they were killed. Where the agent gives the difference itself, that decides the first time, also
    /// where it is empty because nothing was used.
    pub(super) fn advance(&mut self, result: &Object<'_>) -> Usage {
        let models = result.fields("modelUsage").unwrap_or_default();
        let tokens = if models.is_empty() {
            // Of this turn only.
            let turn = of_turn(&result.object("usage"));
            add(self.last, turn)
        } else {
            models.iter().map(of_model).fold(Usage::default(), add)
        };
        let cost_microusd = micro(result.get("total_cost_usd").unwrap_or_default());
        let now = Usage {
            cost_microusd,
            ..tokens
        };
        let last = std::mem::replace(&mut self.last, now);
        let since = result.fields("model_usage_since_last_result");
        if let (false, Some(since)) = (std::mem::replace(&mut self.begun, true), since) {
            return since.iter().map(of_model).fold(Usage::default(), add);
        }
        let reset = now.input_tokens < last.input_tokens
            || now.output_tokens < last.output_tokens
            || now.cost_microusd < last.cost_microusd;
        let last = if reset { Usage::default() } else { last };
        Usage {
            input_tokens: now.input_tokens - last.input_tokens,
            output_tokens: now.output_tokens - last.output_tokens,
            cost_microusd: now.cost_microusd - last.cost_microusd,
        }
    }
}

fn add(mut sum: Usage, more: Usage) -> Usage {
    sum += more;
    sum
}

fn of_model(model: &Object<'_>) -> Usage {
    let input = [
        "inputTokens",
        "cacheReadInputTokens",
        "cacheCreationInputTokens",
    ];
    Usage {
        input_tokens: sum(model, &input),
        output_tokens: model.number("outputTokens"),
        cost_microusd: micro(model.get("costUSD").unwrap_or_default()),
    }
}

fn of_turn(usage: &Object<'_>) -> Usage {
    let input = [
        "input_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
    ];
    Usage {
        input_tokens: sum(usage, &input),
        output_tokens: usage.number("output_tokens"),
        cost_microusd: 0,
    }
}

fn sum(object: &Object<'_>, keys: &[&str]) -> u64 {
    let numbers = keys.iter().map(|key| object.number(key));
    numbers.fold(0, u64::saturating_add)
}

fn micro(dollars: f64) -> u64 {
    // Saturates, and takes what is no number for 0.
    (dollars * 1e6).round() as u64
}
