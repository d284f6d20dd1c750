//! The session for the next agent: a session is only worth continuing after the agent has answered in it. Its name alone is not enough.

use crate::{Event, SessionChoice};

/// The session that the next agent continues if no caller chooses one.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    next: SessionChoice,
    /// The session that the running connection named.
    named: Option<String>,
    /// Whether the agent has answered in it. Some agents name a session before it exists.
    answered: bool,
    /// Whether agents can continue a session at all.
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

    /// Records that a caller chose the session of the agent that starts now. The choice applies until that agent has answered.
    pub(super) fn set_session(&mut self, session: SessionChoice) {
        self.named = None;
        self.answered = false;
        self.next = session;
    }

    pub(super) fn observe(&mut self, event: &Event) {
        match event {
            Event::Session { id } if self.named.as_ref() != Some(id) => {
                self.answered = false;
                self.named = Some(id.clone());
                // An agent creates such a session only once, and names it when it exists.
                if self.next == SessionChoice::Create(id.clone()) {
                    self.next = SessionChoice::Resume(id.clone());
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_with_a_chosen_id_is_created_only_once() {
        let created = || SessionChoice::Create("1-1".to_owned());
        let named = |id: &str| Event::Session { id: id.to_owned() };
        let mut sessions = Sessions::new(true, None);
        sessions.set_session(created());
        // An agent that did not open it may try again.
        assert_eq!(sessions.next(), &created());
        // Before an answer, a session with another id is not worth continuing.
        sessions.observe(&named("2"));
        assert_eq!(sessions.next(), &created());
        sessions.observe(&named("1-1"));
        assert_eq!(sessions.next(), &SessionChoice::Resume("1-1".to_owned()));
    }
}
