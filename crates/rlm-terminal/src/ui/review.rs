//! The question whether a phase or a batch is good: the menu opens by itself.

use super::Ui;
use super::prompt::{Menu, Prompt, ReviewQuestion, line};
use crate::scene::Scene;
use crate::style::{DIM, styled};

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
