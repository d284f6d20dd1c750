//! The parts of a request that are not the conversation. They stay the same for a whole session, so that a server's cache applies.

use crate::json::JsonObject;

/// The settings of all requests of a session.
///
/// ```
/// use agent_api::RequestSettings;
///
/// let settings = RequestSettings {
///     system: "You are a careful engineer.".into(),
///     max_output_tokens: Some(8_192),
///     ..RequestSettings::new("some-model")
/// };
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestSettings {
    /// The model, by the server's name for it.
    pub model: String,
    /// The system prompt; it may be empty. It should contain no time, because a changed prompt makes the server's cache useless.
    pub system: String,
    /// The tools, in an order that doesn't change.
    pub tools: Vec<ToolDefinition>,
    /// The maximum length of a response. The Messages API requires it; a server of another dialect has a default.
    pub max_output_tokens: Option<u32>,
    /// The amount of thinking.
    pub thinking: ThinkingMode,
    /// The cache breakpoints for a Messages server.
    pub cache_breakpoints: CacheBreakpoints,
    /// The key by which a Responses server finds its cache again, for example the id of the session.
    pub cache_key: Option<String>,
    /// The name of the field that limits the length of a response in a chat completion.
    pub chat_limit: ChatLimit,
    /// The treatment of earlier thinking in a chat completion.
    pub chat_thinking: ChatThinking,
}

/// A tool as the model sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolDefinition {
    /// The name: letters, digits, `_` and `-`, at most 64.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The JSON schema of the arguments.
    pub schema: JsonObject,
}

#[cfg(feature = "agent")]
impl ToolDefinition {
    /// Returns the bytes of all texts of the tool.
    pub(crate) fn bytes(&self) -> usize {
        self.name.len() + self.description.len() + self.schema.as_str().len()
    }
}

/// The amount of thinking before a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThinkingMode {
    /// The server's default.
    #[default]
    Default,
    /// For a model that can't think. The request then doesn't ask for encrypted reasoning, because a Responses server refuses such a request.
    None,
    /// A level by the server's name for it, for example `low`, `medium` or `high`.
    Effort(String),
    /// At most this number of tokens. Only older models of the Messages API have it.
    Budget(u32),
}

/// Whether a request to a Messages server has cache breakpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheBreakpoints {
    /// Breakpoints after the system prompt, after the last tool and after the last block of the conversation.
    #[default]
    On,
    /// None, for a server that doesn't know them.
    Off,
}

/// The name of the field that limits the length of a response in a chat completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChatLimit {
    /// `max_completion_tokens`, which OpenAI's models that think require.
    #[default]
    MaxCompletionTokens,
    /// `max_tokens`, the name that older servers know.
    MaxTokens,
}

/// The treatment of earlier thinking in a chat completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChatThinking {
    /// It is not sent: most servers ignore or refuse it.
    #[default]
    Omit,
    /// It is sent as `reasoning_content`, which some models need between tool calls.
    SendBack,
}

impl RequestSettings {
    /// Creates the settings for a model, with nothing else set.
    #[must_use]
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            ..Self::default()
        }
    }
}
