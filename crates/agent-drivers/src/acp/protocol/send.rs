//! The driver's side of the protocol: messages, notifications and requests, and their bookkeeping.

use super::turn::Turn;
use super::{Change, LineOutcome, Request, Session, json};
use crate::parts::{CheckedPart, base64};
use agent_duplex::{Error, Event, Message, Permissions};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;

impl Session {
    /// Returns the request for a turn. After it is written, call [`sent`](Self::sent).
    pub(in crate::acp) fn prompt(
        &mut self,
        message: &Message,
        parts: &[CheckedPart],
    ) -> (u64, Vec<u8>) {
        self.last += 1;
        let has_text = parts.is_empty() || !message.text.is_empty();
        let text = has_text.then(|| json!({"type": "text", "text": message.text}));
        let prompt: Vec<Value> = text.into_iter().chain(parts.iter().map(block)).collect();
        let params = json!({"sessionId": self.id, "prompt": prompt});
        (
            self.last,
            json::request(self.last, "session/prompt", params),
        )
    }

    /// Records that a message was written: its turn begins.
    pub(in crate::acp) fn sent(&mut self, message: &Message, request: u64) -> Event {
        self.pending.insert(request, (Request::Prompt, None));
        self.turn = Some(Turn::new());
        let inputs = vec![message.id];
        Event::TurnStarted { inputs }
    }

    /// Whether the agent announced that it takes images.
    pub(in crate::acp) fn takes_images(&self) -> bool {
        self.capabilities.images
    }

    /// Requests an interrupt, and cancels open permission requests. Does nothing if that was done already, or no turn runs.
    pub(in crate::acp) fn interrupt(&mut self) -> LineOutcome {
        let mut outcome = LineOutcome::default();
        if self.is_turn_expected() && !std::mem::replace(&mut self.interrupting, true) {
            outcome.lines.push(self.cancel());
            self.cancel_asks(&mut outcome);
        }
        outcome
    }

    /// Returns the line that requests an interrupt.
    pub(in crate::acp) fn cancel(&self) -> Vec<u8> {
        json::notification("session/cancel", json!({"sessionId": self.id}))
    }

    /// Requests that the agent closes its session, if it supports that.
    pub(in crate::acp) fn close(&mut self) -> Option<Vec<u8>> {
        self.note_ending();
        let can = self.capabilities.close && self.id().is_some();
        can.then(|| self.choice_request(Request::Close, "session/close", json!({})))
    }

    /// Whether the request to close the session has no answer yet.
    pub(in crate::acp) fn is_closing(&self) -> bool {
        self.pending
            .values()
            .any(|(what, _)| *what == Request::Close)
    }

    /// Marks the agent as ending.
    pub(in crate::acp) fn note_ending(&mut self) {
        self.is_ending = true;
    }

    /// Changes the permissions from now on, and returns the request for the agent, if it has a mode for them. If the agent
    /// must accept the mode, [`change_answer`](Self::change_answer) returns the result; otherwise the driver allows the agent's requests.
    ///
    /// # Errors
    /// [`Error::is_unsupported`] if the agent was started without permission requests.
    pub(in crate::acp) fn set_permissions(
        &mut self,
        permissions: Permissions,
    ) -> Result<Option<Vec<u8>>, Error> {
        if self.requested.is_unattended && permissions != Permissions::All {
            let hint = "start it with fewer permissions";
            return Err(Error::unsupported(
                self.requested.agent,
                "ask for permission now",
                hint,
            ));
        }
        self.requested.permissions = permissions;
        let Some((method, params)) = self.choices.choose_mode(permissions) else {
            return Ok(None);
        };
        let line = self.choice_request(Request::Mode, method, params);
        self.change = self.choices.requires_mode(permissions).then_some(Change {
            request: self.last,
            model: None,
            answer: None,
        });
        Ok(Some(line))
    }

    /// Requests another model; `None` is the model of the beginning. Returns `None` if that model is set already.
    /// [`change_answer`](Self::change_answer) returns the result.
    ///
    /// # Errors
    /// [`Error::is_unsupported`] if the agent can't change its model.
    pub(in crate::acp) fn set_model(
        &mut self,
        model: Option<String>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let default = || self.choices.default_model().map(str::to_owned);
        match model.or_else(default) {
            Some(model) => self.choose_model(model),
            None => Ok(None),
        }
    }

    pub(super) fn choose_model(&mut self, model: String) -> Result<Option<Vec<u8>>, Error> {
        if self.choices.model() == model {
            return Ok(None);
        }
        let Some((method, params)) = self.choices.choose_model(&model) else {
            let hint = "choose it in the agent's own settings or arguments";
            return Err(Error::unsupported(
                self.requested.agent,
                "change its model",
                hint,
            ));
        };
        let line = self.choice_request(Request::Model, method, params);
        self.change = Some(Change {
            request: self.last,
            model: Some(model),
            answer: None,
        });
        Ok(Some(line))
    }

    /// Whether a change waits for its answer.
    pub(in crate::acp) fn is_asking(&self) -> bool {
        let change = self.change.as_ref();
        change.is_some_and(|change| change.answer.is_none())
    }

    /// Takes the answer to a change. If there is no answer, abandons the request.
    pub(in crate::acp) fn change_answer(&mut self) -> Option<Result<(), String>> {
        let change = self.change.take()?;
        self.pending.remove(&change.request);
        if change.answer.is_none() && change.model.is_none() {
            self.choices.mode_is_unknown(true);
        }
        change.answer
    }

    /// Makes a request for this session.
    pub(super) fn choice_request(
        &mut self,
        what: Request,
        method: &str,
        mut params: Value,
    ) -> Vec<u8> {
        params["sessionId"] = self.id.as_str().into();
        self.request(what, method, params)
    }

    pub(super) fn request(&mut self, what: Request, method: &str, params: Value) -> Vec<u8> {
        self.last += 1;
        self.pending.insert(self.last, (what, None));
        json::request(self.last, method, params)
    }
}

/// Returns the content block of a part.
fn block(part: &CheckedPart) -> Value {
    match part {
        CheckedPart::Text(text) => json!({"type": "text", "text": text}),
        CheckedPart::Image(image) => {
            json!({"type": "image", "mimeType": image.media_type, "data": base64(&image.bytes)})
        }
        CheckedPart::File(path) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            json!({"type": "resource_link", "uri": file_uri(path), "name": name})
        }
    }
}

/// Returns the URI of an absolute path.
fn file_uri(path: &Path) -> String {
    let mut uri = "file://".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                uri.push(char::from(*byte));
            }
            byte => {
                // Writing to a string can't fail.
                let _written = write!(uri, "%{byte:02X}");
            }
        }
    }
    uri
}
