//! A store in memory: it checks the order of records as strictly as the file does, and ends with the process.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use uuid::Uuid;

use super::record::{self, Interrupted, Persistence, Record, Recovered};
use crate::{Error, Input, Receipt, TurnId};

/// Stores a conversation in memory, as long as one of its clones lives.
///
/// Clones share the stored conversation: with one of them, a later conversation of the same process continues where this one ended. The memory grows
/// with the conversation.
#[derive(Clone, Debug, Default)]
pub struct MemoryPersistence {
    kept: Arc<Mutex<Kept>>,
    /// The number of the recovery that made this clone the writer.
    epoch: u64,
}

#[derive(Debug, Default)]
struct Kept {
    epoch: u64,
    inputs: Vec<KeptInput>,
    by_receipt: HashMap<Uuid, usize>,
    running: BTreeSet<TurnId>,
    session: Option<String>,
    turns: u64,
    messages: u64,
}

#[derive(Debug)]
struct KeptInput {
    receipt: Receipt,
    input: Input,
    place: Place,
}

#[derive(Debug, PartialEq, Eq)]
enum Place {
    Waiting,
    Handed(Uuid),
    In(TurnId),
    ThrownAway,
}

impl KeptInput {
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
    fn recover(&mut self) -> Result<Recovered, Error> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.epoch += 1;
        self.epoch = kept.epoch;
        Ok(kept.recover())
    }

    fn append(&mut self, records: &[Record]) -> Result<(), Error> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.epoch != self.epoch || self.epoch == 0 {
            return Err(record::fenced("the conversation in memory"));
        }
        kept.check(records)?;
        records.iter().for_each(|record| kept.apply(record));
        Ok(())
    }
}

impl Kept {
    fn recover(&mut self) -> Recovered {
        let mut interrupted = std::mem::take(&mut self.running);
        let mut lost = HashMap::new();
        for input in &mut self.inputs {
            if let Place::Handed(message) = input.place {
                let turn = lost.entry(message).or_insert_with(|| {
                    self.turns += 1;
                    interrupted.insert(TurnId(self.turns));
                    TurnId(self.turns)
                });
                input.place = Place::In(*turn);
            }
        }
        let cut = interrupted.into_iter().map(|turn| {
            let inputs = self.inputs.iter().filter(|i| i.place == Place::In(turn));
            Interrupted::new(turn, inputs.map(KeptInput::pair).collect())
        });
        let interrupted = cut.collect();
        let older = self.inputs.len().saturating_sub(record::RECEIPTS);
        let waiting = self.inputs.iter().filter(|i| i.place == Place::Waiting);
        Recovered {
            pending: waiting.map(KeptInput::pair).collect(),
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
    fn check(&self, records: &[Record]) -> Result<(), Error> {
        let mut receipts = BTreeSet::new();
        let mut turns = BTreeSet::new();
        let known = |receipts: &BTreeSet<Uuid>, receipt: &Uuid| {
            self.by_receipt.contains_key(receipt) || receipts.contains(receipt)
        };
        let sound = records.iter().all(|record| match record {
            Record::Accepted { receipt, .. } => {
                !self.by_receipt.contains_key(&receipt.id) && receipts.insert(receipt.id)
            }
            Record::Handed { receipts: of, .. } => of.iter().all(|id| known(&receipts, id)),
            Record::Assigned(assignment) => {
                turns.insert(assignment.turn);
                let mut inputs = assignment.inputs.iter();
                inputs.all(|input| known(&receipts, &input.receipt))
            }
            Record::Dropped { receipt } => known(&receipts, receipt),
            Record::Completed { turn, .. } => turns.remove(turn) || self.running.contains(turn),
            Record::Returned { .. } | Record::Session { .. } | Record::Message { .. } => true,
        });
        sound.then_some(()).ok_or_else(record::unsound)
    }

    fn apply(&mut self, record: &Record) {
        match record {
            Record::Accepted { receipt, input } => {
                let at = self.inputs.len();
                self.by_receipt.insert(receipt.id, at);
                self.inputs.push(KeptInput {
                    receipt: receipt.clone(),
                    input: input.clone(),
                    place: Place::Waiting,
                });
            }
            Record::Handed { message, receipts } => {
                for receipt in receipts {
                    self.put(receipt, Place::Handed(*message));
                }
            }
            Record::Returned { message } => {
                for input in &mut self.inputs {
                    if input.place == Place::Handed(*message) {
                        input.place = Place::Waiting;
                    }
                }
            }
            Record::Assigned(assignment) => {
                self.turns = self.turns.max(assignment.turn.0);
                self.running.insert(assignment.turn);
                for input in &assignment.inputs {
                    self.put(&input.receipt, Place::In(assignment.turn));
                }
            }
            Record::Dropped { receipt } => self.put(receipt, Place::ThrownAway),
            Record::Session { id } => self.session.clone_from(id),
            Record::Message { .. } => self.messages += 1,
            Record::Completed { turn, .. } => {
                self.running.remove(turn);
            }
        }
    }

    fn put(&mut self, receipt: &Uuid, place: Place) {
        if let Some(at) = self.by_receipt.get(receipt) {
            self.inputs[*at].place = place;
        }
    }
}
