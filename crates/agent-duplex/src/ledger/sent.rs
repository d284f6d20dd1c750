//! The messages that were delivered and are in no turn yet.

use std::collections::VecDeque;

use uuid::Uuid;

use crate::inbox::AcceptedInput;

type Message = (Uuid, Vec<AcceptedInput>);

/// Messages with their inputs, oldest first.
#[derive(Debug, Default)]
pub(super) struct SentMessages {
    messages: VecDeque<Message>,
    inputs: usize,
}

impl SentMessages {
    pub(super) fn push(&mut self, id: Uuid, inputs: Vec<AcceptedInput>) {
        self.inputs += inputs.len();
        self.messages.push_back((id, inputs));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns the number of inputs in all messages.
    pub(super) fn inputs(&self) -> usize {
        self.inputs
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter()
    }

    pub(super) fn has_any(&self, named: &[Uuid]) -> bool {
        self.messages.iter().any(|(id, _)| named.contains(id))
    }

    /// Removes and returns the named messages, oldest first.
    pub(super) fn take(&mut self, named: &[Uuid]) -> Vec<Message> {
        let mut taken = Vec::new();
        // Agents mostly handle messages in order, and there can be thousands.
        while let Some((id, _)) = self.messages.front()
            && named.contains(id)
        {
            taken.extend(self.messages.pop_front());
        }
        if taken.len() < named.len() && self.has_any(named) {
            let all = std::mem::take(&mut self.messages).into_iter();
            let (found, rest): (VecDeque<_>, _) = all.partition(|(id, _)| named.contains(id));
            taken.extend(found);
            self.messages = rest;
        }
        self.inputs -= taken.iter().map(|(_, inputs)| inputs.len()).sum::<usize>();
        taken
    }

    /// Removes and returns all messages.
    pub(super) fn drain(&mut self) -> VecDeque<Message> {
        std::mem::take(self).messages
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use proptest::prelude::*;

    use super::*;
    use crate::Input;
    use crate::inbox::Inbox;

    proptest! {
        #[test]
        fn p20a_named_messages_are_taken_in_order(
            counts in proptest::collection::vec(1usize..4, 0..12),
            names in proptest::collection::vec(proptest::collection::vec(0u128..14, 0..5), 0..12),
        ) {
            let (mut sent, mut plain) = (SentMessages::default(), Vec::new());
            for (id, count) in counts.iter().enumerate() {
                let (id, mut inbox) = (Uuid::from_u128(id as u128), Inbox::new(9));
                for _ in 0..*count {
                    inbox.accept(Input::new(""), 0, Uuid::new_v4(), SystemTime::UNIX_EPOCH).unwrap();
                }
                sent.push(id, inbox.take(*count));
                plain.push((id, *count));
            }
            for named in names {
                let named: Vec<Uuid> = named.into_iter().map(Uuid::from_u128).collect();
                let taken = sent.take(&named).into_iter().map(|(id, inputs)| (id, inputs.len()));
                let expected: Vec<_> = plain.extract_if(.., |(id, _)| named.contains(id)).collect();
                prop_assert_eq!(taken.collect::<Vec<_>>(), expected);
                prop_assert_eq!(sent.inputs(), plain.iter().map(|(_, count)| count).sum::<usize>());
                prop_assert_eq!(sent.iter().map(|(id, _)| *id).collect::<Vec<_>>(), plain.iter().map(|(id, _)| *id).collect::<Vec<_>>());
            }
        }
    }
}
