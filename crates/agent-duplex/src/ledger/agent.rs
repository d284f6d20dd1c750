//! The reports of the agent, believed if they can be true.

use uuid::Uuid;

use super::report::Report;
use super::turn::Begun;
use super::{Ledger, close, open};
use crate::{Ask, EndReason, Event, InputState, Observation, TurnEnd, What};

impl Ledger {
    /// Records an observation, and returns the events to publish.
    pub(crate) fn observe(&mut self, seen: Observation) -> Vec<What> {
        let mut report = Report::of(seen.raw);
        for event in seen.events {
            self.event(event, &mut report);
        }
        report.finish()
    }

    fn event(&mut self, event: Event, report: &mut Report) {
        self.sessions.see(&event);
        let tell = match &event {
            Event::TurnStarted { inputs } => return self.started(inputs, report),
            Event::Polled => {
                self.polled = true;
                return;
            }
            Event::TurnCompleted(end) => return self.completed(end, report),
            Event::Input { id, state } => return self.input(*id, state, report),
            Event::InterruptTaken { queued } => {
                let names = queued.iter().flat_map(|id| self.names(*id));
                let queued = names.map(|name| name.receipt).collect();
                return report.pass(Event::InterruptTaken { queued });
            }
            Event::TextDelta(_)
            | Event::ThinkingDelta(_)
            | Event::Message { .. }
            | Event::PermissionDenied { .. } => self.speaks(),
            Event::ToolStarted { id, .. } => self.speaks() && open(&mut self.tools, id),
            Event::ToolProgress { id } => self.tools.contains(id),
            Event::ToolFinished { id, .. } => close(&mut self.tools, id),
            Event::PermissionAsked(ask) => return self.asked(ask.clone(), report),
            Event::PermissionWithdrawn { id } => return self.withdrawn(id, report),
            Event::BackgroundTasks(running) => {
                self.background = *running;
                true
            }
            Event::Exited(status) => {
                self.exit = Some(*status);
                true
            }
            _ => true,
        };
        if tell {
            report.pass(event);
        }
    }

    /// Returns whether output of the agent can belong to the current turn, and is not late output of the turn before.
    fn speaks(&self) -> bool {
        let turn = self.turn.as_ref();
        turn.is_some_and(|turn| turn.begun != Begun::No || !self.announces)
    }

    fn started(&mut self, messages: &[Uuid], report: &mut Report) {
        self.announces = true;
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.begun == Begun::No) {
            let mine = messages.iter().any(|id| turn.has(*id));
            let others = self.sent.has_any(messages);
            if mine || !(others || turn.queued) {
                turn.begun = if mine { Begun::Named } else { Begun::Unnamed };
            } else {
                self.ahead = self.turn.take();
            }
        }
        let taken = self.take(messages);
        match self.turn {
            None => self.open(taken, Begun::Named, report),
            Some(_) => self.inject(taken, report),
        }
    }

    fn input(&mut self, id: Uuid, state: &InputState, report: &mut Report) {
        let names = self.names(id);
        match state {
            InputState::Queued => self.queued(id, report),
            InputState::Taken => self.taken(id, report),
            InputState::Dropped(_) => drop(self.sent.take(&[id])),
        }
        for name in names {
            report.pass(Event::Input {
                id: name.receipt,
                state: state.clone(),
            });
        }
        if let InputState::Dropped(why) = state {
            self.dropped(id, why, report);
        }
    }

    /// Handles a queued message: it is not the message that runs.
    fn queued(&mut self, id: Uuid, report: &mut Report) {
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.has(id)) else {
            return;
        };
        match turn.begun {
            Begun::No => turn.queued = true,
            Begun::Named => {}
            Begun::Unnamed => {
                turn.begun = Begun::No;
                turn.queued = true;
                self.ahead = self.turn.take();
                self.open(Vec::new(), Begun::Named, report);
            }
        }
    }

    fn taken(&mut self, id: Uuid, report: &mut Report) {
        let taken = self.take(&[id]);
        match &mut self.turn {
            Some(turn) if turn.has(id) => turn.begun = Begun::Named,
            None if !taken.is_empty() => self.open(taken, Begun::Named, report),
            _ => self.inject(taken, report),
        }
    }

    /// Handles a dropped message. A turn that lost its last message before its start never starts.
    fn dropped(&mut self, id: Uuid, why: &str, report: &mut Report) {
        let end = TurnEnd {
            detail: why.to_owned(),
            ..EndReason::Interrupted.into()
        };
        if let Some(turn) = self.ahead.as_mut().filter(|turn| turn.has(id)) {
            turn.remove(id);
            if turn.is_empty() {
                let turn = self.ahead.take();
                self.completion(turn, &end, report);
            }
        } else if let Some(turn) = self.turn.as_mut().filter(|turn| turn.begun == Begun::No) {
            turn.remove(id);
            if turn.is_empty() {
                self.complete(&end, report);
            }
        }
    }

    fn completed(&mut self, end: &TurnEnd, report: &mut Report) {
        let Some(turn) = &self.turn else {
            return;
        };
        if end.reason == EndReason::Completed {
            self.sessions.answered();
        }
        let stale = self.announces && turn.begun == Begun::No && end.reason == EndReason::Completed;
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
        let mut unanswered = self.unanswered.iter();
        unanswered.find(|id| self.ask_name(id) == ask).cloned()
    }

    /// Records that a permission request was answered; `ask` is the agent's id of the request.
    pub(crate) fn answered(&mut self, ask: &str) {
        close(&mut self.asks, ask);
        close(&mut self.unanswered, ask);
    }

    pub(super) fn asked(&mut self, mut ask: Ask, report: &mut Report) {
        open(&mut self.unanswered, &ask.id);
        if open(&mut self.asks, &ask.id) {
            ask.id = self.ask_name(&ask.id);
            report.pass(Event::PermissionAsked(ask));
        }
    }

    pub(super) fn withdrawn(&mut self, id: &str, report: &mut Report) {
        close(&mut self.unanswered, id);
        if close(&mut self.asks, id) {
            let id = self.ask_name(id);
            report.pass(Event::PermissionWithdrawn { id });
        }
    }

    /// Returns our id of a permission request of this connection.
    pub(super) fn ask_name(&self, id: &str) -> String {
        match self.generation {
            0 | 1 => id.to_owned(),
            generation => format!("{generation}/{id}"),
        }
    }
}
