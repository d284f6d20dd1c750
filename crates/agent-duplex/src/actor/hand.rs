//! The delivery of inputs to the agent: stored as delivered, sent, and put back if the agent did not accept them.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::Actor;
use super::command::unless_halted;
use crate::starts::Next;
use crate::times;
use crate::{Error, Record};

/// The time to wait before offering the waiting inputs again to an agent that does not read.
const AGAIN: Duration = Duration::from_secs(1);

impl Actor {
    /// Delivers the inputs that may be delivered now.
    pub(super) async fn deliver(&mut self) -> Result<(), Error> {
        self.refused &= !std::mem::take(&mut self.shared.lock().arrived);
        let mut delivered = Ok(true);
        while let Ok(true) = delivered {
            delivered = self.hand_on().await;
        }
        self.shared.lock().ledger.goes_on();
        delivered.map(|_| ())
    }

    /// Delivers one message, if there is one; returns whether another one can follow.
    async fn hand_on(&mut self) -> Result<bool, Error> {
        if self.refused || self.held || self.is_leaving() || !self.interrupting.is_empty() {
            return Ok(false);
        }
        let offered = {
            let mut state = self.shared.lock();
            let has = self.reading && state.ledger.has_waiting();
            let may = has && state.fault.is_none();
            may.then(|| state.ids.next())
                .and_then(|id| state.ledger.offer(id))
        };
        let Some((message, receipts)) = offered else {
            return Ok(false);
        };
        let id = message.id;
        let handed = Record::Handed {
            message: id,
            receipts,
        };
        let kept = self.keep(vec![handed]).await;
        let kept = kept.filter(|()| self.shared.lock().fault.is_none());
        let (Some(()), Some(connection)) = (kept, self.connection.as_mut()) else {
            self.take_back(id);
            return Ok(false);
        };
        match unless_halted(&mut self.halt, connection.send(message)).await {
            Some(Ok(())) => {
                self.again_at = None;
                self.leaves_by = None;
                let told = self.shared.lock().ledger.handed_on();
                self.tell(told).await;
                Ok(true)
            }
            Some(Err(e)) => {
                self.refused = true;
                self.take_back(id);
                let again_at = e.is_full().then(|| Instant::now() + AGAIN);
                let is_told = std::mem::replace(&mut self.again_at, again_at).is_some();
                if !e.is_unsupported() && !e.is_gone() && !is_told {
                    self.warn(format!("an input has to wait: {e}")).await;
                }
                Err(e)
            }
            // It is unknown whether the message arrived; the end of the connection decides what happens to it.
            None => Ok(false),
        }
    }

    /// Handles a message that an idle agent did not accept: its inputs wait for another agent, or are dropped with a reason for the execution that
    /// follows them. If the agent is busy, does not read or is gone, the inputs wait for the end of that.
    pub(super) async fn turned_down(&mut self, e: &Error) {
        if e.is_full() || e.is_gone() || self.shared.lock().ledger.is_busy() {
            return;
        }
        if e.is_start() || e.is_held() {
            let ended = self.not_started(e).await;
            let next = self.shared.lock().starts.next(Instant::now(), false);
            if ended.is_none() || next != Next::Never {
                return;
            }
        } else if e.is_unsupported() {
            if self.may_leave() {
                return;
            }
            self.warn(e.to_string()).await;
        }
        let told = self.shared.lock().ledger.drop_followed(&e.to_string());
        self.tell(told).await;
    }

    /// Returns whether an agent that accepts no input is possibly about to exit. The actor tries again when the agent should have exited.
    fn may_leave(&mut self) -> bool {
        let now = Instant::now();
        let leaves_by = *self.leaves_by.get_or_insert(now + times::LEAVING);
        self.again_at = (now < leaves_by).then_some(leaves_by);
        now < leaves_by
    }

    fn take_back(&mut self, message: Uuid) {
        self.shared.lock().ledger.kept_back();
        self.keeps.post(vec![Record::Returned { message }]);
    }
}
