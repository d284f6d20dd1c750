//! Asks, by the agent's names for them and by ours: agents may count from 1, each of them, and an answer must not reach another one than it is for.

use super::report::Report;
use super::{Ledger, close, open};
use crate::{Ask, Event};

impl Ledger {
    /// Returns the agent's name for an ask, if the agent that runs may wait for the answer to it.
    pub(crate) fn unanswered(&self, ask: &str) -> Option<String> {
        let mut unanswered = self.unanswered.iter();
        unanswered.find(|id| self.ask_name(id) == ask).cloned()
    }

    /// An ask was answered; `ask` is the agent's name for it.
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

    /// Returns our name for an ask of this connection.
    pub(super) fn ask_name(&self, id: &str) -> String {
        match self.generation {
            0 | 1 => id.to_owned(),
            generation => format!("{generation}/{id}"),
        }
    }
}
