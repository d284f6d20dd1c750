//! One input and its answer for who wants no more: a subscription that begins with the turn of the input and ends with it.

use std::sync::Arc;

use crate::{
    Completion, Dropped, Event, InputState, Observation, Published, Receipt, Subscription, TurnId,
    What,
};

/// One input and the stream of its turn, as [`Conversation::execute`](crate::Conversation::execute) returns it.
///
/// Dropping it ends the reading and takes nothing back.
#[derive(Debug)]
#[must_use = "dropping it stops reading, and takes nothing back"]
pub struct Execution {
    receipt: Receipt,
    subscription: Subscription,
    turn: Option<TurnId>,
    completion: Option<Completion>,
    over: bool,
}

impl Execution {
    pub(crate) fn new(receipt: Receipt, subscription: Subscription) -> Self {
        Self {
            receipt,
            subscription,
            turn: None,
            completion: None,
            over: false,
        }
    }

    /// Returns the receipt of the input.
    #[must_use]
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// Waits for what comes next, from the input's assignment up to and including the completion of its turn; then `None`.
    ///
    /// An input that is thrown away before it is in a turn ends the stream with the event that says so; the end of the conversation ends it without.
    ///
    /// # Errors
    ///
    /// [`Dropped`] when more than 10,000 things or 8 MiB were unread; then nothing more comes.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is lost.
    pub async fn next(&mut self) -> Option<Result<Published, Dropped>> {
        while !self.over {
            let next = self.subscription.next_shared().await;
            self.over = !matches!(next, Some(Ok(_)));
            let published = match next? {
                Ok(published) => published,
                Err(dropped) => return Some(Err(dropped)),
            };
            if self.concerns(&published.what) {
                return Some(Ok(Arc::unwrap_or_clone(published)));
            }
        }
        None
    }

    /// Returns the end of the turn, once it was read. `None` for a turn whose end was not to be seen: the input was thrown away, this reader was
    /// dropped, or the conversation is over.
    #[must_use]
    pub fn completion(&self) -> Option<&Completion> {
        self.completion.as_ref()
    }

    fn concerns(&mut self, what: &What) -> bool {
        let receipt = self.receipt.id;
        match what {
            What::Assigned(a) if a.inputs.iter().any(|input| input.receipt == receipt) => {
                self.turn = Some(a.turn);
            }
            What::Completed(completion) if Some(completion.turn) == self.turn => {
                self.completion = Some(completion.clone());
                self.over = true;
            }
            What::Observed(seen) if self.turn.is_none() => self.over = throws_away(seen, receipt),
            _ => {}
        }
        self.turn.is_some() || self.over
    }
}

fn throws_away(seen: &Observation, receipt: uuid::Uuid) -> bool {
    seen.events.iter().any(|event| {
        let Event::Input { id, state } = event else {
            return false;
        };
        *id == receipt && matches!(state, InputState::Dropped(_))
    })
}
