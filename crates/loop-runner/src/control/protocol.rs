//! The text lines of the control socket. This module has no I/O.

use std::time::Duration;

use agent_subprocess::{ProcessId, ProcessName};
use loop_state::{AfterLeftovers, Head, IterationStep, Request, ReviewDecision, Timestamp};
use rlm_store::{RunId, RunState};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::StopProgress;
use crate::control::program::OtherVersion;
use crate::run_event::RunEvent;
use crate::view::View;

/// The version of the protocol: the value of `v` in each line.
const VERSION: u64 = 1;
/// The maximum size of one line with its line feed: 1 MiB.
pub(crate) const MAX_LINE: usize = 1 << 20;
/// The most bytes of the reason for a pause.
const MAX_REASON: usize = 1000;
/// The longest time in a rule: no run waits longer than ten years, and later dates can't be shown.
const LONGEST: Duration = Duration::from_secs(3650 * 86_400);

/// The one line that a client sends on a connection: a query or a person's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum ControlMessage {
    /// A query.
    Query(ControlQuery),
    /// A request.
    Request(Request),
}

/// The information that a client can read from a live run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub(crate) enum ControlQuery {
    /// The status. The response is [`Response::Status`].
    Status,
    /// The events and the view, until the run ends; see [`attach`](super::attached::attach).
    Attach {
        /// Whether a person is present and the run can ask that person.
        attended: bool,
    },
}

impl From<ControlQuery> for ControlMessage {
    fn from(query: ControlQuery) -> Self {
        Self::Query(query)
    }
}

impl From<Request> for ControlMessage {
    fn from(request: Request) -> Self {
        Self::Request(request)
    }
}

/// A response to a request. Each response reports further progress. Only [`Recorded`](Self::Recorded), [`Delivered`](Self::Delivered) and
/// [`Unknown`](Self::Unknown) are followed by another response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Response {
    /// The request is on disk, and survives a crash of either side.
    Recorded {
        /// The number of the steer, if the request is a steer.
        #[serde(skip_serializing_if = "Option::is_none")]
        steer: Option<u32>,
        /// The stop budget of a stop that began, in milliseconds.
        #[serde(skip_serializing_if = "Option::is_none")]
        budget_ms: Option<u64>,
    },
    /// The agent has received the request.
    Delivered,
    /// The agent can't take the steer now: the steer is on disk, and the agent gets it with its next turn or prompt.
    NextPrompt,
    /// The request has its effect. For a steer: the agent has seen it.
    Applied,
    /// The request is not possible now.
    Rejected {
        /// The reason.
        reason: String,
    },
    /// The requesting process may not control the run: it belongs to an agent, or possibly belongs to one.
    Refused {
        /// The reason.
        reason: String,
    },
    /// The process of the run does not support the request.
    Unsupported {
        /// The unsupported part.
        what: String,
    },
    /// The request is not valid.
    Malformed {
        /// The reason.
        reason: String,
    },
    /// Too many clients are connected; the client can try again.
    Busy,
    /// The status of the run.
    Status(Box<Status>),
    /// The process of the run ends now.
    RunEnded(EndReport),
    /// A response that only a newer version knows.
    #[serde(other)]
    Unknown,
}

/// The status of a live run. A value that `rlm status --json` also shows has the same name here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Status {
    /// The run id.
    pub run: RunId,
    /// Running or paused.
    pub state: RunState,
    /// The process that works on the run.
    pub process: ProcessId,
    /// The name of the current phase.
    pub phase: String,
    /// The number of the current phase, from 1.
    pub phase_number: u32,
    /// The number of phases of the run.
    pub phases: u32,
    /// The finished part that waits for a review, if any: `phase` or `batch`.
    pub review: Option<String>,
    /// The number of the current iteration.
    pub iteration: u32,
    /// The number of the current attempt.
    pub attempt: u32,
    /// The number of complete iterations.
    pub iterations_complete: u32,
    /// Whether the run will pause when the iteration is complete.
    pub pausing: bool,
    /// Whether the run is stopping, or will stop when the iteration is complete.
    pub stopping: bool,
    /// The number of steers that the agent has possibly not seen.
    pub steers_waiting: usize,
    /// Whether a person can answer the run's questions.
    pub attended: bool,
    /// The agent's session, if it is known.
    pub session: Option<String>,
    /// The time since the last pass of the loop, in milliseconds. The loop makes a pass at least every 5 s, unless it hangs.
    pub last_tick_ms: u64,
    /// The current activity, which can be newer than the saved state; `None` if the run waits.
    #[serde(
        default,
        deserialize_with = "known",
        skip_serializing_if = "Option::is_none"
    )]
    pub activity: Option<Activity>,
    /// The current stop, if there is one.
    #[serde(
        default,
        deserialize_with = "known",
        skip_serializing_if = "Option::is_none"
    )]
    pub shutdown: Option<StopProgress>,
    /// Whether an agent runs.
    pub agent_alive: bool,
    /// The number of background tasks that the run waits for after the agent's turn.
    pub awaited_tasks: Option<u32>,
    /// The running tools: the first few, shortened. The texts come from the model and can contain anything.
    pub tools: Vec<String>,
    /// The permission requests without an answer: the first few, shortened.
    pub permission_requests: Vec<String>,
}

/// Skips values that only a newer version knows.
fn known<'de, T: DeserializeOwned, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    let value = Value::deserialize(from)?;
    Ok(serde_json::from_value(value).ok())
}

/// The report of a run's process about its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EndReport {
    /// The stop reason, as text.
    pub reason: String,
    /// The number of processes that the last stop ended.
    pub ended_processes: usize,
    /// The processes that could not be ended.
    pub survivors: Vec<ProcessName>,
    /// Whether containment proved that no other process is left; false if only a search found none.
    pub proven: bool,
}

impl ControlMessage {
    /// Returns the name of the message, as its line contains it.
    pub(crate) fn name(&self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        value["request"].as_str().unwrap_or("?").to_owned()
    }
}

impl Response {
    /// Returns whether this is the last response.
    #[must_use]
    pub fn is_last(&self) -> bool {
        !matches!(
            self,
            Self::Recorded { .. } | Self::Delivered | Self::Unknown
        )
    }
}

#[derive(Serialize)]
struct VersionedMessage<'a, T> {
    v: u64,
    /// The program that sends the line.
    program: &'a str,
    #[serde(flatten)]
    message: &'a T,
}

/// Returns the line of a message, with its line feed.
pub(crate) fn line<T: Serialize>(message: &T) -> Vec<u8> {
    let line = serde_json::to_vec(&VersionedMessage {
        v: VERSION,
        program: rlm_store::program_title(),
        message,
    });
    let mut line = line.expect("messages are plain data");
    line.push(b'\n');
    line
}

/// Parses a line; the error is the response to an invalid line.
pub(crate) fn parse_message(line: &[u8]) -> Result<ControlMessage, Response> {
    let malformed = |why: String| Response::Malformed { reason: why };
    if line.len() >= MAX_LINE {
        return Err(malformed(format!(
            "a request must be shorter than {MAX_LINE} bytes"
        )));
    }
    let value: Value = serde_json::from_slice(line)
        .map_err(|e| malformed(format!("a request is one JSON object on one line: {e}")))?;
    let unsupported = |what: String| Err(Response::Unsupported { what });
    match &value["v"] {
        v if v.as_u64() == Some(VERSION) => {}
        Value::Null => return Err(malformed("a request must have a version: \"v\": 1".into())),
        other => {
            let other: String = other.to_string().chars().take(20).collect();
            return unsupported(format!(
                "version {other} of control requests; this run supports version {VERSION}"
            ));
        }
    }
    let Some(name) = value["request"].as_str() else {
        return Err(malformed(
            "a request must have a name: \"request\": …".into(),
        ));
    };
    let name: String = name.chars().take(40).collect();
    let read = match name.as_str() {
        "status" | "attach" => serde_json::from_value(value).map(ControlMessage::Query),
        _ => serde_json::from_value(value).map(ControlMessage::Request),
    };
    let message = match read {
        Ok(message) => message,
        // In this case serde reports that no variant has the name.
        Err(e)
            if e.to_string()
                .starts_with(&format!("unknown variant `{name}")) =>
        {
            return unsupported(format!("`{}`", name.escape_debug()));
        }
        Err(e) => return Err(malformed(e.to_string())),
    };
    if let ControlMessage::Request(request) = &message {
        check(request).map_err(malformed)?;
    }
    Ok(message)
}

/// Returns an error if the values of a request are not valid.
fn check(request: &Request) -> Result<(), String> {
    let wrong = match request {
        Request::Steer { text, .. } if text.trim().is_empty() => "the steer is empty".into(),
        Request::Review(ReviewDecision::Revise(text)) if text.trim().is_empty() => {
            "the revision is empty".into()
        }
        Request::Pause {
            reason: Some(reason),
            ..
        } if reason.len() > MAX_REASON => format!("a reason must have at most {MAX_REASON} bytes"),
        Request::Set(change) if change.time().is_some_and(|time| time > LONGEST) => {
            "the time is longer than 3650 days".into()
        }
        _ => return Ok(()),
    };
    Err(wrong)
}

/// Parses a response; the error is a text.
pub(crate) fn parse_response(line: &[u8]) -> Result<Response, String> {
    let value: Value = serde_json::from_slice(line).map_err(|e| e.to_string())?;
    match value["v"].as_u64() {
        Some(VERSION) => serde_json::from_value(value).map_err(|e| e.to_string()),
        Some(other) => Err(format!(
            "the run supports version {other} of control requests, this program version {VERSION}"
        )),
        None => Err(format!(
            "the run doesn't report its version of control requests; this program supports version {VERSION}"
        )),
    }
}

/// Returns the other version of a run that sent this line, if the line shows one: by its program or by its version of the protocol.
pub(crate) fn other_version(line: &[u8]) -> Option<OtherVersion> {
    let value: Value = serde_json::from_slice(line).ok()?;
    let named = value["program"].as_str().and_then(OtherVersion::of);
    let speaks_other = value["v"].as_u64().is_some_and(|v| v != VERSION);
    named.or_else(|| speaks_other.then(OtherVersion::unnamed))
}

#[cfg(test)]
mod tests;

/// The activity of a run that is not waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Activity {
    /// The next step is starting.
    Starting,
    /// The agent works on its turn.
    Turn,
    /// A required check runs.
    RequiredCheck(u32),
    /// The check runs.
    Check,
    /// The leftovers of an attempt are being ended.
    EndingLeftovers,
    /// The leftovers of a complete iteration are being ended, and its work is committed if the settings require it.
    Finishing,
}

impl Activity {
    /// Returns the activity of a run in this state.
    #[must_use]
    pub fn of(head: &Head) -> Option<Self> {
        Some(match head.step {
            IterationStep::Turn { .. } => Self::Turn,
            IterationStep::RequiredCheck { index } => Self::RequiredCheck(index),
            IterationStep::Recheck { index } if index < head.phase_rules().required_checks => {
                Self::RequiredCheck(index)
            }
            IterationStep::Recheck { .. } | IterationStep::Check => Self::Check,
            IterationStep::EndingLeftovers {
                then: AfterLeftovers::NextIteration | AfterLeftovers::PhaseDone(_),
            } => Self::Finishing,
            IterationStep::EndingLeftovers { .. } => Self::EndingLeftovers,
            IterationStep::Sleeping { .. }
            | IterationStep::Waiting { .. }
            | IterationStep::Interrupted { .. }
            | IterationStep::Paused { .. }
            | IterationStep::Review { .. } => return None,
            _ => Self::Starting,
        })
    }
}

/// A line for an attached viewer. A viewer of another version skips lines that it does not know.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "snake_case")]
pub(crate) enum AttachMessage {
    /// The view of the run: the first line, and again after each change.
    View(Box<View>),
    /// A run event.
    Event { at: Timestamp, event: Box<RunEvent> },
}
