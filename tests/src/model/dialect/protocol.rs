//! What each protocol of a model service reads and words.

use serde_json::Value;

use crate::model::reply::Reply;
use crate::model::request::Asked;

/// One protocol. It says what is sent and sends nothing.
///
/// An event is a JSON object, named after its `type` if it has one, or a string that goes out as it is.
pub(crate) trait Dialect: Sync {
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
