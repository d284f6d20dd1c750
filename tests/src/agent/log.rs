//! The record of a conversation for the test: everything that the fake agent received, in order.

use std::io::{self, Write};
use std::path::Path;

use fs_err as fs;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const LOG: &str = "heard.ndjson";

/// One message that a fake agent got.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Message {
    /// The number of the start that got it.
    pub start: u32,
    /// The process id of that start.
    pub pid: i32,
    /// The session.
    pub session: String,
    /// The id of the message; may be empty.
    pub id: String,
    /// The text.
    pub text: String,
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// The state of the message; `None` while it waits.
    #[serde(default)]
    pub taken: Option<MessageState>,
}

/// The outcome of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MessageState {
    /// It began a turn, alone or with others: the number of the turn within the process, from 1.
    Began(u32),
    /// It joined that turn while it ran.
    Folded(u32),
    /// It was cancelled on request.
    Cancelled,
}

/// One control request that a fake agent got.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Control {
    /// The number of the start that got it.
    pub start: u32,
    /// Its kind: `initialize`, `interrupt`, …
    pub subtype: String,
    /// The whole request.
    pub request: Value,
    /// Milliseconds since the epoch.
    pub at_ms: u64,
}

/// One answer to a permission request of a fake agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Answer {
    /// The number of the start that sent the request.
    pub start: u32,
    /// The id of the request.
    pub ask: String,
    /// The summary of the request in the script; empty if no request with that id is open.
    pub summary: String,
    /// `allow` or `deny`.
    pub behavior: String,
    /// The message of the answer.
    pub message: String,
    /// Milliseconds since the epoch.
    pub at_ms: u64,
}

/// One line of the log.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LogLine {
    Message(Message),
    /// The start, the index among the messages of that start, and the outcome.
    Taken(u32, usize, MessageState),
    Control(Control),
    Answer(Answer),
}

pub(super) fn log(dir: &Path, heard: &LogLine) -> io::Result<()> {
    let mut file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(dir.join(LOG))?;
    file.write_all(format!("{}\n", serde_json::to_string(heard)?).as_bytes())
}

fn read(dir: &Path) -> Vec<LogLine> {
    let text = fs::read_to_string(dir.join(LOG)).unwrap_or_default();
    let end = text.rfind('\n').map_or(0, |at| at + 1); // skip an incomplete last line
    text[..end]
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

pub(super) fn messages(dir: &Path) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    for heard in read(dir) {
        match heard {
            LogLine::Message(message) => messages.push(message),
            LogLine::Taken(start, place, taken) => {
                let mut of_start = messages.iter_mut().filter(|message| message.start == start);
                of_start.nth(place).unwrap().taken = Some(taken);
            }
            _ => {}
        }
    }
    messages
}

pub(super) fn controls(dir: &Path) -> Vec<Control> {
    let pick = |heard| match heard {
        LogLine::Control(control) => Some(control),
        _ => None,
    };
    read(dir).into_iter().filter_map(pick).collect()
}

pub(super) fn answers(dir: &Path) -> Vec<Answer> {
    let pick = |heard| match heard {
        LogLine::Answer(answer) => Some(answer),
        _ => None,
    };
    read(dir).into_iter().filter_map(pick).collect()
}
