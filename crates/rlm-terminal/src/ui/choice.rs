//! The menu while it is open, and what follows from each choice.

use loop_runner::Control;
use loop_state::{Again, Timestamp, Verdict};
use rlm_text::escape::plain;

use super::{Answer, Effect, Prompt, Ui, line};
use crate::editor::{Edit, Edited};
use crate::keys::Key;
use crate::menu::{self, Choice, Chosen};
use crate::scene::Scene;
use crate::ui::ask::READING;

/// The menu while it is open.
#[derive(Debug, Default)]
pub(super) struct Menu {
    hint: Option<String>,
    /// Whether it opened by itself: then keys that were meant for something else choose nothing.
    is_question: bool,
    /// From when on keys choose something in such a one; set when it stands on the screen, and again by keys that come too early.
    open_at: Option<Timestamp>,
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
    fn hears(&mut self, now: Timestamp) -> bool {
        let is_early = self.is_question && self.open_at.is_none_or(|at| now < at);
        if is_early {
            self.open_at = self.open_at.map(|_| now + READING);
            self.hint = Some("read it first, then choose; Esc leaves the run waiting".into());
        }
        !is_early
    }
}

impl Ui {
    pub(super) fn menu_key(&mut self, key: &Key, scene: Scene<'_>, now: Timestamp) {
        let Some(Prompt::Menu(menu)) = &mut self.prompt else {
            return;
        };
        let Some(chosen) = menu::choose(key, scene).filter(|_| menu.hears(now)) else {
            return;
        };
        match chosen {
            Chosen::Wrong(c) => {
                let c = plain(&c.to_string());
                let esc = match scene.review() {
                    Some(_) => "leaves the run waiting",
                    None => "goes on",
                };
                menu.hint = Some(format!("`{c}` is no choice now; Esc {esc}"));
            }
            Chosen::Nothing => {
                self.notice(Answer::Handled);
                self.close();
            }
            Chosen::It(choice) => self.choose(choice, scene),
        }
    }

    pub(super) fn choose(&mut self, choice: Choice, scene: Scene<'_>) {
        self.notice(Answer::Handled);
        let is_review = scene.review().is_some();
        match choice {
            Choice::Continue if is_review => self.send(Control::Review(Verdict::Continue)),
            Choice::Continue => {
                if scene.waits() {
                    self.send(Control::Continue);
                }
            }
            Choice::Steer | Choice::Revise => {
                let draft = std::mem::take(&mut self.draft);
                self.open_steer(draft, false);
                return;
            }
            Choice::EditPrompt => {
                let phase = scene.head.phase;
                self.ask_again();
                self.prompt = Some(Prompt::Editor(phase));
                self.effects.push(Effect::Edit(phase));
                return;
            }
            Choice::SkipSleep => self.send(Control::SkipSleep),
            Choice::Restart => self.send(Control::Again(Again::Iteration)),
            Choice::StartOver if is_review => self.send(Control::Review(Verdict::StartOver)),
            Choice::StartOver => self.send(Control::Again(Again::Phase)),
            Choice::Detach => self.effects.push(Effect::Detach),
            Choice::Exit => self.effects.push(Effect::Exit),
            Choice::Abort => {
                self.send(Control::Abort);
                self.effects.push(Effect::Exit);
            }
        }
        self.close();
    }

    /// The editor has ended.
    pub(crate) fn edited(&mut self, result: Edited) {
        let Some(Prompt::Editor(phase)) = self.prompt else {
            return;
        };
        match result {
            Ok(edit) => {
                let became = match edit {
                    Edit::None => "the prompt is as it was",
                    _ => "the prompt was taken as it is now",
                };
                if let Edit::Text(text) = edit {
                    self.send(Control::Prompt { phase, text });
                }
                self.close();
                if !self.closed {
                    self.say(line(became));
                }
            }
            Err(why) => self.open(Prompt::Menu(Menu {
                hint: Some(why),
                ..Menu::default()
            })),
        }
    }
}
