//! The protocol of Codex as a state machine without I/O and without a clock. It takes lines, and returns lines to
//! write and events in the types that all agents share.

mod answers;
mod failure;
mod framing;
mod item;
mod limits;
mod permissions;
#[cfg(any(test, feature = "test-util"))]
pub(super) mod replay;
mod send;
#[cfg(test)]
mod tests;
mod turn;

pub(super) use failure::LOG_IN;

use super::open_request::OpenRequest;
use crate::dialogue::{LineOutcome, Timeouts};
use agent_duplex::{EndReason, Event, ExitStatus, Permissions, TurnEnd};
use failure::turn_end_of;
use framing::{Framing, text};
use limits::{Limits, UsageTotals};
use permissions::PermissionRequests;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tokio::time::Instant;
use turn::Turn;
use uuid::Uuid;

/// The number of background commands whose ids are stored.
const BACKGROUND: usize = 64;
/// The number of remembered warnings. They are remembered because the agent repeats its warnings in every turn.
const WARNINGS: usize = 32;
/// The largest number of messages that wait for a turn.
const WAITING: usize = 1024;
/// The maximum number of interrupts in one turn. The driver repeats an interrupt that the agent refuses because it came too early.
const INTERRUPTS: u32 = 8;

/// A request of the driver that waits for its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Request {
    Initialize,
    Open,
    Start(Uuid),
    /// Sends a message into the turn with this id.
    Steer(Uuid, String),
    /// Sends the explanation of a denial; the driver ignores the answer.
    DenialText,
    Interrupt,
}

/// The stage of a message that is in no turn yet.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MessageStage {
    /// The message is not written yet.
    Queued,
    /// A turn begins with the message: the turn with this id, once the id is known.
    Starting(Option<String>),
    /// The message was written for the running turn.
    Steering,
}

/// A message that is in no turn yet. Its text is stored, because the agent loses such messages at an interrupt.
#[derive(Debug)]
struct QueuedMessage {
    id: Uuid,
    /// All texts of the message.
    text: String,
    /// The content as the agent gets it.
    input: Value,
    stage: MessageStage,
}

/// The changed settings that a turn has to include.
#[derive(Debug, Default)]
struct ChangedSettings {
    permissions: bool,
    model: Option<String>,
}

/// The state of the conversation.
#[derive(Debug)]
pub(super) struct Session {
    opening: OpenRequest,
    timeouts: Timeouts,
    framing: Framing,
    /// Whether the agent wrote a valid message.
    has_output: bool,
    /// The id of the conversation, once it is open.
    thread: Option<String>,
    agent: String,
    model: String,
    last_request: u64,
    /// The driver's requests, each with its deadline once that is set.
    pending: BTreeMap<u64, (Request, Option<Instant>)>,
    waiting: VecDeque<QueuedMessage>,
    turn: Option<Turn>,
    /// The id of the last turn that ended.
    ended: String,
    permissions: Permissions,
    /// The changed settings for the next turn.
    changed_settings: ChangedSettings,
    /// The changed settings that the last requested turn included.
    sent_settings: ChangedSettings,
    asks: PermissionRequests,
    /// `Some` if an interrupt was requested; the value states whether the interrupt drops queued messages.
    interrupt: Option<bool>,
    totals: UsageTotals,
    limits: Limits,
    /// Commands that outlived their turn.
    background: BTreeSet<String>,
    reported_warnings: VecDeque<String>,
    /// Whether the interrupted turn must be cleaned up before the next turn can begin.
    paused: bool,
    /// The reason why there is no conversation.
    failure: Option<TurnEnd>,
    /// Whether the driver is ending the agent.
    is_ending: bool,
}

impl Session {
    pub(super) fn new(opening: OpenRequest, permissions: Permissions, timeouts: Timeouts) -> Self {
        Session {
            opening,
            timeouts,
            permissions,
            framing: Framing::default(),
            has_output: false,
            thread: None,
            agent: String::new(),
            model: String::new(),
            last_request: 0,
            pending: BTreeMap::new(),
            waiting: VecDeque::new(),
            turn: None,
            ended: String::new(),
            changed_settings: ChangedSettings::default(),
            sent_settings: ChangedSettings::default(),
            asks: PermissionRequests::default(),
            interrupt: None,
            totals: UsageTotals::default(),
            limits: Limits::default(),
            background: BTreeSet::new(),
            reported_warnings: VecDeque::new(),
            paused: false,
            failure: None,
            is_ending: false,
        }
    }

    /// Whether the end of a turn is expected, even of a turn that has not begun.
    pub(super) fn is_turn_expected(&self) -> bool {
        self.turn.is_some() || !self.waiting.is_empty()
    }

    /// Whether a turn runs or was requested.
    pub(super) fn is_busy(&self) -> bool {
        self.turn.is_some()
            || self
                .waiting
                .iter()
                .any(|message| message.stage != MessageStage::Queued)
    }

    /// Whether an interrupt was requested for a turn that runs or was requested.
    pub(super) fn is_interrupting(&self) -> bool {
        self.interrupt.is_some() && self.is_busy()
    }

    #[cfg(target_os = "linux")]
    pub(super) fn thread(&self) -> Option<&str> {
        self.thread.as_deref()
    }

    /// Whether another message can wait.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < WAITING
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.is_ending
    }

    /// Marks the agent as ending.
    pub(super) fn note_ending(&mut self) {
        self.is_ending = true;
    }

    pub(super) fn has_output(&self) -> bool {
        self.has_output
    }

    /// Whether the conversation is open or has failed.
    pub(super) fn is_settled(&self) -> bool {
        self.thread.is_some() || self.failure.is_some()
    }

    /// Whether the conversation failed to open.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Returns the reason why there is no conversation, unless the end of the first turn reports it.
    pub(super) fn refusal(&self) -> Option<&str> {
        let failure = self.failure.as_ref();
        let failure = failure.filter(|end| end.reason != EndReason::SessionNotFound)?;
        Some(&failure.detail)
    }

    /// Handles a line of standard output.
    pub(super) fn handle_line(&mut self, bytes: &[u8]) -> LineOutcome {
        let mut outcome = LineOutcome::default();
        let (value, lost) = self.framing.take(bytes);
        if lost {
            let warning = "a broken message of the agent was ignored";
            outcome.events.push(Event::Warning(warning.to_owned()));
        }
        if let Some(value) = value {
            self.has_output = true;
            self.take(&value, &mut outcome);
            self.write_next(&mut outcome);
        }
        outcome
    }

    fn take(&mut self, line: &Value, outcome: &mut LineOutcome) {
        match (line["method"].as_str(), &line["id"]) {
            (None, id) => self.answered(id, line, outcome),
            (Some(method), Value::Null) => self.notified(method, &line["params"], outcome),
            (Some(method), id) => self.permission_requested(id, method, &line["params"], outcome),
        }
    }

    fn notified(&mut self, method: &str, params: &Value, outcome: &mut LineOutcome) {
        let events = &mut outcome.events;
        if method == "thread/tokenUsage/updated" {
            let in_turn = self.turn.is_some();
            events.extend(self.totals.usage_since_last(params, in_turn));
            return;
        } else if method == "serverRequest/resolved" {
            events.extend(self.asks.withdraw(&params["requestId"]));
            return;
        } else if method == "account/rateLimits/updated" {
            events.extend(self.limits.update(&params["rateLimits"]));
            return;
        }
        // Subagents have conversations of their own.
        let is_ours = params["threadId"].as_str() == self.thread.as_deref();
        if is_ours && self.thread.is_some() {
            match method {
                "turn/started" => self.begin(text(&params["turn"]["id"]), outcome),
                "turn/completed" => self.completed(&params["turn"], outcome),
                "error" => self.failed(params, outcome),
                "thread/compacted" => self.compacted(params, events),
                "model/rerouted" => self.rerouted(params, events),
                _ => self.item(method, params, outcome),
            }
        }
        let warning = match method {
            "warning" | "guardianWarning" => text(&params["message"]).to_owned(),
            "configWarning" => text(&params["summary"]).to_owned(),
            "mcpServer/startupStatus/updated" if params["status"] == "failed" => {
                let (name, error) = (text(&params["name"]), text(&params["error"]));
                format!("the MCP server `{name}` could not start: {error}")
            }
            _ => return,
        };
        self.warn(&warning, &mut outcome.events);
    }

    /// Begins a turn, unless it has begun.
    fn begin(&mut self, id: &str, outcome: &mut LineOutcome) {
        let runs = self.turn.as_ref().is_some_and(|turn| turn.id == id);
        if runs || id.is_empty() || id == self.ended {
            return;
        }
        if self.turn.is_some() {
            let warning = "a turn began before the previous one ended";
            outcome.events.push(Event::Warning(warning.to_owned()));
            self.end(EndReason::ProtocolError.into(), outcome);
        }
        let mut inputs = Vec::new();
        self.waiting.retain(|message| {
            let is_part = match &message.stage {
                MessageStage::Starting(Some(turn)) => turn == id,
                stage => *stage == MessageStage::Starting(None),
            };
            if is_part {
                inputs.push(message.id);
            }
            !is_part
        });
        self.turn = Some(Turn::new(id));
        outcome.events.push(Event::TurnStarted { inputs });
        // The agent accepts an interrupt only from now on.
        if self.interrupt.is_some() {
            outcome.lines.extend(self.interrupt_line());
        }
    }

    fn item(&mut self, method: &str, params: &Value, outcome: &mut LineOutcome) {
        let id = text(&params["turnId"]);
        self.begin_if_starting(id, outcome);
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.id == id) else {
            return self.handle_late(method, params, &mut outcome.events);
        };
        if turn.interrupt_refused {
            turn.interrupt_refused = false;
            let line = self.interrupt_line();
            outcome.lines.extend(line);
        } else if method == "item/started" && params["item"]["type"] == "userMessage" {
            return self.message_taken(&params["item"], &mut outcome.events);
        }
        if let Some(turn) = &mut self.turn {
            turn.item(method, params, &mut outcome.events);
        }
    }

    /// Handles an item of an earlier turn: the end of a command that outlived it.
    fn handle_late(&mut self, method: &str, params: &Value, events: &mut Vec<Event>) {
        if method == "item/completed" && self.background.remove(text(&params["item"]["id"])) {
            events.push(self.background_tasks());
        }
    }

    fn background_tasks(&self) -> Event {
        Event::BackgroundTasks(u32::try_from(self.background.len()).unwrap_or(u32::MAX))
    }

    /// Records that a message became part of the running turn.
    fn message_taken(&mut self, item: &Value, events: &mut Vec<Event>) {
        let named: Option<Uuid> = item["clientId"].as_str().and_then(|id| id.parse().ok());
        let parts = item["content"].as_array().into_iter().flatten();
        let words: String = parts.map(|part| text(&part["text"])).collect();
        let is_it = |message: &QueuedMessage| match named {
            Some(id) => message.id == id,
            // Older versions don't return the driver's ids of messages.
            None => message.stage == MessageStage::Steering && message.text == words,
        };
        let taken = self.waiting.iter().position(is_it);
        if let Some(message) = taken.and_then(|n| self.waiting.remove(n)) {
            let (id, state) = (message.id, agent_duplex::InputState::InTurn);
            events.push(Event::Input { id, state });
        }
    }

    fn compacted(&mut self, params: &Value, events: &mut Vec<Event>) {
        let told = self
            .turn
            .as_mut()
            .filter(|turn| turn.id == text(&params["turnId"]));
        if !told.is_some_and(|turn| std::mem::replace(&mut turn.compacted, true)) {
            let why = "compacted".to_owned();
            events.push(Event::ContextReset { reason: why });
        }
    }

    fn rerouted(&mut self, params: &Value, events: &mut Vec<Event>) {
        let model = text(&params["toModel"]).to_owned();
        let from = text(&params["fromModel"]);
        let warning = format!("the service uses {model} instead of {from}");
        events.push(Event::Warning(warning));
        self.model.clone_from(&model);
        let agent = self.agent.clone();
        events.push(Event::Identified { agent, model });
    }

    fn failed(&mut self, params: &Value, outcome: &mut LineOutcome) {
        self.begin_if_starting(text(&params["turnId"]), outcome);
        if params["willRetry"] == true {
            outcome.events.push(failure::retrying(&params["error"]));
        } else if let Some(turn) = &mut self.turn {
            turn.failure = params["error"].clone();
        }
    }

    fn begin_if_starting(&mut self, id: &str, outcome: &mut LineOutcome) {
        let starts = MessageStage::Starting(Some(id.to_owned()));
        if self.waiting.iter().any(|message| message.stage == starts) {
            self.begin(id, outcome);
        }
    }

    fn completed(&mut self, turn: &Value, outcome: &mut LineOutcome) {
        let id = text(&turn["id"]);
        self.begin_if_starting(id, outcome);
        let Some(open) = self.turn.as_ref().filter(|open| open.id == id) else {
            return;
        };
        let error = match &turn["error"] {
            Value::Null => &open.failure,
            error => error,
        };
        let end = turn_end_of(text(&turn["status"]), error);
        if end.reason == EndReason::RateLimited {
            outcome.events.push(self.limits.rejected(&end.detail));
        }
        if end.reason != EndReason::Interrupted {
            let before = self.background.len();
            let commands = open.commands().take(BACKGROUND.saturating_sub(before));
            self.background.extend(commands.map(str::to_owned));
            if self.background.len() != before {
                outcome.events.push(self.background_tasks());
            }
        }
        self.end(end, outcome);
    }

    /// Ends the turn and everything open in it.
    fn end(&mut self, end: TurnEnd, outcome: &mut LineOutcome) {
        self.paused = end.reason == EndReason::Interrupted;
        if let Some(turn) = self.turn.take() {
            self.ended = turn.close(&mut outcome.events);
        }
        outcome.events.extend(self.asks.withdraw_all());
        if self.interrupt.take() == Some(true) {
            self.drop_waiting(&mut outcome.events);
        }
        let pending: Vec<&Request> = self.pending.values().map(|(request, _)| request).collect();
        let is_steer_pending = |id: Uuid| {
            pending
                .iter()
                .any(|p| matches!(p, Request::Steer(m, _) if *m == id))
        };
        for message in &mut self.waiting {
            // The agent forgets the messages that it accepted for this turn but didn't read. If the agent can still refuse a message, its answer
            // decides.
            if message.stage == MessageStage::Steering && !is_steer_pending(message.id) {
                message.stage = MessageStage::Queued;
            }
        }
        outcome.events.push(Event::TurnCompleted(end));
    }

    /// Handles the end of the process: withdraws open permission requests, and ends the open turn, or reports the exit if there is none.
    pub(super) fn exited(&mut self, exit: ExitStatus, stderr: String) -> Vec<Event> {
        let mut outcome = LineOutcome::default();
        let interrupted = self.is_ending || self.interrupt.is_some();
        if self.turn.is_none() && self.is_turn_expected() && !self.is_ending {
            let inputs = self.waiting.drain(..).map(|message| message.id).collect();
            self.turn = Some(Turn::new(""));
            outcome.events.push(Event::TurnStarted { inputs });
        }
        if self.turn.is_none() {
            outcome.events.extend(self.asks.withdraw_all());
            outcome.events.push(Event::Exited(exit));
            return outcome.events;
        }
        let end = TurnEnd {
            exit: Some(exit),
            output_tail: stderr,
            ..match (&self.failure, interrupted) {
                (Some(failure), _) => failure.clone(),
                (None, true) => EndReason::Interrupted.into(),
                (None, false) => EndReason::Died.into(),
            }
        };
        self.end(end, &mut outcome);
        outcome.events
    }

    fn warn(&mut self, warning: &str, events: &mut Vec<Event>) {
        let warning = crate::convert::one_line(warning, 400);
        if warning.is_empty() || self.reported_warnings.contains(&warning) {
            return;
        }
        if self.reported_warnings.len() == WARNINGS {
            self.reported_warnings.pop_front();
        }
        self.reported_warnings.push_back(warning.clone());
        events.push(Event::Warning(warning));
    }
}
