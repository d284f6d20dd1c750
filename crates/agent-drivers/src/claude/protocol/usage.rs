//! What was used, from totals that the agent adds up over its process: told with the end of a turn, and within it when they are asked for.

use super::json::Object;
use agent_duplex::Usage;

/// What an agent can do that may be asked for its totals within a turn, without holding up what is said to it behind that.
pub(super) const MAY_BE_ASKED: &str = "get_usage_detached_v1";

/// Returns after how many calls of the model the agent is asked again. One that has a subscription looks up its limits over the network each time.
pub(super) const fn each(has_subscription: bool) -> u32 {
    match has_subscription {
        true => 8,
        false => 1,
    }
}

/// The totals that were told last.
#[derive(Debug)]
pub(super) struct Totals {
    last: Usage,
    /// Whether all before that is known, so that a difference is what was used here.
    known: bool,
}

impl Totals {
    /// Begins with nothing, in a session that has a past or has none.
    pub(super) fn new(has_past: bool) -> Self {
        let (last, known) = (Usage::default(), !has_past);
        Self { last, known }
    }

    pub(super) fn is_known(&self) -> bool {
        self.known
    }

    /// Takes what the agent answers when it is asked: before the first turn that is its past, within one it returns what was used since the last
    /// time. What comes while the past is not known says nothing.
    pub(super) fn asked(&mut self, session: &Object<'_>, in_turn: bool) -> Option<Usage> {
        let models = session.fields("model_usage")?;
        let cost_microusd = micro(session.get("total_cost_usd")?);
        let now = Usage {
            cost_microusd,
            ..models.iter().map(of_model).fold(Usage::default(), add)
        };
        match (in_turn, self.known) {
            (true, true) => Some(self.since(now)).filter(|used| *used != Usage::default()),
            (false, false) => {
                (self.last, self.known) = (now, true);
                None
            }
            _ => None,
        }
    }

    /// Returns what was used since the totals before.
    ///
    /// The first total of a resumed session holds what earlier processes used, or not: it is lost when they were killed. Where
    /// that is not known and the agent gives the difference itself, that decides, also where it is empty because nothing was used.
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
        let since = result.fields("model_usage_since_last_result");
        if let (false, Some(since)) = (std::mem::replace(&mut self.known, true), since) {
            self.last = now;
            return since.iter().map(of_model).fold(Usage::default(), add);
        }
        self.since(now)
    }

    /// Returns the difference to the last totals. One that shrinks began again.
    fn since(&mut self, now: Usage) -> Usage {
        let last = std::mem::replace(&mut self.last, now);
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
