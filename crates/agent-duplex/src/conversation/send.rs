//! Inputs for the agent, and their results.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::oneshot;

use super::Conversation;
use crate::actor::Command;
use crate::answer::AnswerText;
use crate::input::check_storable;
use crate::shared::State;
use crate::subscription::Queue;
use crate::{
    Answer, ConversationEvent, Error, Execution, Input, PersistedRecord, Receipt, Subscription,
};

/// The number of events that an execution may leave unread.
const UNREAD: usize = 10_000;

impl Conversation {
    /// Sends a text, or an input with more parts, and waits for the whole answer. If no agent runs, it starts one in the last session.
    ///
    /// # Errors
    ///
    /// As for [`execute`](Self::execute). If the conversation dropped the input, the reason: [`Error::is_invalid`] if a file of the input can't be
    /// sent. [`Error::is_gone`] if the agent dropped the input, or the conversation ended before the turn did. A turn that ended badly is no error:
    /// [`Answer::end`] has the reason.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops only the answer; the agent continues its turn.
    pub async fn ask(&self, input: impl Into<Input>) -> Result<Answer, Error> {
        let mut execution = self.execute(input).await?;
        let mut answer = AnswerText::default();
        while let Some(published) = execution.next().await {
            let published = published.map_err(|lagged| Error::agent_gone(lagged.to_string()))?;
            if let ConversationEvent::Observed(seen) = published.event {
                answer.add(seen);
            }
        }
        let Some(completion) = execution.completion().cloned() else {
            let unknown = || {
                let text = "the input was dropped, or the conversation ended, before the turn did";
                Error::agent_gone(text)
            };
            return Err(execution.refusal().cloned().unwrap_or_else(unknown));
        };
        Ok(Answer {
            text: answer.into_text(),
            end: completion.end,
        })
    }

    /// Accepts an input immediately. The receipt does not mean that the input was read or stored; see [`accept`](Self::accept).
    ///
    /// While a turn runs, the driver's [`InputPolicy`](crate::InputPolicy) applies. If no agent runs, the conversation starts one. If the caller
    /// [starts agents](crate::ConversationOptions::with_manual_start), the input waits for [`start`](Self::start).
    ///
    /// # Errors
    ///
    /// [`Error::is_full`] if too many inputs are pending; [`Error::is_unsupported`] if the agent can't take a [part](crate::Part) of the input, and
    /// [`Error::is_invalid`] if it has too many parts or its path can't be stored; [`Error::is_crash_loop`] if too many starts of the agent failed; [`Error::is_persistence`]
    /// if the conversation can't be stored any more; [`Error::is_gone`] if it has ended. With each of these errors, nothing was recorded.
    pub fn send(&self, input: impl Into<Input>) -> Result<Receipt, Error> {
        self.take(&mut self.0.shared.lock(), input.into(), None)
    }

    /// Accepts an input as [`send`](Self::send) does, and returns after it is stored. An input with the id of an earlier input is not delivered
    /// again: its receipt is that of the first input, with [`Receipt::duplicate`] set.
    ///
    /// The last 10,000 ids are remembered, even by a conversation that is [opened](Self::open) later. In a conversation without a store, the receipt
    /// is not [durable](Receipt::durable).
    ///
    /// # Errors
    ///
    /// The same as for [`send`](Self::send). After a persistence error it is unknown whether the input was stored; accepting it again with the same
    /// id is safe.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops only the result; the input is accepted.
    pub async fn accept(&self, input: impl Into<Input>) -> Result<Receipt, Error> {
        let input = input.into();
        let (done, kept) = oneshot::channel();
        let receipt = {
            let mut state = self.0.shared.lock();
            let first = state.ledger.inbox().first(&input.id).cloned();
            match (first, &self.0.persistence_thread) {
                (Some(mut first), keeper) => {
                    first.duplicate = true;
                    match keeper {
                        Some(keeper) => keeper.post(Vec::new(), |kept| answer(done, kept)),
                        None => answer(done, Ok(())),
                    }
                    first
                }
                (None, _) => self.take(&mut state, input, Some(done))?,
            }
        };
        kept.await.map_err(|_| Error::conversation_over())??;
        let durable = self.0.persistence_thread.is_some();
        Ok(Receipt { durable, ..receipt })
    }

    /// Sends one input and returns the stream of its turn. If no agent runs, it starts one in the last session.
    ///
    /// While the backlog of a [`Primary`](crate::Primary) is full, the conversation doesn't read from the agent: read the primary too, or drop it. If a turn runs, the driver's [`InputPolicy`](crate::InputPolicy) applies, and the turn can contain other inputs too. The input is dropped if
    /// an idle agent does not accept it. If no agent starts automatically, the input is also dropped if the agent ended before it got the input, or
    /// could not start. In these cases the stream ends with the reason.
    ///
    /// In a stored conversation, this returns after the input is stored, as for [`accept`](Self::accept). An input with a repeated id is executed
    /// too, with [`Receipt::duplicate`] set: a turn that has ended has no second stream.
    ///
    /// # Errors
    ///
    /// The same as for [`start`](Self::start) and [`send`](Self::send). With each of these errors, nothing was recorded.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not cancel the start of an agent; it is unknown whether the input is accepted.
    pub async fn execute(&self, input: impl Into<Input>) -> Result<Execution, Error> {
        let input = input.into();
        // An input that the agent can't take starts no agent.
        self.0.shared.lock().agent.check(&input.parts)?;
        self.command(|done| Command::EnsureRunning { done })
            .await??;
        let subscription = Subscription(Queue::new(UNREAD));
        let (done, kept) = oneshot::channel();
        let (receipt, refusal) = {
            let mut state = self.0.shared.lock();
            state.add(&subscription.0);
            let receipt = self.take(&mut state, input, Some(done))?;
            (receipt, state.ledger.inbox().follow_last())
        };
        kept.await.map_err(|_| Error::conversation_over())??;
        let durable = self.0.persistence_thread.is_some();
        let receipt = Receipt { durable, ..receipt };
        Ok(Execution::new(receipt, subscription, refusal))
    }

    /// Waits until nothing is [pending](Self::pending), no turn runs, and the end of the last turn was published: every input is answered or was
    /// dropped.
    ///
    /// This also waits for inputs without an agent, and for inputs while the delivery is [paused](Self::pause_delivery). It does not wait for
    /// background tasks; [`close`](Self::close) does. The conversation sees the ends of turns only as far as the [`Primary`](crate::Primary) is read.
    ///
    /// # Errors
    ///
    /// Fails if there are pending inputs that will never be answered: [`Error::is_crash_loop`], [`Error::is_persistence`], and [`Error::is_gone`] if
    /// the conversation has ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn wait_until_idle(&self) -> Result<(), Error> {
        loop {
            let moved = self.0.shared.idle_notify.notified();
            let result = self.0.shared.lock().idle_result();
            match result {
                Some(result) => return result,
                None => moved.await,
            }
        }
    }

    /// Returns the inputs that are in no turn, oldest first. Another conversation can continue with them after the end of this one.
    ///
    /// In a conversation without a store and without automatic restarts, they also include an input that was on its way to an agent when that agent
    /// ended. The agent may have received that input.
    #[must_use]
    pub fn pending(&self) -> Vec<Input> {
        self.0.shared.lock().ledger.pending().cloned().collect()
    }

    /// Accepts an input. If the input can't be stored, it is withdrawn, and a caller that waits for the store gets an error.
    fn take(
        &self,
        state: &mut State,
        input: Input,
        waits: Option<oneshot::Sender<Result<(), Error>>>,
    ) -> Result<Receipt, Error> {
        if let Some(refusal) = state.refusal() {
            return Err(refusal);
        }
        state.agent.check(&input.parts)?;
        if self.0.persistence_thread.is_some() {
            check_storable(&input.parts)?;
        }
        let kept = self.0.persistence_thread.is_some().then(|| input.clone());
        let id = state.ids.next();
        let receipt = state.ledger.accept(input, id, SystemTime::now())?;
        self.0.shared.notify_input(state);
        let (Some(keeper), Some(input)) = (&self.0.persistence_thread, kept) else {
            if let Some(done) = waits {
                answer(done, Ok(()));
            }
            return Ok(receipt);
        };
        let durable = Receipt {
            durable: true,
            ..receipt.clone()
        };
        let record = PersistedRecord::Accepted {
            receipt: durable,
            input,
        };
        // The input may be delivered only after it is stored; the order of the records guarantees this.
        let (shared, id) = (Arc::clone(&self.0.shared), receipt.id);
        keeper.post(vec![record], move |kept| {
            if let Err(fault) = &kept {
                if waits.is_some() {
                    shared.lock().ledger.withdraw(id);
                }
                shared.record_persistence_error(fault.clone());
            }
            if let Some(done) = waits {
                answer(done, kept);
            }
        });
        Ok(receipt)
    }
}

fn answer(done: oneshot::Sender<Result<(), Error>>, kept: Result<(), Error>) {
    // The send fails if the caller has stopped waiting.
    let _nobody = done.send(kept);
}
