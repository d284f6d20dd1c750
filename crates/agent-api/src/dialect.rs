//! The three dialects of model services. Each has a pair of modules: one writes requests, the other reads streams.

mod chat;
mod chat_stream;
mod draft;
mod messages;
mod messages_stream;
mod model_response;
mod request_parts;
mod responses;
mod responses_stream;
mod settings;

use serde::{Deserialize, Serialize};

pub use draft::{Delta, ResponseLimits};
pub use model_response::{ModelResponse, StopReason};
pub use settings::{
    CacheBreakpoints, ChatLimit, ChatThinking, RequestSettings, ThinkingMode, ToolDefinition,
};

use crate::error::Error;
use crate::history::{AssistantMessage, History};
use crate::sse::SseEvent;
use crate::usage::Usage;

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
    /// The body depends on nothing else, and the conversation is its last field. So the body without cache breakpoints and closing brackets is a prefix of
    /// the body after more items, unless a compaction came between. If the arguments of a call are no JSON object, the body has
    /// them as a string under `invalid_arguments`, because servers parse the arguments of earlier calls.
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

/// The reader of the events of one stream, in any dialect.
#[derive(Clone, Debug)]
pub(crate) struct EventReader {
    stream: StreamOf,
    draft: draft::Draft,
}

#[derive(Clone, Debug)]
enum StreamOf {
    Messages(messages_stream::MessagesStream),
    Responses(responses_stream::ResponsesStream),
    Chat(chat_stream::ChatStream),
}

impl EventReader {
    pub(crate) fn new(dialect: Dialect, tools: Vec<String>, limits: ResponseLimits) -> Self {
        let stream = match dialect {
            Dialect::Messages => StreamOf::Messages(Default::default()),
            Dialect::Responses => StreamOf::Responses(Default::default()),
            Dialect::Chat => StreamOf::Chat(Default::default()),
        };
        let draft = draft::Draft::new(tools, limits);
        Self { stream, draft }
    }

    /// Reads an event; returns the stop reason with the final event.
    pub(crate) fn event(
        &mut self,
        event: &SseEvent,
        deltas: &mut Vec<Delta>,
    ) -> Result<Option<StopReason>, Error> {
        // Some servers keep the connection alive with empty events.
        if event.data.trim().is_empty() {
            return Ok(None);
        }
        let draft = &mut self.draft;
        match &mut self.stream {
            StreamOf::Messages(stream) => stream.event(event, draft, deltas),
            StreamOf::Responses(stream) => stream.event(event, draft, deltas),
            StreamOf::Chat(stream) => stream.event(event, draft, deltas),
        }
    }

    /// Returns the usage that the server reported so far.
    pub(crate) fn usage(&self) -> Option<Usage> {
        match &self.stream {
            StreamOf::Messages(stream) => stream.usage(),
            StreamOf::Responses(stream) => stream.usage(),
            StreamOf::Chat(stream) => stream.usage(),
        }
    }

    pub(crate) fn estimated_output(&self) -> u64 {
        self.draft.estimated_tokens()
    }

    pub(crate) fn finish(self, stop: StopReason) -> ModelResponse {
        let usage = self.usage();
        let mut message = self.draft.finish();
        message.context_tokens = usage.map(|usage| usage.total()).filter(|total| *total > 0);
        ModelResponse {
            message,
            stop,
            usage,
        }
    }

    pub(crate) fn interrupt(self) -> Option<AssistantMessage> {
        self.draft.interrupt()
    }
}
