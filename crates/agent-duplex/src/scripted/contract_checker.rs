//! A check of the promises to readers, which the tests of any driver and of the ledger can share.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::{ConversationEvent, Event, InputState, Receipt, TurnId};

/// A checker for the events of a conversation. Pass it every event, in order.
#[derive(Clone, Debug, Default)]
pub struct ContractChecker {
    accepted: BTreeSet<Uuid>,
    taken: BTreeSet<Uuid>,
    turns: BTreeMap<TurnId, bool>,
    tools: BTreeSet<String>,
    asks: BTreeSet<String>,
}

impl ContractChecker {
    /// Creates a checker without events.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that an input was accepted. Call it before the events of that input.
    pub fn accepted(&mut self, receipt: &Receipt) {
        let new = self.accepted.insert(receipt.id);
        assert!(new, "the receipt {} was given twice", receipt.id);
    }

    /// Checks a published event.
    ///
    /// # Panics
    ///
    /// Panics if the event breaks a promise.
    pub fn observe(&mut self, what: &ConversationEvent) {
        if let Err(broken) = self.check(what) {
            panic!("{broken}");
        }
    }

    /// Checks a published event; the error names the promise that it breaks.
    pub(crate) fn check(&mut self, what: &ConversationEvent) -> Result<(), String> {
        match what {
            ConversationEvent::Assigned(assignment) => {
                let turn = assignment.turn;
                let completed = self.turns.insert(turn, false);
                let expected = assignment.injected.then_some(false);
                holds(completed == expected, || {
                    format!("turn {turn} was assigned out of order")
                })?;
                for input in &assignment.inputs {
                    self.known(input.receipt)?;
                    self.taken.insert(input.receipt);
                }
            }
            ConversationEvent::Completed(completion) => {
                let turn = completion.turn;
                let completed = self.turns.insert(turn, true);
                holds(completed == Some(false), || {
                    format!("turn {turn} was completed out of order")
                })?;
                // Of two turns, the waiting turn can be dropped while the other one runs.
                let open: Vec<_> = self.tools.iter().chain(&self.asks).collect();
                holds(self.running() > 0 || open.is_empty(), || {
                    format!("{open:?} is still open after its turn")
                })?;
            }
            ConversationEvent::Observed(seen) => {
                seen.events.iter().try_for_each(|event| self.event(event))?
            }
            ConversationEvent::Lifecycle(_) | ConversationEvent::ReplayTruncated => {}
        }
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<(), String> {
        let outside_of_turn = || format!("{event:?} is outside of a turn");
        match event {
            Event::TurnStarted { .. } | Event::TurnCompleted(_) => {
                Err(format!("only the ledger may publish {event:?}"))
            }
            Event::TextDelta(_) | Event::ThinkingDelta(_) | Event::Message { .. } => {
                holds(self.running() > 0, outside_of_turn)
            }
            Event::ToolStarted { id, .. } => {
                holds(self.running() > 0, outside_of_turn)?;
                let new = self.tools.insert(id.clone());
                holds(new, || format!("{id} was started twice"))
            }
            Event::ToolFinished { id, .. } => holds(self.tools.remove(id), || {
                format!("{id} was finished out of order")
            }),
            Event::PermissionRequested(ask) => {
                let new = self.asks.insert(ask.id.clone());
                holds(new, || format!("{} was requested twice", ask.id))
            }
            Event::PermissionWithdrawn { id } => holds(self.asks.remove(id), || {
                format!("{id} was withdrawn out of order")
            }),
            Event::Input { id, state } => {
                if matches!(state, InputState::Dropped(_)) {
                    self.taken.insert(*id);
                }
                self.known(*id)
            }
            _ => Ok(()),
        }
    }

    fn known(&self, receipt: Uuid) -> Result<(), String> {
        holds(self.accepted.contains(&receipt), || {
            format!("{receipt} has no receipt")
        })
    }

    /// Records that a permission request was answered.
    pub fn answered(&mut self, ask: &str) {
        self.asks.remove(ask);
    }

    /// Returns the number of running turns; two at most, one of which waits for the other.
    #[must_use]
    pub fn running(&self) -> usize {
        self.turns.values().filter(|completed| !**completed).count()
    }

    /// Returns the number of completed turns.
    #[must_use]
    pub fn completed(&self) -> usize {
        self.turns.len() - self.running()
    }

    /// Returns the number of inputs that were accepted, and neither became part of a turn nor were dropped.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.accepted.difference(&self.taken).count()
    }
}

fn holds(holds: bool, broken: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(broken()) }
}
