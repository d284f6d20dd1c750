//! What time it is for a run, and how long it may wait.

use std::time::{Duration, SystemTime};

use loop_state::{Happening, Timestamp};
use tokio::time::Instant;

use crate::clock::Clock;
use crate::heartbeat::Heartbeat;
use crate::runner::Runner;
use crate::runner::parts::attempt::Attempt;
use rlm_store::deadline::left;

/// The longest single wait: after it the wall clock is looked at again, so that a suspend or a clock set forward is noticed, and whether what
/// is saved is still there. Less than who asks through the control socket waits.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

impl Runner {
    /// Takes the time of day from `now` instead of the system: for a test that plays a night in a second.
    ///
    /// Every wait of the run is on tokio's clock, which such a test pauses.
    #[must_use]
    pub fn with_wall_clock(mut self, now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.clock = Clock::given(now);
        self
    }

    /// Says for how long time went on, since this was last asked, while nothing could be done.
    pub(super) fn jumped(&mut self) -> Option<Happening> {
        self.clock.now();
        let jumped = self.clock.take_jump();
        // A thaw says it for all that stands still.
        let told = !jumped.is_zero() && !self.machine.is_frozen();
        told.then_some(Happening::Thawed(jumped))
    }

    /// Returns how long nothing has to be done, if nothing comes from outside.
    pub(super) fn wait_from(&self, now: Timestamp) -> Duration {
        let deadline = self.machine.next_deadline();
        let deadline = deadline.map(|at| at.since(now));
        let flush = self
            .agent_io
            .attempt
            .as_ref()
            .and_then(Attempt::flush_at)
            .map(|at| at.since(now));
        let frozen = self.machine.is_frozen();
        let attempt = self.agent_io.attempt.as_ref();
        let halt = { attempt.and_then(|it| it.machine.deadline(frozen)) }
            .map(|at| left(Instant::from_std(at)));
        let reminder = self.machine.next_reminder().map(|at| at.since(now));
        let beat = self.heartbeat.as_ref().and_then(Heartbeat::due_in);
        [deadline, flush, halt, reminder, beat]
            .into_iter()
            .flatten()
            .fold(LONGEST_WAIT, Duration::min)
    }
}
