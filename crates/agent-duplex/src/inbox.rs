//! The inputs that were accepted and not handed on yet.

use std::collections::VecDeque;
use std::time::SystemTime;

use uuid::Uuid;

use crate::published::InputRef;
use crate::{Error, Input, Receipt};

/// How many input ids are remembered to tell a repeated one.
const REMEMBERED: usize = 1000;

#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    pub(crate) receipt: Uuid,
    pub(crate) input: Input,
}

impl Accepted {
    pub(crate) fn name(&self) -> InputRef {
        InputRef {
            receipt: self.receipt,
            input_id: self.input.id.clone(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Inbox {
    capacity: usize,
    waiting: VecDeque<Accepted>,
    known: VecDeque<String>,
}

impl Inbox {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            waiting: VecDeque::new(),
            known: VecDeque::new(),
        }
    }

    /// Takes an input, unless with the ones that are pending `elsewhere` there are too many.
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
            duplicate: self.known.contains(&input.id),
            durable: false,
        };
        if !receipt.duplicate {
            if self.known.len() == REMEMBERED {
                self.known.pop_front();
            }
            self.known.push_back(input.id.clone());
        }
        self.waiting.push_back(Accepted { receipt: id, input });
        Ok(receipt)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Accepted> {
        self.waiting.iter()
    }

    /// Takes the oldest `count` out.
    pub(crate) fn take(&mut self, count: usize) -> Vec<Accepted> {
        self.waiting
            .drain(..count.min(self.waiting.len()))
            .collect()
    }

    /// Puts inputs back before those that wait: they are older.
    pub(crate) fn put_back(&mut self, inputs: Vec<Accepted>) {
        for input in inputs.into_iter().rev() {
            self.waiting.push_front(input);
        }
    }
}
