//! The whole response of a model call, and the reading of events that all dialects share.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Error;
use crate::history::AssistantMessage;
use crate::sse::SseEvent;
use crate::usage::Usage;

/// A whole response: the stream had its final event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelResponse {
    /// The message for the history.
    pub message: AssistantMessage,
    /// The reason why the model stopped.
    pub stop: StopReason,
    /// The tokens of the call; `None` if the server reports none.
    pub usage: Option<Usage>,
}

impl ModelResponse {
    /// Creates a response that ends the turn, for a middleware that responds without a call of the model.
    #[must_use]
    pub fn new(message: AssistantMessage) -> Self {
        Self {
            message,
            stop: StopReason::EndOfTurn,
            usage: None,
        }
    }
}

/// The reason why a model stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// The model finished its response.
    EndOfTurn,
    /// The model wants the results of its calls.
    ToolCalls,
    /// The response reached the longest permitted length, so its last part may be broken.
    MaxTokens,
    /// The model refused, or a filter of the service stopped it.
    Refused,
    /// The conversation filled the context window of the model.
    ContextFull,
    /// A reason that this crate doesn't know, by the server's name.
    Other(String),
}

/// Parses the data of an event.
pub(super) fn json(event: &SseEvent) -> Result<Value, Error> {
    serde_json::from_str(&event.data)
        .map_err(|error| Error::malformed(format!("an event is not JSON ({error})")))
}

/// Returns the string under a key, which must be there.
pub(super) fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, Error> {
    value[key]
        .as_str()
        .ok_or_else(|| Error::malformed(format!("{key} is missing, or no text")))
}

/// Returns the number under a key, which must be there.
pub(super) fn number(value: &Value, key: &str) -> Result<u64, Error> {
    value[key]
        .as_u64()
        .ok_or_else(|| Error::malformed(format!("{key} is missing, or no number")))
}

/// Returns the array under a key, or an empty one.
pub(super) fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// Returns the name of an unknown stop reason, which is a short word.
pub(super) fn other(reason: &str) -> StopReason {
    StopReason::Other(crate::text::one_line(reason, 40))
}
