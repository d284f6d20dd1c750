//! Joins lines into messages, and reads texts from messages. Some versions write line breaks in texts without escapes, so that one message spans
//! several lines.

use crate::dialogue::parse;
use serde_json::Value;

/// The largest number of lines of one message.
pub(super) const LINES: usize = 256;
/// The largest size of such a message, in bytes.
pub(super) const BYTES: usize = 16 << 20;

/// The beginning of an incomplete message.
#[derive(Debug, Default)]
pub(super) struct Framing {
    partial: Vec<u8>,
    lines: usize,
}

impl Framing {
    /// Adds a line. Returns the message that is complete with this line, and whether an incomplete message was dropped.
    pub(super) fn take(&mut self, line: &[u8]) -> (Option<Value>, bool) {
        let had = !self.partial.is_empty();
        let is_message = |value: &Value| value["method"].is_string() || !value["id"].is_null();
        match parse(line) {
            Ok(value) if is_message(&value) => {
                self.partial.clear();
                return (Some(value), had);
            }
            Err(error) if !had => {
                if error.is_eof() && line.starts_with(b"{") {
                    self.partial.extend_from_slice(line);
                    self.lines = 1;
                }
                return (None, false);
            }
            _ if !had => return (None, false),
            _ => {}
        }
        self.partial.extend_from_slice(b"\\n");
        self.partial.extend_from_slice(line);
        self.lines += 1;
        match parse(&self.partial) {
            Ok(value) => {
                self.partial.clear();
                (Some(value).filter(is_message), false)
            }
            Err(error) if error.is_eof() && self.lines < LINES && self.partial.len() < BYTES => {
                (None, false)
            }
            Err(_) => {
                self.partial = Vec::new();
                (None, true)
            }
        }
    }

    /// Drops an incomplete message; returns whether there was one.
    pub(super) fn give_up(&mut self) -> bool {
        !std::mem::take(&mut self.partial).is_empty()
    }
}

/// Returns a string of a message; empty if there is none.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
