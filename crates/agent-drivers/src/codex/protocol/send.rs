//! The driver's side of the protocol: messages and interrupts, and their order.

use super::{LineOutcome, MessageStage, QueuedMessage, Request, Session};
use crate::parts::CheckedPart;
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
    pub(in crate::codex) fn send(
        &mut self,
        message: &Message,
        parts: &[CheckedPart],
    ) -> LineOutcome {
        let mut outcome = LineOutcome::default();
        if let Some(end) = &self.failure {
            let inputs = vec![message.id];
            let end = Event::TurnCompleted(end.clone());
            outcome.events = vec![Event::TurnStarted { inputs }, end];
            return outcome;
        }
        self.waiting.push_back(QueuedMessage {
            id: message.id,
            text: all_text(&message.text, parts),
            input: input(&message.text, parts),
            stage: MessageStage::Queued,
        });
        self.write_next(&mut outcome);
        outcome
    }

    /// Removes a message that could not be written.
    pub(in crate::codex) fn take_back(&mut self, message: Uuid) {
        self.waiting.retain(|waiting| waiting.id != message);
    }

    /// Writes the queued messages that the agent can take now: into the running turn, or as the beginning of a turn.
    pub(super) fn write_next(&mut self, outcome: &mut LineOutcome) {
        let Some(thread) = self
            .thread
            .clone()
            .filter(|_| !self.is_ending && !self.paused)
        else {
            return;
        };
        let held = |message: &QueuedMessage| message.stage == MessageStage::Queued;
        match &self.turn {
            Some(turn) if turn.steerable && self.interrupt.is_none() => {
                let turn = turn.id.clone();
                while let Some(n) = self.waiting.iter().position(held) {
                    let (id, input) = self.waiting[n].write(MessageStage::Steering);
                    let params = json!({
                        "threadId": thread, "expectedTurnId": turn, "input": input,
                        "clientUserMessageId": id.to_string(),
                    });
                    let request = Request::Steer(id, turn.clone());
                    outcome
                        .lines
                        .push(self.request(request, "turn/steer", params));
                }
            }
            None if self.waiting.iter().all(held) => {
                let Some(message) = self.waiting.front_mut() else {
                    return;
                };
                let (id, input) = message.write(MessageStage::Starting(None));
                let mut params = json!({
                    "threadId": thread, "input": input, "clientUserMessageId": id.to_string(),
                });
                self.sent_settings = std::mem::take(&mut self.changed_settings);
                if self.sent_settings.permissions {
                    let (policy, sandbox) = self.opening.permissions(self.permissions);
                    params["approvalPolicy"] = policy.into();
                    params["sandboxPolicy"] = json!({"type": sandbox});
                }
                if let Some(model) = &self.sent_settings.model {
                    params["model"] = model.as_str().into();
                }
                let line = self.request(Request::Start(id), "turn/start", params);
                outcome.lines.push(line);
            }
            _ => {}
        }
    }

    /// Continues after an interrupted turn whose cleanup is complete.
    pub(in crate::codex) fn continue_after_interrupt(&mut self) -> LineOutcome {
        let mut outcome = LineOutcome::default();
        if std::mem::take(&mut self.paused) {
            self.write_next(&mut outcome);
        }
        outcome
    }

    /// Requests an interrupt. Does nothing if it was already requested, or no turn runs. A requested turn that has not begun is interrupted when it
    /// begins.
    pub(in crate::codex) fn interrupt(&mut self, drop_queued: bool) -> LineOutcome {
        let mut outcome = LineOutcome::default();
        if drop_queued && !self.is_busy() {
            self.drop_waiting(&mut outcome.events);
        }
        if !self.is_turn_expected() || self.paused {
            return outcome;
        }
        let was = self.interrupt;
        self.interrupt = Some(drop_queued || was == Some(true));
        if was.is_none() {
            outcome.lines.extend(self.interrupt_line());
        }
        outcome
    }

    pub(super) fn interrupt_line(&mut self) -> Option<Vec<u8>> {
        let turn = self.turn.as_mut()?;
        turn.interrupts += 1;
        let params = json!({"threadId": self.thread.as_ref()?, "turnId": turn.id});
        Some(self.request(Request::Interrupt, "turn/interrupt", params))
    }

    /// Drops the waiting messages, except a message with which a turn begins.
    pub(super) fn drop_waiting(&mut self, events: &mut Vec<Event>) {
        self.waiting.retain(|message| {
            let waits = matches!(message.stage, MessageStage::Queued | MessageStage::Steering);
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
        self.changed_settings.model = model.or_else(|| self.opening.first_model());
    }

    /// Changes the permissions: for permission requests from now on, for the sandbox from the next turn on.
    pub(in crate::codex) fn set_permissions(&mut self, permissions: Permissions) {
        self.changed_settings.permissions = true;
        self.permissions = permissions;
    }
}

impl QueuedMessage {
    /// Sets the message's new stage, and returns its id and its content.
    fn write(&mut self, stage: MessageStage) -> (Uuid, Value) {
        self.stage = stage;
        (self.id, self.input.clone())
    }
}

/// Returns the items of a message.
fn input(text: &str, parts: &[CheckedPart]) -> Value {
    let has_text = parts.is_empty() || !text.is_empty();
    let text = has_text.then(|| json!({"type": "text", "text": text}));
    let items = parts.iter().filter_map(|part| match part {
        CheckedPart::Text(text) => Some(json!({"type": "text", "text": text})),
        CheckedPart::Image(image) => {
            Some(json!({"type": "localImage", "path": image.path.to_string_lossy()}))
        }
        // The driver declares no files.
        CheckedPart::File(_) => None,
    });
    text.into_iter().chain(items).collect()
}

fn all_text(text: &str, parts: &[CheckedPart]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        CheckedPart::Text(text) => Some(&**text),
        _ => None,
    });
    std::iter::once(text).chain(texts).collect()
}
