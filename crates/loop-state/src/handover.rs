//! That another agent goes on with the work: said in its prompts until a turn is over that saw it.

use serde::{Deserialize, Serialize};

use crate::Head;
use crate::text::tail;

/// Another agent went on with the work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Handover {
    /// The agent before it.
    pub from: String,
    /// The last attempt of that agent's, counted over the whole run.
    pub attempt: u32,
    /// Whether a turn is over that was told of it.
    pub told: bool,
}

impl Head {
    /// Gives the work to another agent than `from`, which nobody knows by its session.
    pub(crate) fn hand_over(&mut self, from: String) {
        let attempt = self.counts.attempts;
        // Whoever was named and never began has done nothing.
        let idle = self.handover.take().filter(|last| last.attempt == attempt);
        let from = idle.map_or_else(|| tail(from), |last| last.from);
        let told = false;
        self.handover = (attempt > 0).then_some(Handover {
            from,
            attempt,
            told,
        });
        self.session = None;
        self.prompted = false;
        self.continues = false;
    }

    /// Returns the agent that worked before the present one, if that is still to be told.
    pub(crate) fn predecessor(&self) -> Option<&str> {
        let untold = self.handover.as_ref().filter(|handover| !handover.told);
        untold.map(|handover| handover.from.as_str())
    }
}
