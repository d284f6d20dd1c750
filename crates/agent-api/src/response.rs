//! The meaning of a response that isn't a stream: a page of the wrong server, a redirect, or an error in the form of a dialect. Errors inside of a
//! stream have the same types and codes, so their meaning is decided here too.

mod reset;

use serde_json::Value;

use crate::error::{Error, ErrorKind};
use crate::text;

/// A response that isn't a stream of events.
#[derive(Clone, Copy, Debug)]
pub struct HttpResponse<'a> {
    /// The status code.
    pub status: u16,
    /// The headers, by name and value. No value becomes part of a message, except the host of a redirect.
    pub headers: &'a [(&'a str, &'a str)],
    /// The first bytes of the body; some kilobytes are enough.
    pub body: &'a [u8],
    /// The key of the request, if it has one. Wherever the server repeats it, the message doesn't.
    pub key: Option<&'a str>,
}

/// An error as a server writes it, in a body or in a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerError {
    /// The type and the code of the error, in lower case; a server may give one, both or none.
    pub(crate) labels: Vec<String>,
    /// The text for people.
    pub(crate) message: String,
}

/// The longest text of a server in a message, in characters.
const MAX_TEXT: usize = 300;

/// The parts of an error text that mean "too long": of Messages servers, OpenAI, vLLM, llama.cpp and Ollama, in this order.
const TOO_LONG: [&str; 8] = [
    "prompt is too long",
    "exceed context limit",
    "context window",
    "maximum context length",
    "context_length_exceeded",
    "exceeds the available context size",
    "exceed_context_size",
    "context length exceeded",
];

impl<'a> HttpResponse<'a> {
    /// Returns the value of a header; the case of the name doesn't matter.
    fn header(&self, name: &str) -> Option<&'a str> {
        let mut found = self.headers.iter();
        found
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| *value)
    }
}

impl Error {
    /// Explains a response that isn't a stream of events.
    ///
    /// The message contains at most 300 characters of the server's text, without control characters and without the key. For status 401 and 403 it
    /// contains none of it, because some servers repeat the key there.
    #[must_use]
    pub fn from_response(response: &HttpResponse<'_>) -> Self {
        let status = response.status;
        if let 300..=399 = status {
            return redirect(response);
        }
        let server = ServerError::from_body(response.body);
        // A proxy explains a limit or a failure with a web page too.
        let may_pass = matches!(status, 429 | 500..=599);
        if server.is_none() && !may_pass && is_html(response) {
            let message = format!(
                "the server answered with a web page (status {status}); check the base URL and the proxy"
            );
            return Self::new(ErrorKind::Html, message);
        }
        let reset = reset::of(response);
        let detail = server.clone().unwrap_or_default();
        let kind = match status {
            401 | 403 => ErrorKind::Auth,
            402 => ErrorKind::NoCredit,
            _ if detail.means_no_credit() => ErrorKind::NoCredit,
            _ if detail.means_unknown_model(status) => ErrorKind::UnknownModel,
            429 => ErrorKind::RateLimited(reset),
            503 | 529 => ErrorKind::Overloaded(reset),
            _ if detail.means_too_long() => ErrorKind::TooLong,
            413 => ErrorKind::TooLong,
            200..=299 if server.is_none() => ErrorKind::WrongDialect,
            200..=299 => match detail.kind() {
                ErrorKind::BadRequest => ErrorKind::Server,
                kind => kind,
            },
            404 | 405 => ErrorKind::WrongDialect,
            408 | 500..=599 => ErrorKind::Server,
            _ => ErrorKind::BadRequest,
        };
        let server_text = match kind {
            ErrorKind::Auth => String::new(),
            _ => shown(&detail.message, response.key),
        };
        Self::new(
            kind,
            message(kind, &format!("status {status}"), &server_text),
        )
    }

    /// Explains an error that a server reports inside of a stream.
    pub(crate) fn from_stream(server: &ServerError) -> Self {
        let kind = match server.kind() {
            // The request was accepted before, so the cause is not the request.
            ErrorKind::BadRequest => ErrorKind::Server,
            kind => kind,
        };
        let server_text = match kind {
            ErrorKind::Auth => String::new(),
            _ => shown(&server.message, None),
        };
        Self::new(kind, message(kind, "in the stream", &server_text))
    }
}

impl ServerError {
    /// Reads the error of a body, in the forms of all dialects.
    fn from_body(body: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(body).ok()?;
        Self::from_json(&value)
    }

    /// Reads the error of an object: `{"error": {…}}`, `{"error": "…"}`, or a flat `{"code": …, "message": …}`.
    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        let inner = match &value["error"] {
            Value::String(message) => {
                return Some(Self {
                    labels: Vec::new(),
                    message: message.clone(),
                });
            }
            Value::Null => value,
            inner => inner,
        };
        let message = ["message", "detail"]
            .iter()
            .find_map(|key| inner[*key].as_str());
        let labels = ["type", "code"]
            .iter()
            .filter_map(|key| inner[*key].as_str());
        Some(Self {
            labels: labels.map(str::to_lowercase).collect(),
            message: message?.to_owned(),
        })
    }

    /// Returns the kind of an error without a status.
    fn kind(&self) -> ErrorKind {
        let is = |label: &str| self.labels.iter().any(|it| it == label);
        if self.means_no_credit() {
            ErrorKind::NoCredit
        } else if self.means_too_long() {
            ErrorKind::TooLong
        } else if is("authentication_error") || is("permission_error") || is("invalid_api_key") {
            ErrorKind::Auth
        } else if is("rate_limit_error") || is("rate_limit_exceeded") {
            ErrorKind::RateLimited(None)
        } else if is("overloaded_error") || is("server_is_overloaded") || is("slow_down") {
            ErrorKind::Overloaded(None)
        } else if is("api_error") || is("server_error") || is("timeout_error") {
            ErrorKind::Server
        } else if self.means_unknown_model(0) {
            ErrorKind::UnknownModel
        } else {
            ErrorKind::BadRequest
        }
    }

    fn means_no_credit(&self) -> bool {
        let is = |label: &str| self.labels.iter().any(|it| it == label);
        is("insufficient_quota")
            || is("billing_error")
            || self.message.contains("credit balance is too low")
    }

    fn means_unknown_model(&self, status: u16) -> bool {
        let is = |label: &str| self.labels.iter().any(|it| it == label);
        let names_model = self.message.to_lowercase().contains("model");
        is("model_not_found") || ((status == 404 || is("not_found_error")) && names_model)
    }

    fn means_too_long(&self) -> bool {
        let message = self.message.to_lowercase();
        let texts = || self.labels.iter().chain([&message]);
        let says = |part: &&str| texts().any(|text| text.contains(*part));
        TOO_LONG.iter().any(says) || self.labels.iter().any(|it| it == "request_too_large")
    }
}

/// Returns the whole message of a kind: its cause, the server's text, and the next step.
fn message(kind: ErrorKind, place: &str, server_text: &str) -> String {
    let (cause, next) = match kind {
        ErrorKind::Auth => (
            "the server refuses the key",
            "check the key, and what it may do",
        ),
        ErrorKind::NoCredit => (
            "the account has no credit or quota left",
            "add credit, or use another key",
        ),
        ErrorKind::UnknownModel => ("the server does not have the model", "check its name"),
        ErrorKind::RateLimited(_) => ("the server limits the rate", "wait, then try again"),
        ErrorKind::Overloaded(_) => ("the server is overloaded", "wait, then try again"),
        ErrorKind::Server => ("the server failed", "try again"),
        ErrorKind::TooLong => (
            "the conversation is too long for the model",
            "compact it, or check the size of the context window",
        ),
        ErrorKind::WrongDialect => (
            "the server does not speak this dialect here",
            "check the dialect and the base URL",
        ),
        _ => (
            "the server refuses the request",
            "check the settings of the model",
        ),
    };
    match server_text {
        "" => format!("{cause} ({place}); {next}"),
        server_text => format!("{cause} ({place}: {server_text}); {next}"),
    }
}

/// Returns a server's text as it may be shown: short, on one line, without the key.
fn shown(server_text: &str, key: Option<&str>) -> String {
    let server_text = match key {
        Some(key) if !key.is_empty() => server_text.replace(key, "[key]"),
        _ => server_text.to_owned(),
    };
    let words = server_text
        .split_whitespace()
        .map(|word| match looks_like_key(word) {
            true => "[key]",
            false => word,
        });
    let line: Vec<&str> = words.collect();
    text::one_line(&line.join(" "), MAX_TEXT)
}

/// Returns whether a word begins like a key of a well-known service. A server may repeat a part of a key, so the exact key isn't enough.
fn looks_like_key(word: &str) -> bool {
    let word = word.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let starts = ["sk-", "sk_", "xai-", "gsk_", "hf_", "AIza", "eyJ"];
    starts.iter().any(|start| word.starts_with(start)) && word.len() >= 8
}

fn is_html(response: &HttpResponse<'_>) -> bool {
    let is_declared = response
        .header("content-type")
        .is_some_and(|it| it.trim_start().to_lowercase().starts_with("text/html"));
    let start: Vec<u8> = { response.body.iter() }
        .skip_while(|byte| byte.is_ascii_whitespace())
        .take(14)
        .map(u8::to_ascii_lowercase)
        .collect();
    is_declared || start.starts_with(b"<!doctype html") || start.starts_with(b"<html")
}

fn redirect(response: &HttpResponse<'_>) -> Error {
    let target = response.header("location").and_then(host);
    let target = target.map_or(String::new(), |host| format!(" to {host}"));
    let message = format!(
        "the server redirects{target} (status {}); redirects are not followed, because the key would go along: set the base URL to the final address",
        response.status
    );
    Error::new(ErrorKind::Redirect, message)
}

/// Returns the host of an absolute URL, without user, path and query.
fn host(location: &str) -> Option<String> {
    let (_scheme, rest) = location.split_once("://")?;
    let authority = rest.split(['/', '?', '#', '\\']).next()?;
    let host = authority.rsplit('@').next()?;
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    (!host.is_empty() && host.len() <= 253 && host.chars().all(is_host)).then(|| host.to_owned())
}
