//! A store in memory: it checks the order of records as strictly as the file does, and ends with the process.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use uuid::Uuid;

use super::record::{self, InterruptedTurn, PersistedRecord, Persistence, RecoveredConversation};
use crate::{Error, Input, Receipt, TurnId};

/// Stores a conversation in memory, as long as one of its clones lives.
///
/// Clones share the stored conversation: with one of them, a later conversation of the same process continues where this one ended. The memory grows
/// with the conversation.
#[derive(Clone, Debug, Default)]
pub struct MemoryPersistence {
    stored: Arc<Mutex<Stored>>,
    /// The epoch of this clone as the writer.
    epoch: u64,
}

#[derive(Debug, Default)]
struct Stored {
    epoch: u64,
    inputs: Vec<StoredInput>,
    by_receipt: HashMap<Uuid, usize>,
    running: BTreeSet<TurnId>,
    session: Option<String>,
    turns: u64,
    messages: u64,
}

#[derive(Debug)]
struct StoredInput {
    receipt: Receipt,
    input: Input,
    place: InputState,
}

#[derive(Debug, PartialEq, Eq)]
enum InputState {
    Waiting,
    Handed(Uuid),
    In(TurnId),
    ThrownAway,
}

impl StoredInput {
    fn pair(&self) -> (Receipt, Input) {
        (self.receipt.clone(), self.input.clone())
    }
}

impl MemoryPersistence {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Persistence for MemoryPersistence {
    fn recover(&mut self) -> Result<RecoveredConversation, Error> {
        let mut kept = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        kept.epoch += 1;
        self.epoch = kept.epoch;
        Ok(kept.recover())
    }

    fn append(&mut self, records: &[PersistedRecord]) -> Result<(), Error> {
        let mut kept = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.epoch != self.epoch || self.epoch == 0 {
            return Err(record::fenced("the conversation in memory"));
        }
        kept.check(records)?;
        records.iter().for_each(|record| kept.apply(record));
        Ok(())
    }
}

impl Stored {
    fn recover(&mut self) -> RecoveredConversation {
        let mut interrupted = std::mem::take(&mut self.running);
        let mut lost = HashMap::new();
        for input in &mut self.inputs {
            if let InputState::Handed(message) = input.place {
                let turn = lost.entry(message).or_insert_with(|| {
                    self.turns += 1;
                    interrupted.insert(TurnId(self.turns));
                    TurnId(self.turns)
                });
                input.place = InputState::In(*turn);
            }
        }
        let cut = interrupted.into_iter().map(|turn| {
            let inputs = self
                .inputs
                .iter()
                .filter(|i| i.place == InputState::In(turn));
            InterruptedTurn::new(turn, inputs.map(StoredInput::pair).collect())
        });
        let interrupted = cut.collect();
        let older = self.inputs.len().saturating_sub(record::RECEIPTS);
        let waiting = self
            .inputs
            .iter()
            .filter(|i| i.place == InputState::Waiting);
        RecoveredConversation {
            pending: waiting.map(StoredInput::pair).collect(),
            accepted: self.inputs[older..]
                .iter()
                .map(|i| i.receipt.clone())
                .collect(),
            interrupted,
            session: self.session.clone(),
            turns: self.turns,
            messages: self.messages,
        }
    }

    /// Checks that all of the records can be applied.
    fn check(&self, records: &[PersistedRecord]) -> Result<(), Error> {
        let mut receipts = BTreeSet::new();
        let mut turns = BTreeSet::new();
        let known = |receipts: &BTreeSet<Uuid>, receipt: &Uuid| {
            self.by_receipt.contains_key(receipt) || receipts.contains(receipt)
        };
        let sound = records.iter().all(|record| match record {
            PersistedRecord::Accepted { receipt, .. } => {
                !self.by_receipt.contains_key(&receipt.id) && receipts.insert(receipt.id)
            }
            PersistedRecord::Delivered { receipts: of, .. } => {
                of.iter().all(|id| known(&receipts, id))
            }
            PersistedRecord::Assigned(assignment) => {
                turns.insert(assignment.turn);
                let mut inputs = assignment.inputs.iter();
                inputs.all(|input| known(&receipts, &input.receipt))
            }
            PersistedRecord::Dropped { receipt } => known(&receipts, receipt),
            PersistedRecord::Completed { turn, .. } => {
                turns.remove(turn) || self.running.contains(turn)
            }
            PersistedRecord::Returned { .. }
            | PersistedRecord::Session { .. }
            | PersistedRecord::Message { .. } => true,
        });
        sound.then_some(()).ok_or_else(record::unsound)
    }

    fn apply(&mut self, record: &PersistedRecord) {
        match record {
            PersistedRecord::Accepted { receipt, input } => {
                let at = self.inputs.len();
                self.by_receipt.insert(receipt.id, at);
                self.inputs.push(StoredInput {
                    receipt: receipt.clone(),
                    input: input.clone(),
                    place: InputState::Waiting,
                });
            }
            PersistedRecord::Delivered { message, receipts } => {
                for receipt in receipts {
                    self.put(receipt, InputState::Handed(*message));
                }
            }
            PersistedRecord::Returned { message } => {
                for input in &mut self.inputs {
                    if input.place == InputState::Handed(*message) {
                        input.place = InputState::Waiting;
                    }
                }
            }
            PersistedRecord::Assigned(assignment) => {
                self.turns = self.turns.max(assignment.turn.0);
                self.running.insert(assignment.turn);
                for input in &assignment.inputs {
                    self.put(&input.receipt, InputState::In(assignment.turn));
                }
            }
            PersistedRecord::Dropped { receipt } => self.put(receipt, InputState::ThrownAway),
            PersistedRecord::Session { id } => self.session.clone_from(id),
            PersistedRecord::Message { .. } => self.messages += 1,
            PersistedRecord::Completed { turn, .. } => {
                self.running.remove(turn);
            }
        }
    }

    fn put(&mut self, receipt: &Uuid, place: InputState) {
        if let Some(at) = self.by_receipt.get(receipt) {
            self.inputs[*at].place = place;
        }
    }
}
