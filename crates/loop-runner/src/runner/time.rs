//! The time of a run, how long it may wait, and its signs of life, which a loop that hangs does not give.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use loop_state::{Happening, Timestamp};
use rlm_store::deadline::left;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::heartbeat::{Beat, Heartbeat};
use crate::news::News;
use crate::runner::Runner;
use crate::runner::parts::attempt::Attempt;

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

    /// Has the file at `path` replaced by what `text` makes of a [`Beat`]: every 10 s, whenever the run comes further, and when it is over.
    ///
    /// The loop itself does it, so a file that is older than 30 s says that the loop does not turn. One that can't be written is a warning.
    #[must_use]
    pub fn with_heartbeat(
        mut self,
        path: PathBuf,
        text: impl Fn(&Beat<'_>) -> String + Send + Sync + 'static,
    ) -> Self {
        self.heartbeat = Some(Heartbeat::new(path, Box::new(text)));
        self
    }

    /// Shows that the loop turns.
    pub(super) async fn beat(&mut self) {
        self.control.pulse.turn();
        let Some(mut heartbeat) = self.heartbeat.take() else {
            return;
        };
        let at = self.clock.now();
        let told = heartbeat.beat(&self.a_beat(at, None)).await;
        self.heartbeat = Some(heartbeat);
        told.into_iter()
            .for_each(|why| self.tell(News::Warning(why)));
    }

    /// Shows that the loop turns no more, and why.
    pub(super) async fn last_beat(&mut self, reason: &str) {
        let Some(heartbeat) = self.heartbeat.take() else {
            return;
        };
        let at = self.clock.now();
        let told = heartbeat.end(&self.a_beat(at, Some(reason))).await;
        told.into_iter()
            .for_each(|why| self.tell(News::Warning(why)));
    }

    fn a_beat<'a>(&'a self, at: Timestamp, ended: Option<&'a str>) -> Beat<'a> {
        Beat {
            run: &self.saved.run,
            head: self.machine.head(),
            at,
            due: self.machine.next_deadline().filter(|_| ended.is_none()),
            ended,
        }
    }
}
