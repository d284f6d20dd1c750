//! What we say: messages, notifications and requests, and what is noted of them.

use super::turn::Turn;
use super::{Change, Heard, Request, Session, json};
use agent_duplex::{Error, Event, Message, Permissions};
use serde_json::{Value, json};

impl Session {
    /// Makes the request that is a turn. Once it is written, say so by [`sent`](Self::sent).
    pub(in crate::acp) fn prompt(&mut self, message: &Message) -> (u64, Vec<u8>) {
        self.last += 1;
        let prompt = [json!({"type": "text", "text": message.text})];
        let params = json!({"sessionId": self.id, "prompt": prompt});
        (
            self.last,
            json::request(self.last, "session/prompt", params),
        )
    }

    /// Notes that a message was written: its turn begins.
    pub(in crate::acp) fn sent(&mut self, message: &Message, request: u64) -> Event {
        self.pending.insert(request, (Request::Prompt, None));
        self.turn = Some(Turn::new());
        let inputs = vec![message.id];
        Event::TurnStarted { inputs }
    }

    /// Asks for an interrupt, and answers what is asked; nothing if that was done already, or nothing runs.
    pub(in crate::acp) fn interrupt(&mut self) -> Heard {
        let mut heard = Heard::default();
        if self.owes_turn() && !std::mem::replace(&mut self.interrupting, true) {
            heard.lines.push(self.cancel());
            self.cancel_asks(&mut heard);
        }
        heard
    }

    /// Makes the line that asks for an interrupt.
    pub(in crate::acp) fn cancel(&self) -> Vec<u8> {
        json::notification("session/cancel", json!({"sessionId": self.id}))
    }

    /// Asks the agent to close its session, if it knows how to.
    pub(in crate::acp) fn close(&mut self) -> Option<Vec<u8>> {
        self.leave();
        let can = self.abilities.close && self.id().is_some();
        can.then(|| self.choose(Request::Close, "session/close", json!({})))
    }

    /// Tells whether the agent was asked to close its session and has not answered.
    pub(in crate::acp) fn is_closing(&self) -> bool {
        self.pending
            .values()
            .any(|(what, _)| *what == Request::Close)
    }

    /// Notes that the agent is about to be ended.
    pub(in crate::acp) fn leave(&mut self) {
        self.leaving = true;
    }

    /// Changes what is allowed from now on, and returns what the agent is to be told, if it has a mode for it. What came of it is
    /// told by [`change_answer`](Self::change_answer) where the agent has to obey; elsewhere the driver allows what it asks.
    ///
    /// # Errors
    /// [`Error::is_unsupported`] when the agent can't be made to ask any more.
    pub(in crate::acp) fn set_permissions(
        &mut self,
        permissions: Permissions,
    ) -> Result<Option<Vec<u8>>, Error> {
        if self.wishes.never_asks && permissions != Permissions::All {
            let mend = "start it with fewer permissions";
            return Err(Error::unsupported(self.wishes.agent, "ask now", mend));
        }
        self.wishes.permissions = permissions;
        let Some((method, params)) = self.choices.choose_mode(permissions) else {
            return Ok(None);
        };
        let line = self.choose(Request::Mode, method, params);
        self.change = self.choices.has_to_obey(permissions).then_some(Change {
            request: self.last,
            model: None,
            answer: None,
        });
        Ok(Some(line))
    }

    /// Asks for another model, the one of the beginning if there is none; nothing if that is so already. What came of it is
    /// told by [`change_answer`](Self::change_answer).
    ///
    /// # Errors
    /// [`Error::is_unsupported`] when the agent has no way to.
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
            let mend = "choose it in the agent's own settings or arguments";
            return Err(Error::unsupported(
                self.wishes.agent,
                "change its model",
                mend,
            ));
        };
        let line = self.choose(Request::Model, method, params);
        self.change = Some(Change {
            request: self.last,
            model: Some(model),
            answer: None,
        });
        Ok(Some(line))
    }

    /// Tells whether a change waits for its answer.
    pub(in crate::acp) fn is_asking(&self) -> bool {
        let change = self.change.as_ref();
        change.is_some_and(|change| change.answer.is_none())
    }

    /// Takes the answer to a change; without one, what comes later means nothing.
    pub(in crate::acp) fn change_answer(&mut self) -> Option<Result<(), String>> {
        let change = self.change.take()?;
        self.pending.remove(&change.request);
        if change.answer.is_none() && change.model.is_none() {
            self.choices.mode_is_unknown(true);
        }
        change.answer
    }

    /// Makes a request about the session.
    pub(super) fn choose(&mut self, what: Request, method: &str, mut params: Value) -> Vec<u8> {
        params["sessionId"] = self.id.as_str().into();
        self.request(what, method, params)
    }

    pub(super) fn request(&mut self, what: Request, method: &str, params: Value) -> Vec<u8> {
        self.last += 1;
        self.pending.insert(self.last, (what, None));
        json::request(self.last, method, params)
    }
}
