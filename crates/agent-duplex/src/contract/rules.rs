//! The rules for the reports of a driver. They are checked below the conversation, because the ledger would correct violations silently.

use uuid::Uuid;

use crate::{Capabilities, Capability, EndReason, Event, InputPolicy, TurnEnd};

/// A check of one connection against the rules for drivers. Pure.
#[derive(Debug)]
pub(super) struct DriverRules {
    capabilities: Capabilities,
    policy: InputPolicy,
    sent: Vec<Uuid>,
    /// The number of turns that the agent started by itself.
    agent_turns: usize,
    /// Whether the connection reports the starts of turns.
    announces: bool,
    begun: bool,
    completed: usize,
    /// The bytes of the turn's text, in deltas and whole.
    deltas: usize,
    complete_bytes: usize,
}

impl DriverRules {
    pub(super) fn new(capabilities: Capabilities, policy: InputPolicy) -> Self {
        Self {
            capabilities,
            policy,
            sent: Vec::new(),
            agent_turns: 0,
            announces: false,
            begun: false,
            completed: 0,
            deltas: 0,
            complete_bytes: 0,
        }
    }

    /// Returns an error if the declarations of the driver contradict each other.
    pub(super) fn declared(&self) -> Result<(), String> {
        let steers = self.capabilities.has(Capability::Steer);
        match self.policy {
            InputPolicy::Push if !steers => Err("its policy is push, but steer is undeclared"),
            InputPolicy::AfterTurn if steers => {
                Err("the driver declares steer, but its input policy is after the turn")
            }
            _ => Ok(()),
        }
        .map_err(str::to_owned)
    }

    pub(super) fn sent(&mut self, message: Uuid) {
        self.sent.push(message);
    }

    /// Returns whether each message is known to be in a turn that has ended.
    pub(super) fn idle(&self) -> bool {
        self.completed >= self.sent.len() + self.agent_turns
    }

    /// Checks an event; the error names the rule that it breaks.
    pub(super) fn check_event(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::TextDelta(_) | Event::Message { .. } | Event::ToolStarted { .. }
                if self.sent.is_empty() && self.agent_turns == 0 =>
            {
                Err("the driver reports a turn before it got a message".to_owned())
            }
            Event::TurnStarted { inputs } => {
                self.agent_turns += usize::from(inputs.is_empty());
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
                self.complete_bytes += text.len();
                Ok(())
            }
            Event::ToolStarted { .. } | Event::ToolFinished { .. } => {
                self.check_declared(Capability::Tools)
            }
            Event::UsageReported(_) => self.check_declared(Capability::Usage),
            Event::PermissionRequested(_) => self.check_declared(Capability::Permissions),
            Event::AcceptsMessages if self.policy != InputPolicy::Poll => {
                Err("the driver polls for messages, but its input policy is not poll".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn ended(&mut self, end: &TurnEnd) -> Result<(), String> {
        let (deltas, whole) = (
            std::mem::take(&mut self.deltas),
            std::mem::take(&mut self.complete_bytes),
        );
        let begun = std::mem::take(&mut self.begun);
        self.completed += 1;
        let given = self.sent.len() + self.agent_turns;
        if self.completed > given {
            let completed = self.completed;
            return Err(format!(
                "the driver ended {completed} turns, but got {given} messages"
            ));
        } else if self.announces && !begun && end.reason == EndReason::Completed {
            return Err("the start of some turns is reported, but not of this one".to_owned());
        } else if whole < deltas {
            return Err(format!(
                "{deltas} bytes of text came in deltas, but only {whole} in whole messages"
            ));
        }
        Ok(())
    }

    fn known(&self, message: Uuid) -> Result<(), String> {
        if self.sent.contains(&message) {
            Ok(())
        } else {
            Err(format!(
                "the driver names the message {message}, which it never got"
            ))
        }
    }

    fn check_declared(&self, capability: Capability) -> Result<(), String> {
        if self.capabilities.has(capability) {
            Ok(())
        } else {
            Err(format!(
                "the driver reports {capability}, but does not declare it"
            ))
        }
    }
}
