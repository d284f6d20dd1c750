//! What the agent's items mean: names of tools, what they are called with, how they ended.

use super::framing::text;
use crate::converse::{SUMMARY, beginning};
use crate::duplex::one_line;
use agent_duplex::ToolOutcome;
use serde_json::Value;

/// What running a command is called.
pub(super) const SHELL: &str = "shell";

/// Returns the name of the tool that an item is a call of; `None` if it is none.
pub(super) fn tool(item: &Value) -> Option<String> {
    Some(match text(&item["type"]) {
        "commandExecution" => SHELL.to_owned(),
        "fileChange" => "apply_patch".to_owned(),
        "mcpToolCall" => format!("mcp__{}__{}", text(&item["server"]), text(&item["tool"])),
        "dynamicToolCall" | "collabAgentToolCall" => text(&item["tool"]).to_owned(),
        "webSearch" => "web_search".to_owned(),
        "imageView" => "view_image".to_owned(),
        "imageGeneration" => "image_generation".to_owned(),
        "sleep" => "sleep".to_owned(),
        _ => return None,
    })
}

/// Tells on one line what a call does.
pub(super) fn summary(item: &Value) -> String {
    let said = match text(&item["type"]) {
        "commandExecution" => text(&item["command"]).to_owned(),
        "fileChange" => paths(&item["changes"]),
        "webSearch" => text(&item["query"]).to_owned(),
        "imageView" => text(&item["path"]).to_owned(),
        "collabAgentToolCall" => text(&item["prompt"]).to_owned(),
        "sleep" => item["durationMs"].to_string() + " ms",
        _ => shown(&item["arguments"]),
    };
    one_line(&said, SUMMARY)
}

fn paths(changes: &Value) -> String {
    let changes = changes.as_array().into_iter().flatten();
    let paths: Vec<&str> = changes.map(|change| text(&change["path"])).collect();
    paths.join(", ")
}

/// Shows arguments as they are; none at all as nothing.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

pub(super) fn outcome(item: &Value) -> ToolOutcome {
    let failed = item["error"].is_object() || item["success"] == false;
    match text(&item["status"]) {
        "declined" => ToolOutcome::Denied,
        "failed" => ToolOutcome::Failed,
        // Ended without being done: nobody knows how far it came.
        "inProgress" | "interrupted" | "cancelled" => ToolOutcome::Cut,
        _ if failed => ToolOutcome::Failed,
        _ => ToolOutcome::Done,
    }
}

/// Returns the beginning of what a tool returned.
pub(super) fn result(item: &Value) -> String {
    let blocks = |list: &Value| {
        let blocks = list.as_array().into_iter().flatten();
        let texts: Vec<&str> = blocks.filter_map(|block| block["text"].as_str()).collect();
        texts.join("\n")
    };
    let said = match text(&item["type"]) {
        "commandExecution" => text(&item["aggregatedOutput"]).to_owned(),
        "mcpToolCall" => match item["error"]["message"].as_str() {
            Some(error) => error.to_owned(),
            None => blocks(&item["result"]["content"]),
        },
        "dynamicToolCall" => blocks(&item["contentItems"]),
        _ => String::new(),
    };
    beginning(said)
}
