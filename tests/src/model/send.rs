//! Sends one reply, whole or as events.

use std::io;

use super::dialect::Dialect;
use super::http::Connection;
use super::reply::{self, Piece, Reply};
use super::request::PromptRequest;
use super::script::Step;
use super::server::Outcome;

/// A reply that is being sent.
pub(super) struct ReplyStream<'a> {
    pub(super) connection: &'a mut Connection,
    pub(super) dialect: &'a dyn Dialect,
    pub(super) asked: &'a PromptRequest,
    pub(super) step: &'a Step,
    pub(super) reply: Reply,
}

impl ReplyStream<'_> {
    /// Sends the reply as the step requires.
    pub(super) fn send(mut self) -> io::Result<Outcome> {
        if let Step::Status {
            code, retry_after, ..
        } = self.step
        {
            let retry = retry_after
                .as_ref()
                .map_or_else(String::new, |time| format!("retry-after: {time}\r\n"));
            let failure = self.dialect.failure(*code, retry_after.as_deref());
            self.connection.send(*code, &retry, &failure)?;
            return Ok(Outcome::Refused);
        }
        if self.asked.stream {
            self.connection.begin_events()?;
            self.events(self.dialect.opening(&self.reply))?;
        }
        for piece in reply::pieces(self.step, self.asked) {
            match piece {
                Piece::Token(token) => {
                    self.reply.say(&token);
                    if self.asked.stream {
                        let event = self.dialect.token(&self.reply, &token);
                        self.connection.event(&event)?;
                    }
                }
                Piece::Pause(time) => self.connection.pause(time)?,
                Piece::BreakOff => return Ok(Outcome::Dropped),
            }
        }
        if self.asked.stream {
            self.events(self.dialect.closing(&self.reply))?;
            self.connection.end_events()?;
        } else {
            let whole = self.dialect.whole(&self.reply);
            self.connection.send(200, "", &whole)?;
        }
        Ok(Outcome::Sent)
    }

    fn events(&mut self, events: Vec<serde_json::Value>) -> io::Result<()> {
        events
            .iter()
            .try_for_each(|event| self.connection.event(event))
    }
}
