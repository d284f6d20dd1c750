//! Requests of Anthropic's Messages API. The streams are in `messages_stream`.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::request_parts::{self, RequestMessage};
use super::settings::{CacheBreakpoints, RequestSettings, ThinkingMode};
use crate::error::{Error, ErrorKind};
use crate::history::{AssistantPart, History, ThinkingProof, ToolOutcome};

/// The body of a request. The messages are the last field, so that the start of the body is the same in the next request.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<ThinkingSetting>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Block<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    messages: Vec<Message<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ThinkingSetting {
    /// The server omits the text of the thinking by default for some models.
    Adaptive {
        display: &'static str,
    },
    Enabled {
        budget_tokens: u32,
    },
}

#[derive(Serialize)]
struct OutputConfig<'a> {
    effort: &'a str,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

/// A block of content. The cache breakpoint is its last field.
#[derive(Serialize)]
struct Block<'a> {
    #[serde(flatten)]
    content: Content<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Content<'a> {
    Text {
        text: Cow<'a, str>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    ToolUse {
        id: &'a str,
        name: Cow<'a, str>,
        input: Cow<'a, RawValue>,
    },
    ToolResult {
        tool_use_id: &'a str,
        content: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

#[derive(Clone, Copy, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CacheControl {
    Ephemeral,
}

/// Returns the body of a request.
pub(super) fn request(history: &History, settings: &RequestSettings) -> Result<Vec<u8>, Error> {
    let Some(max_tokens) = settings.max_output_tokens else {
        let message = "the Messages API needs a maximum of output tokens; set it";
        return Err(Error::new(ErrorKind::Settings, message));
    };
    let cache_control = match settings.cache_breakpoints {
        CacheBreakpoints::On => Some(CacheControl::Ephemeral),
        CacheBreakpoints::Off => None,
    };
    let (thinking, output_config) = thinking(&settings.thinking);
    let mut system = Vec::new();
    // Servers refuse a text without a visible character.
    if !settings.system.trim().is_empty() {
        let text = Cow::Borrowed(settings.system.as_str());
        system.push(Block {
            content: Content::Text { text },
            cache_control,
        });
    }
    let mut tools = Vec::new();
    for (index, tool) in settings.tools.iter().enumerate() {
        tools.push(Tool {
            name: &tool.name,
            description: &tool.description,
            input_schema: tool.schema.raw(),
            cache_control: cache_control.filter(|_| index + 1 == settings.tools.len()),
        });
    }
    let mut messages = Vec::new();
    for request_message in request_parts::messages(history, carries)? {
        messages.push(message(request_message)?);
    }
    // The last message is the user's: otherwise the history would not be ready.
    if let Some(block) = messages.last_mut().and_then(|last| last.content.last_mut()) {
        block.cache_control = cache_control;
    }
    let body = Body {
        model: &settings.model,
        max_tokens,
        stream: true,
        thinking,
        output_config,
        system,
        tools,
        messages,
    };
    request_parts::bytes(&body, history)
}

fn thinking(mode: &ThinkingMode) -> (Option<ThinkingSetting>, Option<OutputConfig<'_>>) {
    match mode {
        ThinkingMode::Default | ThinkingMode::None => (None, None),
        ThinkingMode::Effort(effort) => (
            Some(ThinkingSetting::Adaptive {
                display: "summarized",
            }),
            Some(OutputConfig { effort }),
        ),
        ThinkingMode::Budget(tokens) => (
            Some(ThinkingSetting::Enabled {
                budget_tokens: *tokens,
            }),
            None,
        ),
    }
}

fn carries(proof: &ThinkingProof) -> bool {
    matches!(
        proof,
        ThinkingProof::Signature(_) | ThinkingProof::Redacted(_)
    )
}

fn message(message: RequestMessage<'_>) -> Result<Message<'_>, Error> {
    let (role, content) = match message {
        RequestMessage::User(text) => ("user", vec![Content::Text { text }]),
        RequestMessage::Assistant(parts) => {
            let mut content = Vec::new();
            for part in parts {
                content.extend(block(part)?);
            }
            ("assistant", content)
        }
        RequestMessage::ToolResults(results) => {
            let results = results.into_iter().map(|result| Content::ToolResult {
                tool_use_id: &result.call_id,
                content: &result.text,
                is_error: result.outcome != ToolOutcome::Ok,
            });
            ("user", results.collect())
        }
    };
    let block = |content| Block {
        content,
        cache_control: None,
    };
    Ok(Message {
        role,
        content: content.into_iter().map(block).collect(),
    })
}

fn block(part: &AssistantPart) -> Result<Option<Content<'_>>, Error> {
    Ok(match part {
        AssistantPart::Text(text) => Some(Content::Text {
            text: Cow::Borrowed(&text.text),
        }),
        AssistantPart::Thinking(thinking) => match &thinking.proof {
            ThinkingProof::Signature(signature) => Some(Content::Thinking {
                thinking: &thinking.text,
                signature,
            }),
            ThinkingProof::Redacted(data) => Some(Content::RedactedThinking { data }),
            ThinkingProof::None | ThinkingProof::Encrypted { .. } => None,
        },
        AssistantPart::ToolCall(call) => Some(Content::ToolUse {
            id: &call.id,
            name: request_parts::call_name(call),
            input: match request_parts::call_arguments(call) {
                Cow::Borrowed(object) => Cow::Borrowed(object.raw()),
                Cow::Owned(object) => Cow::Owned(object.raw().to_owned()),
            },
        }),
    })
}
