use uuid::Uuid;

use crate::inbox::Accepted;
use crate::published::{Assignment, InputRef, TurnId, What};

/// A turn that was assigned and is not completed.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) id: TurnId,
    pub(super) parent: Option<TurnId>,
    pub(super) messages: Vec<Parcel>,
    pub(super) begun: Begun,
    /// Whether the agent said that it has put a message of this turn off.
    pub(super) queued: bool,
}

/// Whether the agent said that a turn runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    No,
    /// It said that a turn began, not which.
    Unnamed,
    Named,
}

/// A message of a turn, and the inputs that it was made of.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) id: Uuid,
    names: Vec<InputRef>,
}

impl Parcel {
    pub(super) fn new(id: Uuid, inputs: &[Accepted]) -> Self {
        let names = inputs.iter().map(Accepted::name).collect();
        Self { id, names }
    }

    pub(super) fn names(&self) -> &[InputRef] {
        &self.names
    }
}

impl Turn {
    pub(super) fn has(&self, message: Uuid) -> bool {
        self.messages.iter().any(|parcel| parcel.id == message)
    }

    pub(super) fn remove(&mut self, message: Uuid) {
        self.messages.retain(|parcel| parcel.id != message);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Makes messages part of this turn.
    pub(super) fn assign(
        &mut self,
        messages: Vec<Parcel>,
        generation: u32,
        injected: bool,
    ) -> What {
        let inputs = messages.iter().flat_map(Parcel::names).cloned().collect();
        self.messages.extend(messages);
        What::Assigned(Assignment {
            turn: self.id,
            generation,
            inputs,
            parent: self.parent,
            forked: false,
            injected,
        })
    }
}
