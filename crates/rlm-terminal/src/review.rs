//! What a person is asked when a phase or a batch is over, in words.

use loop_state::{Head, Occasion, Step};
use rlm_text::escape::plain;

use crate::menu::Choice;
use crate::scene::Scene;

/// What waits for a person's word.
#[derive(Clone, Copy, Debug)]
pub struct Review<'a> {
    head: &'a Head,
    of: Occasion,
}

impl<'a> Review<'a> {
    /// Returns what waits for the user, if a phase or a batch does.
    #[must_use]
    pub fn of(head: &'a Head) -> Option<Self> {
        match head.step {
            Step::Review { of, .. } => Some(Self { head, of }),
            _ => None,
        }
    }

    /// Whether what is over is a phase, of which the next one has not begun.
    fn is_boundary(self) -> bool {
        self.head.iteration == 0
    }

    fn name(self, index: u32) -> String {
        let phase = self.head.rules.phases.get(index as usize);
        phase.map_or_else(String::new, |phase| format!("`{}`", plain(&phase.name)))
    }

    /// Returns the number of the phase that was at work last, and its name.
    fn last(self) -> (u32, String) {
        let index = self
            .head
            .phase
            .saturating_sub(u32::from(self.is_boundary()));
        (index + 1, self.name(index))
    }

    /// Says what is over.
    #[must_use]
    pub fn asks(self) -> String {
        let all = self.head.rules.phases.len();
        let (number, name) = self.last();
        let what = match (self.of, self.is_boundary()) {
            (_, true) => format!("phase {name} ({number} of {all}) is over"),
            _ if all > 1 => format!(
                "iteration {} of phase {name} ({number} of {all}) ends a batch",
                self.head.iteration
            ),
            _ => format!("iteration {} ends a batch", self.head.iteration),
        };
        format!("{what}: your word")
    }

    /// Says what a choice does.
    pub(crate) fn says(self, choice: Choice, label: &str) -> String {
        let (_, last) = self.last();
        let next = self.name(self.head.phase);
        match (choice, self.is_boundary()) {
            (Choice::Continue, true) => format!("{label} with phase {next}"),
            (Choice::Revise, true) => {
                format!("{label}: phase {last} is run again, with what you say in its prompt")
            }
            (Choice::Revise, false) => format!("{label}: the next prompt has what you say"),
            (Choice::EditPrompt, _) => format!("{label} of phase {next}"),
            (Choice::StartOver, _) => {
                format!("{label}: phase {last} from iteration 1 (files stay)")
            }
            _ => label.to_owned(),
        }
    }
}

impl Scene<'_> {
    /// Returns what waits for the user's decision.
    pub(crate) fn review(&self) -> Option<Review<'_>> {
        Review::of(self.head).filter(|_| !self.is_ending())
    }
}
