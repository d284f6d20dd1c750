//! What is said through a control socket, as text. Pure.

use std::time::Duration;

use agent_subprocess::{ProcessId, ProcessName};
use loop_state::{Head, Request, Step, Then, Timestamp, Verdict};
use rlm_store::{RunId, RunState};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::Shutdown;
use crate::news::News;
use crate::view::View;

/// The version of the protocol; it stands in each line as `v`.
const VERSION: u64 = 1;
/// The most bytes of one line, its end included: 1 MiB.
pub(crate) const MAX_LINE: usize = 1 << 20;
/// The most bytes of the reason for a pause.
const MAX_REASON: usize = 1000;
/// The longest time that a rule can be set to: nobody waits longer than ten years, and dates beyond can't be shown.
const LONGEST: Duration = Duration::from_secs(3650 * 86_400);

/// One line to a live run, one line a connection: a person's request, or a look at the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Message {
    /// Look at it.
    Query(Query),
    /// Have it do something.
    Request(Request),
}

/// What can be seen of a live run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Query {
    /// How it stands. Answered by [`Answer::Status`].
    Status,
    /// What it tells and how it stands, until it is over; see [`attach`](super::attach).
    Attach {
        /// Whether a person is there who can be asked, also by a run that has nobody else to ask.
        attended: bool,
    },
}

impl From<Query> for Message {
    fn from(query: Query) -> Self {
        Self::Query(query)
    }
}

impl From<Request> for Message {
    fn from(request: Request) -> Self {
        Self::Request(request)
    }
}

/// What became of a request so far. Each line says more than the one before; behind one that [`is_last`](Self::is_last) comes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// It is on disk, and survives a crash of either side.
    Recorded {
        /// The number of the steer, if it was one.
        #[serde(skip_serializing_if = "Option::is_none")]
        steer: Option<u32>,
        /// How long the stop may take that has begun, in milliseconds.
        #[serde(skip_serializing_if = "Option::is_none")]
        budget_ms: Option<u64>,
    },
    /// The agent was given it.
    Delivered,
    /// The agent can't take it now: it is on disk, and comes with its next turn or prompt.
    NextPrompt,
    /// It is as was asked for. For a steer: the agent has it before its eyes.
    InEffect,
    /// It makes no sense now.
    Rejected {
        /// Why.
        why: String,
    },
    /// The process that asks may not: it belongs to an agent, or it can't be proven that it does not.
    Refused {
        /// Why.
        why: String,
    },
    /// The run's program can't do that.
    Unsupported {
        /// What.
        what: String,
    },
    /// The request could not be understood.
    Malformed {
        /// Why.
        why: String,
    },
    /// Too many ask at once; asking again is the mend.
    Busy,
    /// How the run stands.
    Status(Box<Standing>),
    /// The run is over for its process, which ends now.
    Ended(Ended),
    /// Something that only a newer program says.
    #[serde(other)]
    Unknown,
}

/// How a live run stands; its fields have the names of `rlm status --json`, as far as that has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Standing {
    /// The run.
    pub run: RunId,
    /// Running or paused.
    pub state: RunState,
    /// The process that has it.
    pub process: ProcessId,
    /// The name of the present phase.
    pub phase: String,
    /// Its number, from 1.
    pub phase_number: u32,
    /// How many phases the run has.
    pub phases: u32,
    /// What is over and waits for a person's word, if anything does: `phase` or `batch`.
    pub review: Option<String>,
    /// The number of the present iteration.
    pub iteration: u32,
    /// The number of the present attempt.
    pub attempt: u32,
    /// How many iterations are complete.
    pub iterations_complete: u32,
    /// Whether it will pause when the iteration is complete.
    pub pausing: bool,
    /// Whether it is being stopped, or will stop when the iteration is complete.
    pub stopping: bool,
    /// How many steers no agent is known to have seen.
    pub steers_waiting: usize,
    /// The agent's session, as far as it is known.
    pub session: Option<String>,
    /// How many milliseconds ago the loop turned last. It does each 5 s at least, unless it hangs.
    pub turned_ms: u64,
    /// What is done now, which may be newer than what is saved; `None` where something is waited for.
    #[serde(
        default,
        deserialize_with = "known",
        skip_serializing_if = "Option::is_none"
    )]
    pub doing: Option<Doing>,
    /// The stop that is under way, if one is.
    #[serde(
        default,
        deserialize_with = "known",
        skip_serializing_if = "Option::is_none"
    )]
    pub shutdown: Option<Shutdown>,
    /// Whether an agent runs.
    pub agent_alive: bool,
    /// How many of its tasks in the background are waited for, its turn being over.
    pub held_for: Option<u32>,
    /// What its tools do now, the first few, shortened. Comes from the model; it may hold anything.
    pub tools: Vec<String>,
    /// What it asks and nobody has answered, likewise.
    pub asks: Vec<String>,
}

/// Passes over what only a newer program does.
fn known<'de, T: DeserializeOwned, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    let value = Value::deserialize(from)?;
    Ok(serde_json::from_value(value).ok())
}

/// How a run ended for its process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ended {
    /// Why, in words.
    pub reason: String,
    /// How many processes the last stop ended.
    pub ended: usize,
    /// The processes that could not be ended.
    pub survivors: Vec<ProcessName>,
    /// Whether that nothing else is left is known, rather than nothing being found.
    pub proven: bool,
}

impl Message {
    /// Returns its name in its line.
    pub(crate) fn name(&self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        value["request"].as_str().unwrap_or("?").to_owned()
    }
}

impl Answer {
    /// Returns whether nothing comes behind it.
    #[must_use]
    pub fn is_last(&self) -> bool {
        !matches!(
            self,
            Self::Recorded { .. } | Self::Delivered | Self::Unknown
        )
    }
}

#[derive(Serialize)]
struct Versioned<'a, T> {
    v: u64,
    #[serde(flatten)]
    message: &'a T,
}

/// Makes a message's line, with its end.
pub(crate) fn line<T: Serialize>(message: &T) -> Vec<u8> {
    let v = VERSION;
    let line = serde_json::to_vec(&Versioned { v, message });
    let mut line = line.expect("messages are plain data");
    line.push(b'\n');
    line
}

/// Reads a message, or says what to answer to what is none.
pub(crate) fn message(line: &[u8]) -> Result<Message, Answer> {
    let malformed = |why: String| Answer::Malformed { why };
    if line.len() >= MAX_LINE {
        return Err(malformed(format!(
            "a request is shorter than {MAX_LINE} bytes"
        )));
    }
    let value: Value = serde_json::from_slice(line)
        .map_err(|e| malformed(format!("a request is one JSON object on one line: {e}")))?;
    let unsupported = |what: String| Err(Answer::Unsupported { what });
    match &value["v"] {
        v if v.as_u64() == Some(VERSION) => {}
        Value::Null => return Err(malformed("a request says its version: \"v\": 1".into())),
        other => {
            let other: String = other.to_string().chars().take(20).collect();
            return unsupported(format!(
                "version {other} of control requests; this run understands version {VERSION}"
            ));
        }
    }
    let Some(name) = value["request"].as_str() else {
        return Err(malformed("a request has a name: \"request\": …".into()));
    };
    let name: String = name.chars().take(40).collect();
    let read = match name.as_str() {
        "status" | "attach" => serde_json::from_value(value).map(Message::Query),
        _ => serde_json::from_value(value).map(Message::Request),
    };
    let message = match read {
        Ok(message) => message,
        // So serde says that no variant has the name.
        Err(e)
            if e.to_string()
                .starts_with(&format!("unknown variant `{name}")) =>
        {
            return unsupported(format!("`{}`", name.escape_debug()));
        }
        Err(e) => return Err(malformed(e.to_string())),
    };
    if let Message::Request(request) = &message {
        check(request).map_err(malformed)?;
    }
    Ok(message)
}

/// Says what is wrong with a request that is one.
fn check(request: &Request) -> Result<(), String> {
    let wrong = match request {
        Request::Steer { text, .. } if text.trim().is_empty() => "a steer says something".into(),
        Request::Review(Verdict::Revise(text)) if text.trim().is_empty() => {
            "a revision says what to revise".into()
        }
        Request::Pause {
            reason: Some(reason),
            ..
        } if reason.len() > MAX_REASON => format!("a reason has at most {MAX_REASON} bytes"),
        Request::Set(change) if change.time().is_some_and(|time| time > LONGEST) => {
            "that is longer than 3650 days".into()
        }
        _ => return Ok(()),
    };
    Err(wrong)
}

/// Reads an answer; the text of an error says what is wrong with it.
pub(crate) fn answer(line: &[u8]) -> Result<Answer, String> {
    let value: Value = serde_json::from_slice(line).map_err(|e| e.to_string())?;
    match value["v"].as_u64() {
        Some(VERSION) => serde_json::from_value(value).map_err(|e| e.to_string()),
        other => Err(format!(
            "the run's program speaks version {other:?} of control requests, this one version {VERSION}"
        )),
    }
}

#[cfg(test)]
mod tests;

/// What is done in a run, where nothing is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Doing {
    /// Something begins.
    Begin,
    /// The agent has its turn.
    Turn,
    /// A gate runs.
    Gate(u32),
    /// The check runs.
    Check,
    /// What an attempt left is ended.
    End,
    /// The same of an iteration that is complete, and its work is committed, where that is wished for.
    Finish,
}

impl Doing {
    /// Returns what is done in a run that stands so.
    #[must_use]
    pub fn of(head: &Head) -> Option<Self> {
        Some(match head.step {
            Step::Turn { .. } => Self::Turn,
            Step::Gate { index } => Self::Gate(index),
            Step::Recheck { gate } if gate < head.phase_rules().gates => Self::Gate(gate),
            Step::Recheck { .. } | Step::Check => Self::Check,
            Step::Settling {
                then: Then::Next | Then::Done(_),
            } => Self::Finish,
            Step::Settling { .. } => Self::End,
            Step::Sleeping { .. }
            | Step::Waiting { .. }
            | Step::Interrupted { .. }
            | Step::Paused { .. }
            | Step::Review { .. } => return None,
            _ => Self::Begin,
        })
    }
}

/// A line for those who look at a run. A program of another version passes over what it does not know.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(crate) enum Told {
    /// How the run stands. The first line, and again when that changes.
    View(Box<View>),
    /// Something happened.
    News { at: Timestamp, news: Box<News> },
}
