use crate::text::tail;
use crate::{Counts, Head, Streaks, Usage, Waits};

/// Where a run comes from that is a fork of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Position, finished phases and steers are the parent's; what was used, counted or in a row was not the fork's own and begins at nothing.
    #[must_use]
    pub fn fork(mut self, mut parent: Lineage) -> Self {
        parent.run = tail(parent.run);
        self.parent = Some(parent);
        self.counts = Counts {
            // A steer that waits keeps its number, which no other one may have.
            steers: self.counts.steers,
            processes: 1,
            ..Counts::default()
        };
        self.usage = Usage::default();
        self.iteration_usage = Usage::default();
        for phase in &mut self.finished {
            phase.usage = Usage::default();
        }
        self.streaks = Streaks::default();
        self.waits = Waits::default();
        self.active_ms = 0;
        self.taken_at = self.last_at;
        self.started_at = self.last_at;
        self.stopping = None;
        self.pausing = false;
        self.halting = false;
        self.end = None;
        self
    }
}
