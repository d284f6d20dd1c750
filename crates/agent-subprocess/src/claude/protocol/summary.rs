//! Short texts for people out of what tools are called with and what they return.

use super::json::Object;

/// How many characters of a call are shown.
const SUMMARY: usize = 400;
/// How many bytes of a result are handed on.
const RESULT: usize = 4096;

/// Tells on one line what a call would do: the command or the file where the tool has one, else its whole input.
pub(super) fn summary(call: &Object<'_>) -> String {
    let input = call.object("input");
    let said = [
        "command",
        "file_path",
        "notebook_path",
        "path",
        "pattern",
        "url",
    ]
    .into_iter()
    .find_map(|key| input.get::<String>(key));
    one_line(
        said.as_deref()
            .or(call.raw("input"))
            .filter(|text| *text != "{}")
            .unwrap_or_default(),
        SUMMARY,
    )
}

/// Puts a text on one line of at most `limit` characters; `…` marks what was left out.
pub(in crate::claude) fn one_line(text: &str, limit: usize) -> String {
    let mut line = String::new();
    let (mut count, mut gap) = (0, false);
    for c in text.trim().chars() {
        if c.is_whitespace() || c.is_control() {
            gap = true;
            continue;
        }
        if count + usize::from(gap) >= limit {
            line.push('…');
            break;
        }
        if gap {
            line.push(' ');
        }
        line.push(c);
        count += 1 + usize::from(std::mem::take(&mut gap));
    }
    line
}

/// Returns the beginning of what a tool returned: a text, or the texts of a list of blocks.
pub(super) fn result(block: &Object<'_>) -> String {
    let mut text = block.get::<String>("content").unwrap_or_else(|| {
        let blocks = block.list("content");
        let texts: Vec<String> = blocks
            .iter()
            .filter_map(|block| block.get("text"))
            .collect();
        texts.join("\n")
    });
    let mut ends = (0..=RESULT.min(text.len())).rev();
    let end = ends.find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
    text
}
