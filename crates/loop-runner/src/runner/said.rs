//! What a turn came to in its agent's words, for the phase behind it.

use agent_duplex::{EndReason, TurnEnd};
use loop_state::{Happening, MAX_TEXT, last_bytes};

use crate::runner::Runner;

/// The last message of a turn; of an agent whose words nobody understands, the end of what it printed.
#[derive(Debug, Default)]
pub(super) struct Said(String);

impl Said {
    /// Forgets an earlier turn.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn message(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.0.clear();
            self.0.push_str(text);
        }
    }

    /// Adds a line of output. Of a long one only the end matters.
    pub(super) fn line(&mut self, bytes: &[u8]) {
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

impl Runner {
    /// Returns what a completed turn came to, where there is a phase that will be told.
    pub(super) fn said(&mut self, end: &TurnEnd) -> Option<Happening> {
        let head = self.machine.head();
        let is_last = head.phase as usize + 1 >= head.rules.phases.len();
        let said = std::mem::take(&mut self.agent_io.attempt.as_mut()?.heard.said.0);
        let is_told = !is_last && end.reason == EndReason::Completed && !said.trim().is_empty();
        is_told.then(|| Happening::Said(last_bytes(&said, MAX_TEXT).to_owned()))
    }
}
