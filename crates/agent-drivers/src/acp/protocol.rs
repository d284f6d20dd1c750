//! The Agent Client Protocol as a state machine without I/O and without a clock. It takes lines, and returns lines to
//! write and events in the types that all agents share.

mod choices;
mod json;
mod open;
mod permissions;
#[cfg(any(test, feature = "test-util"))]
pub(super) mod replay;
mod send;
mod summary;
#[cfg(test)]
mod tests;
mod tools;
mod turn;
mod turn_end;

use super::gemini;
use crate::dialogue::{LineOutcome, Timeouts};
use crate::mcp::McpServers;
use agent_duplex::{
    EndReason, Error, Event, ExitStatus, Message, Permissions, SessionChoice, TurnEnd,
};
use choices::SessionChoices;
use json::text;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;
use turn::Cost;
use turn::Turn;

/// The requested properties of a session.
#[derive(Clone, Debug)]
pub(super) struct SessionRequest {
    /// The agent's name for users.
    pub(super) agent: &'static str,
    pub(super) session: SessionChoice,
    /// The working directory as configured, and its canonical path.
    pub(super) roots: [String; 2],
    pub(super) servers: McpServers,
    pub(super) model: Option<String>,
    pub(super) permissions: Permissions,
    pub(super) auth_method: Option<String>,
    pub(super) timeouts: Timeouts,
    /// Whether the agent's total cost begins at zero with each process.
    pub(super) cost_restarts: bool,
    /// Whether the agent was started without permission requests.
    pub(super) is_unattended: bool,
}

/// The time without history after which a session counts as open.
const HISTORY_IDLE: Duration = Duration::from_millis(250);

/// A request of the driver that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Initialize,
    Authenticate,
    Open,
    /// A turn, which has no time limit.
    Prompt,
    Mode,
    Model,
    /// Not a real request: the wait for the end of a session's history.
    History,
    Close,
}

/// The stage of opening a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenStage {
    Opening,
    /// The session exists, and the driver is setting its mode and model.
    Settling,
    Open,
}

/// The capabilities that the agent announced.
#[derive(Debug, Default)]
struct AgentCapabilities {
    load: bool,
    resume: bool,
    fork: bool,
    close: bool,
    http: bool,
    sse: bool,
    images: bool,
    /// The login methods: id and name.
    auth_methods: Vec<(String, String)>,
}

/// A permission request that waits for its answer.
#[derive(Debug)]
struct PendingPermission {
    /// The unchanged id of the request, which the answer repeats.
    id: Value,
    call: String,
    allow: Answer,
    deny: Answer,
}

/// An answer to a permission request, from the options that the agent offers.
#[derive(Clone, Debug)]
enum Answer {
    Option(String),
    /// An answer that also holds for later requests, because the agent offers no narrower one.
    Always(String),
    Cancelled,
}

/// A pending change, and its result.
#[derive(Debug)]
struct Change {
    request: u64,
    /// The requested model; `None` for a change of the mode.
    model: Option<String>,
    answer: Option<Result<(), String>>,
}

/// The reason why there is no session, reported at the start or as the end of the first turn.
#[derive(Clone, Debug)]
enum Failure {
    Start(Error),
    Turn(TurnEnd),
}

/// The state of the conversation.
#[derive(Debug)]
pub(super) struct Session {
    requested: SessionRequest,
    stage: OpenStage,
    id: String,
    agent: String,
    capabilities: AgentCapabilities,
    choices: SessionChoices,
    /// Whether the agent replays the history of the session that it opens.
    replays_history: bool,
    /// The number of the driver's last request.
    last: u64,
    /// The driver's requests, each with its deadline once that is set.
    pending: BTreeMap<u64, (Request, Option<Instant>)>,
    failure: Option<Failure>,
    change: Option<Change>,
    turn: Option<Turn>,
    asks: BTreeMap<String, PendingPermission>,
    /// Whether an interrupt was requested.
    interrupting: bool,
    cost: Cost,
    /// Whether the driver requested the end of the agent.
    is_ending: bool,
}

impl Session {
    pub(super) fn new(request: SessionRequest) -> Self {
        let is_fresh = request.session == SessionChoice::Fresh || request.cost_restarts;
        Session {
            requested: request,
            stage: OpenStage::Opening,
            id: String::new(),
            agent: String::new(),
            capabilities: AgentCapabilities::default(),
            choices: SessionChoices::default(),
            replays_history: false,
            last: 0,
            pending: BTreeMap::new(),
            failure: None,
            change: None,
            turn: None,
            asks: BTreeMap::new(),
            interrupting: false,
            cost: Cost::new(is_fresh),
            is_ending: false,
        }
    }

    /// Whether the session is still being opened.
    pub(super) fn is_opening(&self) -> bool {
        self.stage != OpenStage::Open && self.failure.is_none()
    }

    /// Returns the session's id, once the agent has reported it.
    pub(super) fn id(&self) -> Option<&str> {
        Some(self.id.as_str()).filter(|id| !id.is_empty())
    }

    /// Returns the reason why the agent can't be used, unless the end of a turn reports it.
    pub(super) fn refusal(&self) -> Option<Error> {
        match &self.failure {
            Some(Failure::Start(error)) => Some(error.clone()),
            _ => None,
        }
    }

    /// Whether the end of a turn is expected.
    pub(super) fn is_turn_expected(&self) -> bool {
        self.turn.is_some()
    }

    /// Whether an interrupt was requested and the turn has not ended.
    pub(super) fn is_interrupting(&self) -> bool {
        self.interrupting && self.is_turn_expected()
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.is_ending
    }

    /// Handles a line of standard output.
    pub(super) fn handle_line(&mut self, bytes: &[u8]) -> LineOutcome {
        let mut outcome = LineOutcome::default();
        if let Some(line) = json::parse(bytes) {
            self.take(&line, &mut outcome);
        }
        outcome
    }

    fn take(&mut self, line: &Value, outcome: &mut LineOutcome) {
        let id = line.get("id").filter(|id| id.is_number() || id.is_string());
        match (text(line, "method"), id) {
            ("session/update", None) if self.is_own_session(&line["params"]) => {
                self.updated(&line["params"]["update"], &mut outcome.events);
            }
            ("$/cancel_request", None) => self.withdrawn(&line["params"], outcome),
            ("session/request_permission", Some(id)) => {
                self.permission_requested(id, &line["params"], outcome)
            }
            ("", Some(id)) => {
                if let Some(request) =
                    { id.as_u64() }.and_then(|id| Some((id, self.pending.remove(&id)?.0)))
                {
                    self.answered(request, line, outcome);
                }
            }
            (method, Some(id)) => outcome.lines.push(json::refuse(id, method)),
            _ => {}
        }
    }

    /// Whether `params` belong to this session, and not to one that the agent opened for itself.
    fn is_own_session(&self, params: &Value) -> bool {
        let id = text(params, "sessionId");
        id == self.id || id.is_empty()
    }

    fn updated(&mut self, update: &Value, events: &mut Vec<Event>) {
        match text(update, "sessionUpdate") {
            "config_option_update" => {
                if self.choices.take_options(update) && self.stage == OpenStage::Open {
                    events.push(self.identified());
                }
            }
            "current_mode_update" => self.choices.mode_is(text(update, "currentModeId")),
            "usage_update" => {
                events.extend(self.cost.advance(&update["cost"]).map(Event::UsageReported))
            }
            kind => {
                // An update without a turn is history of the session, or too late.
                if let Some(turn) = &mut self.turn {
                    turn.updated(kind, update, self.interrupting, events);
                }
                let history = self.pending.values_mut();
                { history.filter(|(what, _)| *what == Request::History) }
                    .for_each(|(_, until)| *until = None);
            }
        }
    }

    /// Handles the answer to a request of the driver.
    fn answered(&mut self, (id, request): (u64, Request), line: &Value, outcome: &mut LineOutcome) {
        let answer = match line.get("error").filter(|error| !error.is_null()) {
            Some(error) => Err(error),
            None => Ok(&line["result"]),
        };
        match request {
            Request::Initialize | Request::Authenticate | Request::Open => {
                self.opening(request, answer, outcome);
            }
            Request::Prompt => self.prompt_answered(answer, outcome),
            Request::Mode => self.mode_answered(id, answer, outcome),
            Request::Model => self.model_answered(id, answer, outcome),
            Request::History | Request::Close => {}
        }
    }

    fn prompt_answered(&mut self, answer: Result<&Value, &Value>, outcome: &mut LineOutcome) {
        if let Ok(result) = answer {
            outcome
                .events
                .extend(turn::of_turn(result).map(Event::UsageReported));
        }
        let denied = self.turn.as_ref().is_some_and(Turn::was_denied);
        let end = turn_end::turn_end_of(
            answer,
            self.interrupting || self.is_ending,
            denied,
            &self.capabilities.auth_methods,
        );
        if end.reason == EndReason::RateLimited {
            outcome.events.push(Event::RateLimited {
                rejected: true,
                resets_at: None,
                limit: end.detail.clone(),
            });
        }
        self.end(end, outcome);
    }

    /// Ends the running turn, and closes everything open in it.
    fn end(&mut self, end: TurnEnd, outcome: &mut LineOutcome) {
        let Some(turn) = self.turn.take() else { return };
        turn.close(end.reason, &mut outcome.events);
        self.cancel_asks(outcome);
        self.interrupting = false;
        outcome.events.push(Event::TurnCompleted(end));
    }

    /// Handles the end of the process: withdraws open permission requests, and ends the open turn, or reports the exit if there is none.
    pub(super) fn exited(&mut self, exit: ExitStatus, stderr: String) -> Vec<Event> {
        let mut outcome = LineOutcome::default();
        if self.turn.is_none() {
            self.cancel_asks(&mut outcome);
            outcome.events.push(Event::Exited(exit));
            return outcome.events;
        }
        let code =
            || gemini::exit_code(Some(exit)).filter(|_| self.requested.agent == gemini::NAME);
        let (reason, detail) = match self.is_ending || self.interrupting {
            true => (EndReason::Interrupted, String::new()),
            false => code().unwrap_or_else(|| (EndReason::Died, String::new())),
        };
        let end = TurnEnd {
            reason,
            detail,
            exit: Some(exit),
            output_tail: stderr,
        };
        self.end(end, &mut outcome);
        outcome.events
    }

    /// Returns a failed turn for a message, if there is no session.
    pub(super) fn failure_for(&self, message: &Message) -> Option<Vec<Event>> {
        let Some(Failure::Turn(end)) = &self.failure else {
            return None;
        };
        let inputs = vec![message.id];
        Some(vec![
            Event::TurnStarted { inputs },
            Event::TurnCompleted(end.clone()),
        ])
    }

    /// Returns the deadline of the next answer. For a request without a deadline, the time begins now.
    pub(super) fn next_answer_deadline(&mut self, now: Instant) -> Option<Instant> {
        let timeouts = self.requested.timeouts;
        let due = self.pending.values_mut().filter_map(|(request, until)| {
            let time = match request {
                Request::Prompt => return None,
                Request::Initialize => timeouts.initialize,
                Request::History => HISTORY_IDLE,
                _ => timeouts.other_requests,
            };
            Some(*until.get_or_insert_with(|| now + time))
        });
        due.min()
    }

    /// Restarts the time limits of all pending requests.
    pub(super) fn restart_timeouts(&mut self) {
        self.pending
            .values_mut()
            .for_each(|(_, until)| *until = None);
    }

    /// Drops the overdue requests; their late answers are ignored.
    pub(super) fn expire_requests(&mut self, now: Instant) -> Vec<Event> {
        let is_late = |until: &Option<Instant>| until.is_some_and(|until| until <= now);
        let late = self.pending.values().filter(|(_, until)| is_late(until));
        let late: Vec<Request> = late.map(|(request, _)| *request).collect();
        self.pending.retain(|_, (_, until)| !is_late(until));
        let mut events = Vec::new();
        for request in late {
            if request == Request::History {
                events.extend(self.opened_event());
                continue;
            }
            let what = format!("the agent did not answer the {} in time", request.name());
            if self.is_opening() {
                let hint = "run it by hand to see why, or give it more time";
                self.failure = Some(Failure::Start(Error::start(
                    format!("{what}; {hint}"),
                    None,
                )));
            } else {
                events.push(Event::Warning(what));
            }
            if request == Request::Mode {
                self.choices.mode_is_unknown(true);
            }
        }
        events
    }
}

impl Request {
    /// Returns the name of the request for users.
    fn name(self) -> &'static str {
        match self {
            Self::Initialize => "initialization",
            Self::Authenticate => "login",
            Self::Open => "request for a session",
            Self::Prompt => "message",
            Self::Mode => "change of permissions",
            Self::Model => "change of the model",
            Self::History => "request for its history",
            Self::Close => "request to end",
        }
    }
}
