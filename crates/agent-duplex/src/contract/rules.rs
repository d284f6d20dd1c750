//! What a driver owes below the conversation, where the ledger would mend it unseen.

use uuid::Uuid;

use crate::{Capabilities, Capability, EndReason, Event, InputPolicy, TurnEnd};

/// One connection, held against the rules for those who write drivers. Pure.
#[derive(Debug)]
pub(super) struct Rules {
    capabilities: Capabilities,
    policy: InputPolicy,
    sent: Vec<Uuid>,
    /// Turns that the agent began by itself.
    own: usize,
    /// Whether the connection says when a turn begins.
    announces: bool,
    begun: bool,
    completed: usize,
    /// Bytes of the turn's text, in pieces and whole.
    deltas: usize,
    whole: usize,
}

impl Rules {
    pub(super) fn new(capabilities: Capabilities, policy: InputPolicy) -> Self {
        Self {
            capabilities,
            policy,
            sent: Vec::new(),
            own: 0,
            announces: false,
            begun: false,
            completed: 0,
            deltas: 0,
            whole: 0,
        }
    }

    /// Returns how it contradicts itself before anything is started.
    pub(super) fn declared(&self) -> Result<(), String> {
        let steers = self.capabilities.has(Capability::Steer);
        match self.policy {
            InputPolicy::Push if !steers => Err("it is pushed inputs and does not declare steer"),
            InputPolicy::AfterTurn if steers => {
                Err("it declares steer and gets inputs after the turn only")
            }
            _ => Ok(()),
        }
        .map_err(str::to_owned)
    }

    pub(super) fn sent(&mut self, message: Uuid) {
        self.sent.push(message);
    }

    /// Returns whether each message is known to be in a turn that is over.
    pub(super) fn idle(&self) -> bool {
        self.completed >= self.sent.len() + self.own
    }

    /// Notes an event; the error says which rule it breaks.
    pub(super) fn see(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::TextDelta(_) | Event::Message { .. } | Event::ToolStarted { .. }
                if self.sent.is_empty() && self.own == 0 =>
            {
                Err("it tells of a turn before it was sent anything".to_owned())
            }
            Event::TurnStarted { inputs } => {
                self.own += usize::from(inputs.is_empty());
                self.announces = true;
                self.begun = true;
                inputs.iter().try_for_each(|id| self.known(*id))
            }
            Event::TurnCompleted(end) => self.ended(end),
            Event::Input { id, .. } => self.known(*id),
            Event::TextDelta(text) => {
                self.deltas += text.len();
                Ok(())
            }
            Event::Message { text, .. } => {
                self.whole += text.len();
                Ok(())
            }
            Event::ToolStarted { .. } | Event::ToolFinished { .. } => {
                self.declares(Capability::Tools)
            }
            Event::Used(_) => self.declares(Capability::Usage),
            Event::PermissionAsked(_) => self.declares(Capability::Permissions),
            Event::Polled if self.policy != InputPolicy::Poll => {
                Err("it polls for messages, and its policy is another".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn ended(&mut self, end: &TurnEnd) -> Result<(), String> {
        let (deltas, whole) = (
            std::mem::take(&mut self.deltas),
            std::mem::take(&mut self.whole),
        );
        let begun = std::mem::take(&mut self.begun);
        self.completed += 1;
        let given = self.sent.len() + self.own;
        if self.completed > given {
            let completed = self.completed;
            return Err(format!(
                "it ended {completed} turns and was given {given} messages"
            ));
        } else if self.announces && !begun && end.reason == EndReason::Completed {
            return Err("it says of some turns that they began, and not of this one".to_owned());
        } else if whole < deltas {
            return Err(format!(
                "of {deltas} bytes of text that came in pieces, {whole} came whole"
            ));
        }
        Ok(())
    }

    fn known(&self, message: Uuid) -> Result<(), String> {
        if self.sent.contains(&message) {
            Ok(())
        } else {
            Err(format!(
                "it names the message {message}, which it was never sent"
            ))
        }
    }

    fn declares(&self, capability: Capability) -> Result<(), String> {
        if self.capabilities.has(capability) {
            Ok(())
        } else {
            Err(format!("it reports {capability} and does not declare that"))
        }
    }
}
