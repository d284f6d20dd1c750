//! The content and timing of replies, independent of the dialect and of the connection.

use std::time::Duration;

use serde_json::Value;

use super::request::PromptRequest;
use super::script::Step;

const TOKEN: usize = 12;

/// A reply, with its text so far.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) number: u64,
    pub(super) model: String,
    pub(super) input_tokens: usize,
    /// The tool call at its end; such a reply has no text.
    pub(super) call: Option<Call>,
    pub(super) text: String,
    pub(super) tokens: usize,
}

/// A call of a tool.
#[derive(Debug, PartialEq)]
pub(super) struct Call {
    pub(super) tool: String,
    pub(super) input: Value,
}

/// One piece of the text of a reply.
#[derive(Debug, PartialEq)]
pub(super) enum Piece {
    Token(String),
    Pause(Duration),
    BreakOff,
}

impl Reply {
    /// Creates a reply without any text yet.
    pub(super) fn new(
        number: u64,
        step: &Step,
        asked: &PromptRequest,
        input_tokens: usize,
    ) -> Self {
        Self {
            number,
            model: asked.model.clone(),
            input_tokens,
            call: call(step, asked),
            text: String::new(),
            tokens: 0,
        }
    }

    pub(super) fn say(&mut self, token: &str) {
        self.text.push_str(token);
        self.tokens += 1;
    }
}

/// Returns the text of a reply in pieces.
pub(super) fn pieces(step: &Step, asked: &PromptRequest) -> Box<dyn Iterator<Item = Piece>> {
    let tokens = |count: usize| (0..count).map(|number| Piece::Token(format!("tok{number} ")));
    match step {
        Step::Text(text) => {
            let letters: Vec<char> = text.chars().collect();
            Box::new(
                letters
                    .chunks(TOKEN)
                    .map(|part| Piece::Token(part.iter().collect()))
                    .collect::<Vec<_>>()
                    .into_iter(),
            )
        }
        Step::Big(size) => {
            let block: String = (0..).map(|n| format!("{n} ")).take(1000).collect();
            let whole = size / block.len();
            let rest = block[..size % block.len()].to_owned();
            let pieces = std::iter::repeat_n(block, whole).chain([rest]);
            Box::new(pieces.map(Piece::Token))
        }
        Step::Steered => {
            let text = format!("steered: {}", asked.steers.join(" | "));
            Box::new([Piece::Token(text)].into_iter())
        }
        Step::Recall => {
            let text = format!("first: {}", asked.first_user);
            Box::new([Piece::Token(text)].into_iter())
        }
        Step::Slow { pause, time } => {
            let count =
                usize::try_from(time.as_millis() / pause.as_millis().max(1)).unwrap_or(usize::MAX);
            let pause = *pause;
            Box::new(tokens(count).flat_map(move |token| [token, Piece::Pause(pause)]))
        }
        Step::Hang(time) => Box::new([Piece::Pause(*time)].into_iter()),
        Step::Stall {
            tokens: count,
            time,
        } => Box::new(tokens(*count).chain([Piece::Pause(*time)])),
        Step::Drop { tokens: count, .. } => Box::new(tokens(*count).chain([Piece::BreakOff])),
        Step::Shell(_) | Step::Tool { .. } | Step::Status { .. } | Step::Continue(_) => {
            Box::new(std::iter::empty())
        }
    }
}

fn call(step: &Step, asked: &PromptRequest) -> Option<Call> {
    match step {
        Step::Shell(command) => Some(asked.shell(command)),
        Step::Tool { name, input } => Some(Call {
            tool: name.clone(),
            input: input.clone(),
        }),
        _ => None,
    }
}
