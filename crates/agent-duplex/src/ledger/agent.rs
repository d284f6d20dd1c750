//! The reports of the agent. The ledger ignores a report that can't be true.

use uuid::Uuid;

use super::event_batch::EventBatch;
use super::turn::TurnStart;
use super::{Ledger, close, open};
use crate::{
    ConversationEvent, EndReason, Event, InputState, Observation, PermissionRequest, TurnEnd,
};

impl Ledger {
    /// Records an observation, and returns the events to publish.
    pub(crate) fn observe(&mut self, seen: Observation) -> Vec<ConversationEvent> {
        let mut report = EventBatch::of(seen.raw);
        for event in seen.events {
            self.event(event, &mut report);
        }
        report.finish()
    }

    fn event(&mut self, event: Event, report: &mut EventBatch) {
        self.sessions.observe(&event);
        let is_published = match &event {
            Event::TurnStarted { inputs } => return self.started(inputs, report),
            Event::AcceptsMessages => {
                self.accepts_messages = true;
                return;
            }
            Event::TurnCompleted(end) => return self.completed(end, report),
            Event::Input { id, state } => return self.input(*id, state, report),
            Event::InterruptAcknowledged { queued } => {
                let names = queued.iter().flat_map(|id| self.names(*id));
                let queued = names.map(|name| name.receipt).collect();
                return report.add_event(Event::InterruptAcknowledged { queued });
            }
            Event::TextDelta(_)
            | Event::ThinkingDelta(_)
            | Event::Message { .. }
            | Event::PermissionDenied { .. } => self.is_in_turn(),
            Event::ToolStarted { id, .. } => self.is_in_turn() && open(&mut self.tools, id),
            Event::ToolProgress { id } => self.tools.contains(id),
            Event::ToolFinished { id, .. } => close(&mut self.tools, id),
            Event::PermissionRequested(ask) => {
                return self.permission_requested(ask.clone(), report);
            }
            Event::PermissionWithdrawn { id } => return self.permission_withdrawn(id, report),
            Event::BackgroundTasks(running) => {
                self.background_tasks = *running;
                true
            }
            Event::Exited(status) => {
                self.exit = Some(*status);
                true
            }
            _ => true,
        };
        if is_published {
            report.add_event(event);
        }
    }

    /// Returns whether output of the agent can belong to the current turn, and is not late output of the turn before.
    fn is_in_turn(&self) -> bool {
        let turn = self.turn.as_ref();
        turn.is_some_and(|turn| turn.start != TurnStart::No || !self.reports_turn_starts)
    }

    fn started(&mut self, messages: &[Uuid], report: &mut EventBatch) {
        self.reports_turn_starts = true;
        if let Some(turn) = self
            .turn
            .as_mut()
            .filter(|turn| turn.start == TurnStart::No)
        {
            let mine = messages.iter().any(|id| turn.has(*id));
            let others = self.sent.has_any(messages);
            if mine || !(others || turn.queued) {
                turn.start = if mine {
                    TurnStart::Named
                } else {
                    TurnStart::Unnamed
                };
            } else {
                self.next_turn = self.turn.take();
            }
        }
        let taken = self.take(messages);
        match self.turn {
            None => self.open(taken, TurnStart::Named, report),
            Some(_) => self.inject(taken, report),
        }
    }

    fn input(&mut self, id: Uuid, state: &InputState, report: &mut EventBatch) {
        let names = self.names(id);
        match state {
            InputState::Queued => self.queued(id, report),
            InputState::InTurn => self.taken(id, report),
            InputState::Dropped(_) => drop(self.sent.take(&[id])),
        }
        for name in names {
            report.add_event(Event::Input {
                id: name.receipt,
                state: state.clone(),
            });
        }
        if let InputState::Dropped(why) = state {
            self.dropped(id, why, report);
        }
    }

    /// Handles the report that a message is queued. If that message was assigned to the running turn, the agent
    /// actually runs another turn, which it started by itself.
    fn queued(&mut self, id: Uuid, report: &mut EventBatch) {
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.has(id)) else {
            return;
        };
        match turn.start {
            TurnStart::No => turn.queued = true,
            TurnStart::Named => {}
            TurnStart::Unnamed => {
                turn.start = TurnStart::No;
                turn.queued = true;
                self.next_turn = self.turn.take();
                self.open(Vec::new(), TurnStart::Named, report);
            }
        }
    }

    fn taken(&mut self, id: Uuid, report: &mut EventBatch) {
        let taken = self.take(&[id]);
        match &mut self.turn {
            Some(turn) if turn.has(id) => turn.start = TurnStart::Named,
            None if !taken.is_empty() => self.open(taken, TurnStart::Named, report),
            _ => self.inject(taken, report),
        }
    }

    /// Handles a dropped message. If a turn loses its last message before the turn starts, it never starts.
    fn dropped(&mut self, id: Uuid, why: &str, report: &mut EventBatch) {
        let end = TurnEnd {
            detail: why.to_owned(),
            ..EndReason::Interrupted.into()
        };
        if let Some(turn) = self.next_turn.as_mut().filter(|turn| turn.has(id)) {
            turn.remove(id);
            if turn.is_empty() {
                let turn = self.next_turn.take();
                self.completion(turn, &end, report);
            }
        } else if let Some(turn) = self
            .turn
            .as_mut()
            .filter(|turn| turn.start == TurnStart::No)
        {
            turn.remove(id);
            if turn.is_empty() {
                self.complete(&end, report);
            }
        }
    }

    fn completed(&mut self, end: &TurnEnd, report: &mut EventBatch) {
        let Some(turn) = &self.turn else {
            return;
        };
        if end.reason == EndReason::Completed {
            self.sessions.answered();
        }
        let stale = self.reports_turn_starts
            && turn.start == TurnStart::No
            && end.reason == EndReason::Completed;
        if !stale {
            self.complete(end, report);
        }
    }
}

/// Translates the ids of permission requests. Several agents can each count from 1, and an answer must not reach another request, so our ids contain
/// the number of the connection.
impl Ledger {
    /// Returns the agent's id of a permission request, if the running agent possibly waits for the answer.
    pub(crate) fn unanswered(&self, ask: &str) -> Option<String> {
        let mut unanswered = self.open_requests.iter();
        unanswered.find(|id| self.request_id(id) == ask).cloned()
    }

    /// Records that a permission request was answered; `ask` is the agent's id of the request.
    pub(crate) fn answered(&mut self, ask: &str) {
        close(&mut self.permission_requests, ask);
        close(&mut self.open_requests, ask);
    }

    pub(super) fn permission_requested(
        &mut self,
        mut ask: PermissionRequest,
        report: &mut EventBatch,
    ) {
        open(&mut self.open_requests, &ask.id);
        if open(&mut self.permission_requests, &ask.id) {
            ask.id = self.request_id(&ask.id);
            report.add_event(Event::PermissionRequested(ask));
        }
    }

    pub(super) fn permission_withdrawn(&mut self, id: &str, report: &mut EventBatch) {
        close(&mut self.open_requests, id);
        if close(&mut self.permission_requests, id) {
            let id = self.request_id(id);
            report.add_event(Event::PermissionWithdrawn { id });
        }
    }

    /// Returns our id of a permission request of this connection.
    pub(super) fn request_id(&self, id: &str) -> String {
        match self.generation {
            0 | 1 => id.to_owned(),
            generation => format!("{generation}/{id}"),
        }
    }
}
