//! The protocol of Claude Code as a state machine without I/O and without a clock. It takes lines, and returns lines to
//! write and events in the types that all agents share.

mod encode;
mod json;
mod messages;
#[cfg(any(test, feature = "test-util"))]
pub(super) mod replay;
mod requests;
mod send;
mod summary;
#[cfg(test)]
mod tests;
mod turn;
mod turn_end;
mod usage;

pub(super) use encode::mode;
pub(super) use turn_end::{LOG_IN, is_unknown_session};

use crate::dialogue::Timeouts;
use agent_duplex::{EndReason, Event, ExitStatus, PermissionRequest, TurnEnd};
use encode::Requests;
use json::Object;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;
use turn::Turn;
use turn_end::TurnEndFacts;
use usage::UsageTotals;
use uuid::Uuid;

/// The largest number of open permission requests. Further requests are refused.
const MAX_PERMISSION_REQUESTS: usize = 64;
/// The largest total size of the inputs of open permission requests, in bytes.
const MAX_REQUEST_BYTES: usize = 64 << 20;
/// The number of recently answered permission requests that are remembered, so that none is answered twice.
const MAX_REMEMBERED_ANSWERS: usize = 256;
/// The number of background tasks whose ids are stored.
const TASKS: usize = 64;
/// The number of login failures after which the driver gives up the turn. The agent itself retries for minutes.
const MAX_LOGIN_FAILURES: u32 = 2;

/// The outcome of one line: events, and lines to write back.
#[derive(Debug, Default)]
pub(super) struct LineOutcome {
    pub(super) events: Vec<Event>,
    pub(super) lines: Vec<Vec<u8>>,
    /// Whether the line is only a keep-alive, which is no sign of life of the agent.
    pub(super) is_keep_alive: bool,
}

/// A request of the driver that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Initialize,
    Interrupt,
    /// Takes back a queued message.
    TakeBack(Uuid),
    Mode,
    Model,
    StopTask,
    /// Queries the usage so far.
    Usage,
    End,
}

/// A pending change of the model, and its result.
#[derive(Debug)]
struct Change {
    request: String,
    answer: Option<Result<(), String>>,
}

/// A permission request that waits for its answer.
#[derive(Debug)]
struct PendingPermission {
    ask: PermissionRequest,
    /// The unparsed input, which the answer repeats.
    input: String,
    call: String,
    /// Whether a background subagent sent the request. Such a request stays open after the end of the turn.
    is_subagent: bool,
}

/// The state of the conversation.
#[derive(Debug)]
pub(super) struct Session {
    id: String,
    /// Whether the agent wrote any output.
    has_output: bool,
    identity: (String, String),
    requests: Requests,
    timeouts: Timeouts,
    /// The driver's requests, each with its deadline once that is set.
    pending: BTreeMap<String, (Request, Option<Instant>)>,
    /// The capabilities that the agent announced; `None` before the announcement.
    capabilities: Option<Vec<String>>,
    change: Option<Change>,
    /// Messages that were sent and are in no turn yet.
    queued_messages: Vec<Uuid>,
    /// The messages among `queued_messages` with which the next turn begins.
    starting_messages: Vec<Uuid>,
    /// Whether this agent reports the delivery of messages.
    reports_delivery: bool,
    /// Whether a turn was announced that has not begun.
    is_turn_reported: bool,
    turn: Option<Turn>,
    asks: BTreeMap<String, PendingPermission>,
    /// The ids of answered permission requests.
    recent_answers: VecDeque<String>,
    /// `Some` if an interrupt was requested; the value states whether the interrupt drops queued messages.
    interrupt: Option<bool>,
    /// Whether a turn ended by itself before the agent acknowledged its interrupt, so that the interrupt can hit the next turn.
    had_stray_end: bool,
    totals: UsageTotals,
    /// Whether the agent answers usage queries within a turn.
    may_query_usage: bool,
    /// The number of model calls between two usage queries.
    usage_query_interval: u32,
    /// The number of model calls since the last usage query.
    calls_since_query: u32,
    /// The number of background tasks.
    background: u32,
    /// The number of background tasks that was reported last.
    reported_background: u32,
    /// Whether a task ended between turns: the agent then begins a turn of its own to read the result.
    expects_own_turn: bool,
    /// The ids of the background tasks that have an id.
    tasks: Vec<String>,
    /// The failure of the conversation before it began.
    failure: Option<TurnEnd>,
    /// Whether the turn was given up, so that all further output is ignored.
    is_abandoned: bool,
    /// Whether the driver requested the end of the agent.
    is_ending: bool,
}

impl Session {
    /// Makes the state for the id that the agent got. `has_past` is whether the session existed before.
    pub(super) fn new(id: String, has_past: bool, timeouts: Timeouts) -> Self {
        Session {
            id,
            timeouts,
            has_output: false,
            identity: Default::default(),
            requests: Requests::new(),
            pending: BTreeMap::new(),
            capabilities: None,
            change: None,
            queued_messages: Vec::new(),
            starting_messages: Vec::new(),
            reports_delivery: false,
            is_turn_reported: false,
            turn: None,
            asks: BTreeMap::new(),
            recent_answers: VecDeque::new(),
            interrupt: None,
            had_stray_end: false,
            totals: UsageTotals::new(has_past),
            may_query_usage: false,
            usage_query_interval: 1,
            calls_since_query: 0,
            background: 0,
            reported_background: 0,
            expects_own_turn: false,
            tasks: Vec::new(),
            failure: None,
            is_abandoned: false,
            is_ending: false,
        }
    }

    /// Whether the end of a turn is expected, even of a turn that has not begun.
    pub(super) fn is_turn_expected(&self) -> bool {
        self.turn.is_some() || !self.queued_messages.is_empty()
    }

    /// Whether an interrupt was requested and the turn has not ended.
    pub(super) fn is_interrupting(&self) -> bool {
        self.interrupt.is_some() && self.is_turn_expected()
    }

    /// Whether the turn is being ended because the service rejects the login.
    pub(super) fn is_refused(&self) -> bool {
        self.turn.as_ref().is_some_and(Turn::is_refused)
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.is_ending
    }

    pub(super) fn has_output(&self) -> bool {
        self.has_output
    }

    /// Handles a line of standard output.
    pub(super) fn handle_line(&mut self, bytes: &[u8]) -> LineOutcome {
        self.has_output = true;
        let mut outcome = LineOutcome::default();
        if self.is_abandoned {
            return outcome;
        }
        // Checking first is much faster than always replacing invalid parts.
        let text = std::str::from_utf8(bytes)
            .map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed);
        if let Some(line) = Object::parse(&text) {
            self.take(&line, &mut outcome);
        }
        outcome
    }

    fn take(&mut self, line: &Object<'_>, outcome: &mut LineOutcome) {
        let events = &mut outcome.events;
        match &*line.word("type") {
            "system" => self.system(line, outcome),
            "command_lifecycle" => self.message_state(line, events),
            "user" => self.user(line, events),
            "stream_event" if !is_from_subagent(line) => {
                let event = line.object("event");
                self.streamed(&event, events);
                self.calls_since_query += u32::from(event.word("type") == "message_stop");
            }
            "assistant" => {
                self.assistant(line, events);
                self.calls_since_query += u32::from(is_from_subagent(line));
            }
            "result" => self.result(line, events),
            "control_request" => self.permission_requested(line, outcome),
            "control_response" => self.answered(&line.object("response"), events),
            "control_cancel_request" => self.withdrawn(&line.text("request_id"), events),
            "rate_limit_event" => rate_limit(&line.object("rate_limit_info"), events),
            "tool_progress" => {
                events.extend(self.turn.as_ref().and_then(|turn| turn.progress(line)))
            }
            "conversation_reset" => self.reset(line, events),
            "keep_alive" => outcome.is_keep_alive = true,
            _ => {}
        }
        if self.calls_since_query >= self.usage_query_interval {
            outcome.lines.extend(self.query_usage());
        }
    }

    fn system(&mut self, line: &Object<'_>, outcome: &mut LineOutcome) {
        let events = &mut outcome.events;
        match &*line.word("subtype") {
            "init" => self.init(line, events),
            "status" if line.word("status") == "requesting" => {
                self.add_named_to_turn(line, events);
                self.begin(events);
            }
            "api_retry" => self.retried(line, outcome),
            "permission_denied" => events.push(Event::PermissionDenied {
                tool: line.text("tool_name"),
                message: line.text("message"),
            }),
            "background_tasks_changed" => {
                let listed = line.list("tasks");
                self.background = u32::try_from(listed.len()).unwrap_or(u32::MAX);
                let ids = listed.iter().filter_map(|task| task.string("task_id"));
                self.tasks = ids.take(TASKS).collect();
                self.report_background(events);
            }
            "task_notification" => self.expects_own_turn = self.turn.is_none(),
            "compact_boundary" => {
                let trigger = line.object("compact_metadata").text("trigger");
                let why = format!("compacted ({trigger})");
                events.push(Event::ContextReset { reason: why });
            }
            _ => {}
        }
    }

    /// Reports the number of background tasks. A turn that the agent is about to begin by itself counts as one, so that the agent doesn't look idle
    /// before it.
    fn report_background(&mut self, events: &mut Vec<Event>) {
        let tasks = self.background.max(u32::from(self.expects_own_turn));
        if std::mem::replace(&mut self.reported_background, tasks) != tasks {
            events.push(Event::BackgroundTasks(tasks));
        }
    }

    /// Handles `init`, which comes once per turn, not once per process.
    fn init(&mut self, line: &Object<'_>, events: &mut Vec<Event>) {
        let id = line.text("session_id");
        if !id.is_empty() && id != self.id {
            // A session can be resumed by its name, so only the change of a real id is unexpected.
            if self.id.parse::<Uuid>().is_ok() {
                let was = &self.id;
                events.push(Event::Warning(format!(
                    "the agent continues as session {id} instead of {was}"
                )));
            }
            self.set_session_id(id, events);
        }
        let can = line.texts("capabilities");
        self.may_query_usage |= can.iter().any(|can| can == usage::USAGE_CAPABILITY);
        let version = line.text("claude_code_version");
        let identity = (format!("Claude Code {version}"), line.text("model"));
        if identity != self.identity {
            self.identity = identity;
            let (agent, model) = self.identity.clone();
            events.push(Event::Identified { agent, model });
        }
        self.is_turn_reported = true;
        self.add_named_to_turn(line, events);
        if !self.starting_messages.is_empty() {
            self.begin(events);
        }
    }

    fn set_session_id(&mut self, id: String, events: &mut Vec<Event>) {
        self.id.clone_from(&id);
        events.push(Event::Session { id });
    }

    fn reset(&mut self, line: &Object<'_>, events: &mut Vec<Event>) {
        self.totals = UsageTotals::new(false);
        let why = line
            .string("trigger")
            .unwrap_or_else(|| "cleared".to_owned());
        events.push(Event::ContextReset { reason: why });
        let id = line.text("new_conversation_id");
        if !id.is_empty() && id != self.id {
            self.set_session_id(id, events);
        }
    }

    fn user(&mut self, line: &Object<'_>, events: &mut Vec<Event>) {
        if line.flag("isReplay") {
            if let Some(id) = line.uuid("uuid") {
                self.add_to_turn(id, events);
            }
        } else if let Some(turn) = &mut self.turn {
            turn.user(line, events);
        }
    }

    fn streamed(&mut self, event: &Object<'_>, events: &mut Vec<Event>) {
        if event.word("type") == "message_start" {
            self.begin(events);
        }
        if let Some(turn) = &mut self.turn {
            turn.streamed(event, events);
        }
    }

    fn assistant(&mut self, line: &Object<'_>, events: &mut Vec<Event>) {
        let apart = is_from_subagent(line);
        if !apart {
            self.add_named_to_turn(line, events);
            self.begin(events);
        }
        if let Some(turn) = &mut self.turn {
            turn.assistant(line, apart, events);
        }
    }

    fn result(&mut self, line: &Object<'_>, events: &mut Vec<Event>) {
        self.add_named_to_turn(line, events);
        self.begin(events);
        let Some(turn) = &self.turn else {
            // A failure before the first message, such as a failed resume, has no turn.
            self.failure = Some(turn_end::turn_end_of(line, TurnEndFacts::default()))
                .filter(|end| end.reason == EndReason::SessionNotFound);
            return;
        };
        let known = TurnEndFacts {
            interrupted: self.interrupt.is_some(),
            not_logged_in: turn.is_refused(),
            failure: turn.failure(),
        };
        let end = turn_end::turn_end_of(line, known);
        if end.reason == EndReason::Interrupted && self.interrupt.is_none() && self.had_stray_end {
            let warning = "an interrupt came too late for its turn and ended the next one";
            events.push(Event::Warning(warning.to_owned()));
        }
        let used = self.totals.advance(line);
        if used != Default::default() {
            events.push(Event::UsageReported(used));
        }
        self.end(end, events);
    }

    fn retried(&mut self, line: &Object<'_>, outcome: &mut LineOutcome) {
        self.begin(&mut outcome.events);
        let status = line.get("error_status");
        let number = |key| u32::try_from(line.number(key)).unwrap_or(u32::MAX);
        outcome.events.push(Event::Retrying {
            attempt: number("attempt"),
            max_attempts: number("max_retries"),
            delay: Duration::from_millis(line.number("retry_delay_ms")),
            status,
            error: line.text("error"),
        });
        if let (Some(401 | 403), Some(turn)) = (status, &mut self.turn)
            && turn.refuse() == MAX_LOGIN_FAILURES
        {
            outcome.lines.extend(self.interrupt(false));
        }
    }

    /// Handles the end of the process: withdraws open permission requests, and ends the open turn, or reports the exit if there is none.
    pub(super) fn exited(&mut self, exit: ExitStatus, stderr: String) -> Vec<Event> {
        let mut events = Vec::new();
        if self.is_abandoned {
            return vec![Event::Exited(exit)];
        }
        let interrupted = self.is_ending || self.interrupt.is_some();
        if !self.queued_messages.is_empty() && !self.is_ending {
            self.starting_messages.clone_from(&self.queued_messages);
            self.begin(&mut events);
        }
        let asks = std::mem::take(&mut self.asks).into_keys();
        let asks: Vec<Event> = asks.map(|id| Event::PermissionWithdrawn { id }).collect();
        events.extend(asks);
        let Some(turn) = &self.turn else {
            events.extend(
                self.failure
                    .iter()
                    .map(|end| Event::Warning(end.detail.clone())),
            );
            events.push(Event::Exited(exit));
            return events;
        };
        // After the first output, the same text on standard error is about something else.
        let known = super::failure::known(&stderr).filter(|_| !self.has_output);
        let (reason, detail) = match known {
            _ if turn.is_refused() => (EndReason::NotLoggedIn, LOG_IN.to_owned()),
            _ if interrupted => (EndReason::Interrupted, String::new()),
            Some(hint) if is_unknown_session(&stderr) => (EndReason::SessionNotFound, hint),
            known => (EndReason::Died, known.unwrap_or_default()),
        };
        let end = TurnEnd {
            reason,
            detail,
            exit: Some(exit),
            output_tail: stderr,
        };
        self.end(end, &mut events);
        events
    }

    /// Ends the turn of an agent that repeats its requests although the service rejects its login. All further output is ignored.
    pub(super) fn give_up(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        let end = TurnEnd {
            detail: LOG_IN.to_owned(),
            ..EndReason::NotLoggedIn.into()
        };
        self.end(end, &mut events);
        self.is_abandoned = true;
        events
    }
}

/// Whether a line belongs to a subagent.
fn is_from_subagent(line: &Object<'_>) -> bool {
    line.string("parent_tool_use_id").is_some()
}

fn rate_limit(info: &Object<'_>, events: &mut Vec<Event>) {
    let status = info.text("status");
    if status == "rejected" || status == "allowed_warning" {
        let resets = Duration::from_secs(info.number("resetsAt"));
        events.push(Event::RateLimited {
            rejected: status == "rejected",
            resets_at: SystemTime::UNIX_EPOCH
                .checked_add(resets)
                .filter(|_| !resets.is_zero()),
            limit: info.text("rateLimitType"),
        });
    }
}
