//! When a session is worth going on with: not once the agent names it, but once it has answered in it.

use crate::{Event, SessionChoice};

/// Which session the next agent goes on with, when nobody says so.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    next: SessionChoice,
    /// The session of the connection that runs, as far as it said so.
    named: Option<String>,
    /// Whether the agent has answered in it. Some name a session before there is one.
    answered: bool,
    /// Whether agents can go on with a session at all.
    resumable: bool,
}

impl Sessions {
    pub(super) fn new(resumable: bool, last: Option<String>) -> Self {
        let next = last.filter(|_| resumable);
        Self {
            next: next.map_or(SessionChoice::Fresh, SessionChoice::Resume),
            resumable,
            ..Self::default()
        }
    }

    pub(super) fn next(&self) -> &SessionChoice {
        &self.next
    }

    /// Somebody chose the session of the agent that is started now; until that one has answered, the choice stands.
    pub(super) fn chosen(&mut self, session: SessionChoice) {
        self.named = None;
        self.answered = false;
        self.next = session;
    }

    pub(super) fn see(&mut self, event: &Event) {
        match event {
            Event::Session { id } if self.named.as_ref() != Some(id) => {
                self.answered = false;
                self.named = Some(id.clone());
            }
            Event::TextDelta(_)
            | Event::ThinkingDelta(_)
            | Event::Message { .. }
            | Event::ToolStarted { .. } => self.answered(),
            _ => {}
        }
    }

    pub(super) fn answered(&mut self) {
        if self.resumable
            && !std::mem::replace(&mut self.answered, self.named.is_some())
            && let Some(id) = &self.named
        {
            self.next = SessionChoice::Resume(id.clone());
        }
    }
}
