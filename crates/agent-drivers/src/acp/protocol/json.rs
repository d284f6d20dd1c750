//! Parsing and writing of JSON-RPC lines.

use crate::dialogue;
use serde_json::{Value, json};

/// The error code of an unknown method.
const UNKNOWN: i64 = -32601;
/// The error code of a cancelled request.
const CANCELLED: i64 = -32800;

/// Parses a line; returns `None` if it is not an object.
pub(super) fn parse(bytes: &[u8]) -> Option<Value> {
    dialogue::parse(bytes).ok().filter(Value::is_object)
}

/// Returns a string; empty if the field is not a string.
pub(super) fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_default()
}

/// Returns the items of a list; empty if the value is not a list.
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

/// Refuses an unsupported request; without an answer the agent would wait forever.
pub(super) fn refuse(id: &Value, method: &str) -> Vec<u8> {
    error(id, UNKNOWN, &format!("method not found: {method}"))
}

/// Answers a request that the agent cancelled.
pub(super) fn cancelled(id: &Value) -> Vec<u8> {
    error(id, CANCELLED, "request cancelled")
}

fn error(id: &Value, code: i64, message: &str) -> Vec<u8> {
    let error = json!({"code": code, "message": message});
    line(&json!({"jsonrpc": "2.0", "id": id, "error": error}))
}

fn line(value: &Value) -> Vec<u8> {
    dialogue::line(value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn l96a_l96b_l96c_each_message_is_one_line_with_one_object(text: String) {
            let value = Value::from(text.as_str());
            let written = [
                request(1, &text, value.clone()),
                notification(&text, value.clone()),
                result(&value, value.clone()),
                refuse(&value, &text),
                cancelled(&value),
            ];
            for message in written.map(|bytes| String::from_utf8(bytes).unwrap()) {
                // There is neither a byte order mark before the object nor an empty line after it.
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
