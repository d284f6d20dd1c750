//! The interface of a model service's protocol.

use serde_json::Value;

use crate::model::reply::Reply;
use crate::model::request::PromptRequest;

/// One protocol. It builds messages and sends nothing.
///
/// An event is a JSON object, named after its `type` if it has one, or a string that is sent unchanged.
pub(crate) trait Dialect: Sync {
    /// Parses a request to `path`.
    fn read(&self, path: &str, body: &Value) -> PromptRequest;

    /// Returns the body of a failure, with the retry delay in seconds if there is one.
    fn failure(&self, code: u16, retry_after: Option<&str>) -> Value;

    /// Returns the events before the first token.
    fn opening(&self, reply: &Reply) -> Vec<Value>;

    /// Returns the event of one token.
    fn token(&self, reply: &Reply, token: &str) -> Value;

    /// Returns the events after the last token, including a tool call.
    fn closing(&self, reply: &Reply) -> Vec<Value>;

    /// Returns a reply in one piece.
    fn whole(&self, reply: &Reply) -> Value;
}
