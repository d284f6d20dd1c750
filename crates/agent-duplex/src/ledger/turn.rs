//! An open turn: its messages, and the agent's reports about its start.

use uuid::Uuid;

use super::event_batch::EventBatch;
use crate::Event;
use crate::inbox::AcceptedInput;
use crate::published::{Assignment, ConversationEvent, InputRef, TurnId};

/// A turn that was assigned and is not completed.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) id: TurnId,
    pub(super) parent: Option<TurnId>,
    /// Whether an input chose the parent.
    pub(super) forked: bool,
    pub(super) messages: Vec<TurnMessage>,
    pub(super) start: TurnStart,
    /// Whether the agent reported that it queued a message of this turn.
    pub(super) queued: bool,
}

/// Whether the agent reported the start of the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnStart {
    No,
    /// The agent reported the start of a turn, without naming it.
    Unnamed,
    Named,
}

/// A message of a turn, and its inputs.
#[derive(Debug)]
pub(super) struct TurnMessage {
    pub(super) id: Uuid,
    names: Vec<InputRef>,
    parents: Vec<TurnId>,
}

impl TurnMessage {
    pub(super) fn new(id: Uuid, inputs: &[AcceptedInput]) -> Self {
        Self {
            id,
            names: inputs.iter().map(AcceptedInput::name).collect(),
            parents: inputs.iter().filter_map(|a| a.input.parent).collect(),
        }
    }

    /// Iterates over the turns that its inputs continue.
    pub(super) fn parents(&self) -> impl Iterator<Item = TurnId> {
        self.parents.iter().copied()
    }

    pub(super) fn names(&self) -> &[InputRef] {
        &self.names
    }
}

impl Turn {
    pub(super) fn has(&self, message: Uuid) -> bool {
        self.messages.iter().any(|own| own.id == message)
    }

    pub(super) fn remove(&mut self, message: Uuid) {
        self.messages.retain(|own| own.id != message);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Assigns messages to this turn.
    pub(super) fn assign(
        &mut self,
        messages: Vec<TurnMessage>,
        generation: u32,
        injected: bool,
        report: &mut EventBatch,
    ) {
        let other = {
            let mut parents = messages.iter().flat_map(TurnMessage::parents);
            parents.find(|parent| Some(*parent) != self.parent)
        };
        let inputs = messages
            .iter()
            .flat_map(TurnMessage::names)
            .cloned()
            .collect();
        self.messages.extend(messages);
        report.add(ConversationEvent::Assigned(Assignment {
            turn: self.id,
            generation,
            inputs,
            parent: self.parent,
            forked: self.forked,
            injected,
        }));
        if let Some(other) = other {
            let turn = self.id;
            let text = format!(
                "turn {turn} does not continue turn {other}, although one of its inputs requests this: an earlier input chose another parent"
            );
            report.add_event(Event::Warning(text));
        }
    }
}
