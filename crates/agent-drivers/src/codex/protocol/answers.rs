//! The agent's answers to requests of the driver.

use super::framing::text;
use super::permissions::line;
use super::{INTERRUPTS, LineOutcome, MessageStage, Request, Session};
use crate::convert::one_line;
use agent_duplex::{EndReason, Event, InputState, TurnEnd};
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

impl Session {
    /// Returns the line of a request.
    pub(super) fn request(&mut self, what: Request, method: &str, params: Value) -> Vec<u8> {
        self.last_request += 1;
        let id = self.last_request;
        self.pending.insert(id, (what, None));
        line(&json!({"id": id, "method": method, "params": params}))
    }

    pub(super) fn answered(&mut self, id: &Value, answer: &Value, outcome: &mut LineOutcome) {
        let request = id.as_u64().and_then(|id| self.pending.remove(&id));
        let Some((request, _)) = request else {
            return;
        };
        let (result, error) = (&answer["result"], &answer["error"]);
        let refusal = error
            .is_object()
            .then(|| one_line(text(&error["message"]), 400));
        match (request, refusal) {
            (Request::Initialize, None) => {
                // An example is `codex/0.169.0 (Debian …)`; the part before the `/` is the client's name.
                let agent = text(&result["userAgent"]).split(' ').next();
                let version = agent.and_then(|agent| agent.rsplit('/').next());
                self.agent = format!("Codex {}", version.unwrap_or_default());
                outcome.lines.push(line(&json!({"method": "initialized"})));
                let (method, params) = self.opening.request();
                outcome
                    .lines
                    .push(self.request(Request::Open, method, params));
            }
            (Request::Open, None) => self.opened(result, outcome),
            (Request::Initialize | Request::Open, Some(why)) => {
                let end = self.opening.turn_end_of(&why);
                self.fail_all(end, outcome);
            }
            (Request::Start(id), None) => {
                // If the turn has already begun, it has the message.
                let turn = text(&result["turn"]["id"]).to_owned();
                self.set(id, MessageStage::Starting(Some(turn)));
            }
            (Request::Start(id), Some(why)) => self.not_started(id, why, error, outcome),
            (Request::Steer(id, turn), refusal) => {
                let now = self.turn.as_mut().filter(|now| now.id == turn);
                let is_late = now.is_none();
                if let (Some(now), Some(_)) = (now, &refusal) {
                    // The turn is about to end, or is of a kind that accepts no messages.
                    now.steerable = false;
                }
                let mut waiting = self.waiting.iter_mut();
                match waiting.find(|message| message.id == id) {
                    Some(message) if is_late || refusal.is_some() => {
                        message.stage = MessageStage::Queued
                    }
                    Some(_) => {
                        let state = InputState::Queued;
                        outcome.events.push(Event::Input { id, state });
                    }
                    None => {}
                }
            }
            (Request::DenialText, _) => {}
            (Request::Interrupt, None) => {
                // The end of the turn reports dropped messages.
                let kept = self.waiting.iter().filter(|_| self.interrupt != Some(true));
                let queued = kept.map(|message| message.id).collect();
                outcome.events.push(Event::InterruptAcknowledged { queued });
            }
            (Request::Interrupt, Some(why)) => {
                if let Some(turn) = self.turn.as_mut().filter(|_| self.interrupt.is_some()) {
                    turn.interrupt_refused = turn.interrupts < INTERRUPTS;
                    if !turn.interrupt_refused {
                        let warning = format!("the agent refused the interrupt: {why}");
                        outcome.events.push(Event::Warning(warning));
                    }
                }
            }
        }
    }

    fn set(&mut self, id: Uuid, stage: MessageStage) {
        if let Some(message) = self.waiting.iter_mut().find(|message| message.id == id) {
            message.stage = stage;
        }
    }

    fn opened(&mut self, result: &Value, outcome: &mut LineOutcome) {
        let thread = &result["thread"];
        let id = text(&thread["id"]).to_owned();
        if id.is_empty() {
            let what = "the agent opened a conversation without an id; update it".to_owned();
            let end = TurnEnd {
                detail: what,
                ..EndReason::ProtocolError.into()
            };
            return self.fail_all(end, outcome);
        }
        let model = [&result["model"], &thread["model"]].map(text);
        let model = model.iter().find(|model| !model.is_empty());
        self.model = (*model.unwrap_or(&"")).to_owned();
        self.opening.default_model(&self.model);
        self.thread = Some(id.clone());
        let (agent, model) = (self.agent.clone(), self.model.clone());
        outcome.events.push(Event::Session { id });
        outcome.events.push(Event::Identified { agent, model });
    }

    /// Records that there is no conversation, so that every message gets a failed turn.
    fn fail_all(&mut self, end: TurnEnd, outcome: &mut LineOutcome) {
        self.failure = Some(end.clone());
        let inputs: Vec<Uuid> = self.waiting.drain(..).map(|message| message.id).collect();
        if !inputs.is_empty() {
            outcome.events.push(Event::TurnStarted { inputs });
            self.end(end, outcome);
        }
    }

    fn not_started(&mut self, id: Uuid, why: String, error: &Value, outcome: &mut LineOutcome) {
        let Some(n) = self.waiting.iter().position(|message| message.id == id) else {
            return;
        };
        // The agent did not apply the settings in the request.
        let settings = std::mem::take(&mut self.sent_settings);
        self.changed_settings.permissions |= settings.permissions;
        self.changed_settings.model = self.changed_settings.model.take().or(settings.model);
        if self.turn.is_some() {
            // The driver sends the message again after the unexpected turn.
            return self.set(id, MessageStage::Queued);
        }
        self.waiting.remove(n);
        // This code means that the agent is overloaded.
        let overloaded = error["code"] == -32001;
        let reason = match overloaded {
            true => EndReason::ServiceFailed,
            false => EndReason::Failed,
        };
        let inputs = vec![id];
        outcome.events.push(Event::TurnStarted { inputs });
        let end = TurnEnd {
            detail: why,
            ..reason.into()
        };
        self.end(end, outcome);
    }

    /// Returns the deadline of the next answer. For a request without a deadline, the time begins now.
    pub(in crate::codex) fn next_answer_deadline(&mut self, now: Instant) -> Option<Instant> {
        let timeouts = self.timeouts;
        let due = self.pending.values_mut().map(|(request, until)| {
            let time = match request {
                Request::Initialize | Request::Open => timeouts.initialize,
                _ => timeouts.other_requests,
            };
            *until.get_or_insert_with(|| now + time)
        });
        due.min()
    }

    /// Restarts the time limits of all pending requests.
    pub(in crate::codex) fn restart_timeouts(&mut self) {
        let all = self.pending.values_mut();
        all.for_each(|(_, until)| *until = None);
    }

    /// Drops the overdue requests; their late answers are ignored.
    pub(in crate::codex) fn expire_requests(&mut self, now: Instant) -> LineOutcome {
        let is_late = |until: &Option<Instant>| until.is_some_and(|until| until <= now);
        let late: Vec<u64> = { self.pending.iter() }
            .filter(|(_, (_, until))| is_late(until))
            .map(|(id, _)| *id)
            .collect();
        let mut outcome = LineOutcome::default();
        if self.framing.give_up() {
            let warning = "a broken message of the agent was ignored";
            outcome.events.push(Event::Warning(warning.to_owned()));
        }
        for id in late {
            let what = match self.pending.remove(&id) {
                Some((Request::Initialize | Request::Open, _)) => {
                    let end = TurnEnd {
                        detail: "the agent did not answer in time; run it by hand to see why"
                            .to_owned(),
                        ..EndReason::ProtocolError.into()
                    };
                    self.fail_all(end, &mut outcome);
                    continue;
                }
                Some((Request::Start(id), _)) => {
                    let why = "the agent did not answer in time".to_owned();
                    self.not_started(id, why, &Value::Null, &mut outcome);
                    continue;
                }
                Some((Request::Steer(id, turn), _)) => {
                    if self.turn.as_ref().is_none_or(|now| now.id != turn) {
                        self.set(id, MessageStage::Queued);
                    }
                    "message"
                }
                Some((Request::DenialText, _)) | None => continue,
                Some((Request::Interrupt, _)) => "interrupt",
            };
            let warning = format!("the agent did not answer the {what} in time");
            outcome.events.push(Event::Warning(warning));
        }
        self.write_next(&mut outcome);
        outcome
    }
}
