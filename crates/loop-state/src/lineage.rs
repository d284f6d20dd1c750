//! Where a fork comes from, and what of the other run's state does not go along.

use serde::{Deserialize, Serialize};

use crate::text::tail;
use crate::{Head, Step, Streaks, Then, Waits};

/// Where a run comes from that is a fork of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lineage {
    /// The other run's name.
    pub run: String,
    /// The iteration of it that is gone on from.
    pub iteration: u32,
    /// The number of the save that is gone on from.
    pub seq: u64,
}

impl Head {
    /// Makes the head of a new run that goes on where this one stands; its first event is [`Happening::Resumed`](crate::Happening::Resumed).
    ///
    /// What was counted and used up to here counts for the fork too, as its history does, so that a budget is not had twice. What failed in a row, and
    /// every wish to stop, to wait or to begin again, was the other run's, and so is the conversation: it may know what comes after. A turn that was begun behind the
    /// iteration that is gone on from is as if it had not been, but for its number.
    #[must_use]
    pub fn fork(mut self, mut parent: Lineage) -> Self {
        parent.run = tail(parent.run);
        let is_begun = !self.step.is_rest() && self.step != Step::Ready;
        if is_begun && self.iteration > parent.iteration {
            self.step = Step::Ready;
            self.cut = None;
            self.recall_steers();
        }
        self.parent = Some(parent);
        self.streaks = Streaks::default();
        self.waits = Waits::default();
        self.stopping = None;
        self.pausing = false;
        self.again = None;
        if let Step::Settling {
            then: then @ Then::Again(_),
        } = &mut self.step
        {
            *then = Then::Next;
        }
        self.halting = false;
        self.end = None;
        self.elsewhere()
    }

    /// Makes the head of the same run where nobody knows the conversation of its agent: the next attempt begins another one.
    #[must_use]
    pub fn elsewhere(mut self) -> Self {
        self.session = None;
        self.prompted = false;
        self.continues = false;
        self
    }
}
