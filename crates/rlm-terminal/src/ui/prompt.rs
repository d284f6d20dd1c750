//! The prompts: the menu, a text, questions of the agent, an editor.

use std::time::Duration;

use agent_duplex::PermissionRequest;
use loop_state::Timestamp;

use crate::line::Line;
use crate::run_snapshot::RunSnapshot;

/// The time for which a question must be on the screen, without a key, before a key can answer it.
pub(super) const READING: Duration = Duration::from_millis(500);

/// An open prompt.
#[derive(Debug)]
pub(super) enum Prompt {
    Menu(Menu),
    Steer {
        line: Line,
        now: bool,
        hint: Option<String>,
    },
    /// The first of the open questions.
    Ask(PermissionPrompt),
    /// An editor with the prompt of the phase with this index.
    Editor(u32),
}

#[derive(Debug)]
pub(super) struct PermissionQuestion {
    pub(super) ask: PermissionRequest,
    /// Whether a snapshot contained the question. A later snapshot without the question means that it needs no answer.
    pub(super) seen: bool,
}

/// The prompt that shows the first open question.
#[derive(Debug, Default)]
pub(super) struct PermissionPrompt {
    pub(super) hint: &'static str,
    /// The time from which keys can answer the question. It is set when the question is drawn, when its end is drawn, and by each key that comes too
    /// early.
    pub(super) open_at: Option<Timestamp>,
    /// The first visible row.
    pub(super) top: usize,
    /// Whether the end of the question was visible. Before that, the person can't allow it.
    pub(super) seen: bool,
}

/// An answered question. Snapshots may still contain it until the run has received the answer.
#[derive(Debug)]
pub(super) struct AnsweredQuestion {
    pub(super) id: String,
    pub(super) seen: bool,
}

/// The open menu.
#[derive(Debug, Default)]
pub(super) struct Menu {
    pub(super) hint: Option<String>,
    /// Whether the menu opened by itself, for a review. It then ignores keys that come too early, because they were meant for something else.
    pub(super) is_question: bool,
    /// The time from which keys choose in a review. It is set when the menu is drawn, and later again by each key that comes too early.
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

    pub(super) fn hint(&self, snapshot: RunSnapshot<'_>) -> Option<&str> {
        let standard = match snapshot.attached {
            true => "Esc keeps the run waiting; Ctrl-C twice detaches",
            false => "Esc keeps the run waiting; Ctrl-C twice saves and stops",
        };
        let hint = self.hint.as_deref();
        hint.or(self.is_question.then_some(standard))
    }

    /// Notes that the menu is on the screen. Returns whether it is a review that was not visible before.
    pub(super) fn drawn(&mut self, now: Timestamp) -> bool {
        let is_new = self.is_question && self.open_at.is_none();
        if is_new {
            self.open_at = Some(now + READING);
        }
        is_new
    }

    /// Returns whether the menu accepts a key now.
    pub(super) fn accepts_key(&mut self, now: Timestamp) -> bool {
        let is_early = self.is_question && self.open_at.is_none_or(|at| now < at);
        if is_early {
            self.open_at = self.open_at.map(|_| now + READING);
            self.hint = Some("read it first, then choose; Esc keeps the run waiting".into());
        }
        !is_early
    }
}

/// An open review.
#[derive(Debug)]
pub(super) struct ReviewQuestion {
    /// Whether a snapshot contained the review. A later snapshot without the review means that it was answered.
    pub(super) seen: bool,
    /// Whether the menu opens for it as soon as nothing else prompts.
    pub(super) due: bool,
}

pub(super) fn line(text: impl std::fmt::Display) -> String {
    format!("{text}\n")
}
