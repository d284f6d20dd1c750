//! Lines of JSON-RPC, as they come and as they are written.

use crate::converse;
use serde_json::{Value, json};

/// What the protocol calls a method that is not known.
const UNKNOWN: i64 = -32601;
/// What it calls a request that was cancelled.
const CANCELLED: i64 = -32800;

/// Parses a line; `None` if it is no object.
pub(super) fn parse(bytes: &[u8]) -> Option<Value> {
    converse::parse(bytes).ok().filter(Value::is_object)
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

    proptest! {
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
