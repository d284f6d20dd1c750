//! What a person types, as something to say to the agent or as a command.

use loop_state::{PauseAfter, Request, Timestamp, When};

use super::Ui;
use super::prompt::{Prompt, line};
use crate::command::{self, Command};
use crate::keys::{Key, MAX_PASTE};
use crate::scene::Scene;
use crate::status;
use crate::talk::said;

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
