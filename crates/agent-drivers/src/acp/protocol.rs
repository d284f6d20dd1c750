//! The agent's side of the conversation as a machine without I/O and without a clock: lines in, neutral events and lines
//! to write out.

mod asks;
mod choices;
mod ending;
mod json;
mod open;
mod say;
mod summary;
#[cfg(test)]
mod tests;
mod tools;
mod turn;

use super::gemini;
use crate::converse::{Heard, Timeouts};
use crate::mcp::McpServers;
use agent_duplex::{
    EndReason, Error, Event, ExitStatus, Message, Permissions, SessionChoice, TurnEnd,
};
use choices::Choices;
use json::text;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;
use turn::Cost;
use turn::Turn;

/// What is wanted of a session.
#[derive(Clone, Debug)]
pub(super) struct Wishes {
    /// The agent's name for people.
    pub(super) agent: &'static str,
    pub(super) session: SessionChoice,
    /// The working directory as it was named, and as it is.
    pub(super) roots: [String; 2],
    pub(super) servers: McpServers,
    pub(super) model: Option<String>,
    pub(super) permissions: Permissions,
    pub(super) auth_method: Option<String>,
    pub(super) timeouts: Timeouts,
    /// Whether the agent counts money by process, and not by session.
    pub(super) cost_restarts: bool,
    /// Whether the agent was started so that it never asks.
    pub(super) never_asks: bool,
}

/// How long no history may come before a session counts as open.
const QUIET: Duration = Duration::from_millis(250);

/// A request of ours that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Initialize,
    Authenticate,
    Open,
    /// A turn, which may take for ever.
    Prompt,
    Mode,
    Model,
    /// None at all: the wait for the end of a session's history.
    History,
    Close,
}

/// How far a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Opening,
    /// It is there, and is being put into the mode and to the model that are wanted.
    Settling,
    Open,
}

/// What an agent says that it can do.
#[derive(Debug, Default)]
struct Abilities {
    load: bool,
    resume: bool,
    fork: bool,
    close: bool,
    http: bool,
    sse: bool,
    /// The ways to log in, with their names.
    auth_methods: Vec<(String, String)>,
}

/// A question that waits for its answer.
#[derive(Debug)]
struct Asked {
    /// The request's id as it came, to be echoed.
    id: Value,
    call: String,
    allow: Answer,
    deny: Answer,
}

/// What can be answered, of what the agent offers.
#[derive(Clone, Debug)]
enum Answer {
    Option(String),
    /// An answer that also holds for later questions: the agent offers no narrower one.
    Always(String),
    Cancelled,
}

/// What became of a change that is waited for.
#[derive(Debug)]
struct Change {
    request: u64,
    /// As which the model is known when it was made; `None` for a mode.
    model: Option<String>,
    answer: Option<Result<(), String>>,
}

/// Why there is no session: told at the start, or as the end of the first turn.
#[derive(Clone, Debug)]
enum Failure {
    Start(Error),
    Turn(TurnEnd),
}

/// What is known of the agent's conversation.
#[derive(Debug)]
pub(super) struct Session {
    wishes: Wishes,
    stage: Stage,
    id: String,
    agent: String,
    abilities: Abilities,
    choices: Choices,
    /// Whether the agent tells the history of the session that it opens.
    tells_history: bool,
    /// The number of our last request.
    last: u64,
    /// Our requests, and until when they are waited for, once that is known.
    pending: BTreeMap<u64, (Request, Option<Instant>)>,
    failure: Option<Failure>,
    change: Option<Change>,
    turn: Option<Turn>,
    asks: BTreeMap<String, Asked>,
    /// Whether an interrupt was asked for.
    interrupting: bool,
    cost: Cost,
    /// Whether we asked the agent to end.
    leaving: bool,
}

impl Session {
    pub(super) fn new(wishes: Wishes) -> Self {
        let is_fresh = wishes.session == SessionChoice::Fresh || wishes.cost_restarts;
        Session {
            wishes,
            stage: Stage::Opening,
            id: String::new(),
            agent: String::new(),
            abilities: Abilities::default(),
            choices: Choices::default(),
            tells_history: false,
            last: 0,
            pending: BTreeMap::new(),
            failure: None,
            change: None,
            turn: None,
            asks: BTreeMap::new(),
            interrupting: false,
            cost: Cost::new(is_fresh),
            leaving: false,
        }
    }

    /// Tells whether it is not yet known if there will be a session.
    pub(super) fn is_opening(&self) -> bool {
        self.stage != Stage::Open && self.failure.is_none()
    }

    /// Returns the session's id, once the agent has told it.
    pub(super) fn id(&self) -> Option<&str> {
        Some(self.id.as_str()).filter(|id| !id.is_empty())
    }

    /// Returns why the agent can't be used, if that is known and is not to be told as the end of a turn.
    pub(super) fn refusal(&self) -> Option<Error> {
        match &self.failure {
            Some(Failure::Start(error)) => Some(error.clone()),
            _ => None,
        }
    }

    /// Tells whether the agent owes the end of a turn.
    pub(super) fn owes_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Tells whether an interrupt was asked for and the turn has not ended.
    pub(super) fn is_interrupting(&self) -> bool {
        self.interrupting && self.owes_turn()
    }

    /// Tells whether we asked the agent to end.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Takes a line of standard output.
    pub(super) fn hear(&mut self, bytes: &[u8]) -> Heard {
        let mut heard = Heard::default();
        if let Some(line) = json::parse(bytes) {
            self.take(&line, &mut heard);
        }
        heard
    }

    fn take(&mut self, line: &Value, heard: &mut Heard) {
        let id = line.get("id").filter(|id| id.is_number() || id.is_string());
        match (text(line, "method"), id) {
            ("session/update", None) if self.is_ours(&line["params"]) => {
                self.updated(&line["params"]["update"], &mut heard.events);
            }
            ("$/cancel_request", None) => self.withdrawn(&line["params"], heard),
            ("session/request_permission", Some(id)) => self.asked(id, &line["params"], heard),
            ("", Some(id)) => {
                if let Some(request) =
                    { id.as_u64() }.and_then(|id| Some((id, self.pending.remove(&id)?.0)))
                {
                    self.answered(request, line, heard);
                }
            }
            (method, Some(id)) => heard.lines.push(json::refuse(id, method)),
            _ => {}
        }
    }

    /// Tells whether something is about our session, and not about one that the agent opened for itself.
    fn is_ours(&self, params: &Value) -> bool {
        let id = text(params, "sessionId");
        id == self.id || id.is_empty()
    }

    fn updated(&mut self, update: &Value, events: &mut Vec<Event>) {
        match text(update, "sessionUpdate") {
            "config_option_update" => {
                if self.choices.take_options(update) && self.stage == Stage::Open {
                    events.push(self.identified());
                }
            }
            "current_mode_update" => self.choices.mode_is(text(update, "currentModeId")),
            "usage_update" => events.extend(self.cost.advance(&update["cost"]).map(Event::Used)),
            kind => {
                // What comes without a turn is the history of a session, or too late.
                if let Some(turn) = &mut self.turn {
                    turn.updated(kind, update, self.interrupting, events);
                }
                let history = self.pending.values_mut();
                { history.filter(|(what, _)| *what == Request::History) }
                    .for_each(|(_, until)| *until = None);
            }
        }
    }

    /// Takes the answer to a request of ours.
    fn answered(&mut self, (id, request): (u64, Request), line: &Value, heard: &mut Heard) {
        let answer = match line.get("error").filter(|error| !error.is_null()) {
            Some(error) => Err(error),
            None => Ok(&line["result"]),
        };
        match request {
            Request::Initialize | Request::Authenticate | Request::Open => {
                self.opening(request, answer, heard);
            }
            Request::Prompt => self.prompt_answered(answer, heard),
            Request::Mode => self.mode_answered(id, answer, heard),
            Request::Model => self.model_answered(id, answer, heard),
            Request::History | Request::Close => {}
        }
    }

    fn prompt_answered(&mut self, answer: Result<&Value, &Value>, heard: &mut Heard) {
        if let Ok(result) = answer {
            heard.events.extend(turn::of_turn(result).map(Event::Used));
        }
        let denied = self.turn.as_ref().is_some_and(Turn::was_denied);
        let end = ending::judge(
            answer,
            self.interrupting || self.leaving,
            denied,
            &self.abilities.auth_methods,
        );
        if end.reason == EndReason::RateLimited {
            heard.events.push(Event::RateLimited {
                rejected: true,
                resets_at: None,
                limit: end.detail.clone(),
            });
        }
        self.end(end, heard);
    }

    /// Ends the turn that runs, with everything in it that is still open.
    fn end(&mut self, end: TurnEnd, heard: &mut Heard) {
        let Some(turn) = self.turn.take() else { return };
        turn.close(end.reason, &mut heard.events);
        self.cancel_asks(heard);
        self.interrupting = false;
        heard.events.push(Event::TurnCompleted(end));
    }

    /// Takes the end of the process: what it still owes, or that it ended while it owed nothing.
    pub(super) fn exited(&mut self, exit: ExitStatus, stderr: String) -> Vec<Event> {
        let mut heard = Heard::default();
        if self.turn.is_none() {
            self.cancel_asks(&mut heard);
            heard.events.push(Event::Exited(exit));
            return heard.events;
        }
        let code = || gemini::exit_code(Some(exit)).filter(|_| self.wishes.agent == gemini::NAME);
        let (reason, detail) = match self.leaving || self.interrupting {
            true => (EndReason::Interrupted, String::new()),
            false => code().unwrap_or_else(|| (EndReason::Died, String::new())),
        };
        let end = TurnEnd {
            reason,
            detail,
            exit: Some(exit),
            stderr_tail: stderr,
        };
        self.end(end, &mut heard);
        heard.events
    }

    /// Answers a message with why there is no session, if that is so.
    pub(super) fn fail(&self, message: &Message) -> Option<Vec<Event>> {
        let Some(Failure::Turn(end)) = &self.failure else {
            return None;
        };
        let inputs = vec![message.id];
        Some(vec![
            Event::TurnStarted { inputs },
            Event::TurnCompleted(end.clone()),
        ])
    }

    /// Returns until when the next answer is waited for. The time of what was asked since the last look begins now.
    pub(super) fn answers_due(&mut self, now: Instant) -> Option<Instant> {
        let timeouts = self.wishes.timeouts;
        let due = self.pending.values_mut().filter_map(|(request, until)| {
            let time = match request {
                Request::Prompt => return None,
                Request::Initialize => timeouts.initialize,
                Request::History => QUIET,
                _ => timeouts.others,
            };
            Some(*until.get_or_insert_with(|| now + time))
        });
        due.min()
    }

    /// Begins the time of all that is waited for again.
    pub(super) fn renew(&mut self) {
        self.pending
            .values_mut()
            .for_each(|(_, until)| *until = None);
    }

    /// Gives up what was waited for until now; a late answer means nothing.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Event> {
        let is_late = |until: &Option<Instant>| until.is_some_and(|until| until <= now);
        let late = self.pending.values().filter(|(_, until)| is_late(until));
        let late: Vec<Request> = late.map(|(request, _)| *request).collect();
        self.pending.retain(|_, (_, until)| !is_late(until));
        let mut events = Vec::new();
        for request in late {
            if request == Request::History {
                events.extend(self.settled());
                continue;
            }
            let what = format!("the agent did not answer the {} in time", request.name());
            if self.is_opening() {
                let mend = "try it by hand, or give it more time";
                self.failure = Some(Failure::Start(Error::start(
                    format!("{what}; {mend}"),
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
    /// What it is called for people.
    fn name(self) -> &'static str {
        match self {
            Self::Initialize => "introduction",
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
