//! One input and its answer: a subscription that starts with the turn of the input and ends with it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use crate::inbox::Refusal;
use crate::{
    Completion, ConversationEvent, Error, Event, InputState, Lagged, Observation, Published,
    Receipt, Subscription, TurnId,
};

/// One input and the stream of its turn, from [`Conversation::execute`](crate::Conversation::execute).
///
/// If it is dropped, the stream ends, but the input stays accepted.
#[derive(Debug)]
#[must_use = "dropping it ends the reading; the input stays accepted"]
pub struct Execution {
    receipt: Receipt,
    subscription: Subscription,
    turn: Option<TurnId>,
    completion: Option<Completion>,
    over: bool,
    refusal: Refusal,
}

impl Execution {
    pub(crate) fn new(receipt: Receipt, subscription: Subscription, refusal: Refusal) -> Self {
        Self {
            receipt,
            subscription,
            turn: None,
            completion: None,
            over: false,
            refusal,
        }
    }

    /// Returns the receipt of the input.
    #[must_use]
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// Waits for the next event, from the assignment of the input up to and including the completion of its turn; then returns `None`.
    ///
    /// If the input is dropped before it is in a turn, the stream ends with the event that reports this. If the conversation ends, the stream ends
    /// without such an event.
    ///
    /// # Errors
    ///
    /// [`Lagged`] if more than 10,000 events or 8 MiB were unread; then the stream ends.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no event is lost.
    pub async fn next(&mut self) -> Option<Result<Published, Lagged>> {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Published, Lagged>>> {
        while !self.over {
            let next = ready!(self.subscription.poll_shared(cx));
            self.over = !matches!(next, Some(Ok(_)));
            let published = match next {
                Some(Ok(published)) => published,
                end => return Poll::Ready(end.map(|end| end.map(Arc::unwrap_or_clone))),
            };
            if self.concerns(&published.event) {
                return Poll::Ready(Some(Ok(Arc::unwrap_or_clone(published))));
            }
        }
        Poll::Ready(None)
    }

    /// Returns the end of the turn, after it was read. Returns `None` if the end can't be read: the input was dropped, this reader was dropped, or
    /// the conversation has ended.
    #[must_use]
    pub fn completion(&self) -> Option<&Completion> {
        self.completion.as_ref()
    }

    /// Returns the reason why the conversation dropped the input before an agent had it: for example an error of a file of the input. Returns `None`
    /// if the input was not dropped, or the agent or an interrupt dropped it.
    #[must_use]
    pub fn refusal(&self) -> Option<&Error> {
        self.refusal.get()
    }

    fn concerns(&mut self, what: &ConversationEvent) -> bool {
        let receipt = self.receipt.id;
        match what {
            ConversationEvent::Assigned(a)
                if a.inputs.iter().any(|input| input.receipt == receipt) =>
            {
                self.turn = Some(a.turn);
            }
            ConversationEvent::Completed(completion) if Some(completion.turn) == self.turn => {
                self.completion = Some(completion.clone());
                self.over = true;
            }
            ConversationEvent::Observed(seen) if self.turn.is_none() => {
                self.over = drops_input(seen, receipt)
            }
            _ => {}
        }
        self.turn.is_some() || self.over
    }
}

impl Stream for Execution {
    type Item = Result<Published, Lagged>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_event(cx)
    }
}

fn drops_input(seen: &Observation, receipt: uuid::Uuid) -> bool {
    seen.events.iter().any(|event| {
        let Event::Input { id, state } = event else {
            return false;
        };
        *id == receipt && matches!(state, InputState::Dropped(_))
    })
}
