//! The reason of a turn's end, from the agent's `result` line.

use super::json::Object;
use crate::convert::one_line;
use agent_duplex::{EndReason, TurnEnd};

/// The longest reported text of an error, in characters.
const DETAIL: usize = 2000;
/// The fix for a missing login.
pub(in crate::claude) const LOG_IN: &str =
    "log in with `claude` once in a terminal, or set ANTHROPIC_API_KEY";

/// Facts besides the `result` that decide the reason of a turn's end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TurnEndFacts<'a> {
    /// Whether the driver requested the interrupt.
    pub(super) interrupted: bool,
    /// Whether the service rejected the login, so that the driver gave up.
    pub(super) not_logged_in: bool,
    /// The kind of the last failed call, as the agent names it; empty if none failed.
    pub(super) failure: &'a str,
}

/// Returns the end of a turn. `subtype` and `is_error` of its `result` are not enough: an interrupt is an "error", and a failed service a "success".
pub(super) fn turn_end_of(result: &Object<'_>, known: TurnEndFacts<'_>) -> TurnEnd {
    let is_error = result.flag("is_error");
    let terminal = result.text("terminal_reason");
    let text = error_text(result);
    let aborted = terminal.starts_with("aborted");
    let reason = if known.not_logged_in {
        EndReason::NotLoggedIn
    } else if aborted || (known.interrupted && terminal.is_empty()) {
        EndReason::Interrupted
    } else if let Some(reason) = limit(&terminal, &result.text("subtype")) {
        reason
    } else if is_error {
        failed(
            result.get("api_error_status"),
            known.failure,
            &terminal,
            &text,
        )
    } else {
        match &*result.word("stop_reason") {
            "max_tokens" => EndReason::MaxTokens,
            "refusal" => EndReason::Refused,
            "model_context_window_exceeded" => EndReason::ContextOverflow,
            _ => EndReason::Completed,
        }
    };
    let detail = match reason {
        EndReason::Completed | EndReason::Interrupted => String::new(),
        EndReason::NotLoggedIn if text.is_empty() => LOG_IN.to_owned(),
        EndReason::NotLoggedIn => format!("{text}; {LOG_IN}"),
        EndReason::SessionNotFound => {
            format!(
                "{text}; start a fresh session, or return to the working directory of that session"
            )
        }
        _ => text,
    };
    TurnEnd {
        detail,
        ..reason.into()
    }
}

fn error_text(result: &Object<'_>) -> String {
    let errors = result.texts("errors").into_iter();
    // Texts with this mark are for the developers of the agent.
    let errors: Vec<String> = errors
        .filter(|e| !e.starts_with("[ede_diagnostic]"))
        .collect();
    let text = if errors.is_empty() {
        result.text("result")
    } else {
        errors.join("; ")
    };
    one_line(&text, DETAIL)
}

fn limit(terminal: &str, subtype: &str) -> Option<EndReason> {
    Some(match (terminal, subtype) {
        ("max_turns", _) | (_, "error_max_turns") => EndReason::MaxTurns,
        ("budget_exhausted", _) | (_, "error_max_budget_usd") => EndReason::BudgetExhausted,
        ("prompt_too_long" | "rapid_refill_breaker", _) => EndReason::ContextOverflow,
        ("blocking_limit", _) => EndReason::RateLimited,
        _ => return None,
    })
}

fn failed(status: Option<u16>, failure: &str, terminal: &str, text: &str) -> EndReason {
    let says = |what: &str| text.to_ascii_lowercase().contains(what);
    match (status, failure) {
        _ if is_unknown_session(text) => EndReason::SessionNotFound,
        (Some(401 | 403), _)
        | (_, "authentication_failed" | "oauth_org_not_allowed" | "cloud_credential_error") => {
            EndReason::NotLoggedIn
        }
        _ if says("not logged in") || says("please run /login") || says("invalid api key") => {
            EndReason::NotLoggedIn
        }
        _ if says("prompt is too long") => EndReason::ContextOverflow,
        (Some(429), _) | (_, "rate_limit") => EndReason::RateLimited,
        (_, "max_output_tokens") => EndReason::MaxTokens,
        // A repeated request can't succeed.
        (_, "billing_error" | "account_on_hold" | "verification_required" | "model_not_found")
        | (_, "invalid_request") => EndReason::Failed,
        (Some(500..), _) | (_, "overloaded" | "server_error") => EndReason::ServiceFailed,
        _ if terminal == "api_error" => EndReason::ServiceFailed,
        _ => EndReason::Failed,
    }
}

pub(in crate::claude) fn is_unknown_session(text: &str) -> bool {
    text.contains("No conversation found")
}
