//! The driver's side of the protocol: messages and interrupts, and their order.

use super::{Heard, Request, Session, Stage, Waiting};
use agent_duplex::{Event, InputState, Message, Permissions};
use serde_json::{Value, json};
use uuid::Uuid;

impl Session {
    /// Returns the initialization request; the next steps follow from its answer.
    pub(in crate::codex) fn initialize(&mut self) -> Vec<u8> {
        let version = env!("CARGO_PKG_VERSION");
        let client = json!({"name": "agent-drivers", "version": version});
        self.request(
            Request::Initialize,
            "initialize",
            json!({"clientInfo": client}),
        )
    }

    /// Queues a message, and writes it now if the agent can take it.
    pub(in crate::codex) fn say(&mut self, message: &Message) -> Heard {
        let mut heard = Heard::default();
        if let Some(end) = &self.failure {
            let inputs = vec![message.id];
            let end = Event::TurnCompleted(end.clone());
            heard.events = vec![Event::TurnStarted { inputs }, end];
            return heard;
        }
        self.waiting.push_back(Waiting {
            id: message.id,
            text: message.text.clone(),
            stage: Stage::Held,
        });
        self.advance(&mut heard);
        heard
    }

    /// Removes a message that could not be written.
    pub(in crate::codex) fn unsay(&mut self, message: Uuid) {
        self.waiting.retain(|waiting| waiting.id != message);
    }

    /// Writes the queued messages that the agent can take now: into the running turn, or as the beginning of a turn.
    pub(super) fn advance(&mut self, heard: &mut Heard) {
        let Some(thread) = self
            .thread
            .clone()
            .filter(|_| !self.leaving && !self.paused)
        else {
            return;
        };
        let held = |message: &Waiting| message.stage == Stage::Held;
        match &self.turn {
            Some(turn) if turn.steerable && self.interrupt.is_none() => {
                let turn = turn.id.clone();
                while let Some(n) = self.waiting.iter().position(held) {
                    let (id, input) = self.waiting[n].write(Stage::Steering);
                    let params = json!({
                        "threadId": thread, "expectedTurnId": turn, "input": input,
                        "clientUserMessageId": id.to_string(),
                    });
                    let request = Request::Steer(id, turn.clone());
                    heard
                        .lines
                        .push(self.request(request, "turn/steer", params));
                }
            }
            None if self.waiting.iter().all(held) => {
                let Some(message) = self.waiting.front_mut() else {
                    return;
                };
                let (id, input) = message.write(Stage::Starting(None));
                let mut params = json!({
                    "threadId": thread, "input": input, "clientUserMessageId": id.to_string(),
                });
                self.told = std::mem::take(&mut self.news);
                if self.told.permissions {
                    let (policy, sandbox) = self.opening.permissions(self.permissions);
                    params["approvalPolicy"] = policy.into();
                    params["sandboxPolicy"] = json!({"type": sandbox});
                }
                if let Some(model) = &self.told.model {
                    params["model"] = model.as_str().into();
                }
                let line = self.request(Request::Start(id), "turn/start", params);
                heard.lines.push(line);
            }
            _ => {}
        }
    }

    /// Continues after an interrupted turn whose cleanup is complete.
    pub(in crate::codex) fn go_on(&mut self) -> Heard {
        let mut heard = Heard::default();
        if std::mem::take(&mut self.paused) {
            self.advance(&mut heard);
        }
        heard
    }

    /// Requests an interrupt. Does nothing if it was already requested, or no turn runs. A requested turn that has not begun is interrupted when it
    /// begins.
    pub(in crate::codex) fn interrupt(&mut self, drop_queued: bool) -> Heard {
        let mut heard = Heard::default();
        if drop_queued && !self.is_busy() {
            self.drop_waiting(&mut heard.events);
        }
        if !self.owes_turn() || self.paused {
            return heard;
        }
        let was = self.interrupt;
        self.interrupt = Some(drop_queued || was == Some(true));
        if was.is_none() {
            heard.lines.extend(self.interrupt_line());
        }
        heard
    }

    pub(super) fn interrupt_line(&mut self) -> Option<Vec<u8>> {
        let turn = self.turn.as_mut()?;
        turn.interrupts += 1;
        let params = json!({"threadId": self.thread.as_ref()?, "turnId": turn.id});
        Some(self.request(Request::Interrupt, "turn/interrupt", params))
    }

    /// Drops the messages with which no turn begins.
    pub(super) fn drop_waiting(&mut self, events: &mut Vec<Event>) {
        self.waiting.retain(|message| {
            let waits = matches!(message.stage, Stage::Held | Stage::Steering);
            if waits {
                let (id, why) = (message.id, "cancelled".to_owned());
                let state = InputState::Dropped(why);
                events.push(Event::Input { id, state });
            }
            !waits
        });
    }

    /// Changes the model from the next turn on.
    pub(in crate::codex) fn set_model(&mut self, model: Option<String>) {
        self.news.model = model.or_else(|| self.opening.first_model());
    }

    /// Changes the permissions: for permission requests from now on, for the sandbox from the next turn on.
    pub(in crate::codex) fn set_permissions(&mut self, permissions: Permissions) {
        self.news.permissions = true;
        self.permissions = permissions;
    }
}

impl Waiting {
    /// Sets the message's new stage, and returns its id and its content.
    fn write(&mut self, stage: Stage) -> (Uuid, Value) {
        self.stage = stage;
        (self.id, json!([{"type": "text", "text": self.text}]))
    }
}
