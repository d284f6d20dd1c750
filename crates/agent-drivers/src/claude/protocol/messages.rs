//! The messages of a turn, and its beginning and end.

use super::json::Object;
use super::turn::Turn;
use super::{Request, Session};
use agent_duplex::{EndReason, Event, InputState, TurnEnd};
use uuid::Uuid;

impl Session {
    pub(super) fn fate(&mut self, line: &Object<'_>, events: &mut Vec<Event>) {
        self.tells_fate = true;
        let Some(id) = line
            .uuid("command_uuid")
            .filter(|id| self.waiting.contains(id))
        else {
            return;
        };
        match &*line.word("state") {
            "queued" => {
                let state = InputState::Queued;
                events.push(Event::Input { id, state });
            }
            "started" => self.claim(id, events),
            "completed" if self.turn.is_some() => self.claim(id, events),
            // Completed without a turn, like some of the agent's own commands.
            "completed" => {
                self.claim(id, events);
                self.begin(events);
                self.end(EndReason::Completed.into(), events);
            }
            state @ ("cancelled" | "discarded" | "refused") => self.drop_message(id, state, events),
            _ => {}
        }
    }

    pub(super) fn drop_message(&mut self, id: Uuid, why: &str, events: &mut Vec<Event>) {
        if let Some(n) = self.waiting.iter().position(|waiting| *waiting == id) {
            self.waiting.remove(n);
            self.starting.retain(|starting| *starting != id);
            // A message that is dropped because the process ends can be sent again to another process.
            if !self.leaving {
                let state = InputState::Dropped(why.to_owned());
                events.push(Event::Input { id, state });
            }
        }
        if !self.owes_turn() {
            self.interrupt = None;
        }
    }

    pub(super) fn claim_named(&mut self, line: &Object<'_>, events: &mut Vec<Event>) {
        for id in line.uuids("user_message_uuids") {
            self.claim(id, events);
        }
    }

    /// Adds a message to the running turn, or to the turn that is about to begin.
    pub(super) fn claim(&mut self, id: Uuid, events: &mut Vec<Event>) {
        let Some(n) = self.waiting.iter().position(|waiting| *waiting == id) else {
            return;
        };
        if self.turn.is_some() {
            self.waiting.remove(n);
            let state = InputState::Taken;
            events.push(Event::Input { id, state });
        } else if !self.starting.contains(&id) {
            self.starting.push(id);
        }
    }

    /// Begins the announced turn, unless it has begun.
    pub(super) fn begin(&mut self, events: &mut Vec<Event>) {
        if self.turn.is_some() {
            return;
        }
        if self.starting.is_empty() && !self.tells_fate {
            // An agent that doesn't report delivery takes all queued messages.
            self.starting.clone_from(&self.waiting);
        }
        if self.starting.is_empty() && !self.announced {
            return;
        }
        let inputs = std::mem::take(&mut self.starting);
        self.waiting.retain(|waiting| !inputs.contains(waiting));
        self.turn = Some(Turn::default());
        events.push(Event::TurnStarted { inputs });
        self.owes_look = false;
        self.tell_background(events);
    }

    /// Ends the running turn, and closes everything open in it.
    pub(super) fn end(&mut self, end: TurnEnd, events: &mut Vec<Event>) {
        let Some(turn) = self.turn.take() else { return };
        turn.close(events);
        let withdrawn = self.asks.keys().cloned();
        events.extend(withdrawn.map(|id| Event::PermissionWithdrawn { id }));
        self.asks.retain(|_, asked| asked.apart);
        let is_pending = self
            .pending
            .values()
            .any(|(what, _)| *what == Request::Interrupt);
        self.stray = is_pending && end.reason != EndReason::Interrupted;
        self.interrupt = None;
        self.announced = false;
        events.push(Event::TurnCompleted(end));
        // The permission requests of background subagents stay open.
        let asks = self.asks.values().map(|asked| asked.ask.clone());
        events.extend(asks.map(Event::PermissionAsked));
    }
}
