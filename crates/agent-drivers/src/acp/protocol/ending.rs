//! Why a turn ended, or a session could not be opened, by what the agent answers.

use super::json::text;
use crate::duplex::one_line;
use agent_duplex::{EndReason, TurnEnd};
use serde_json::Value;

/// How many characters of the agent's own words are handed on.
const DETAIL: usize = 2000;

/// What an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    NotLoggedIn,
    SessionNotFound,
    RateLimited,
    ServiceFailed,
    ContextOverflow,
    /// Something of no closer kind.
    Other,
}

/// Judges the answer to a prompt. Agents answer an interrupt as cancelled, as finished or with an error; what ends after
/// we asked for it was interrupted.
pub(super) fn judge(
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
            // Some end the turn for a call that was denied.
            "cancelled" if denied => (EndReason::Completed, String::new()),
            "cancelled" => {
                let what = "the agent cancelled the turn by itself";
                (EndReason::Failed, what.to_owned())
            }
            "" => {
                let what = "the agent answered without saying why it stopped";
                (EndReason::ProtocolError, what.to_owned())
            }
            other => {
                let what = format!("the agent stopped for a reason that is not known: {other}");
                (EndReason::Failed, one_line(&what, DETAIL))
            }
        },
        Err(error) => {
            let words = words(error);
            match trouble(error) {
                Trouble::NotLoggedIn => (EndReason::NotLoggedIn, log_in(&words, logins)),
                Trouble::SessionNotFound => (EndReason::SessionNotFound, words),
                Trouble::RateLimited => (EndReason::RateLimited, words),
                Trouble::ServiceFailed => (EndReason::ServiceFailed, words),
                Trouble::ContextOverflow => (EndReason::ContextOverflow, words),
                Trouble::Other => (EndReason::Failed, words),
            }
        }
    };
    TurnEnd {
        detail,
        ..reason.into()
    }
}

/// Returns what an error says, on one line: the message, and what stands beside it.
pub(super) fn words(error: &Value) -> String {
    let data = &error["data"];
    let details = ["details", "message", "error", "service"].iter();
    let details = details
        .map(|key| text(data, key))
        .find(|said| !said.is_empty());
    let more = data.as_str().or(details).unwrap_or_default();
    let said = match (text(error, "message"), more) {
        (message, more) if message.is_empty() || more.contains(message) => more.to_owned(),
        (message, "") => message.to_owned(),
        (message, more) => format!("{message}: {more}"),
    };
    match said.is_empty() {
        true => format!("error {}", error["code"]),
        false => one_line(&said, DETAIL),
    }
}

/// Finds out what an error is about: by its code, which some take over from HTTP, and else by its words.
pub(super) fn trouble(error: &Value) -> Trouble {
    let code = error["code"].as_i64().unwrap_or_default();
    let words = words(error).to_lowercase();
    let says = |marks: &[&str]| marks.iter().any(|mark| words.contains(mark));
    match code {
        -32000 | 401 | 403 => Trouble::NotLoggedIn,
        429 => Trouble::RateLimited,
        500..=599 => Trouble::ServiceFailed,
        _ if says(&[
            "session not found",
            "no previous sessions",
            "no conversation found",
            "service failure: session",
        ]) =>
        {
            Trouble::SessionNotFound
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
            Trouble::NotLoggedIn
        }
        _ if says(&[
            "prompt is too long",
            "context length",
            "context window",
            "maximum context",
        ]) =>
        {
            Trouble::ContextOverflow
        }
        _ if says(&["rate limit", "rate_limit", "too many requests", "quota"])
            || has_number(&words, "429") =>
        {
            Trouble::RateLimited
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
            Trouble::ServiceFailed
        }
        _ => Trouble::Other,
    }
}

/// Tells whether an error of no closer kind, on the request for a session that is gone on with, may say that it is not there.
pub(super) fn misses(error: &Value) -> bool {
    let words = words(error).to_lowercase();
    let says = |marks: &[&str]| marks.iter().any(|mark| words.contains(mark));
    let lost = ["does not exist", "unknown", "invalid", "not found"];
    error["code"] == -32002 || (says(&["session"]) && says(&lost))
}

/// Tells whether a number stands somewhere, and not as a part of another.
fn has_number(words: &str, number: &str) -> bool {
    words
        .split(|c: char| !c.is_ascii_digit())
        .any(|digits| digits == number)
}

/// Says what a person has to do, by the ways to log in that the agent names, each with its id and its name.
pub(super) fn log_in(words: &str, logins: &[(String, String)]) -> String {
    let methods = logins.iter().map(|(id, name)| match name.is_empty() {
        true => id.clone(),
        false => format!("{name} ({id})"),
    });
    let methods = methods.collect::<Vec<_>>().join(", ");
    let mend = match methods.is_empty() {
        true => "start the agent once in a terminal and log in".to_owned(),
        false => format!("start the agent once in a terminal and log in by one of: {methods}"),
    };
    one_line(&format!("the agent says: {words}; {mend}"), DETAIL)
}
