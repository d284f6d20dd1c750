//! Short texts for people about the arguments and results of tool calls.

use super::json::Object;
use crate::convert::one_line;
use crate::dialogue::{SUMMARY, truncate_result};

/// Describes a tool call in one line. For the agent's own tools it is the command, the file or a similar argument. For any other tool it is the whole
/// input, so that nothing is hidden.
pub(super) fn summary(tool: &str, call: &Object<'_>) -> String {
    let input = call.object("input");
    let telling = summary_fields(tool).iter();
    let values: Vec<String> = telling.filter_map(|key| input.string(key)).collect();
    let whole = call.raw("input").filter(|text| *text != "{}");
    match values.is_empty() {
        true => one_line(whole.unwrap_or_default(), SUMMARY),
        false => one_line(&values.join(" in "), SUMMARY),
    }
}

/// Returns the arguments that describe a call of one of the agent's own tools.
fn summary_fields(tool: &str) -> &'static [&'static str] {
    match tool {
        "Bash" => &["command"],
        "Read" | "Edit" | "MultiEdit" | "Write" => &["file_path"],
        "NotebookEdit" | "NotebookRead" => &["notebook_path"],
        "Glob" | "Grep" => &["pattern", "path"],
        "LS" => &["path"],
        "WebFetch" => &["url"],
        "WebSearch" => &["query"],
        "Task" | "Agent" => &["description"],
        _ => &[],
    }
}

/// Returns the beginning of a tool's result: a string, or the texts of a list of blocks.
pub(super) fn result(block: &Object<'_>) -> String {
    let text = block.string("content").unwrap_or_else(|| {
        let blocks = block.list("content");
        let texts: Vec<String> = blocks
            .iter()
            .filter_map(|block| block.string("text"))
            .collect();
        texts.join("\n")
    });
    truncate_result(text)
}
