//! Usage, from totals over the life of the agent's process. The agent reports the totals at the end of a turn, and on a query during a turn.

use super::json::Object;
use agent_duplex::Usage;

/// The capability to answer usage queries within a turn without delaying later input.
pub(super) const USAGE_CAPABILITY: &str = "get_usage_detached_v1";

/// Returns the number of model calls between two usage queries. With a subscription, the agent looks up its limits over the network on each query.
pub(super) const fn query_interval(has_subscription: bool) -> u32 {
    match has_subscription {
        true => 8,
        false => 1,
    }
}

/// The totals that were reported last.
#[derive(Debug)]
pub(super) struct UsageTotals {
    last: Usage,
    /// Whether all earlier usage is known, so that the difference of two totals is the usage of this process.
    known: bool,
}

impl UsageTotals {
    /// Creates totals of zero. `has_past` is whether the session existed before.
    pub(super) fn new(has_past: bool) -> Self {
        let (last, known) = (Usage::default(), !has_past);
        Self { last, known }
    }

    pub(super) fn is_known(&self) -> bool {
        self.known
    }

    /// Handles the answer to a usage query. Before the first turn it sets the earlier usage. Within a turn it returns the usage since the last
    /// report. It returns `None` while the earlier usage is unknown.
    pub(super) fn queried(&mut self, session: &Object<'_>, in_turn: bool) -> Option<Usage> {
        let models = session.fields("model_usage")?;
        let cost_microusd = micro(session.get("total_cost_usd")?);
        let now = models.iter().map(of_model).fold(Usage::default(), add);
        let now = now.with_cost(cost_microusd);
        match (in_turn, self.known) {
            (true, true) => Some(self.since(now)).filter(|used| *used != Usage::default()),
            (false, false) => {
                (self.last, self.known) = (now, true);
                None
            }
            _ => None,
        }
    }

    /// Returns the usage since the last totals.
    ///
    /// The first total of a resumed session includes the usage of earlier processes, or lacks this usage if those processes were killed. So if
    /// the earlier usage is unknown, the result is the usage since the last result as the agent itself reports it, even if this is empty.
    pub(super) fn advance(&mut self, result: &Object<'_>) -> Usage {
        let models = result.fields("modelUsage").unwrap_or_default();
        let tokens = if models.is_empty() {
            // This is the usage of this turn only.
            let turn = of_turn(&result.object("usage"));
            add(self.last, turn)
        } else {
            models.iter().map(of_model).fold(Usage::default(), add)
        };
        let cost_microusd = micro(result.get("total_cost_usd").unwrap_or_default());
        let now = tokens.with_cost(cost_microusd);
        let since = result.fields("model_usage_since_last_result");
        if let (false, Some(since)) = (std::mem::replace(&mut self.known, true), since) {
            self.last = now;
            return since.iter().map(of_model).fold(Usage::default(), add);
        }
        self.since(now)
    }

    /// Returns the difference to the last totals. A smaller total means that the agent began again at zero.
    fn since(&mut self, now: Usage) -> Usage {
        let last = std::mem::replace(&mut self.last, now);
        let reset = now.input_tokens < last.input_tokens
            || now.output_tokens < last.output_tokens
            || now.cost_microusd < last.cost_microusd;
        let last = if reset { Usage::default() } else { last };
        let input = now.input_tokens - last.input_tokens;
        let cached = { now.cached_input_tokens }.saturating_sub(last.cached_input_tokens);
        Usage::tokens(input, now.output_tokens - last.output_tokens)
            .with_cached_input(cached.min(input))
            .with_cost(now.cost_microusd - last.cost_microusd)
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
    Usage::tokens(sum(model, &input), model.number("outputTokens"))
        .with_cached_input(model.number("cacheReadInputTokens"))
        .with_cost(micro(model.get("costUSD").unwrap_or_default()))
}

fn of_turn(usage: &Object<'_>) -> Usage {
    let input = [
        "input_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
    ];
    Usage::tokens(sum(usage, &input), usage.number("output_tokens"))
        .with_cached_input(usage.number("cache_read_input_tokens"))
}

fn sum(object: &Object<'_>, keys: &[&str]) -> u64 {
    let numbers = keys.iter().map(|key| object.number(key));
    numbers.fold(0, u64::saturating_add)
}

fn micro(dollars: f64) -> u64 {
    // The cast saturates, and turns NaN into 0.
    (dollars * 1e6).round() as u64
}
