//! The inputs that were accepted and not delivered yet.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use uuid::Uuid;

use crate::published::InputRef;
use crate::{Error, Input, Receipt};

/// The number of inputs that are remembered to recognise a repeated input.
const REMEMBERED: usize = 10_000;

/// The place for the reason why the conversation dropped an input, for the execution that follows it.
pub(crate) type Refusal = Arc<OnceLock<Error>>;

#[derive(Clone, Debug)]
pub(crate) struct AcceptedInput {
    pub(crate) receipt: Uuid,
    pub(crate) input: Input,
    /// Set if an execution follows this input. Such an input is dropped if no agent starts for it.
    pub(crate) follower: Option<Refusal>,
}

impl AcceptedInput {
    pub(crate) fn name(&self) -> InputRef {
        InputRef {
            receipt: self.receipt,
            input_id: self.input.id.clone(),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Inbox {
    capacity: usize,
    waiting: VecDeque<AcceptedInput>,
    /// The first receipts of the latest inputs, by the ids of the inputs.
    known: HashMap<String, Receipt>,
    /// The ids of these inputs, oldest first.
    order: VecDeque<String>,
}

impl Inbox {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            ..Self::default()
        }
    }

    /// Adds the inputs that an earlier conversation accepted and stored.
    pub(crate) fn recover(&mut self, accepted: Vec<Receipt>, pending: Vec<(Receipt, Input)>) {
        for receipt in accepted {
            self.remember(receipt);
        }
        self.waiting
            .extend(pending.into_iter().map(|(receipt, input)| AcceptedInput {
                receipt: receipt.id,
                input,
                follower: None,
            }));
    }

    /// Accepts an input, unless there are too many pending inputs, including those that are pending `elsewhere`.
    pub(crate) fn accept(
        &mut self,
        input: Input,
        elsewhere: usize,
        id: Uuid,
        at: SystemTime,
    ) -> Result<Receipt, Error> {
        if self.waiting.len() + elsewhere >= self.capacity {
            return Err(Error::full("the inbox of the conversation"));
        }
        let receipt = Receipt {
            id,
            input_id: input.id.clone(),
            at,
            duplicate: self.known.contains_key(&input.id),
            durable: false,
        };
        self.remember(receipt.clone());
        self.waiting.push_back(AcceptedInput {
            receipt: id,
            input,
            follower: None,
        });
        Ok(receipt)
    }

    /// Remembers a receipt if it is the first one of its input.
    fn remember(&mut self, receipt: Receipt) {
        if self.known.contains_key(&receipt.input_id) {
            return;
        }
        if self.order.len() == REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.order.push_back(receipt.input_id.clone());
        self.known.insert(receipt.input_id.clone(), receipt);
    }

    /// Returns the receipt of the first input with this id, if it is still remembered.
    pub(crate) fn first(&self, input_id: &str) -> Option<&Receipt> {
        self.known.get(input_id)
    }

    /// Marks the latest input as followed by an execution, which gets the reason if the input is dropped.
    pub(crate) fn follow_last(&mut self) -> Refusal {
        let refusal = Refusal::default();
        if let Some(accepted) = self.waiting.back_mut() {
            accepted.follower = Some(Arc::clone(&refusal));
        }
        refusal
    }

    /// Removes all traces of an accepted input.
    pub(crate) fn withdraw(&mut self, receipt: Uuid) {
        self.waiting.retain(|accepted| accepted.receipt != receipt);
        let first = self.known.iter().find(|(_, known)| known.id == receipt);
        if let Some((id, _)) = first.map(|(id, known)| (id.clone(), known)) {
            self.known.remove(&id);
            self.order.retain(|known| *known != id);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of the oldest inputs that can be one message: texts, or one input with parts.
    pub(crate) fn joinable(&self) -> usize {
        let is_text = |accepted: &&AcceptedInput| accepted.input.parts.is_empty();
        let texts = self.waiting.iter().take_while(is_text).count();
        texts.max(self.waiting.len().min(1))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &AcceptedInput> {
        self.waiting.iter()
    }

    /// Removes and returns the oldest `count` inputs.
    pub(crate) fn take(&mut self, count: usize) -> Vec<AcceptedInput> {
        self.waiting
            .drain(..count.min(self.waiting.len()))
            .collect()
    }

    /// Removes and returns the inputs that an execution follows.
    pub(crate) fn take_followed(&mut self) -> Vec<AcceptedInput> {
        let all = std::mem::take(&mut self.waiting).into_iter();
        let (followed, waiting) =
            all.partition::<Vec<_>, _>(|accepted| accepted.follower.is_some());
        self.waiting = waiting.into();
        followed
    }

    /// Puts inputs back before the waiting inputs, because they are older.
    pub(crate) fn put_back(&mut self, inputs: Vec<AcceptedInput>) {
        for input in inputs.into_iter().rev() {
            self.waiting.push_front(input);
        }
    }
}
