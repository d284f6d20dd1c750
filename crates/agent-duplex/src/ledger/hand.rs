//! What is handed on, and when.

use uuid::Uuid;

use super::Ledger;
use super::report::Report;
use super::turn::{Begun, Parcel};
use crate::inbox::Accepted;
use crate::{Event, InputPolicy, InputState, Message, What};

impl Ledger {
    /// Returns what is to be handed on next, if there is anything: everything that may be when no turn runs, or when one runs that takes messages just
    /// now; one input at a time when the agent can be steered.
    ///
    /// One of [`handed_on`](Self::handed_on) and [`kept_back`](Self::kept_back) has to follow.
    pub(crate) fn offer(&mut self, id: Uuid) -> Option<(Message, Vec<Uuid>)> {
        if self.handing.is_some() {
            // A halt came in between; the end of the connection says what becomes of it.
            return None;
        }
        let ready = self.inbox.len();
        let count = match self.terms.policy {
            _ if self.turn.is_none() => ready,
            InputPolicy::Push => ready.min(1),
            InputPolicy::Poll if self.polled => ready,
            InputPolicy::Poll | InputPolicy::AfterTurn => 0,
        };
        if count == 0 {
            return None;
        }
        let inputs = self.inbox.take(count);
        let texts: Vec<&str> = inputs.iter().map(|i| i.input.text.as_str()).collect();
        let text = texts.join("\n\n");
        let receipts = inputs.iter().map(|input| input.receipt).collect();
        self.handing = Some((id, inputs));
        Some((Message { id, text }, receipts))
    }

    /// The agent goes on with its turn.
    pub(crate) fn goes_on(&mut self) {
        self.polled = false;
    }

    /// The agent has the message that was offered.
    pub(crate) fn handed_on(&mut self) -> Vec<What> {
        let mut report = Report::default();
        if let Some((id, inputs)) = self.handing.take() {
            let parcel = Parcel::new(id, &inputs);
            if self.turn.is_none() {
                self.open(vec![parcel], Begun::No, &mut report);
            } else if self.terms.policy == InputPolicy::Poll {
                self.inject(vec![parcel], &mut report);
            } else {
                self.sent.push(id, inputs);
            }
        }
        report.finish()
    }

    /// The agent did not get the message that was offered.
    pub(crate) fn kept_back(&mut self) {
        if let Some((_, inputs)) = self.handing.take() {
            self.inbox.put_back(inputs);
        }
    }

    /// Forgets the inputs that wait.
    pub(crate) fn drop_waiting(&mut self, why: &str) -> Vec<What> {
        let waiting = self.inbox.take(usize::MAX);
        throw_away(&waiting, why)
    }

    /// Forgets the inputs that wait and that somebody follows.
    pub(crate) fn drop_followed(&mut self, why: &str) -> Vec<What> {
        let followed = self.inbox.take_followed();
        throw_away(&followed, why)
    }
}

fn throw_away(inputs: &[Accepted], why: &str) -> Vec<What> {
    let mut report = Report::default();
    for accepted in inputs {
        report.pass(Event::Input {
            id: accepted.receipt,
            state: InputState::Dropped(why.to_owned()),
        });
    }
    report.finish()
}
