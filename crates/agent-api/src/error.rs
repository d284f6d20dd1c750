//! The only error type of the crate: a kind that the caller acts on, and one message for people.

use std::fmt;
use std::time::{Duration, SystemTime};

/// The reason why a model call failed, or why a history or a setting was refused.
///
/// The message is lower-case and states the cause. It ends with the next step, unless the caller broke a rule of [`History`](crate::History). The message
/// of a response contains no key: see [`from_response`](Self::from_response).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// The cases that a caller distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The key is missing, wrong, or has no access (401, 403).
    Auth,
    /// The account has no credit or quota left. Waiting doesn't help.
    NoCredit,
    /// The server doesn't have the model (usually 404).
    UnknownModel,
    /// The server limits the rate (429).
    RateLimited(Option<Reset>),
    /// The server is overloaded (503, 529).
    Overloaded(Option<Reset>),
    /// The server failed (another 5xx, or a time-out of its own).
    Server,
    /// The conversation is too long for the model; a compaction may help.
    TooLong,
    /// The server refuses the request for another reason.
    BadRequest,
    /// The server exists, but does not speak the dialect at this address.
    WrongDialect,
    /// A web page instead of an API.
    Html,
    /// The address is elsewhere. A redirect is not followed, because it would send the key along.
    Redirect,
    /// The stream ended without its final event.
    Truncated,
    /// The stream is not what the dialect defines.
    Malformed,
    /// A line, an event, a response or the arguments of a call exceed a limit.
    TooLarge,
    /// The response has more tool calls than the limit.
    TooManyCalls,
    /// The history doesn't permit this item, or isn't complete enough for a model call.
    History,
    /// There is no connection to the server, or it was lost before a response.
    Connect,
    /// The TLS handshake failed: an untrusted certificate, or a server that doesn't speak TLS.
    Tls,
    /// The server was silent for too long.
    Silent,
    /// The budget of the session is used up, or the call would exceed it.
    Budget,
    /// A setting is missing or invalid, or the dialect doesn't have it: also the address, the key, the proxy and the certificates of the system.
    Settings,
}

/// The time at which a request may be sent again, in the form that the server used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// After this delay, counted from the response.
    After(Duration),
    /// At this time of the server's clock.
    At(SystemTime),
}

/// Whether the same request may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retry {
    /// Don't send the same request again.
    Never,
    /// A shorter history may succeed.
    AfterCompaction,
    /// The request may succeed later: at the time that the server named, or after a back-off of the caller.
    Later(Option<Reset>),
}

impl Error {
    /// Creates an error. `message` is lower-case, and ends with the next step if there is one.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { kind, message }
    }

    /// Returns the case of this error.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns whether the same request may be sent again.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        match self.kind {
            ErrorKind::RateLimited(reset) | ErrorKind::Overloaded(reset) => Retry::Later(reset),
            ErrorKind::Server
            | ErrorKind::Truncated
            | ErrorKind::Malformed
            | ErrorKind::Connect
            | ErrorKind::Silent => Retry::Later(None),
            // A model that exceeds a limit usually exceeds it again, so the caller tells the model.
            ErrorKind::TooLarge | ErrorKind::TooManyCalls => Retry::Never,
            ErrorKind::TooLong => Retry::AfterCompaction,
            ErrorKind::Auth
            | ErrorKind::NoCredit
            | ErrorKind::UnknownModel
            | ErrorKind::BadRequest
            | ErrorKind::WrongDialect
            | ErrorKind::Html
            | ErrorKind::Redirect
            | ErrorKind::Tls
            | ErrorKind::History
            | ErrorKind::Budget
            | ErrorKind::Settings => Retry::Never,
        }
    }

    pub(crate) fn malformed(what: impl fmt::Display) -> Self {
        let message = format!("the stream is malformed: {what}; trying again may help");
        Self::new(ErrorKind::Malformed, message)
    }

    pub(crate) fn too_large(what: &str, limit: usize) -> Self {
        let message = format!("{what}: more than {limit} bytes; ask the model for less");
        Self::new(ErrorKind::TooLarge, message)
    }

    pub(crate) fn history(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::History, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
