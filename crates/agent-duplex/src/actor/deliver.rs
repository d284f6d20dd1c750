//! The delivery of inputs to the agent: stored as delivered, sent, and put back if the agent did not accept them.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::Actor;
use super::command::run_unless_stopped;
use crate::restart::NextStart;
use crate::times;
use crate::{Error, PersistedRecord};

/// The time to wait before offering the waiting inputs again to an agent that does not read.
const RETRY_DELAY: Duration = Duration::from_secs(1);

impl Actor {
    /// Delivers the inputs that may be delivered now.
    pub(super) async fn deliver(&mut self) -> Result<(), Error> {
        self.is_input_refused &= !std::mem::take(&mut self.shared.lock().has_new_input);
        let mut delivered = Ok(true);
        while let Ok(true) = delivered {
            delivered = self.deliver_next().await;
        }
        self.shared.lock().ledger.turn_continues();
        delivered.map(|_| ())
    }

    /// Delivers one message, if there is one; returns whether another one can follow.
    async fn deliver_next(&mut self) -> Result<bool, Error> {
        if self.is_input_refused
            || self.frozen
            || self.is_delivery_paused
            || self.is_leaving()
            || !self.interrupt_waiters.is_empty()
        {
            return Ok(false);
        }
        let offered = {
            let mut state = self.shared.lock();
            let has = self.may_read && state.ledger.has_waiting();
            let may = has && state.persistence_error.is_none();
            may.then(|| state.ids.next())
                .and_then(|id| state.ledger.next_message(id))
        };
        let Some((message, receipts)) = offered else {
            return Ok(false);
        };
        let id = message.id;
        let has_parts = !message.parts.is_empty();
        let refusal = self.shared.lock().agent.check(&message.parts).err();
        if let Some(refusal) = refusal {
            self.drop_offered(&refusal).await;
            return Ok(true);
        }
        let handed = PersistedRecord::Delivered {
            message: id,
            receipts,
        };
        let stored = self.store(vec![handed]).await;
        let stored = stored.filter(|()| self.shared.lock().persistence_error.is_none());
        let (Some(()), Some(connection)) = (stored, self.connection.as_mut()) else {
            self.return_message(id);
            return Ok(false);
        };
        match run_unless_stopped(&mut self.stop_deadline, connection.send(message)).await {
            Some(Ok(())) => {
                self.retry_at = None;
                self.exit_deadline = None;
                let events = self.shared.lock().ledger.delivered();
                self.store_and_publish(events).await;
                Ok(true)
            }
            Some(Err(e)) if has_parts && e.is_invalid() => {
                self.drop_offered(&e).await;
                Ok(true)
            }
            Some(Err(e)) => {
                self.is_input_refused = true;
                self.return_message(id);
                let again_at = e.is_full().then(|| Instant::now() + RETRY_DELAY);
                let was_reported = std::mem::replace(&mut self.retry_at, again_at).is_some();
                if !e.is_unsupported() && !e.is_gone() && !was_reported {
                    self.warn(format!("an input has to wait: {e}")).await;
                }
                Err(e)
            }
            // It is unknown whether the message arrived; the end of the connection decides what happens to it.
            None => Ok(false),
        }
    }

    /// Handles a message that an idle agent did not accept: its inputs wait for another agent, or are dropped, and their execution gets the reason.
    /// If the agent is busy, does not read or is gone, the inputs stay in the inbox.
    pub(super) async fn retry_later(&mut self, e: &Error) {
        if e.is_full() || e.is_gone() || self.shared.lock().ledger.is_busy() {
            return;
        }
        if e.is_start_failure() || e.is_session_in_use() {
            let ended = self.not_started(e).await;
            let next = self.shared.lock().starts.next(Instant::now(), false);
            if ended.is_none() || next != NextStart::Never {
                return;
            }
        } else if e.is_unsupported() {
            if self.may_be_exiting() {
                return;
            }
            self.warn(e.to_string()).await;
        }
        let events = self.shared.lock().ledger.drop_followed(e);
        self.store_and_publish(events).await;
    }

    /// Drops the offered message, which the agent can never take, so that later inputs don't wait behind it.
    async fn drop_offered(&mut self, refusal: &Error) {
        let events = self.shared.lock().ledger.drop_offered(refusal);
        self.store_and_publish(events).await;
    }

    /// Returns whether the actor still waits for the exit of an agent that accepts no input. It sets the time of the next try to the end of this
    /// wait.
    fn may_be_exiting(&mut self) -> bool {
        let now = Instant::now();
        let leaves_by = *self.exit_deadline.get_or_insert(now + times::EXIT_GRACE);
        self.retry_at = (now < leaves_by).then_some(leaves_by);
        now < leaves_by
    }

    fn return_message(&mut self, message: Uuid) {
        self.shared.lock().ledger.not_delivered();
        self.persistence
            .post(vec![PersistedRecord::Returned { message }]);
    }
}
