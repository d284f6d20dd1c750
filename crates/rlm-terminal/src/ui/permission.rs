//! Permission requests of the agent: the terminal shows one at a time, and ignores keys until the person could read it.

use agent_duplex::{Decision, PermissionRequest};
use loop_state::{Request, Timestamp};
use rlm_text::escape::plain;

use super::Ui;
use super::prompt::{
    AnsweredQuestion, PermissionPrompt, PermissionQuestion, Prompt, READING, line,
};
use crate::keys::Key;
use crate::rows::{Rows, cut, take_rows, width as columns};
use crate::run_snapshot::RunSnapshot;
use crate::style::{DIM, styled};

/// The maximum number of answered questions that are remembered, so that an outdated snapshot doesn't open them again.
const MAX_ANSWERED: usize = 100;
/// The maximum number of columns of a question.
const MAX_TEXT: usize = 64 << 10;
/// The maximum number of columns of a question in the line about its answer.
const MAX_SUMMARY: usize = 200;
const DENIED: &str = "the person denied this";
const SKIPPED: &str = "the person skipped this question";
const KEYS: &str = "y: allow once, n or Esc: deny ";
const WRONG: &str = "press y, n or Esc ";
const EARLY: &str = "read it first; then y: allow once, n or Esc: deny ";
const MORE: &str = "there is more: press Space; n or Esc: deny ";

impl Ui {
    /// Whether the agent waits for an answer.
    pub(super) fn waits_for_answer(&self) -> bool {
        !self.questions.is_empty()
    }

    pub(super) fn open_question(&mut self) {
        self.open(Prompt::Ask(PermissionPrompt::default()));
    }

    /// Notes that the prompt is on the screen. Returns whether it is a question that was not visible before.
    pub(crate) fn drawn(&mut self, now: Timestamp) -> bool {
        let (all, room) = (self.question_text().len(), self.question_room());
        let asking = match &mut self.prompt {
            Some(Prompt::Ask(asking)) => asking,
            Some(Prompt::Menu(menu)) => return menu.drawn(now),
            _ => return false,
        };
        let is_new = asking.open_at.is_none();
        let shows_end = asking.top + room >= all;
        if is_new || (shows_end && !asking.seen) {
            asking.open_at = Some(now + READING);
        }
        asking.seen |= shows_end;
        is_new
    }

    pub(super) fn question_key(&mut self, key: &Key, now: Timestamp) {
        let (all, room) = (self.question_text().len(), self.question_room());
        let Some(Prompt::Ask(asking)) = &mut self.prompt else {
            return;
        };
        asking.hint = "";
        match key {
            Key::Char(' ' | 'v' | 'V') | Key::Down | Key::Enter if all > room => {
                asking.top = (asking.top + room).min(all - room);
                return;
            }
            Key::Up => {
                asking.top = asking.top.saturating_sub(room);
                return;
            }
            _ => {}
        }
        // The key was probably meant for the earlier screen, or for a line that the person was typing.
        if asking.open_at.is_none_or(|at| now < at) {
            asking.open_at = asking.open_at.map(|_| now + READING);
            asking.hint = EARLY;
            return;
        }
        let (word, decision) = match key {
            Key::Char('y' | 'Y') if !asking.seen => {
                asking.hint = MORE;
                return;
            }
            Key::Char('y' | 'Y') => ("allowed", Decision::Allow),
            Key::Char('n' | 'N') => ("denied", deny(DENIED)),
            Key::Esc => ("skipped", deny(SKIPPED)),
            _ => {
                asking.hint = WRONG;
                return;
            }
        };
        if self.questions.is_empty() {
            return self.close();
        }
        let ask = self.questions.remove(0).ask;
        self.show_person(line(format!(
            "{} {}",
            styled(DIM, format!("{word}:")),
            short(&ask)
        )));
        self.decide(ask, decision);
        self.close();
    }

    fn decide(&mut self, ask: PermissionRequest, decision: Decision) {
        if self.answered.len() == MAX_ANSWERED {
            self.answered.remove(0);
        }
        let (id, seen) = (ask.id.clone(), false);
        self.answered.push(AnsweredQuestion { id, seen });
        let (allow, message) = match decision {
            Decision::Allow => (true, String::new()),
            Decision::Deny { message } => (false, message),
            _ => (false, String::new()),
        };
        self.send(Request::Answer {
            permission_request: ask.id,
            allow,
            message,
        });
    }

    /// Forgets an answer that did not reach the run, so that the question opens again if the snapshot still contains it.
    pub(crate) fn answer_lost(&mut self, ask: &str) {
        self.answered.retain(|answered| answered.id != ask);
    }

    /// Opens a question of the agent. A question whose id was used before is a new question.
    pub(super) fn permission_requested(&mut self, ask: PermissionRequest) {
        if self.questions.iter().any(|q| q.ask.id == ask.id) {
            return;
        }
        self.answer_lost(&ask.id);
        if self.closed && self.attached {
            return;
        }
        if self.closed {
            return self.decide(ask, deny("no person is attached"));
        }
        self.questions.push(PermissionQuestion { ask, seen: false });
        if self.prompt.is_none() {
            self.open_question();
        }
    }

    pub(super) fn permission_withdrawn(&mut self, gone: impl Fn(&PermissionQuestion) -> bool) {
        let first = self.questions.first().is_some_and(&gone);
        self.questions.retain(|question| !gone(question));
        if first && matches!(self.prompt, Some(Prompt::Ask { .. })) {
            self.show_person(line(styled(DIM, "the question no longer needs an answer")));
            self.close();
        }
    }

    /// Compares the open questions with a new snapshot of the run.
    pub(crate) fn view_changed(&mut self, snapshot: RunSnapshot<'_>) {
        let shown = |id: &str| {
            snapshot
                .agent
                .permission_requests
                .iter()
                .any(|ask| ask.id == id)
        };
        for question in &mut self.questions {
            question.seen |= shown(&question.ask.id);
        }
        for answered in &mut self.answered {
            answered.seen |= shown(&answered.id);
        }
        self.answered.retain(|a| !a.seen || shown(&a.id));
        self.permission_withdrawn(|question| question.seen && !shown(&question.ask.id));
        self.review_viewed(snapshot);
    }

    /// Handles a tick: opens a question that was already in the snapshot of the last tick and is not open, because its event was lost. Also prints the
    /// lines that have waited long enough for the end of the agent's sentence.
    pub(crate) fn tick(&mut self, snapshot: RunSnapshot<'_>) {
        // While something prompts, ticks come faster, and the log waits anyway.
        if self.prompt.is_none() {
            let waiting = self.stream.tick();
            self.log(waiting);
        }
        let before = std::mem::take(&mut self.unannounced_questions);
        for ask in &snapshot.agent.permission_requests {
            let answered = self.answered.iter().any(|answered| answered.id == ask.id);
            if !answered && before.contains(&ask.id) {
                self.permission_requested(ask.clone());
            }
            self.unannounced_questions.push(ask.id.clone());
        }
    }

    pub(super) fn refuse_questions(&mut self) {
        // If another process works on the run, other people may answer.
        for question in std::mem::take(&mut self.questions) {
            if self.attached {
                continue;
            }
            self.decide(question.ask, deny("no person is attached"));
        }
    }

    /// Returns the whole question, in rows.
    fn question_text(&self) -> Vec<String> {
        let Some(PermissionQuestion { ask, .. }) = self.questions.first() else {
            return Vec::new();
        };
        let summary = cut(&plain(&ask.summary.replace('\n', "⏎ ")), MAX_TEXT);
        let mut what = format!("allow? {}: {summary}", plain(&ask.tool));
        let mut rows = take_rows(&mut what, self.size.0);
        rows.push(what);
        if !ask.reason.is_empty() {
            rows.push(cut(&plain(&ask.reason), self.size.0));
        }
        rows
    }

    /// Returns how many rows of a question fit on the screen; one row is for the keys.
    fn question_room(&self) -> usize {
        self.size.1.saturating_sub(1).max(1)
    }

    pub(super) fn question_rows(&self, asking: &PermissionPrompt) -> Rows {
        let (all, room) = (self.question_text(), self.question_room());
        let top = asking.top.min(all.len().saturating_sub(room));
        let more = all.len().saturating_sub(top + room);
        let mut rows: Vec<String> = all.into_iter().skip(top).take(room).collect();
        let keys = match (asking.hint, more) {
            ("", 0) => KEYS.to_owned(),
            ("", more) => format!("… {more} more: Space; y: allow once, n or Esc: deny "),
            (hint, _) => hint.to_owned(),
        };
        let keys = cut(&keys, self.size.0);
        let column = columns(&keys).min(self.size.0.saturating_sub(1));
        rows.push(keys);
        let cursor = Some((rows.len() - 1, column));
        Rows {
            rows,
            cursor,
            echo: false,
        }
    }
}

/// Returns a question on one line.
fn short(ask: &PermissionRequest) -> String {
    cut(
        &format!("{}: {}", plain(&ask.tool), plain(&ask.summary)),
        MAX_SUMMARY,
    )
}

/// Whether this is a message that this terminal sends to the agent when the person denies or skips a question.
pub(super) fn is_own(message: &str) -> bool {
    [DENIED, SKIPPED].contains(&message)
}

pub(super) fn deny(message: &str) -> Decision {
    Decision::Deny {
        message: message.into(),
    }
}
