//! The reason of a turn's end, or of a failed session, from the agent's answer.

use super::json::text;
use crate::convert::one_line;
use agent_duplex::{EndReason, TurnEnd};
use serde_json::Value;

/// The longest reported text of an error, in characters.
const DETAIL: usize = 2000;

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorKind {
    NotLoggedIn,
    SessionNotFound,
    RateLimited,
    ServiceFailed,
    ContextOverflow,
    /// Any other error.
    Other,
}

/// Returns the turn's end for the answer to a prompt. Agents answer an interrupt as cancelled, as finished or with an error, so each end after a
/// requested interrupt counts as interrupted.
pub(super) fn turn_end_of(
    answer: Result<&Value, &Value>,
    interrupted: bool,
    denied: bool,
    logins: &[(String, String)],
) -> TurnEnd {
    if interrupted {
        return EndReason::Interrupted.into();
    }
    let (reason, detail) = match answer {
        Ok(result) => match text(result, "stopReason") {
            "end_turn" => (EndReason::Completed, String::new()),
            "max_tokens" => (EndReason::MaxTokens, String::new()),
            "max_turn_requests" => (EndReason::MaxTurns, String::new()),
            "refusal" => (EndReason::Refused, String::new()),
            // Some agents end the turn after a denied call.
            "cancelled" if denied => (EndReason::Completed, String::new()),
            "cancelled" => {
                let what = "the agent cancelled the turn by itself";
                (EndReason::Failed, what.to_owned())
            }
            "" => {
                let what = "the agent gave no stop reason";
                (EndReason::ProtocolError, what.to_owned())
            }
            other => {
                let what = format!("the agent stopped for an unknown reason: {other}");
                (EndReason::Failed, one_line(&what, DETAIL))
            }
        },
        Err(error) => {
            let words = error_text(error);
            match error_kind(error) {
                ErrorKind::NotLoggedIn => (EndReason::NotLoggedIn, login_hint(&words, logins)),
                ErrorKind::SessionNotFound => (EndReason::SessionNotFound, words),
                ErrorKind::RateLimited => (EndReason::RateLimited, words),
                ErrorKind::ServiceFailed => (EndReason::ServiceFailed, words),
                ErrorKind::ContextOverflow => (EndReason::ContextOverflow, words),
                ErrorKind::Other => (EndReason::Failed, words),
            }
        }
    };
    TurnEnd {
        detail,
        ..reason.into()
    }
}

/// Returns the text of an error on one line: the message, and its details.
pub(super) fn error_text(error: &Value) -> String {
    let data = &error["data"];
    let details = ["details", "message", "error", "service"].iter();
    let details = details
        .map(|key| text(data, key))
        .find(|detail| !detail.is_empty());
    let more = data.as_str().or(details).unwrap_or_default();
    let full = match (text(error, "message"), more) {
        (message, more) if message.is_empty() || more.contains(message) => more.to_owned(),
        (message, "") => message.to_owned(),
        (message, more) => format!("{message}: {more}"),
    };
    match full.is_empty() {
        true => format!("error {}", error["code"]),
        false => one_line(&full, DETAIL),
    }
}

/// Returns the kind of an error: from its code, which some agents copy from HTTP, or else from its text.
pub(super) fn error_kind(error: &Value) -> ErrorKind {
    let code = error["code"].as_i64().unwrap_or_default();
    let words = error_text(error).to_lowercase();
    let says = |marks: &[&str]| marks.iter().any(|mark| words.contains(mark));
    match code {
        -32000 | 401 | 403 => ErrorKind::NotLoggedIn,
        429 => ErrorKind::RateLimited,
        500..=599 => ErrorKind::ServiceFailed,
        _ if says(&[
            "session not found",
            "no previous sessions",
            "no conversation found",
            "service failure: session",
        ]) =>
        {
            ErrorKind::SessionNotFound
        }
        _ if says(&[
            "authentication required",
            "not logged in",
            "please run /login",
            "unauthorized",
            "failed to authenticate",
        ]) || says(&[
            "invalid api key",
            "api key not valid",
            "invalid x-api-key",
            "incorrect api key",
        ]) =>
        {
            ErrorKind::NotLoggedIn
        }
        _ if says(&[
            "prompt is too long",
            "context length",
            "context window",
            "maximum context",
        ]) =>
        {
            ErrorKind::ContextOverflow
        }
        _ if says(&["rate limit", "rate_limit", "too many requests", "quota"])
            || has_number(&words, "429") =>
        {
            ErrorKind::RateLimited
        }
        _ if says(&[
            "overloaded",
            "service unavailable",
            "bad gateway",
            "gateway timeout",
            "fetch failed",
        ]) || says(&["econnrefused", "econnreset", "unable to connect"])
            || has_number(&words, "529") =>
        {
            ErrorKind::ServiceFailed
        }
        _ => ErrorKind::Other,
    }
}

/// Whether an error of the kind [`ErrorKind::Other`], as the answer to a resume or fork, can mean that the session does not exist.
pub(super) fn is_missing_session(error: &Value) -> bool {
    let words = error_text(error).to_lowercase();
    let says = |marks: &[&str]| marks.iter().any(|mark| words.contains(mark));
    let lost = ["does not exist", "unknown", "invalid", "not found"];
    error["code"] == -32002 || (says(&["session"]) && says(&lost))
}

/// Whether the text contains the number on its own, and not as part of another number.
fn has_number(words: &str, number: &str) -> bool {
    words
        .split(|c: char| !c.is_ascii_digit())
        .any(|digits| digits == number)
}

/// Returns the login hint, with the agent's login methods by id and name.
pub(super) fn login_hint(words: &str, logins: &[(String, String)]) -> String {
    let methods = logins.iter().map(|(id, name)| match name.is_empty() {
        true => id.clone(),
        false => format!("{name} ({id})"),
    });
    let methods = methods.collect::<Vec<_>>().join(", ");
    let hint = match methods.is_empty() {
        true => "start the agent once in a terminal and log in".to_owned(),
        false => format!("start the agent once in a terminal and log in by one of: {methods}"),
    };
    one_line(&format!("the agent reports: {words}; {hint}"), DETAIL)
}
