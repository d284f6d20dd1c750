//! The menu while it is open, and what follows from each choice.

use loop_state::{Again, Request, Timestamp, Verdict, When};
use rlm_text::escape::plain;

use super::prompt::{Menu, Prompt, line};
use super::{Answer, Effect, Ui};
use crate::editor::{Edit, Edited};
use crate::keys::Key;
use crate::menu::{self, Choice, Chosen};
use crate::scene::Scene;

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
