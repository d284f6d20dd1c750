//! Lines of JSON-RPC, as they come and as they are written.

use crate::converse;
use serde_json::{Value, json};
use std::borrow::Cow;

/// What the protocol calls a method that is not known.
const UNKNOWN: i64 = -32601;
/// What it calls a request that was cancelled.
const CANCELLED: i64 = -32800;

/// Parses a line; `None` if it is no object.
pub(super) fn parse(bytes: &[u8]) -> Option<Value> {
    // Looking first is much faster than replacing what may be wrong.
    let text =
        std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed);
    let line = serde_json::from_str(&text).or_else(|e| match text.contains("\\u") {
        // An agent that cuts its text in the middle of a character writes half of it.
        true => serde_json::from_str(&without_halves(&text)),
        false => Err(e),
    });
    line.ok().filter(Value::is_object)
}

/// Replaces escaped halves of characters, of which JSON has no text.
fn without_halves(text: &str) -> String {
    let mut mended = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        mended.push_str(before);
        let (taken, text) = match (half(escape), escape.get(6..).and_then(half)) {
            (Some(false), Some(true)) => (12, &escape[..12]),
            (Some(_), _) => (6, "\\ufffd"),
            // The character after a backslash means something else.
            (None, _) => {
                let taken = 1 + escape[1..].chars().next().map_or(0, char::len_utf8);
                (taken, &escape[..taken])
            }
        };
        mended.push_str(text);
        rest = &escape[taken..];
    }
    mended + rest
}

/// Tells which half of a character an escape is that a text begins with: the first, or the second (`true`).
fn half(text: &str) -> Option<bool> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let unit = u32::from_str_radix(digits, 16).ok()?;
    match unit {
        0xd800..=0xdbff => Some(false),
        0xdc00..=0xdfff => Some(true),
        _ => None,
    }
}

/// Returns a text; empty if it is none.
pub(super) fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_default()
}

/// Returns the items of a list; none if it is none.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn request(id: u64, method: &str, params: Value) -> Vec<u8> {
    line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

pub(super) fn notification(method: &str, params: Value) -> Vec<u8> {
    line(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
}

pub(super) fn result(id: &Value, result: Value) -> Vec<u8> {
    line(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

/// Answers a request that can't be met; without an answer the agent would wait for ever.
pub(super) fn refuse(id: &Value, method: &str) -> Vec<u8> {
    error(id, UNKNOWN, &format!("method not found: {method}"))
}

/// Answers a request that the agent took back.
pub(super) fn cancelled(id: &Value) -> Vec<u8> {
    error(id, CANCELLED, "request cancelled")
}

fn error(id: &Value, code: i64, message: &str) -> Vec<u8> {
    let error = json!({"code": code, "message": message});
    line(&json!({"jsonrpc": "2.0", "id": id, "error": error}))
}

fn line(value: &Value) -> Vec<u8> {
    converse::line(value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn p13a_half_a_character_does_not_lose_the_line_that_it_stands_in() {
        let line = parse(br#"{"a":"x\ud83d","b":"\ud83d\ude00 \\ud83d \ude00","c":1}"#).unwrap();
        assert_eq!(line["a"], "x\u{fffd}");
        assert_eq!(line["b"], "\u{1f600} \\ud83d \u{fffd}");
        assert_eq!(line["c"], 1);
        assert_eq!(parse(br#"{"a":"\ud83"#), None);
    }

    proptest! {
        #[test]
        fn p13c_mending_changes_nothing_that_is_whole(text: String) {
            let whole = Value::from(text).to_string();
            prop_assert_eq!(&without_halves(&whole), &whole);
        }

        #[test]
        fn p14_any_bytes_are_a_line_or_none(bytes: Vec<u8>) {
            let _line = parse(&bytes);
            let _mended = without_halves(&String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn l96a_l96b_l96c_each_message_is_one_line_that_begins_with_its_object(text: String) {
            let value = Value::from(text.as_str());
            let written = [
                request(1, &text, value.clone()),
                notification(&text, value.clone()),
                result(&value, value.clone()),
                refuse(&value, &text),
                cancelled(&value),
            ];
            for message in written.map(|bytes| String::from_utf8(bytes).unwrap()) {
                // Neither a byte order mark before the object nor an empty line behind it.
                let inside = message.strip_suffix("}\n").and_then(|rest| rest.strip_prefix('{'));
                let inside = inside.unwrap_or_else(|| panic!("{message:?}"));
                let is_one = !inside.contains(['\n', '\r', '\u{2028}', '\u{2029}']);
                prop_assert!(is_one, "{message:?}");
                let read = parse(message.as_bytes()).unwrap();
                prop_assert!([&read["method"], &read["id"]].contains(&&value), "{message:?}");
            }
        }
    }
}
