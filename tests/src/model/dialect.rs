//! The protocols of model services. A dialect reads requests and words replies; which reply is due, and when what of it goes out, is the same for all.

mod chat;
mod gemini;
mod messages;
mod responses;

use serde_json::Value;

use super::reply::Reply;
use super::request::Asked;

/// One protocol. It says what is sent and sends nothing.
///
/// An event is a JSON object, named after its `type` if it has one, or a string that goes out as it is.
pub(super) trait Dialect: Sync {
    /// Reads a request that came to `path`.
    fn read(&self, path: &str, body: &Value) -> Asked;

    /// The body of a failure, and how many seconds the client is told to wait, if it is told.
    fn failure(&self, code: u16, retry_after: Option<&str>) -> Value;

    /// The events before the first token.
    fn opening(&self, reply: &Reply) -> Vec<Value>;

    /// The event of one token.
    fn token(&self, reply: &Reply, token: &str) -> Value;

    /// The events after the last token; a call is among them.
    fn closing(&self, reply: &Reply) -> Vec<Value>;

    /// A reply in one piece.
    fn whole(&self, reply: &Reply) -> Value;
}

/// The dialect that is spoken at `path`, if what is asked for there is a reply of the model's.
pub(super) fn of(path: &str) -> Option<&'static dyn Dialect> {
    match path {
        "/v1/messages" => Some(&messages::Messages),
        "/v1/responses" => Some(&responses::Responses),
        "/v1/chat/completions" => Some(&chat::Chat),
        path if gemini::is_asked_at(path) => Some(&gemini::Gemini),
        _ => None,
    }
}
