//! The reason of a turn's end, from its status and its error.

use super::framing::text;
use crate::convert::one_line;
use agent_duplex::{EndReason, Event, TurnEnd};
use serde_json::Value;
use std::time::Duration;

/// The longest reported text of an error, in characters.
const DETAIL: usize = 2000;
/// The fix for a missing login.
pub(in crate::codex) const LOG_IN: &str =
    "log in once in a terminal with `codex login`, or with a key by `codex login --with-api-key`";

/// Returns the end of a turn.
pub(super) fn turn_end_of(status: &str, error: &Value) -> TurnEnd {
    let reason = match status {
        "completed" => EndReason::Completed,
        "interrupted" => EndReason::Interrupted,
        "failed" => failed(&error["codexErrorInfo"]),
        _ => EndReason::ProtocolError,
    };
    let words = text(&error["message"]);
    // Some messages are the service's raw answer.
    let inner: Option<Value> = serde_json::from_str(words).ok();
    let inner = inner
        .as_ref()
        .and_then(|inner| inner["error"]["message"].as_str());
    let words = one_line(inner.unwrap_or(words), DETAIL);
    let detail = match reason {
        EndReason::Completed | EndReason::Interrupted => String::new(),
        EndReason::NotLoggedIn if words.is_empty() => LOG_IN.to_owned(),
        EndReason::NotLoggedIn => format!("{words}; {LOG_IN}"),
        _ => words,
    };
    TurnEnd {
        detail,
        ..reason.into()
    }
}

/// Returns the reason for an error kind. The agent writes a kind as a string, or as an object with that string as the only key.
fn failed(info: &Value) -> EndReason {
    let first = info.as_object().and_then(|info| info.iter().next());
    let kind = match first {
        Some((kind, _)) => kind,
        None => text(info),
    };
    match (kind, status(info)) {
        ("unauthorized", _) | (_, Some(401 | 403)) => EndReason::NotLoggedIn,
        ("usageLimitExceeded" | "rateLimitExceeded", _) | (_, Some(429)) => EndReason::RateLimited,
        ("contextWindowExceeded", _) => EndReason::ContextOverflow,
        ("sessionBudgetExceeded", _) => EndReason::BudgetExhausted,
        ("cyberPolicy" | "misalignmentPolicyViolation", _) => EndReason::Refused,
        ("serverOverloaded" | "internalServerError" | "policyCapacityUnavailable", _)
        | ("flexUnavailable" | "httpConnectionFailed" | "responseTooManyFailedAttempts", _)
        | ("responseStreamConnectionFailed" | "responseStreamDisconnected", _) => {
            EndReason::ServiceFailed
        }
        _ => EndReason::Failed,
    }
}

/// Returns the HTTP status of an error.
fn status(info: &Value) -> Option<u16> {
    let mut fields = info.as_object()?.values();
    let status = fields.find_map(|kind| kind["httpStatusCode"].as_u64())?;
    u16::try_from(status).ok()
}

/// Makes the event of a repeated request. Only the text has the number of tries: `Reconnecting... 2/5`.
pub(super) fn retrying(error: &Value) -> Event {
    let words = text(&error["message"]);
    let last = words.rsplit(' ').next().unwrap_or_default();
    let (attempt, of) = last.split_once('/').unwrap_or_default();
    let details = text(&error["additionalDetails"]);
    let error_text = if details.is_empty() { words } else { details };
    Event::Retrying {
        attempt: attempt.parse().unwrap_or(0),
        max_attempts: of.parse().unwrap_or(0),
        delay: Duration::ZERO,
        status: status(&error["codexErrorInfo"]),
        error: one_line(error_text, DETAIL),
    }
}
