//! Questions of the agent's.

use agent_duplex::{Ask, Decision};
use loop_runner::Control;

use super::{Prompt, Ui, line};
use crate::render::{DIM, plain, styled};
use crate::terminal::rows::{Rows, cut, take_rows, width as columns};
use crate::terminal::scene::Scene;

/// How many answered questions are remembered, so that the view does not bring them back.
const MAX_ANSWERED: usize = 100;
/// How many rows a question may take: its keys must stay in sight, however much it says.
const MAX_ROWS: usize = 6;

#[derive(Debug)]
pub(super) struct Question {
    pub(super) ask: Ask,
    /// Whether the view has shown it; when it no longer does, nobody waits for the answer.
    seen: bool,
}

impl Ui {
    pub(super) fn answer(&mut self, word: &str, decision: Decision) {
        if self.questions.is_empty() {
            return self.close();
        }
        let ask = self.questions.remove(0).ask;
        let what = format!("{}: {}", plain(&ask.tool), plain(&ask.summary));
        self.say(line(format!("{} {what}", styled(DIM, format!("{word}:")))));
        self.decide(ask, decision);
        self.close();
    }

    pub(super) fn decide(&mut self, ask: Ask, decision: Decision) {
        if self.answered.len() == MAX_ANSWERED {
            self.answered.remove(0);
        }
        self.answered.push(ask.id.clone());
        self.send(Control::Answer {
            ask: ask.id,
            decision,
        });
    }

    pub(super) fn asked(&mut self, ask: Ask) {
        let known = |id: &String| *id == ask.id;
        if self.questions.iter().any(|q| q.ask.id == ask.id) || self.answered.iter().any(known) {
            return;
        }
        if self.closed {
            return self.decide(ask, deny("nobody is there to answer"));
        }
        self.questions.push(Question { ask, seen: false });
        if self.prompt.is_none() {
            self.open(Prompt::Ask { hint: false });
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
        let asks = &scene.agent.asks;
        let shown = |id: &String| asks.iter().any(|ask| ask.id == *id);
        for question in &mut self.questions {
            question.seen |= shown(&question.ask.id);
        }
        self.withdrawn(|question| question.seen && !shown(&question.ask.id));
    }

    /// A moment passed: questions whose news were lost are asked all the same.
    pub(crate) fn ticked(&mut self, scene: Scene<'_>) {
        let before = std::mem::take(&mut self.unannounced);
        for ask in &scene.agent.asks {
            if before.contains(&ask.id) {
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

    pub(super) fn question_rows(&self, hint: bool, width: usize) -> Rows {
        let Some(Question { ask, .. }) = self.questions.first() else {
            return Rows::default();
        };
        let mut what = format!("may it? {}: {}", plain(&ask.tool), plain(&ask.summary));
        let mut rows = take_rows(&mut what, width);
        rows.push(what);
        rows.truncate(MAX_ROWS);
        if !ask.reason.is_empty() {
            rows.push(cut(&plain(&ask.reason), width));
        }
        let keys = match hint {
            true => "press y, n or Esc ",
            false => "y allow, n deny, Esc skip ",
        };
        let keys = cut(keys, width);
        let column = columns(&keys).min(width.saturating_sub(1));
        rows.push(keys);
        let cursor = Some((rows.len() - 1, column));
        Rows { rows, cursor }
    }
}

pub(super) fn deny(message: &str) -> Decision {
    Decision::Deny {
        message: message.into(),
    }
}
