//! The whole answer to one input.

use crate::{Event, Observation, Stream, TurnEnd};

/// The answer of an agent, see [`Conversation::ask`](crate::Conversation::ask).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// The messages of the turn, each in a paragraph of its own; of a plain command, which has no protocol, the lines of standard output. At most 16 MiB:
    /// the rest is left out.
    pub text: String,
    /// The end of the turn. The answer is complete if its reason is [`EndReason::Completed`](crate::EndReason::Completed).
    pub end: TurnEnd,
}

/// The maximum number of bytes of an answer.
const MAX_BYTES: usize = 16 << 20;

/// The text of an answer while it comes.
#[derive(Debug, Default)]
pub(crate) struct AnswerText {
    text: String,
    /// Whether a line had a meaning. Then lines belong to a protocol, and only messages are the answer.
    has_protocol: bool,
}

impl AnswerText {
    pub(crate) fn add(&mut self, seen: Observation) {
        if let Some((Stream::Stdout, line)) = &seen.raw {
            if seen.events.is_empty() && !self.has_protocol {
                self.append(&String::from_utf8_lossy(&line.bytes), "\n");
            } else if !self.has_protocol {
                self.use_messages_only();
            }
        }
        for event in seen.events {
            if let Event::Message { text, .. } = event {
                if !self.has_protocol {
                    self.use_messages_only();
                }
                self.append(&text, "\n\n");
            }
        }
    }

    fn use_messages_only(&mut self) {
        self.has_protocol = true;
        self.text.clear();
    }

    fn append(&mut self, text: &str, separator: &str) {
        let separator = if self.text.is_empty() { "" } else { separator };
        let room = MAX_BYTES.saturating_sub(self.text.len() + separator.len());
        let end = (0..=room.min(text.len())).rev();
        let end = { end }.find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        if end > 0 {
            self.text.push_str(separator);
            self.text.push_str(&text[..end]);
        }
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }
}
