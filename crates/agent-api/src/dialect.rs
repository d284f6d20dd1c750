//! The three dialects of model services. Each has a module that writes requests.

mod chat;
mod messages;
mod responses;
mod settings;
mod turns;

use serde::{Deserialize, Serialize};

pub use settings::{
    CacheMarks, ChatLimit, ChatThinking, Reasoning, RequestSettings, ToolDefinition,
};

use crate::error::Error;
use crate::history::History;

/// A protocol of model services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Dialect {
    /// Anthropic's Messages API.
    Messages,
    /// OpenAI's Responses API.
    Responses,
    /// OpenAI's Chat Completions API, and the many servers that speak it.
    Chat,
}

impl Dialect {
    /// Returns the body of the request that continues a history.
    ///
    /// The body depends on nothing else, and the conversation is its last field. So the body without cache marks and closing brackets is a prefix of
    /// the body after more items, unless a compaction came between. A call with invalid arguments has its text in an object
    /// (`invalid_arguments`), because servers parse the arguments of earlier calls.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::History`](crate::ErrorKind::History) if the history isn't [ready](History::check_ready),
    /// [`ErrorKind::Settings`](crate::ErrorKind::Settings) if the dialect needs or lacks a setting.
    pub fn request(self, history: &History, settings: &RequestSettings) -> Result<Vec<u8>, Error> {
        match self {
            Self::Messages => messages::request(history, settings),
            Self::Responses => responses::request(history, settings),
            Self::Chat => chat::request(history, settings),
        }
    }
}
