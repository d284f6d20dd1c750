//! Requests of OpenAI's Responses API. The server stores nothing, and its encrypted reasoning travels in the history, so that a run can move to another
//! machine. The streams are in `responses_stream`.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::request_parts::{self, RequestMessage};
use super::settings::{RequestSettings, ThinkingMode};
use crate::error::{Error, ErrorKind};
use crate::history::{AssistantPart, History, ThinkingProof};

/// The body of a request, with the conversation as the last field.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    store: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    include: &'static [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<ReasoningSetting<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    instructions: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    input: Vec<InputItem<'a>>,
}

#[derive(Serialize)]
struct ReasoningSetting<'a> {
    effort: &'a str,
    summary: &'static str,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: &'a RawValue,
    /// The server's default would refuse schemas with optional fields.
    strict: bool,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum InputItem<'a> {
    Message {
        role: &'static str,
        content: [Content<'a>; 1],
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<&'a str>,
    },
    Reasoning {
        #[serde(skip_serializing_if = "str::is_empty")]
        id: &'a str,
        summary: Vec<Content<'a>>,
        encrypted_content: &'a str,
    },
    FunctionCall {
        call_id: &'a str,
        name: Cow<'a, str>,
        arguments: Cow<'a, str>,
    },
    FunctionCallOutput {
        call_id: &'a str,
        output: &'a str,
    },
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum Content<'a> {
    #[serde(rename = "input_text")]
    Input { text: Cow<'a, str> },
    #[serde(rename = "output_text")]
    Output { text: &'a str },
    #[serde(rename = "summary_text")]
    Summary { text: &'a str },
}

/// Returns the body of a request.
pub(super) fn request(history: &History, settings: &RequestSettings) -> Result<Vec<u8>, Error> {
    let (include, reasoning): (&[&str], _) = match &settings.thinking {
        ThinkingMode::None => (&[], None),
        ThinkingMode::Default => (&["reasoning.encrypted_content"], None),
        ThinkingMode::Effort(effort) => {
            let summary = "auto";
            let reasoning = ReasoningSetting { effort, summary };
            (&["reasoning.encrypted_content"], Some(reasoning))
        }
        ThinkingMode::Budget(_) => return Err(no_budget("Responses")),
    };
    let mut tools = Vec::new();
    for tool in &settings.tools {
        tools.push(Tool {
            r#type: "function",
            name: &tool.name,
            description: &tool.description,
            parameters: tool.schema.raw(),
            strict: false,
        });
    }
    let messages = request_parts::messages(history, |proof| {
        matches!(proof, ThinkingProof::Encrypted { .. })
    })?;
    let body = Body {
        model: &settings.model,
        stream: true,
        store: false,
        include,
        max_output_tokens: settings.max_output_tokens,
        reasoning,
        prompt_cache_key: settings.cache_key.as_deref(),
        instructions: &settings.system,
        tools,
        input: messages.into_iter().flat_map(items).collect(),
    };
    request_parts::bytes(&body, history)
}

/// Creates the error for a budget of thinking in a dialect that has none.
pub(super) fn no_budget(dialect: &str) -> Error {
    let message = format!(
        "the {dialect} API has no budget of thinking tokens; set the thinking to a level such as \"medium\""
    );
    Error::new(ErrorKind::Settings, message)
}

fn items(message: RequestMessage<'_>) -> Vec<InputItem<'_>> {
    match message {
        RequestMessage::User(text) => vec![InputItem::Message {
            role: "user",
            content: [Content::Input { text }],
            phase: None,
        }],
        RequestMessage::Assistant(parts) => parts.into_iter().filter_map(item).collect(),
        RequestMessage::ToolResults(results) => { results.into_iter() }
            .map(|result| InputItem::FunctionCallOutput {
                call_id: &result.call_id,
                output: &result.text,
            })
            .collect(),
    }
}

fn item(part: &AssistantPart) -> Option<InputItem<'_>> {
    match part {
        AssistantPart::Text(text) => Some(InputItem::Message {
            role: "assistant",
            content: [Content::Output { text: &text.text }],
            phase: text.phase.as_deref(),
        }),
        AssistantPart::Thinking(thinking) => match &thinking.proof {
            ThinkingProof::Encrypted {
                id,
                summary,
                content,
            } => Some(InputItem::Reasoning {
                id,
                summary: { summary.iter() }
                    .map(|text| Content::Summary { text })
                    .collect(),
                encrypted_content: content,
            }),
            _ => None,
        },
        AssistantPart::ToolCall(call) => Some(InputItem::FunctionCall {
            call_id: &call.id,
            name: request_parts::call_name(call),
            arguments: request_parts::call_arguments_text(call),
        }),
    }
}
