//! The meaning of the agent's items: the name of a tool, its arguments, and its outcome.

use super::framing::text;
use crate::convert::one_line;
use crate::dialogue::{SUMMARY, truncate_result};
use agent_duplex::ToolOutcome;
use serde_json::Value;

/// The name of the tool that runs commands.
pub(super) const SHELL: &str = "shell";

/// Returns the name of the tool that an item calls; `None` if it is no call.
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

/// Describes a call on one line.
pub(super) fn summary(item: &Value) -> String {
    let call = match text(&item["type"]) {
        "commandExecution" => text(&item["command"]).to_owned(),
        "fileChange" => paths(&item["changes"]),
        "webSearch" => text(&item["query"]).to_owned(),
        "imageView" => text(&item["path"]).to_owned(),
        "collabAgentToolCall" => text(&item["prompt"]).to_owned(),
        "sleep" => item["durationMs"].to_string() + " ms",
        _ => shown(&item["arguments"]),
    };
    one_line(&call, SUMMARY)
}

fn paths(changes: &Value) -> String {
    let changes = changes.as_array().into_iter().flatten();
    let paths: Vec<&str> = changes.map(|change| text(&change["path"])).collect();
    paths.join(", ")
}

/// Returns arguments as text; empty if there are none.
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
        // These tools were ended before they were complete; the effects of the tools are unknown.
        "inProgress" | "interrupted" | "cancelled" => ToolOutcome::Interrupted,
        _ if failed => ToolOutcome::Failed,
        _ => ToolOutcome::Succeeded,
    }
}

/// Returns the beginning of a tool's result.
pub(super) fn result(item: &Value) -> String {
    let blocks = |list: &Value| {
        let blocks = list.as_array().into_iter().flatten();
        let texts: Vec<&str> = blocks.filter_map(|block| block["text"].as_str()).collect();
        texts.join("\n")
    };
    let output = match text(&item["type"]) {
        "commandExecution" => text(&item["aggregatedOutput"]).to_owned(),
        "mcpToolCall" => match item["error"]["message"].as_str() {
            Some(error) => error.to_owned(),
            None => blocks(&item["result"]["content"]),
        },
        "dynamicToolCall" => blocks(&item["contentItems"]),
        _ => String::new(),
    };
    truncate_result(output)
}
