//! What waits for the user: the menu, a text, questions of the agent, an editor.

use std::time::Duration;

use agent_duplex::Ask;
use loop_state::Timestamp;

use crate::line::Line;
use crate::scene::Scene;

/// How long a question must have stood on the screen, and no key been pressed, before a key answers it.
pub(super) const READING: Duration = Duration::from_millis(500);

/// What waits for the person.
#[derive(Debug)]
pub(super) enum Prompt {
    Menu(Menu),
    Steer {
        line: Line,
        now: bool,
        hint: Option<String>,
    },
    /// The first of the questions.
    Ask(Asking),
    /// On the prompt of the phase with this index.
    Editor(u32),
}

#[derive(Debug)]
pub(super) struct Question {
    pub(super) ask: Ask,
    /// Whether the view has shown it; when it no longer does, nobody waits for the answer.
    pub(super) seen: bool,
}

/// How far the person is with the first question.
#[derive(Debug, Default)]
pub(super) struct Asking {
    pub(super) hint: &'static str,
    /// From when on keys answer it; set when it stands on the screen, and again by keys that come too early.
    pub(super) open_at: Option<Timestamp>,
    /// The first row that is shown.
    pub(super) top: usize,
    /// Whether its end was shown: before that it can't be allowed.
    pub(super) seen: bool,
}

/// A question that was answered. The view may still show it, until the run has heard the answer.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) id: String,
    pub(super) seen: bool,
}

/// The menu while it is open.
#[derive(Debug, Default)]
pub(super) struct Menu {
    pub(super) hint: Option<String>,
    /// Whether it opened by itself: then keys that were meant for something else choose nothing.
    pub(super) is_question: bool,
    /// From when on keys choose something in such a one; set when it stands on the screen, and again by keys that come too early.
    pub(super) open_at: Option<Timestamp>,
}

impl Menu {
    pub(super) fn question() -> Self {
        Self {
            is_question: true,
            ..Self::default()
        }
    }

    pub(super) fn is_question(&self) -> bool {
        self.is_question
    }

    pub(super) fn hint(&self, scene: Scene<'_>) -> Option<&str> {
        let standard = match scene.attached {
            true => "Esc leaves the run waiting; Ctrl-C, twice, detaches",
            false => "Esc leaves the run waiting; Ctrl-C, twice, saves and stops",
        };
        let hint = self.hint.as_deref();
        hint.or(self.is_question.then_some(standard))
    }

    /// It stands on the screen now. Says whether it is a question that was not to be seen before.
    pub(super) fn drawn(&mut self, now: Timestamp) -> bool {
        let is_new = self.is_question && self.open_at.is_none();
        if is_new {
            self.open_at = Some(now + READING);
        }
        is_new
    }

    /// Returns whether a key is meant for it.
    pub(super) fn hears(&mut self, now: Timestamp) -> bool {
        let is_early = self.is_question && self.open_at.is_none_or(|at| now < at);
        if is_early {
            self.open_at = self.open_at.map(|_| now + READING);
            self.hint = Some("read it first, then choose; Esc leaves the run waiting".into());
        }
        !is_early
    }
}

/// The question while nobody has answered it.
#[derive(Debug)]
pub(super) struct ReviewQuestion {
    /// Whether the view has shown it; when it no longer does, it was answered.
    pub(super) seen: bool,
    /// Whether the menu is to open as soon as nothing else prompts.
    pub(super) due: bool,
}

pub(super) fn line(text: impl std::fmt::Display) -> String {
    format!("{text}\n")
}
