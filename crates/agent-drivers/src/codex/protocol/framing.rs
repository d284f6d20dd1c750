//! Messages out of lines, and texts out of messages. Some versions write line breaks inside of texts as they are, so that one message comes on
//! several lines.

use crate::converse::parse;
use serde_json::Value;

/// How many lines one message may be spread over.
pub(super) const LINES: usize = 256;
/// How many bytes such a message may have.
pub(super) const BYTES: usize = 16 << 20;

/// The beginning of a message that has not come to its end.
#[derive(Debug, Default)]
pub(super) struct Framing {
    begun: Vec<u8>,
    lines: usize,
}

impl Framing {
    /// Takes a line. Returns the message that it is or ends, and whether the beginning of another was given up.
    pub(super) fn take(&mut self, line: &[u8]) -> (Option<Value>, bool) {
        let had = !self.begun.is_empty();
        let is_message = |value: &Value| value["method"].is_string() || !value["id"].is_null();
        match parse(line) {
            Ok(value) if is_message(&value) => {
                self.begun.clear();
                return (Some(value), had);
            }
            Err(error) if !had => {
                if error.is_eof() && line.starts_with(b"{") {
                    self.begun.extend_from_slice(line);
                    self.lines = 1;
                }
                return (None, false);
            }
            _ if !had => return (None, false),
            _ => {}
        }
        self.begun.extend_from_slice(b"\\n");
        self.begun.extend_from_slice(line);
        self.lines += 1;
        match parse(&self.begun) {
            Ok(value) => {
                self.begun.clear();
                (Some(value).filter(is_message), false)
            }
            Err(error) if error.is_eof() && self.lines < LINES && self.begun.len() < BYTES => {
                (None, false)
            }
            Err(_) => {
                self.begun = Vec::new();
                (None, true)
            }
        }
    }

    /// Gives up a message that was begun; tells whether there was one.
    pub(super) fn give_up(&mut self) -> bool {
        !std::mem::take(&mut self.begun).is_empty()
    }
}

/// Returns a text of a message; empty where there is none.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
