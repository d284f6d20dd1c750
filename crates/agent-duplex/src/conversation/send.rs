//! What is said to the agent, and what becomes of it.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::oneshot;

use super::Conversation;
use crate::actor::Command;
use crate::shared::State;
use crate::subscription::Queue;
use crate::{Error, Execution, Input, Receipt, Record, Subscription};

/// How much an execution may leave unread.
const UNREAD: usize = 10_000;

impl Conversation {
    /// Takes an input, at once: the receipt says that it was accepted, not that it was read, nor that it is kept; see [`accept`](Self::accept).
    ///
    /// While a turn runs, it goes by the driver's [`InputPolicy`](crate::InputPolicy). When no agent runs, one is started if
    /// [`ConversationOptions::restart`](crate::ConversationOptions::restart) says how; otherwise the input waits for [`start`](Self::start).
    ///
    /// # Errors
    ///
    /// [`Error::is_full`] when too many inputs are pending; [`Error::is_crash_loop`] when the agent was started too often in vain;
    /// [`Error::is_persistence`] when the conversation can't be kept any more; [`Error::is_gone`] when it is over. Then nothing was recorded.
    pub fn send(&self, input: Input) -> Result<Receipt, Error> {
        self.take(&mut self.0.shared.lock(), input, None)
    }

    /// Takes an input as [`send`](Self::send) does, once: answered when it is kept, and one with the id of an earlier input is not delivered again; its
    /// receipt is that of the first one, with [`Receipt::duplicate`] set.
    ///
    /// The last 10,000 ids are remembered, also by a conversation that was [opened](Self::open) later. In a conversation that is kept nowhere, the
    /// receipt is not [durable](Receipt::durable).
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send). After an error of persistence nobody knows whether the input was kept; accepting it again under its id is safe.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the answer up; the input is accepted.
    pub async fn accept(&self, input: Input) -> Result<Receipt, Error> {
        let (done, kept) = oneshot::channel();
        let receipt = {
            let mut state = self.0.shared.lock();
            let first = state.ledger.inbox().first(&input.id).cloned();
            match (first, &self.0.keeper) {
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
        kept.await.map_err(|_| Error::over())??;
        let durable = self.0.keeper.is_some();
        Ok(Receipt { durable, ..receipt })
    }

    /// Has one input answered: starts an agent when none runs, in the last session, and returns the stream of the input's turn.
    ///
    /// The agent is read no further than the [`Primary`](crate::Primary)'s backlog: read that too, or drop it. When a turn runs, it goes by the driver's
    /// [`InputPolicy`](crate::InputPolicy), and the turn may have other inputs too. An input whose agent is gone before it got it, or could not be started
    /// by it, and is not started again by itself, is dropped; so is one that an agent which does nothing does not take. The stream ends with the cause.
    ///
    /// In a conversation that is kept, this is answered once the input is, as for [`accept`](Self::accept). An input whose id came before is executed
    /// all the same, with [`Receipt::duplicate`] set: there is no second stream of a turn that is over.
    ///
    /// # Errors
    ///
    /// As for [`start`](Self::start) and [`send`](Self::send). Then nothing was recorded.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take back the start of an agent; the input is then accepted or not.
    pub async fn execute(&self, input: Input) -> Result<Execution, Error> {
        self.ask(|done| Command::Ensure { done }).await??;
        let subscription = Subscription(Queue::new(UNREAD));
        let (done, kept) = oneshot::channel();
        let receipt = {
            let mut state = self.0.shared.lock();
            state.add(&subscription.0);
            let receipt = self.take(&mut state, input, Some(done))?;
            state.ledger.inbox().follow_last();
            receipt
        };
        kept.await.map_err(|_| Error::over())??;
        let durable = self.0.keeper.is_some();
        let receipt = Receipt { durable, ..receipt };
        Ok(Execution::new(receipt, subscription))
    }

    /// Waits until nothing is [pending](Self::pending), no turn runs, and its end was told: everything that was said is answered, or was dropped.
    ///
    /// Inputs for which no agent is started, or that are [held](Self::hold), are waited for as well. A task in the background is not; [`close`](Self::close)
    /// waits for that. The ends of turns are seen only as far as the [`Primary`](crate::Primary) is read.
    ///
    /// # Errors
    ///
    /// When inputs are pending that will not be answered: [`Error::is_crash_loop`], [`Error::is_persistence`], and [`Error::is_gone`] when the
    /// conversation is over.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn drained(&self) -> Result<(), Error> {
        loop {
            let moved = self.0.shared.moved.notified();
            let drained = self.0.shared.lock().drained();
            match drained {
                Some(drained) => return drained,
                None => moved.await,
            }
        }
    }

    /// Returns the inputs that no turn took, oldest first: what another conversation may want to go on with after this one is over.
    ///
    /// In a conversation that is not kept, and whose agents are not started again by themselves, an input that was on its way to the agent when that
    /// ended is among them, even if the agent had got it.
    #[must_use]
    pub fn pending(&self) -> Vec<Input> {
        self.0.shared.lock().ledger.pending().cloned().collect()
    }

    /// Accepts an input. Whoever waits for it to be kept gets it back when it can't be.
    fn take(
        &self,
        state: &mut State,
        input: Input,
        waits: Option<oneshot::Sender<Result<(), Error>>>,
    ) -> Result<Receipt, Error> {
        if let Some(refusal) = state.refusal() {
            return Err(refusal);
        }
        let kept = self.0.keeper.is_some().then(|| input.clone());
        let id = state.ids.next();
        let receipt = state.ledger.accept(input, id, SystemTime::now())?;
        self.0.shared.arrived(state);
        let (Some(keeper), Some(input)) = (&self.0.keeper, kept) else {
            if let Some(done) = waits {
                answer(done, Ok(()));
            }
            return Ok(receipt);
        };
        let durable = Receipt {
            durable: true,
            ..receipt.clone()
        };
        let record = Record::Accepted {
            receipt: durable,
            input,
        };
        // It may be handed to the agent only once that is kept, which it is after this.
        let (shared, id) = (Arc::clone(&self.0.shared), receipt.id);
        keeper.post(vec![record], move |kept| {
            if let Err(fault) = &kept {
                if waits.is_some() {
                    shared.lock().ledger.withdraw(id);
                }
                shared.failed(fault.clone());
            }
            if let Some(done) = waits {
                answer(done, kept);
            }
        });
        Ok(receipt)
    }
}

fn answer(done: oneshot::Sender<Result<(), Error>>, kept: Result<(), Error>) {
    // Who asked may have stopped waiting.
    let _nobody = done.send(kept);
}
