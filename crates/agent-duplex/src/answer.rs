//! The whole answer to one input.

use crate::{Event, Observation, Stream, TurnEnd};

/// The answer of an agent, see [`Conversation::ask`](crate::Conversation::ask).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// The messages of the turn, each in a paragraph of its own. The lines of standard output if the agent reports no messages, as a plain command.
    pub text: String,
    /// The end of the turn. The answer is complete if its reason is [`EndReason::Completed`](crate::EndReason::Completed).
    pub end: TurnEnd,
}

/// The text of an answer while it comes.
#[derive(Debug, Default)]
pub(crate) struct AnswerText {
    messages: Vec<String>,
    lines: Vec<String>,
}

impl AnswerText {
    pub(crate) fn add(&mut self, seen: Observation) {
        if let Some((Stream::Stdout, line)) = seen.raw.filter(|_| self.messages.is_empty()) {
            let line = String::from_utf8_lossy(&line.bytes).into_owned();
            self.lines.push(line);
        }
        for event in seen.events {
            if let Event::Message { text, .. } = event {
                self.lines.clear();
                self.messages.push(text);
            }
        }
    }

    pub(crate) fn into_text(self) -> String {
        match self.messages.is_empty() {
            true => self.lines.join("\n"),
            false => self.messages.join("\n\n"),
        }
    }
}
