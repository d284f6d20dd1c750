//! Token usage and the limits of the service.

use super::framing::text;
use agent_duplex::{Event, Usage};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// The number of counted conversations: the driver's own, and those of subagents.
pub(super) const THREADS: usize = 256;
/// The percentage of a limit from which a warning is sent.
const WARN_PERCENT: u64 = 90;

/// The usage of each conversation so far.
#[derive(Debug, Default)]
pub(super) struct UsageTotals(BTreeMap<String, Usage>);

impl UsageTotals {
    /// Returns the usage since the last call, without the usage before this process.
    pub(super) fn usage_since_last(&mut self, params: &Value, in_turn: bool) -> Option<Event> {
        let (all, last) = (
            &params["tokenUsage"]["total"],
            &params["tokenUsage"]["last"],
        );
        if !all.is_object() {
            return None;
        }
        let (all, last) = (usage(all), usage(last));
        let thread = text(&params["threadId"]);
        let used = match self.0.get(thread) {
            None if !in_turn => Usage::default(),
            Some(before) if is_less(*before, all) => {
                let input = all.input_tokens - before.input_tokens;
                let cached = { all.cached_input_tokens }.saturating_sub(before.cached_input_tokens);
                Usage::tokens(input, all.output_tokens - before.output_tokens)
                    .with_cached_input(cached.min(input))
            }
            _ => last,
        };
        if self.0.len() < THREADS || self.0.contains_key(thread) {
            self.0.insert(thread.to_owned(), all);
        }
        (used != Usage::default()).then_some(Event::UsageReported(used))
    }
}

fn is_less(before: Usage, now: Usage) -> bool {
    before.input_tokens <= now.input_tokens && before.output_tokens <= now.output_tokens
}

fn usage(tokens: &Value) -> Usage {
    let number = |key: &str| tokens[key].as_u64().unwrap_or(0);
    Usage::tokens(number("inputTokens"), number("outputTokens"))
        .with_cached_input(number("cachedInputTokens"))
}

/// The last reported state of the service's limits.
#[derive(Debug, Default)]
pub(super) struct Limits {
    sent_settings: Option<(bool, String)>,
    resets_at: Option<SystemTime>,
}

impl Limits {
    /// Stores the state of all limits, and returns an event for the nearest limit if that changed.
    pub(super) fn update(&mut self, limits: &Value) -> Option<Event> {
        let windows = ["primary", "secondary"].map(|name| (name, &limits[name]));
        let used = |window: &Value| window["usedPercent"].as_u64().unwrap_or(0);
        let (name, fullest) = windows.into_iter().max_by_key(|(_, window)| used(window))?;
        let reached = text(&limits["rateLimitReachedType"]);
        let at = fullest["resetsAt"].as_u64().map(Duration::from_secs);
        self.resets_at = at.and_then(|at| SystemTime::UNIX_EPOCH.checked_add(at));
        let rejected = !reached.is_empty();
        let limit = match rejected {
            true => reached.to_owned(),
            false => name.to_owned(),
        };
        let told = (rejected || used(fullest) >= WARN_PERCENT).then_some((rejected, limit));
        if self.sent_settings == told {
            return None;
        }
        self.sent_settings.clone_from(&told);
        let (rejected, limit) = told?;
        let resets_at = self.resets_at;
        Some(Event::RateLimited {
            rejected,
            resets_at,
            limit,
        })
    }

    /// Returns the event of a rejected request; `words` is the service's text.
    pub(super) fn rejected(&self, words: &str) -> Event {
        Event::RateLimited {
            rejected: true,
            resets_at: self.resets_at,
            limit: words.to_owned(),
        }
    }
}
