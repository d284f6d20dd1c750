//! The conversation in the units that all dialects share. Each unit depends only on its own items, never on later ones: for this reason, the messages of a
//! request are a prefix of those of the next request.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::error::Error;
use crate::history::{
    Arguments, AssistantPart, History, Item, Summary, ThinkingProof, ToolCall, ToolResult,
};
use crate::json::JsonObject;

/// One unit of a conversation.
#[derive(Debug)]
pub(super) enum Turn<'a> {
    User(Cow<'a, str>),
    /// At least one part; the last one is no thinking.
    Assistant(Vec<&'a AssistantPart>),
    /// The results of all calls of the message before.
    Results(Vec<&'a ToolResult>),
}

/// Returns the units of a history. `carries` decides which thinking the dialect can send back.
pub(super) fn of<'a>(
    history: &'a History,
    carries: impl Fn(&ThinkingProof) -> bool,
) -> Result<Vec<Turn<'a>>, Error> {
    history.check_ready()?;
    let mut turns = Vec::new();
    for item in history.items() {
        match item {
            Item::User(user) => turns.push(Turn::User(Cow::Borrowed(&user.text))),
            Item::Summary(summary) => turns.push(Turn::User(Cow::Owned(summary_text(summary)))),
            Item::Assistant(message) => {
                let mut parts: Vec<_> = { message.parts.iter() }
                    .filter(|part| is_sent(part, &carries))
                    .collect();
                // Servers refuse thinking that nothing follows.
                while let Some(AssistantPart::Thinking(_)) = parts.last() {
                    parts.pop();
                }
                if !parts.is_empty() {
                    turns.push(Turn::Assistant(parts));
                }
            }
            Item::ToolStarted(_) => {}
            Item::ToolResult(result) => match turns.last_mut() {
                Some(Turn::Results(results)) => results.push(result),
                _ => turns.push(Turn::Results(vec![result])),
            },
        }
    }
    Ok(turns)
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

/// Returns the name of a call as every server accepts it. A model can invent any name, and a server refuses a whole conversation with a bad one.
pub(super) fn name(call: &ToolCall) -> Cow<'_, str> {
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
pub(super) fn arguments(call: &ToolCall) -> Cow<'_, JsonObject> {
    match &call.arguments {
        Arguments::Object(object) => Cow::Borrowed(object),
        Arguments::Invalid { raw, .. } => match JsonObject::parse(raw) {
            Ok(object) => Cow::Owned(object),
            Err(_) => Cow::Owned(JsonObject::of_text("invalid_arguments", raw)),
        },
    }
}

/// Returns an object that is written verbatim.
pub(super) fn raw(object: &JsonObject) -> Result<&RawValue, Error> {
    // It was parsed before, so this can't fail.
    object
        .raw()
        .ok_or_else(|| Error::history("an object is not JSON"))
}

pub(super) fn bytes(body: &impl serde::Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(body)
        .map_err(|error| Error::history(format!("can't write the request: {error}")))
}
