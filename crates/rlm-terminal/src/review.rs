//! The texts of a review: the question to a person about a finished phase or batch.

use loop_state::{Head, IterationStep, ReviewPoint};
use rlm_text::escape::plain;

use crate::menu::Choice;
use crate::run_snapshot::RunSnapshot;

/// A phase or a batch that waits for a person's review.
#[derive(Clone, Copy, Debug)]
pub struct ReviewPrompt<'a> {
    head: &'a Head,
    of: ReviewPoint,
}

impl<'a> ReviewPrompt<'a> {
    /// Returns the review that the run waits for, if any.
    #[must_use]
    pub fn of(head: &'a Head) -> Option<Self> {
        match head.step {
            IterationStep::Review { point: of, .. } => Some(Self { head, of }),
            _ => None,
        }
    }

    /// Whether a phase finished and the next one has not begun.
    fn is_boundary(self) -> bool {
        self.head.iteration == 0
    }

    fn name(self, index: u32) -> String {
        let phase = self.head.rules.phases.get(index as usize);
        phase.map_or_else(String::new, |phase| format!("`{}`", plain(&phase.name)))
    }

    /// Returns the number and the name of the phase that ran last.
    fn last(self) -> (u32, String) {
        let index = self
            .head
            .phase
            .saturating_sub(u32::from(self.is_boundary()));
        (index + 1, self.name(index))
    }

    /// Returns the question: which phase or batch finished.
    #[must_use]
    pub fn question(self) -> String {
        let all = self.head.rules.phases.len();
        let (number, name) = self.last();
        let subject = match (self.of, self.is_boundary()) {
            (_, true) => format!("phase {name} ({number} of {all}) finished"),
            _ if all > 1 => format!(
                "iteration {} of phase {name} ({number} of {all}) ends a batch",
                self.head.iteration
            ),
            _ => format!("iteration {} ends a batch", self.head.iteration),
        };
        format!("{subject}: review it")
    }

    /// Returns the label of a choice.
    pub(crate) fn label(self, choice: Choice, label: &str) -> String {
        let (_, last) = self.last();
        let next = self.name(self.head.phase);
        match (choice, self.is_boundary()) {
            (Choice::Continue, true) => format!("{label} with phase {next}"),
            (Choice::Revise, true) => {
                format!("{label}: run phase {last} again with your message in its prompt")
            }
            (Choice::Revise, false) => format!("{label}: add your message to the next prompt"),
            (Choice::EditPrompt, _) => format!("{label} of phase {next}"),
            (Choice::StartOver, _) => {
                format!("{label}: phase {last} from iteration 1 (files stay)")
            }
            _ => label.to_owned(),
        }
    }
}

impl RunSnapshot<'_> {
    /// Returns the review that the run waits for, unless the run is ending.
    pub(crate) fn review(&self) -> Option<ReviewPrompt<'_>> {
        ReviewPrompt::of(self.head).filter(|_| !self.is_ending())
    }
}
