//! The person's decisions: a choice of the menu, a review of a phase or a batch, a typed text or command.

use loop_state::{PauseAfter, RedoScope, Request, ReviewDecision, StopTiming, Timestamp};
use rlm_text::escape::plain;

use crate::command::Command;
use crate::editor::{Edit, EditResult};
use crate::keys::{Key, MAX_PASTE};
use crate::menu::{Choice, MenuChoice};
use crate::message_stream::format_steer;
use crate::run_snapshot::RunSnapshot;
use crate::style::{DIM, styled};
use crate::ui::prompt::{Menu, Prompt, ReviewQuestion, line};
use crate::ui::{Effect, PressAnswer, Ui};
use crate::{command, menu, status};

impl Ui {
    pub(super) fn menu_key(&mut self, key: &Key, snapshot: RunSnapshot<'_>, now: Timestamp) {
        let Some(Prompt::Menu(menu)) = &mut self.prompt else {
            return;
        };
        let Some(chosen) = menu::choice_for_key(key, snapshot).filter(|_| menu.accepts_key(now))
        else {
            return;
        };
        match chosen {
            MenuChoice::Invalid(c) => {
                let c = plain(&c.to_string());
                let esc = match snapshot.review() {
                    Some(_) => "keeps the run waiting",
                    None => "closes the menu",
                };
                menu.hint = Some(format!("not an option: `{c}`; Esc {esc}"));
            }
            MenuChoice::Nothing => {
                self.notice(PressAnswer::Handled);
                self.close();
            }
            MenuChoice::Choice(choice) => self.choose(choice, snapshot),
        }
    }

    pub(super) fn choose(&mut self, choice: Choice, snapshot: RunSnapshot<'_>) {
        self.notice(PressAnswer::Handled);
        let is_review = snapshot.review().is_some();
        match choice {
            Choice::Continue if is_review => self.send(Request::Review(ReviewDecision::Continue)),
            Choice::Continue => {
                if snapshot.awaits_person() {
                    self.send(Request::Continue);
                }
            }
            Choice::Steer | Choice::Revise => {
                let draft = std::mem::take(&mut self.draft);
                self.open_steer(draft, false);
                return;
            }
            Choice::EditPrompt => {
                let phase = snapshot.head.phase;
                self.ask_again();
                self.prompt = Some(Prompt::Editor(phase));
                self.effects.push(Effect::OpenEditor(phase));
                return;
            }
            Choice::EndTurn => self.send(Request::Interrupt),
            Choice::SkipSleep => self.send(Request::Skip),
            Choice::Restart => self.send(Request::Redo {
                what: RedoScope::Iteration,
            }),
            Choice::StartOver if is_review => self.send(Request::Review(ReviewDecision::StartOver)),
            Choice::StartOver => self.send(Request::Redo {
                what: RedoScope::Phase,
            }),
            Choice::Detach => self.effects.push(Effect::Detach),
            Choice::Exit => self.send(Request::Stop {
                when: StopTiming::Now,
            }),
            Choice::Abort => self.send(Request::Abort),
        }
        self.close();
    }

    /// Handles the end of the editor.
    pub(crate) fn edited(&mut self, result: EditResult) {
        let Some(Prompt::Editor(phase)) = self.prompt else {
            return;
        };
        match result {
            Ok(edit) => {
                let became = match edit {
                    Edit::None => "the prompt is unchanged",
                    _ => "the prompt is changed",
                };
                if let Edit::Text(text) = edit {
                    self.send(Request::Prompt { phase, text });
                }
                self.close();
                if !self.closed {
                    self.show_person(line(became));
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
    /// Opens the review when the run waits for one. If something else prompts, the review opens after that prompt.
    pub(super) fn review_asked(&mut self) {
        let (seen, due) = (false, true);
        self.review = Some(ReviewQuestion { seen, due });
        if self.prompt.is_none() {
            self.close();
        }
    }

    /// Closes the review if a new snapshot of the run no longer contains it.
    pub(super) fn review_viewed(&mut self, snapshot: RunSnapshot<'_>) {
        let is_open = snapshot.review().is_some();
        let Some(question) = &mut self.review else {
            return;
        };
        question.seen |= is_open;
        if question.seen && !is_open {
            self.review = None;
            if matches!(&self.prompt, Some(Prompt::Menu(menu)) if menu.is_question()) {
                self.show_person(line(styled(DIM, "the review was answered elsewhere")));
                self.close();
            }
        }
    }

    /// Opens the review again after the current prompt, unless it is answered by then.
    pub(super) fn ask_again(&mut self) {
        if let Some(question) = &mut self.review {
            question.due = true;
        }
    }

    /// Whether a question or a review is open and should be on the screen.
    pub(super) fn has_pending_question(&self) -> bool {
        self.waits_for_answer() || self.review.as_ref().is_some_and(|question| question.due)
    }

    pub(super) fn open_review(&mut self) {
        if let Some(question) = &mut self.review {
            question.due = false;
        }
        self.open(Prompt::Menu(Menu::question()));
    }
}

/// The maximum number of texts that are kept until the run has recorded them.
const MAX_SENT_TEXTS: usize = 16;

impl Ui {
    /// Handles lines, or the beginning of a line, that were typed while nothing prompted.
    pub(crate) fn lines(
        &mut self,
        text: &str,
        snapshot: RunSnapshot<'_>,
        now: Timestamp,
        run: &str,
    ) {
        match &mut self.prompt {
            Some(Prompt::Steer { line, .. }) => {
                // The line was typed before the prompt opened, so add its text but don't send it.
                line.key(Key::Paste(text.to_owned()), &self.history);
                return;
            }
            Some(_) => return,
            None => self.partial_line.push_str(text),
        }
        if self.closed || !self.partial_line.contains('\n') {
            // A terminal passes lines of at most a few thousand bytes. Longer input without a line end isn't typed by a person, so drop it.
            if self.closed || self.partial_line.len() > MAX_PASTE {
                self.partial_line.clear();
            }
            return;
        }
        let text = std::mem::take(&mut self.partial_line);
        let mut text = text.strip_suffix('\n').unwrap_or(&text);
        // Several lines may have been typed ahead. Run the leading commands one by one. The rest is one more command or a message to the agent.
        while let Some((first, rest)) = text.split_once('\n')
            && command::parse(first).is_some()
            && self.prompt.is_none()
        {
            self.typed_line(first, snapshot, now, run);
            text = rest;
        }
        if self.prompt.is_some() || text.contains('\n') {
            let before = match &self.prompt {
                Some(Prompt::Steer { line, .. }) => line.text().to_owned(),
                _ => String::new(),
            };
            self.open_steer(format!("{before}{text}\n"), false);
        } else {
            self.typed_line(text, snapshot, now, run);
        }
    }

    fn typed_line(&mut self, text: &str, snapshot: RunSnapshot<'_>, now: Timestamp, run: &str) {
        match command::parse(text) {
            None if text.trim().is_empty() => {
                let draft = std::mem::take(&mut self.draft);
                self.open_steer(draft, false);
            }
            None => self.open_steer(text.to_owned(), false),
            Some(Err(why)) => self.show_person(line(why)),
            Some(Ok(command)) => self.command(command, snapshot, now, run),
        }
    }

    pub(super) fn command(
        &mut self,
        command: Command,
        snapshot: RunSnapshot<'_>,
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
            Command::FreshSession => self.send(Request::FreshSession),
            Command::StopAfterIteration => self.send(Request::Stop {
                when: StopTiming::AfterIteration,
            }),
            Command::Stop => self.send(Request::Stop {
                when: StopTiming::Now,
            }),
            Command::Help => self.show_person(lines(&command::help())),
            Command::Status => self.show_person(lines(&status::report(run, snapshot, now))),
            Command::Steer(text, at_once) if text.is_empty() => {
                let draft = std::mem::take(&mut self.draft);
                self.open_steer(draft, at_once);
            }
            Command::Steer(text, at_once) => self.steer(text, at_once),
        }
    }

    pub(super) fn steer(&mut self, text: String, now: bool) {
        self.history.add(&text);
        let echo = line(format_steer(&text));
        let shares_log = self.log_width.is_some() && self.prompt.is_none() && !self.closed;
        if shares_log && self.stream.is_split() {
            let echo = self.stream.insert(&echo);
            self.log(echo);
        } else {
            self.show_person(echo);
        }
        self.sent_texts.push_back(text.clone());
        if self.sent_texts.len() > MAX_SENT_TEXTS {
            self.sent_texts.pop_front();
        }
        self.send(Request::Steer { text, now });
    }

    /// Whether a recorded steer was sent from this terminal, which has shown it already.
    pub(super) fn was_sent_here(&mut self, text: &str) -> bool {
        let at = self.sent_texts.iter().position(|sent| sent == text);
        let at = at.filter(|_| !self.is_json && self.log_width.is_some());
        // Keep the texts after this one: they were sent later.
        at.inspect(|at| drop(self.sent_texts.drain(..=*at)))
            .is_some()
    }
}

fn lines(all: &[String]) -> String {
    all.iter().map(line).collect()
}
