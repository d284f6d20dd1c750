//! Questions of the agent's.

use std::time::Duration;

use agent_duplex::{Ask, Decision};
use loop_runner::Control;
use loop_state::Timestamp;

use super::{Prompt, Ui, line};
use crate::render::{DIM, plain, styled};
use crate::terminal::keys::Key;
use crate::terminal::rows::{Rows, cut, take_rows, width as columns};
use crate::terminal::scene::Scene;

/// How many answered questions are remembered, so that the view does not bring them back.
const MAX_ANSWERED: usize = 100;
/// How many rows a question may take: its keys must stay in sight, however much it says.
const MAX_ROWS: usize = 8;
/// How much of it is repeated with the answer.
const MAX_SUMMARY: usize = 200;
/// How long a question must have stood on the screen, and no key been pressed, before a key answers it.
const READING: Duration = Duration::from_millis(500);
const KEYS: &str = "y allow, n deny, Esc skip ";
const WRONG: &str = "press y, n or Esc ";
const EARLY: &str = "read it first; then y allow, n deny, Esc skip ";

#[derive(Debug)]
pub(super) struct Question {
    pub(super) ask: Ask,
    /// Whether the view has shown it; when it no longer does, nobody waits for the answer.
    seen: bool,
}

/// A question that was answered. The view may still show it, until the run has heard the answer.
#[derive(Debug)]
pub(super) struct Answered {
    id: String,
    seen: bool,
}

impl Ui {
    pub(super) fn open_question(&mut self) {
        let hint = "";
        let open_at = None;
        self.open(Prompt::Ask { hint, open_at });
    }

    /// What prompts stands on the screen now. Says whether it is a question that was not to be seen before.
    pub(crate) fn drawn(&mut self, now: Timestamp) -> bool {
        match &mut self.prompt {
            Some(Prompt::Ask { open_at, .. }) if open_at.is_none() => {
                *open_at = Some(now + READING);
                true
            }
            _ => false,
        }
    }

    pub(super) fn question_key(&mut self, key: &Key, now: Timestamp) {
        let Some(Prompt::Ask { hint, open_at }) = &mut self.prompt else {
            return;
        };
        // Meant for what stood there before, or for a line that was being typed.
        if open_at.is_none_or(|at| now < at) {
            *open_at = open_at.map(|_| now + READING);
            *hint = EARLY;
            return;
        }
        let (word, decision) = match key {
            Key::Char('y' | 'Y') => ("allowed", Decision::Allow),
            Key::Char('n' | 'N') => ("denied", deny("the person denied this")),
            Key::Esc => ("skipped", deny("the person skipped this question")),
            _ => {
                *hint = WRONG;
                return;
            }
        };
        if self.questions.is_empty() {
            return self.close();
        }
        let ask = self.questions.remove(0).ask;
        let what = format!("{}: {}", plain(&ask.tool), short(&ask.summary));
        self.say(line(format!("{} {what}", styled(DIM, format!("{word}:")))));
        self.decide(ask, decision);
        self.close();
    }

    fn decide(&mut self, ask: Ask, decision: Decision) {
        if self.answered.len() == MAX_ANSWERED {
            self.answered.remove(0);
        }
        let (id, seen) = (ask.id.clone(), false);
        self.answered.push(Answered { id, seen });
        self.send(Control::Answer {
            ask: ask.id,
            decision,
        });
    }

    /// The answer did not reach the run: as long as the view shows the question, it is open.
    pub(crate) fn unanswered(&mut self, ask: &str) {
        self.answered.retain(|answered| answered.id != ask);
    }

    /// The agent asks. An id that it used before is a new question.
    pub(super) fn asked(&mut self, ask: Ask) {
        if self.questions.iter().any(|q| q.ask.id == ask.id) {
            return;
        }
        self.unanswered(&ask.id);
        if self.closed {
            return self.decide(ask, deny("nobody is there to answer"));
        }
        self.questions.push(Question { ask, seen: false });
        if self.prompt.is_none() {
            self.open_question();
        }
    }

    pub(super) fn withdrawn(&mut self, gone: impl Fn(&Question) -> bool) {
        let first = self.questions.first().is_some_and(&gone);
        self.questions.retain(|question| !gone(question));
        if first && matches!(self.prompt, Some(Prompt::Ask { .. })) {
            self.say(line(styled(DIM, "the question needs no answer any more")));
            self.close();
        }
    }

    /// The run looks different now.
    pub(crate) fn viewed(&mut self, scene: Scene<'_>) {
        let shown = |id: &str| scene.agent.asks.iter().any(|ask| ask.id == id);
        for question in &mut self.questions {
            question.seen |= shown(&question.ask.id);
        }
        for answered in &mut self.answered {
            answered.seen |= shown(&answered.id);
        }
        self.answered.retain(|a| !a.seen || shown(&a.id));
        self.withdrawn(|question| question.seen && !shown(&question.ask.id));
    }

    /// A moment passed: questions whose news were lost are asked all the same.
    pub(crate) fn ticked(&mut self, scene: Scene<'_>) {
        let before = std::mem::take(&mut self.unannounced);
        for ask in &scene.agent.asks {
            let answered = self.answered.iter().any(|answered| answered.id == ask.id);
            if !answered && before.contains(&ask.id) {
                self.asked(ask.clone());
            }
            self.unannounced.push(ask.id.clone());
        }
    }

    pub(super) fn refuse_questions(&mut self) {
        for question in std::mem::take(&mut self.questions) {
            self.decide(question.ask, deny("nobody is there to answer"));
        }
    }

    pub(super) fn question_rows(&self, hint: &str, width: usize, height: usize) -> Rows {
        let Some(Question { ask, .. }) = self.questions.first() else {
            return Rows::default();
        };
        let mut what = format!("may it? {}: {}", plain(&ask.tool), plain(&ask.summary));
        let mut rows = take_rows(&mut what, width);
        rows.push(what);
        let room = height.saturating_sub(1).clamp(1, MAX_ROWS);
        if rows.len() > room {
            // The end of a command decides as much as its beginning.
            let head = room.div_ceil(2).min(room - 1);
            let tail = rows.len() - (room - head - 1);
            let left_out = tail - head;
            let mark = format!("… {left_out} more rows, see `rlm logs` …");
            rows.splice(head..tail, [cut(&mark, width)]);
        }
        if !ask.reason.is_empty() && rows.len() + 1 < height {
            rows.push(cut(&plain(&ask.reason), width));
        }
        let keys = if hint.is_empty() { KEYS } else { hint };
        let keys = cut(keys, width);
        let column = columns(&keys).min(width.saturating_sub(1));
        rows.push(keys);
        let cursor = Some((rows.len() - 1, column));
        Rows {
            rows,
            cursor,
            echo: false,
        }
    }
}

fn short(text: &str) -> String {
    cut(&plain(text), MAX_SUMMARY)
}

pub(super) fn deny(message: &str) -> Decision {
    Decision::Deny {
        message: message.into(),
    }
}
