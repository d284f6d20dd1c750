//! The result of a turn in its agent's words, for the next phase.

use loop_state::{MAX_TEXT, last_bytes};

/// The last message of a turn; of an agent whose words nobody understands, the end of what it printed.
#[derive(Debug, Default)]
pub(crate) struct Said(String);

impl Said {
    /// Forgets an earlier turn.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns it, and forgets it.
    pub(crate) fn take(&mut self) -> String {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn message(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.0.clear();
            self.0.push_str(text);
        }
    }

    /// Adds a line of output. Of a long one only the end matters.
    pub(crate) fn line(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(MAX_TEXT)..];
        self.0.push_str(&String::from_utf8_lossy(bytes));
        if !self.0.ends_with('\n') {
            self.0.push('\n');
        }
        if self.0.len() > 4 * MAX_TEXT {
            self.0 = last_bytes(&self.0, MAX_TEXT).to_owned();
        }
    }
}
