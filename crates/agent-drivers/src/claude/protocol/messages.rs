//! The messages of a turn, and its beginning and end.

use super::json::Object;
use super::turn::Turn;
use super::{Request, Session};
use agent_duplex::{EndReason, Event, InputState, TurnEnd};
use uuid::Uuid;

impl Session {
    pub(super) fn message_state(&mut self, line: &Object<'_>, events: &mut Vec<Event>) {
        self.reports_delivery = true;
        let Some(id) = line
            .uuid("command_uuid")
            .filter(|id| self.queued_messages.contains(id))
        else {
            return;
        };
        match &*line.word("state") {
            "queued" => {
                let state = InputState::Queued;
                events.push(Event::Input { id, state });
            }
            "started" => self.add_to_turn(id, events),
            "completed" if self.turn.is_some() => self.add_to_turn(id, events),
            // Completed without a turn, like some of the agent's own commands.
            "completed" => {
                self.add_to_turn(id, events);
                self.begin(events);
                self.end(EndReason::Completed.into(), events);
            }
            state @ ("cancelled" | "discarded" | "refused") => self.drop_message(id, state, events),
            _ => {}
        }
    }

    pub(super) fn drop_message(&mut self, id: Uuid, why: &str, events: &mut Vec<Event>) {
        if let Some(n) = self
            .queued_messages
            .iter()
            .position(|waiting| *waiting == id)
        {
            self.queued_messages.remove(n);
            self.starting_messages.retain(|starting| *starting != id);
            // A message that is dropped because the process ends can be sent again to another process.
            if !self.is_ending {
                let state = InputState::Dropped(why.to_owned());
                events.push(Event::Input { id, state });
            }
        }
        if !self.is_turn_expected() {
            self.interrupt = None;
        }
    }

    pub(super) fn add_named_to_turn(&mut self, line: &Object<'_>, events: &mut Vec<Event>) {
        for id in line.uuids("user_message_uuids") {
            self.add_to_turn(id, events);
        }
    }

    /// Adds a message to the running turn, or to the turn that is about to begin.
    pub(super) fn add_to_turn(&mut self, id: Uuid, events: &mut Vec<Event>) {
        let Some(n) = self
            .queued_messages
            .iter()
            .position(|waiting| *waiting == id)
        else {
            return;
        };
        if self.turn.is_some() {
            self.queued_messages.remove(n);
            let state = InputState::InTurn;
            events.push(Event::Input { id, state });
        } else if !self.starting_messages.contains(&id) {
            self.starting_messages.push(id);
        }
    }

    /// Begins the announced turn, unless it has begun.
    pub(super) fn begin(&mut self, events: &mut Vec<Event>) {
        if self.turn.is_some() {
            return;
        }
        if self.starting_messages.is_empty() && !self.reports_delivery {
            // An agent that doesn't report delivery takes all queued messages.
            self.starting_messages.clone_from(&self.queued_messages);
        }
        if self.starting_messages.is_empty() && !self.is_turn_reported {
            return;
        }
        let inputs = std::mem::take(&mut self.starting_messages);
        self.queued_messages
            .retain(|waiting| !inputs.contains(waiting));
        self.turn = Some(Turn::default());
        events.push(Event::TurnStarted { inputs });
        self.expects_own_turn = false;
        self.report_background(events);
    }

    /// Ends the running turn, and closes everything open in it.
    pub(super) fn end(&mut self, end: TurnEnd, events: &mut Vec<Event>) {
        let Some(turn) = self.turn.take() else { return };
        turn.close(events);
        let withdrawn = self.asks.keys().cloned();
        events.extend(withdrawn.map(|id| Event::PermissionWithdrawn { id }));
        self.asks.retain(|_, request| request.is_subagent);
        let is_pending = self
            .pending
            .values()
            .any(|(what, _)| *what == Request::Interrupt);
        self.had_stray_end = is_pending && end.reason != EndReason::Interrupted;
        self.interrupt = None;
        self.is_turn_reported = false;
        events.push(Event::TurnCompleted(end));
        // The permission requests of background subagents stay open.
        let asks = self.asks.values().map(|request| request.ask.clone());
        events.extend(asks.map(Event::PermissionRequested));
    }
}
