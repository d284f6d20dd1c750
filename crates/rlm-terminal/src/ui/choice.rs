//! What the user decides: a choice of the menu, the decision on a phase or a batch, a typed text or command.

use loop_state::{Again, PauseAfter, Request, Timestamp, Verdict, When};
use rlm_text::escape::plain;

use crate::command::Command;
use crate::editor::{Edit, Edited};
use crate::keys::{Key, MAX_PASTE};
use crate::menu::{Choice, Chosen};
use crate::scene::Scene;
use crate::style::{DIM, styled};
use crate::talk::said;
use crate::ui::prompt::{Menu, Prompt, ReviewQuestion, line};
use crate::ui::{Answer, Effect, Ui};
use crate::{command, menu, status};

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
            Choice::Continue if is_review => self.send(Request::Review(Verdict::Continue)),
            Choice::Continue => {
                if scene.waits() {
                    self.send(Request::Continue);
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
            Choice::EndTurn => self.send(Request::Interrupt),
            Choice::SkipSleep => self.send(Request::Skip),
            Choice::Restart => self.send(Request::Again {
                what: Again::Iteration,
            }),
            Choice::StartOver if is_review => self.send(Request::Review(Verdict::StartOver)),
            Choice::StartOver => self.send(Request::Again { what: Again::Phase }),
            Choice::Detach => self.effects.push(Effect::Detach),
            Choice::Exit => self.send(Request::Stop { after: When::Now }),
            Choice::Abort => self.send(Request::Abort),
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
                    self.send(Request::Prompt { phase, text });
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

impl Ui {
    /// The run waits for a person's word. What was said before that is on the screen.
    pub(super) fn review_asked(&mut self) {
        let (seen, due) = (false, true);
        self.review = Some(ReviewQuestion { seen, due });
        if self.prompt.is_none() {
            self.close();
        }
    }

    /// The run looks different now.
    pub(super) fn review_viewed(&mut self, scene: Scene<'_>) {
        let is_open = scene.review().is_some();
        let Some(question) = &mut self.review else {
            return;
        };
        question.seen |= is_open;
        if question.seen && !is_open {
            self.review = None;
            if matches!(&self.prompt, Some(Prompt::Menu(menu)) if menu.is_question()) {
                self.say(line(styled(DIM, "it was answered elsewhere")));
                self.close();
            }
        }
    }

    /// The menu comes back when what takes its place is over, if nobody has answered by then.
    pub(super) fn ask_again(&mut self) {
        if let Some(question) = &mut self.review {
            question.due = true;
        }
    }

    /// Whether anything is asked that is not on the screen.
    pub(super) fn is_asked(&self) -> bool {
        self.waits_for_answer() || self.review.as_ref().is_some_and(|question| question.due)
    }

    pub(super) fn open_review(&mut self) {
        if let Some(question) = &mut self.review {
            question.due = false;
        }
        self.open(Prompt::Menu(Menu::question()));
    }
}

/// How many texts are kept that the run has not recorded yet.
const MAX_SAID: usize = 16;

impl Ui {
    /// Lines were typed while nothing prompted, or the beginning of one.
    pub(crate) fn lines(&mut self, text: &str, scene: Scene<'_>, now: Timestamp, run: &str) {
        match &mut self.prompt {
            Some(Prompt::Steer { line, .. }) => {
                // It was on its way when the prompt opened: text, and no order to send it.
                line.key(Key::Paste(text.to_owned()), &self.history);
                return;
            }
            Some(_) => return,
            None => self.begun.push_str(text),
        }
        if self.closed || !self.begun.contains('\n') {
            // A terminal passes lines of a few thousand bytes; who sends more without an end types nothing.
            if self.closed || self.begun.len() > MAX_PASTE {
                self.begun.clear();
            }
            return;
        }
        let text = std::mem::take(&mut self.begun);
        let mut text = text.strip_suffix('\n').unwrap_or(&text);
        // Commands that were typed ahead are carried out one by one; what is no command was typed, or pasted, to be said.
        while let Some((first, rest)) = text.split_once('\n')
            && command::parse(first).is_some()
            && self.prompt.is_none()
        {
            self.typed_line(first, scene, now, run);
            text = rest;
        }
        if self.prompt.is_some() || text.contains('\n') {
            let before = match &self.prompt {
                Some(Prompt::Steer { line, .. }) => line.text().to_owned(),
                _ => String::new(),
            };
            self.open_steer(format!("{before}{text}\n"), false);
        } else {
            self.typed_line(text, scene, now, run);
        }
    }

    fn typed_line(&mut self, text: &str, scene: Scene<'_>, now: Timestamp, run: &str) {
        match command::parse(text) {
            None if text.trim().is_empty() => {
                let draft = std::mem::take(&mut self.draft);
                self.open_steer(draft, false);
            }
            None => self.open_steer(text.to_owned(), false),
            Some(Err(why)) => self.say(line(why)),
            Some(Ok(command)) => self.command(command, scene, now, run),
        }
    }

    pub(super) fn command(
        &mut self,
        command: Command,
        scene: Scene<'_>,
        now: Timestamp,
        run: &str,
    ) {
        match command {
            Command::Pause => self.send(Request::Pause {
                reason: None,
                after: PauseAfter::Iteration,
            }),
            Command::Continue => self.send(Request::Continue),
            Command::Interrupt => self.send(Request::Interrupt),
            Command::Skip => self.send(Request::Skip),
            Command::New => self.send(Request::Fresh),
            Command::StopLater => self.send(Request::Stop {
                after: When::AfterIteration,
            }),
            Command::Exit => self.send(Request::Stop { after: When::Now }),
            Command::Help => self.say(lines(&command::help())),
            Command::Status => self.say(lines(&status::report(run, scene, now))),
            Command::Steer(text, at_once) if text.is_empty() => {
                let draft = std::mem::take(&mut self.draft);
                self.open_steer(draft, at_once);
            }
            Command::Steer(text, at_once) => self.steer(text, at_once),
        }
    }

    pub(super) fn steer(&mut self, text: String, now: bool) {
        self.history.add(&text);
        self.say(line(said(&text)));
        self.said.push_back(text.clone());
        if self.said.len() > MAX_SAID {
            self.said.pop_front();
        }
        self.send(Request::Steer { text, now });
    }

    /// Whether what a person said was said, and shown, here.
    pub(super) fn is_said_here(&mut self, text: &str) -> bool {
        let at = self.said.iter().position(|said| said == text);
        let at = at.filter(|_| !self.is_json && self.log_width.is_some());
        // What comes behind it was said later.
        at.inspect(|at| drop(self.said.drain(..=*at))).is_some()
    }
}

fn lines(all: &[String]) -> String {
    all.iter().map(line).collect()
}
