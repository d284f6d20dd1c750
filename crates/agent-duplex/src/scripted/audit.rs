//! The promises to readers as a check of its own, so that tests of any driver and of the ledger can share it.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::{Event, InputState, Receipt, TurnId, What};

/// Holds what a conversation publishes against what it promises. Feed it everything, in order.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    accepted: BTreeSet<Uuid>,
    taken: BTreeSet<Uuid>,
    turns: BTreeMap<TurnId, bool>,
    tools: BTreeSet<String>,
    asks: BTreeSet<String>,
}

impl Audit {
    /// Makes one that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that an input was accepted; has to come before what is published of it.
    pub fn accepted(&mut self, receipt: &Receipt) {
        let new = self.accepted.insert(receipt.id);
        assert!(new, "the receipt {} was given twice", receipt.id);
    }

    /// Notes something that was published.
    ///
    /// # Panics
    ///
    /// When it breaks a promise.
    pub fn see(&mut self, what: &What) {
        if let Err(broken) = self.check(what) {
            panic!("{broken}");
        }
    }

    /// Notes something that was published; the error says which promise it breaks.
    pub(crate) fn check(&mut self, what: &What) -> Result<(), String> {
        match what {
            What::Assigned(assignment) => {
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
            What::Completed(completion) => {
                let turn = completion.turn;
                let completed = self.turns.insert(turn, true);
                holds(completed == Some(false), || {
                    format!("turn {turn} was completed out of order")
                })?;
                // Of two turns, the one that waited may be given up while the other one runs.
                let open: Vec<_> = self.tools.iter().chain(&self.asks).collect();
                holds(self.running() > 0 || open.is_empty(), || {
                    format!("{open:?} outlived a turn")
                })?;
            }
            What::Observed(seen) => seen.events.iter().try_for_each(|event| self.event(event))?,
            What::Lifecycle(_) | What::ReplayTruncated => {}
        }
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<(), String> {
        let homeless = || format!("{event:?} belongs to no turn");
        match event {
            Event::TurnStarted { .. } | Event::TurnCompleted(_) => {
                Err(format!("{event:?} is the ledger's to tell"))
            }
            Event::TextDelta(_) | Event::ThinkingDelta(_) | Event::Message { .. } => {
                holds(self.running() > 0, homeless)
            }
            Event::ToolStarted { id, .. } => {
                holds(self.running() > 0, homeless)?;
                let new = self.tools.insert(id.clone());
                holds(new, || format!("{id} was started twice"))
            }
            Event::ToolFinished { id, .. } => holds(self.tools.remove(id), || {
                format!("{id} was finished out of order")
            }),
            Event::PermissionAsked(ask) => {
                let new = self.asks.insert(ask.id.clone());
                holds(new, || format!("{} was asked twice", ask.id))
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

    /// Notes that an ask was answered.
    pub fn answered(&mut self, ask: &str) {
        self.asks.remove(ask);
    }

    /// Returns how many turns run; two at most, of which one waits for the other.
    #[must_use]
    pub fn running(&self) -> usize {
        self.turns.values().filter(|completed| !**completed).count()
    }

    /// Returns how many turns are completed.
    #[must_use]
    pub fn completed(&self) -> usize {
        self.turns.len() - self.running()
    }

    /// Returns how many inputs were accepted, and neither became part of a turn nor were thrown away.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.accepted.difference(&self.taken).count()
    }
}

fn holds(holds: bool, broken: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(broken()) }
}
