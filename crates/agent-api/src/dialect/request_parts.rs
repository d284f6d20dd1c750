//! The parts of a request that all dialects share. Each message depends only on its own items, never on later ones: for this reason, the messages of a
//! request are a prefix of those of the next request.

use std::borrow::Cow;

use crate::error::Error;
use crate::history::{
    Arguments, AssistantPart, History, Item, Summary, ThinkingProof, ToolCall, ToolResult,
};
use crate::json::JsonObject;

/// A message of a request, before a dialect writes it.
#[derive(Debug)]
pub(super) enum RequestMessage<'a> {
    User(Cow<'a, str>),
    /// At least one part; the last one is not thinking.
    Assistant(Vec<&'a AssistantPart>),
    /// The results of all calls of the message before.
    ToolResults(Vec<&'a ToolResult>),
}

/// Returns the messages for a history. `carries` decides which thinking the dialect can send back.
pub(super) fn messages<'a>(
    history: &'a History,
    carries: impl Fn(&ThinkingProof) -> bool,
) -> Result<Vec<RequestMessage<'a>>, Error> {
    history.check_ready()?;
    let mut messages = Vec::new();
    for item in history.items() {
        match item {
            Item::User(user) => messages.push(RequestMessage::User(Cow::Borrowed(&user.text))),
            Item::Summary(summary) => {
                messages.push(RequestMessage::User(Cow::Owned(summary_text(summary))))
            }
            Item::Assistant(message) => {
                let mut parts: Vec<_> = { message.parts.iter() }
                    .filter(|part| is_sent(part, &carries))
                    .collect();
                // Servers refuse thinking that nothing follows.
                while let Some(AssistantPart::Thinking(_)) = parts.last() {
                    parts.pop();
                }
                if !parts.is_empty() {
                    messages.push(RequestMessage::Assistant(parts));
                }
            }
            Item::ToolStarted(_) => {}
            Item::ToolResult(result) => match messages.last_mut() {
                Some(RequestMessage::ToolResults(results)) => results.push(result),
                _ => messages.push(RequestMessage::ToolResults(vec![result])),
            },
        }
    }
    Ok(messages)
}

fn is_sent(part: &AssistantPart, carries: impl Fn(&ThinkingProof) -> bool) -> bool {
    match part {
        // Servers refuse a text without a visible character.
        AssistantPart::Text(text) => !text.text.trim().is_empty(),
        AssistantPart::Thinking(thinking) => carries(&thinking.proof),
        AssistantPart::ToolCall(_) => true,
    }
}

fn summary_text(summary: &Summary) -> String {
    let mut text = format!(
        "Earlier messages were replaced by this summary:\n\n{}",
        summary.text
    );
    if !summary.files.is_empty() {
        text.push_str("\n\nFiles touched so far:\n");
        text.push_str(&summary.files.join("\n"));
    }
    text
}

/// Returns the name of a call in a form that every server accepts. A model can invent any name, and a server refuses a whole conversation with a bad one.
pub(super) fn call_name(call: &ToolCall) -> Cow<'_, str> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let name = &call.name;
    if (1..=64).contains(&name.len()) && name.chars().all(is_valid) {
        return Cow::Borrowed(name);
    }
    let mut valid: String = { name.chars().take(64) }
        .map(|c| if is_valid(c) { c } else { '_' })
        .collect();
    if valid.is_empty() {
        valid.push_str("unnamed");
    }
    Cow::Owned(valid)
}

/// Returns the arguments of a call as an object. Every server parses them, so an invalid text becomes a string in an object.
pub(super) fn call_arguments(call: &ToolCall) -> Cow<'_, JsonObject> {
    match &call.arguments {
        Arguments::Object(object) => Cow::Borrowed(object),
        Arguments::Invalid { raw, .. } => match JsonObject::parse(raw) {
            Ok(object) => Cow::Owned(object),
            Err(_) => Cow::Owned(JsonObject::of_text("invalid_arguments", raw)),
        },
    }
}

/// Returns the same as text.
pub(super) fn call_arguments_text(call: &ToolCall) -> Cow<'_, str> {
    match call_arguments(call) {
        Cow::Borrowed(object) => Cow::Borrowed(object.as_str()),
        Cow::Owned(object) => Cow::Owned(object.into()),
    }
}

/// Writes the body of a request with this history.
pub(super) fn bytes(body: &impl serde::Serialize, history: &History) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::with_capacity(expected_size(history));
    match serde_json::to_writer(&mut bytes, body) {
        Ok(()) => Ok(bytes),
        Err(error) => Err(Error::history(format!("can't write the request: {error}"))),
    }
}

/// Returns the approximate size of a request, so that its bytes are not copied again and again while it grows.
fn expected_size(history: &History) -> usize {
    let text = |item: &Item| match item {
        Item::User(user) => user.text.len(),
        Item::Summary(summary) => summary.text.len(),
        Item::Assistant(message) => message.parts.iter().map(part_size).sum(),
        Item::ToolStarted(_) => 0,
        Item::ToolResult(result) => result.text.len(),
    };
    // The names and marks around a text have about 100 bytes, and escapes add a sixteenth or so.
    let sizes = history.items().iter().map(text);
    sizes.map(|size| size + size / 16 + 128).sum()
}

fn part_size(part: &AssistantPart) -> usize {
    match part {
        AssistantPart::Text(text) => text.text.len(),
        AssistantPart::Thinking(thinking) => match &thinking.proof {
            ThinkingProof::Encrypted { content, .. } => content.len(),
            ThinkingProof::Signature(proof) | ThinkingProof::Redacted(proof) => {
                thinking.text.len() + proof.len()
            }
            ThinkingProof::None => thinking.text.len(),
        },
        AssistantPart::ToolCall(call) => match &call.arguments {
            Arguments::Object(object) => object.as_str().len(),
            Arguments::Invalid { raw, .. } => raw.len(),
        },
    }
}
