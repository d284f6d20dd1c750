//! Sends one reply, whole or as events.

use std::io;

use serde_json::{Value, json};

use super::http::Connection;
use super::reply::{self, Piece};
use super::request::Asked;
use super::script::Step;
use super::server::Outcome;

/// One reply on its way.
pub(super) struct Reply<'a> {
    pub(super) connection: &'a mut Connection,
    pub(super) asked: &'a Asked,
    pub(super) step: &'a Step,
    pub(super) number: u64,
    pub(super) input_tokens: usize,
}

impl Reply<'_> {
    /// Sends it as the step says.
    pub(super) fn send(mut self) -> io::Result<Outcome> {
        if let Step::Status {
            code, retry_after, ..
        } = self.step
        {
            let retry = retry_after
                .as_ref()
                .map_or_else(String::new, |time| format!("retry-after: {time}\r\n"));
            self.connection.send(*code, &retry, &reply::error(*code))?;
            return Ok(Outcome::Refused);
        }
        let call = reply::call(self.step, self.asked);
        if self.asked.stream {
            self.stream(call)
        } else {
            self.whole(call)
        }
    }

    fn whole(&mut self, call: Option<(String, Value)>) -> io::Result<Outcome> {
        let mut text = String::new();
        for piece in reply::pieces(self.step, self.asked) {
            match piece {
                Piece::Token(token) => text.push_str(&token),
                Piece::Pause(time) => self.connection.pause(time)?,
                Piece::BreakOff => return Ok(Outcome::Dropped),
            }
        }
        let mut message = reply::message(self.number, &self.asked.model, self.input_tokens);
        message["stop_reason"] = reply::stop_reason(call.is_some()).into();
        message["usage"]["output_tokens"] = (text.len() / 4 + 1).into();
        message["content"] = match call {
            Some((name, input)) => {
                json!([{"type": "tool_use", "id": reply::call_id(self.number), "name": name, "input": input}])
            }
            None => json!([{"type": "text", "text": text}]),
        };
        self.connection.send(200, "", &message)?;
        Ok(Outcome::Sent)
    }

    fn stream(&mut self, call: Option<(String, Value)>) -> io::Result<Outcome> {
        let message = reply::message(self.number, &self.asked.model, self.input_tokens);
        self.connection.begin_events()?;
        self.connection
            .event(&json!({"type": "message_start", "message": message}))?;
        let stop_reason = reply::stop_reason(call.is_some());
        let block = match &call {
            Some((name, _)) => {
                json!({"type": "tool_use", "id": reply::call_id(self.number), "name": name, "input": {}})
            }
            None => json!({"type": "text", "text": ""}),
        };
        self.connection
            .event(&json!({"type": "content_block_start", "index": 0, "content_block": block}))?;
        let mut tokens = 1;
        for piece in reply::pieces(self.step, self.asked) {
            match piece {
                Piece::Token(token) => self.delta(&json!({"type": "text_delta", "text": token}))?,
                Piece::Pause(time) => self.connection.pause(time)?,
                Piece::BreakOff => return Ok(Outcome::Dropped),
            }
            tokens += 1;
        }
        if let Some((_, input)) = call {
            self.delta(&json!({"type": "input_json_delta", "partial_json": input.to_string()}))?;
        }
        self.connection
            .event(&json!({"type": "content_block_stop", "index": 0}))?;
        let delta = json!({"stop_reason": stop_reason, "stop_sequence": null});
        self.connection.event(
            &json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": tokens}}),
        )?;
        self.connection.event(&json!({"type": "message_stop"}))?;
        self.connection.end_events()?;
        Ok(Outcome::Sent)
    }

    fn delta(&mut self, delta: &Value) -> io::Result<()> {
        self.connection
            .event(&json!({"type": "content_block_delta", "index": 0, "delta": delta}))
    }
}
