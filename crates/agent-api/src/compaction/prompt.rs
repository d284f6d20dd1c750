//! The request for a summary of old items, as one text of about `max_bytes`.

use std::fmt::Write as _;

use crate::history::{AssistantPart, Item, ToolOutcome};
use crate::text;

const INSTRUCTION: &str = "\
The conversation above is too long to continue. Write a summary that replaces it, for the same engineer who continues the work. State the task and its \
constraints, the decisions and their reasons, what is done and verified, what failed and why, the exact state of the files, and the next steps. Keep exact \
names, paths, commands and error messages. The messages of the user are kept separately. Write only the summary.";

/// The largest part of a tool's output in the request, in bytes, half of it from each end.
const MAX_OUTPUT: usize = 2_000;

pub(super) fn summary_prompt(items: &[Item], max_bytes: usize) -> String {
    let mut transcript = String::new();
    for item in items {
        describe(item, &mut transcript);
    }
    let room = max_bytes.saturating_sub(INSTRUCTION.len() + 200);
    let mut prompt = String::from("<conversation>\n");
    prompt.push_str(&shortened(transcript.trim_end(), room));
    prompt.push_str("\n</conversation>\n\n");
    prompt.push_str(INSTRUCTION);
    prompt
}

fn describe(item: &Item, to: &mut String) {
    // Writing to a string can't fail.
    let _: std::fmt::Result = match item {
        Item::User(user) => writeln!(to, "User: {}", user.text),
        Item::Summary(summary) => writeln!(to, "Earlier summary: {}", summary.text),
        Item::Assistant(message) => message.parts.iter().try_for_each(|part| match part {
            AssistantPart::Text(text) => writeln!(to, "Assistant: {}", text.text),
            AssistantPart::Thinking(_) => Ok(()),
            AssistantPart::ToolCall(call) => {
                let arguments = shortened(call.raw_arguments(), MAX_OUTPUT);
                writeln!(to, "Tool call: {} {arguments}", call.name)
            }
        }),
        Item::ToolStarted(_) => Ok(()),
        Item::ToolResult(result) => {
            let outcome = match result.outcome {
                ToolOutcome::Ok => "",
                ToolOutcome::Error => " (error)",
                ToolOutcome::Interrupted => " (interrupted)",
                ToolOutcome::Unknown => " (outcome unknown)",
            };
            let output = shortened(&result.text, MAX_OUTPUT);
            writeln!(to, "Tool result{outcome}: {output}")
        }
    };
}

/// Returns a text with its middle omitted, if it is longer than `max` bytes.
fn shortened(whole: &str, max: usize) -> String {
    if whole.len() <= max {
        return whole.to_owned();
    }
    let (start, end) = (text::start(whole, max / 2), text::end(whole, max / 2));
    let omitted = whole.len() - start.len() - end.len();
    format!("{start}\n[{omitted} bytes omitted]\n{end}")
}
