use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::{Event, InputState, Observation, Receipt, TurnId, What};

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
        match what {
            What::Assigned(assignment) => {
                let turn = assignment.turn;
                let completed = self.turns.insert(turn, false);
                let expected = assignment.injected.then_some(false);
                assert_eq!(completed, expected, "turn {turn} was assigned out of order");
                for input in &assignment.inputs {
                    let receipt = input.receipt;
                    assert!(self.accepted.contains(&receipt), "{receipt} has no receipt");
                    self.taken.insert(receipt);
                }
            }
            What::Completed(completion) => {
                let turn = completion.turn;
                let completed = self.turns.insert(turn, true);
                assert_eq!(
                    completed,
                    Some(false),
                    "turn {turn} was completed out of order"
                );
                // Of two turns, the one that waited may be given up while the other one runs.
                if self.running() == 0 {
                    assert!(self.tools.is_empty(), "{:?} outlived a turn", self.tools);
                    assert!(self.asks.is_empty(), "{:?} outlived a turn", self.asks);
                }
            }
            What::Observed(seen) => self.observed(seen),
            What::Lifecycle(_) | What::ReplayTruncated => {}
        }
    }

    fn observed(&mut self, seen: &Observation) {
        for event in &seen.events {
            let running = self.running() > 0;
            match event {
                Event::TurnStarted { .. } | Event::TurnCompleted(_) => {
                    panic!("{event:?} is the ledger's to tell")
                }
                Event::TextDelta(_) | Event::ThinkingDelta(_) | Event::Message { .. } => {
                    assert!(running, "{event:?} belongs to no turn");
                }
                Event::ToolStarted { id, .. } => {
                    assert!(running, "{event:?} belongs to no turn");
                    assert!(self.tools.insert(id.clone()), "{id} was started twice");
                }
                Event::ToolFinished { id, .. } => {
                    assert!(self.tools.remove(id), "{id} was finished out of order");
                }
                Event::PermissionAsked(ask) => {
                    assert!(
                        self.asks.insert(ask.id.clone()),
                        "{} was asked twice",
                        ask.id
                    );
                }
                Event::PermissionWithdrawn { id } => {
                    assert!(self.asks.remove(id), "{id} was withdrawn out of order");
                }
                Event::Input { id, state } => {
                    assert!(self.accepted.contains(id), "{id} has no receipt");
                    if matches!(state, InputState::Dropped(_)) {
                        self.taken.insert(*id);
                    }
                }
                _ => {}
            }
        }
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
