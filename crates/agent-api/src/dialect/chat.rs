//! Requests of OpenAI's Chat Completions API, which most other services and local servers speak too. The streams are in `chat_stream`.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::request_parts::{self, RequestMessage};
use super::responses::no_budget;
use super::settings::{ChatLimit, ChatThinking, RequestSettings, ThinkingMode};
use crate::error::Error;
use crate::history::{AssistantPart, History};

/// The body of a request, with the conversation as the last field.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    messages: Vec<Message<'a>>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a RawValue,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum Message<'a> {
    System {
        content: &'a str,
    },
    User {
        content: Cow<'a, str>,
    },
    Assistant {
        /// Null if the message only has calls.
        content: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Call<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: &'a str,
    },
}

#[derive(Serialize)]
struct Call<'a> {
    id: &'a str,
    r#type: &'static str,
    function: CalledFunction<'a>,
}

#[derive(Serialize)]
struct CalledFunction<'a> {
    name: Cow<'a, str>,
    arguments: Cow<'a, str>,
}

/// Returns the body of a request.
pub(super) fn request(history: &History, settings: &RequestSettings) -> Result<Vec<u8>, Error> {
    let reasoning_effort = match &settings.thinking {
        ThinkingMode::Default | ThinkingMode::None => None,
        ThinkingMode::Effort(effort) => Some(effort.as_str()),
        ThinkingMode::Budget(_) => return Err(no_budget("Chat Completions")),
    };
    let (max_completion_tokens, max_tokens) = match settings.chat_limit {
        ChatLimit::MaxCompletionTokens => (settings.max_output_tokens, None),
        ChatLimit::MaxTokens => (None, settings.max_output_tokens),
    };
    let mut tools = Vec::new();
    for tool in &settings.tools {
        let function = Function {
            name: &tool.name,
            description: &tool.description,
            parameters: tool.schema.raw(),
        };
        tools.push(Tool {
            r#type: "function",
            function,
        });
    }
    let mut messages = Vec::new();
    if !settings.system.is_empty() {
        messages.push(Message::System {
            content: &settings.system,
        });
    }
    for message in request_parts::messages(history, |_| {
        settings.chat_thinking == ChatThinking::SendBack
    })? {
        match message {
            RequestMessage::User(content) => messages.push(Message::User { content }),
            RequestMessage::Assistant(parts) => messages.push(assistant(&parts)),
            RequestMessage::ToolResults(results) => {
                messages.extend(results.into_iter().map(|result| Message::Tool {
                    tool_call_id: &result.call_id,
                    content: &result.text,
                }))
            }
        }
    }
    let body = Body {
        model: &settings.model,
        stream: true,
        stream_options: StreamOptions {
            include_usage: true,
        },
        max_completion_tokens,
        max_tokens,
        reasoning_effort,
        tools,
        messages,
    };
    request_parts::bytes(&body, history)
}

fn assistant<'a>(parts: &[&'a AssistantPart]) -> Message<'a> {
    let (mut texts, mut thoughts, mut tool_calls) = (Vec::new(), Vec::new(), Vec::new());
    for part in parts {
        match part {
            AssistantPart::Text(text) => texts.push(text.text.as_str()),
            AssistantPart::Thinking(thinking) => thoughts.push(thinking.text.as_str()),
            AssistantPart::ToolCall(call) => tool_calls.push(Call {
                id: &call.id,
                r#type: "function",
                function: CalledFunction {
                    name: request_parts::call_name(call),
                    arguments: request_parts::call_arguments_text(call),
                },
            }),
        }
    }
    let joined = |mut texts: Vec<&str>| {
        texts.retain(|text| !text.is_empty());
        (!texts.is_empty()).then(|| texts.join("\n\n"))
    };
    Message::Assistant {
        content: joined(texts),
        reasoning_content: joined(thoughts),
        tool_calls,
    }
}
