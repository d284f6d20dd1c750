//! The agent's side of the conversation as a machine without I/O and without a clock: lines in, neutral events and lines
//! to write out.

mod encode;
mod ending;
mod json;
mod say;
mod summary;
#[cfg(test)]
mod tests;
mod turn;
mod usage;

pub(super) use encode::mode;
pub(super) use ending::{LOG_IN, is_unknown_session};
pub(super) use summary::one_line;

use agent_duplex::{Ask, EndReason, Event, ExitStatus, InputState, TurnEnd};
use encode::Requests;
use ending::Known;
use json::Object;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use summary::summary;
use turn::Turn;
use usage::Totals;
use uuid::Uuid;

/// How many questions may wait for an answer. Beyond, they are refused.
const ASKS: usize = 64;
/// How often the service may refuse to know us before the turn is given up. The agent itself goes on for minutes.
const REFUSALS: u32 = 2;

/// What came of one line: events, and lines to write back.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) events: Vec<Event>,
    pub(super) lines: Vec<Vec<u8>>,
}

/// A request of ours that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Initialize,
    Interrupt,
    Mode,
    End,
}

/// A question that waits for its answer.
#[derive(Debug)]
struct Asked {
    /// As it came, to be echoed.
    input: String,
    call: String,
    /// Whether an agent in the background asks, who does not end with the turn.
    apart: bool,
}

/// What is known of the agent's conversation.
#[derive(Debug)]
pub(super) struct Session {
    id: String,
    identity: (String, String),
    requests: Requests,
    pending: BTreeMap<String, Request>,
    /// Messages that were sent and are part of no turn yet.
    waiting: Vec<Uuid>,
    /// Those of them that the turn begins with which is about to begin.
    starting: Vec<Uuid>,
    /// Whether this agent tells what becomes of messages.
    tells_fate: bool,
    /// Whether a turn was announced that has not begun.
    announced: bool,
    turn: Option<Turn>,
    asks: BTreeMap<String, Asked>,
    /// Whether an interrupt was asked for, and whether it was to drop what waits.
    interrupt: Option<bool>,
    /// Whether a turn ended by itself before the agent took notice of its interrupt, which may then hit the next.
    stray: bool,
    totals: Totals,
    background: u32,
    /// How the conversation failed before it began.
    failure: Option<TurnEnd>,
    /// Whether the turn was given up, so that nothing counts any more.
    given_up: bool,
    /// Whether we asked the agent to end.
    leaving: bool,
}

impl Session {
    /// Begins with the id that the agent was told.
    pub(super) fn new(id: String) -> Self {
        Session {
            id,
            identity: Default::default(),
            requests: Requests::new(),
            pending: BTreeMap::new(),
            waiting: Vec::new(),
            starting: Vec::new(),
            tells_fate: false,
            announced: false,
            turn: None,
            asks: BTreeMap::new(),
            interrupt: None,
            stray: false,
            totals: Totals::default(),
            background: 0,
            failure: None,
            given_up: false,
            leaving: false,
        }
    }

    /// Tells whether the agent owes the end of a turn, also of one that has not begun.
    pub(super) fn owes_turn(&self) -> bool {
        self.turn.is_some() || !self.waiting.is_empty()
    }

    /// Tells whether an interrupt was asked for and the turn has not ended.
    pub(super) fn is_interrupting(&self) -> bool {
        self.interrupt.is_some() && self.owes_turn()
    }

    /// Tells whether the turn is being ended because the service does not know us.
    pub(super) fn is_refused(&self) -> bool {
        self.turn.as_ref().is_some_and(Turn::is_refused)
    }

    /// Returns how many tasks run in the background.
    pub(super) fn background(&self) -> u32 {
        self.background
    }

    /// Tells whether we asked the agent to end.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Takes a line of standard output.
    pub(super) fn hear(&mut self, bytes: &[u8]) -> Heard {
        let mut heard = Heard::default();
        let text = String::from_utf8_lossy(bytes);
        if let Some(line) = Object::parse(&text)
            && !self.given_up
        {
            self.take(&line, &mut heard);
        }
        heard
    }

    fn take(&mut self, line: &Object<'_>, heard: &mut Heard) {
        let events = &mut heard.events;
        match line.text("type").as_str() {
            "system" => self.system(line, heard),
            "command_lifecycle" => self.fate(line, events),
            "user" => self.user(line, events),
            "stream_event" if !is_apart(line) => self.streamed(&line.object("event"), events),
            "assistant" => self.assistant(line, events),
            "result" => self.result(line, events),
            "control_request" => self.asked(line, heard),
            "control_response" => self.answered(&line.object("response"), events),
            "control_cancel_request" => self.withdrawn(&line.text("request_id"), events),
            "rate_limit_event" => rate_limit(&line.object("rate_limit_info"), events),
            "tool_progress" => {
                events.extend(self.turn.as_ref().and_then(|turn| turn.progress(line)))
            }
            "conversation_reset" => self.reset(line, events),
            _ => {}
        }
    }

    fn system(&mut self, line: &Object<'_>, heard: &mut Heard) {
        let events = &mut heard.events;
        match line.text("subtype").as_str() {
            "init" => self.init(line, events),
            "status" if line.text("status") == "requesting" => {
                self.claim_named(line, events);
                self.begin(events);
            }
            "api_retry" => self.retried(line, heard),
            "permission_denied" => events.push(Event::PermissionDenied {
                tool: line.text("tool_name"),
                message: line.text("message"),
            }),
            "background_tasks_changed" => {
                let tasks = u32::try_from(line.list("tasks").len()).unwrap_or(u32::MAX);
                if std::mem::replace(&mut self.background, tasks) != tasks {
                    events.push(Event::BackgroundTasks(tasks));
                }
            }
            "compact_boundary" => {
                let trigger = line.object("compact_metadata").text("trigger");
                let why = format!("compacted ({trigger})");
                events.push(Event::ContextReset { why });
            }
            _ => {}
        }
    }

    /// Comes once a turn, not once a process.
    fn init(&mut self, line: &Object<'_>, events: &mut Vec<Event>) {
        let id = line.text("session_id");
        if !id.is_empty() && id != self.id {
            // A session may be resumed by a name; an id that was chosen is to be kept.
            if self.id.parse::<Uuid>().is_ok() {
                let was = &self.id;
                events.push(Event::Warning(format!(
                    "the agent goes on as session {id} instead of {was}"
                )));
            }
            self.rename(id, events);
        }
        let version = line.text("claude_code_version");
        let identity = (format!("Claude Code {version}"), line.text("model"));
        if identity != self.identity {
            self.identity = identity;
            let (agent, model) = self.identity.clone();
            events.push(Event::Identified { agent, model });
        }
        self.announced = true;
        self.claim_named(line, events);
        if !self.starting.is_empty() {
            self.begin(events);
        }
    }

    fn rename(&mut self, id: String, events: &mut Vec<Event>) {
        self.id.clone_from(&id);
        events.push(Event::Session { id });
    }

    fn reset(&mut self, line: &Object<'_>, events: &mut Vec<Event>) {
        self.totals = Totals::default();
        let why = line.get("trigger").unwrap_or_else(|| "cleared".to_owned());
        events.push(Event::ContextReset { why });
        let id = line.text("new_conversation_id");
        if !id.is_empty() && id != self.id {
            self.rename(id, events);
        }
    }

    fn fate(&mut self, line: &Object<'_>, events: &mut Vec<Event>) {
        self.tells_fate = true;
        let Some(id) = line
            .uuid("command_uuid")
            .filter(|id| self.waiting.contains(id))
        else {
            return;
        };
        match line.text("state").as_str() {
            "queued" => {
                let state = InputState::Queued;
                events.push(Event::Input { id, state });
            }
            "started" => self.claim(id, events),
            "completed" if self.turn.is_some() => self.claim(id, events),
            // Done without a turn, as some commands of the agent's own are.
            "completed" => {
                self.claim(id, events);
                self.begin(events);
                self.end(EndReason::Completed.into(), events);
            }
            state @ ("cancelled" | "discarded" | "refused") => self.drop_message(id, state, events),
            _ => {}
        }
    }

    fn drop_message(&mut self, id: Uuid, why: &str, events: &mut Vec<Event>) {
        if let Some(n) = self.waiting.iter().position(|waiting| *waiting == id) {
            self.waiting.remove(n);
            self.starting.retain(|starting| *starting != id);
            // What is dropped for the end of the process may be said again to another.
            if !self.leaving {
                let state = InputState::Dropped(why.to_owned());
                events.push(Event::Input { id, state });
            }
        }
        if !self.owes_turn() {
            self.interrupt = None;
        }
    }

    fn claim_named(&mut self, line: &Object<'_>, events: &mut Vec<Event>) {
        for id in line.uuids("user_message_uuids") {
            self.claim(id, events);
        }
    }

    /// Makes a message part of the turn that runs, or of the one that is about to begin.
    fn claim(&mut self, id: Uuid, events: &mut Vec<Event>) {
        let Some(n) = self.waiting.iter().position(|waiting| *waiting == id) else {
            return;
        };
        if self.turn.is_some() {
            self.waiting.remove(n);
            let state = InputState::Taken;
            events.push(Event::Input { id, state });
        } else if !self.starting.contains(&id) {
            self.starting.push(id);
        }
    }

    /// Begins the turn that was announced, unless it has begun.
    fn begin(&mut self, events: &mut Vec<Event>) {
        if self.turn.is_some() {
            return;
        }
        if self.starting.is_empty() && !self.tells_fate {
            // Who says nothing about messages takes all that there are.
            self.starting.clone_from(&self.waiting);
        }
        if self.starting.is_empty() && !self.announced {
            return;
        }
        let inputs = std::mem::take(&mut self.starting);
        self.waiting.retain(|waiting| !inputs.contains(waiting));
        self.turn = Some(Turn::default());
        events.push(Event::TurnStarted { inputs });
    }

    /// Ends the turn that runs, with everything in it that is still open.
    fn end(&mut self, end: TurnEnd, events: &mut Vec<Event>) {
        let Some(turn) = self.turn.take() else { return };
        turn.close(events);
        self.asks.retain(|id, asked| {
            if !asked.apart {
                events.push(Event::PermissionWithdrawn { id: id.clone() });
            }
            asked.apart
        });
        let is_pending = self
            .pending
            .values()
            .any(|what| *what == Request::Interrupt);
        self.stray = is_pending && end.reason != EndReason::Interrupted;
        self.interrupt = None;
        self.announced = false;
        events.push(Event::TurnCompleted(end));
    }

    fn user(&mut self, line: &Object<'_>, events: &mut Vec<Event>) {
        if line.flag("isReplay") {
            if let Some(id) = line.uuid("uuid") {
                self.claim(id, events);
            }
        } else if let Some(turn) = &mut self.turn {
            turn.user(line, events);
        }
    }

    fn streamed(&mut self, event: &Object<'_>, events: &mut Vec<Event>) {
        if event.text("type") == "message_start" {
            self.begin(events);
        }
        if let Some(turn) = &mut self.turn {
            turn.streamed(event, events);
        }
    }

    fn assistant(&mut self, line: &Object<'_>, events: &mut Vec<Event>) {
        let apart = is_apart(line);
        if !apart {
            self.claim_named(line, events);
            self.begin(events);
        }
        if let Some(turn) = &mut self.turn {
            turn.assistant(line, apart, events);
        }
    }

    fn result(&mut self, line: &Object<'_>, events: &mut Vec<Event>) {
        self.claim_named(line, events);
        self.begin(events);
        let Some(turn) = &self.turn else {
            // What fails before the first message, such as a resume, has no turn to fail.
            self.failure = Some(ending::judge(line, Known::default()))
                .filter(|end| end.reason == EndReason::SessionNotFound);
            return;
        };
        let known = Known {
            interrupted: self.interrupt.is_some(),
            not_logged_in: turn.is_refused(),
            failure: turn.failure(),
        };
        let end = ending::judge(line, known);
        if end.reason == EndReason::Interrupted && self.interrupt.is_none() && self.stray {
            let warning = "an interrupt came too late for its turn and ended the next one";
            events.push(Event::Warning(warning.to_owned()));
        }
        let used = self.totals.advance(line);
        if used != Default::default() {
            events.push(Event::Used(used));
        }
        self.end(end, events);
    }

    fn retried(&mut self, line: &Object<'_>, heard: &mut Heard) {
        self.begin(&mut heard.events);
        let status = line.get("error_status");
        let number = |key| u32::try_from(line.number(key)).unwrap_or(u32::MAX);
        heard.events.push(Event::Retrying {
            attempt: number("attempt"),
            of: number("max_retries"),
            delay: Duration::from_millis(line.number("retry_delay_ms")),
            status,
            error: line.text("error"),
        });
        if let (Some(401 | 403), Some(turn)) = (status, &mut self.turn)
            && turn.refuse() == REFUSALS
        {
            heard.lines.extend(self.interrupt(false));
        }
    }

    fn asked(&mut self, line: &Object<'_>, heard: &mut Heard) {
        let (id, request) = (line.text("request_id"), line.object("request"));
        let subtype = request.text("subtype");
        if subtype != "can_use_tool" || self.asks.len() >= ASKS {
            heard.lines.push(encode::refuse(&id, &subtype));
            return;
        }
        let tool = request.text("tool_name");
        let reason = request.get::<String>("decision_reason");
        heard.events.push(Event::PermissionAsked(Ask {
            id: id.clone(),
            tool,
            summary: summary(&request),
            reason: one_line(&reason.unwrap_or_default(), 400),
        }));
        let asked = Asked {
            input: request.raw("input").unwrap_or("{}").to_owned(),
            call: request.text("tool_use_id"),
            apart: request.get::<String>("agent_id").is_some(),
        };
        self.asks.insert(id, asked);
    }

    fn withdrawn(&mut self, id: &str, events: &mut Vec<Event>) {
        if let Some((id, _)) = self.asks.remove_entry(id) {
            events.push(Event::PermissionWithdrawn { id });
        }
    }

    /// Takes the answer to a request of ours; others, such as the echo of an answer of ours, are left alone.
    fn answered(&mut self, response: &Object<'_>, events: &mut Vec<Event>) {
        let Some(request) = self.pending.remove(&response.text("request_id")) else {
            return;
        };
        if response.text("subtype") != "success" {
            let what = match request {
                Request::Initialize => "introduction",
                Request::Interrupt => "interrupt",
                Request::Mode => "change of permissions",
                Request::End => "request to end",
            };
            let why = one_line(&response.text("error"), 400);
            events.push(Event::Warning(format!(
                "the agent refused the {what}: {why}"
            )));
        } else if request == Request::Interrupt {
            let receipt = response.object("response");
            for id in receipt.uuids("cancelled") {
                self.drop_message(id, "cancelled", events);
            }
            let queued = receipt.uuids("still_queued");
            events.push(Event::InterruptTaken { queued });
        }
    }

    /// Takes the end of the process: what it still owes, or that it ended while it owed nothing.
    pub(super) fn exited(&mut self, exit: ExitStatus, stderr: String) -> Vec<Event> {
        let mut events = Vec::new();
        if self.given_up {
            return events;
        }
        let interrupted = self.leaving || self.interrupt.is_some();
        if self.turn.is_none() && !self.waiting.is_empty() && !self.leaving {
            self.starting.clone_from(&self.waiting);
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
        let (reason, detail) = match super::failure::known(&stderr) {
            _ if turn.is_refused() => (EndReason::NotLoggedIn, LOG_IN.to_owned()),
            _ if interrupted => (EndReason::Interrupted, String::new()),
            Some(_) if is_unknown_session(&stderr) => (EndReason::SessionNotFound, String::new()),
            known => (EndReason::Died, known.unwrap_or_default()),
        };
        let end = TurnEnd {
            reason,
            detail,
            exit: Some(exit),
            stderr_tail: stderr,
        };
        self.end(end, &mut events);
        events
    }

    /// Ends the turn of an agent that goes on asking a service that does not know us; what it says from now on is nothing.
    pub(super) fn give_up(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        let end = TurnEnd {
            detail: LOG_IN.to_owned(),
            ..EndReason::NotLoggedIn.into()
        };
        self.end(end, &mut events);
        self.given_up = true;
        events
    }
}

/// Whether a line belongs to an agent that the agent started.
fn is_apart(line: &Object<'_>) -> bool {
    line.get::<String>("parent_tool_use_id").is_some()
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
