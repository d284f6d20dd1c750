//! The time of a run: how long it can wait, and its heartbeat, which stops if the loop hangs.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use loop_state::{MachineInput, Timestamp};
use rlm_store::deadline::remaining;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::heartbeat::{Heartbeat, HeartbeatContext};
use crate::run_event::RunEvent;
use crate::runner::Runner;
use crate::runner::parts::attempt::AttemptHandles;

/// The longest single wait. After it, the runner checks the wall clock for a suspend or a change, and whether the saved state still exists. This wait
/// is shorter than the timeout of clients of the control socket.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

impl Runner {
    /// Takes the time of day from `now` instead of the system: for a test that simulates hours in a second.
    ///
    /// Every wait of the run uses tokio's clock, which such a test pauses.
    #[must_use]
    pub fn with_wall_clock(mut self, now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.clock = Clock::from_source(now);
        self
    }

    /// Returns, as a machine input, how long nothing could run before the last reading of the clock.
    pub(super) fn clock_jump(&mut self) -> Option<MachineInput> {
        let jumped = self.clock.take_jump();
        // After a freeze, the thaw reports this time.
        let is_unreported = !jumped.is_zero() && !self.machine.is_frozen();
        is_unreported.then_some(MachineInput::Thawed(jumped))
    }

    /// Returns the time until the next action if nothing comes from outside.
    pub(super) fn wait_from(&self, now: Timestamp) -> Duration {
        let deadline = self.machine.next_deadline();
        let deadline = deadline.map(|at| at.since(now));
        let flush = self
            .processes
            .attempt
            .as_ref()
            .and_then(AttemptHandles::flush_at)
            .map(|at| at.since(now));
        let frozen = self.machine.is_frozen();
        let attempt = self.processes.attempt.as_ref();
        let halt = attempt.map(|it| &it.machine);
        let halt = halt.and_then(|it| match frozen {
            true => it.deadline_while_suspended(),
            false => it.deadline(),
        });
        let halt = halt.map(|at| remaining(Instant::from_std(at)));
        let reminder = self.machine.next_reminder().map(|at| at.since(now));
        let beat = self.heartbeat.as_ref().and_then(Heartbeat::due_in);
        [deadline, flush, halt, reminder, beat]
            .into_iter()
            .flatten()
            .fold(LONGEST_WAIT, Duration::min)
    }

    /// Replaces the file at `path` by the result of `text`: every 10 s, whenever the run advances, and when it ends.
    ///
    /// The loop itself writes the file, so a file older than 30 s means that the loop hangs. A failed write is a warning.
    #[must_use]
    pub fn with_heartbeat(
        mut self,
        path: PathBuf,
        text: impl Fn(&HeartbeatContext<'_>) -> String + Send + Sync + 'static,
    ) -> Self {
        self.heartbeat = Some(Heartbeat::new(path, Box::new(text)));
        self
    }

    /// Writes the heartbeat.
    pub(super) async fn beat(&mut self) {
        self.control.last_tick.record();
        let Some(mut heartbeat) = self.heartbeat.take() else {
            return;
        };
        let at = self.clock.now();
        let failure = heartbeat
            .write_heartbeat(&self.heartbeat_context(at, None))
            .await;
        self.heartbeat = Some(heartbeat);
        failure
            .into_iter()
            .for_each(|why| self.emit(RunEvent::Warning(why)));
    }

    /// Writes the last heartbeat, with the reason for the end.
    pub(super) async fn write_last_heartbeat(&mut self, reason: &str) {
        let Some(heartbeat) = self.heartbeat.take() else {
            return;
        };
        let at = self.clock.now();
        let failure = heartbeat
            .end(&self.heartbeat_context(at, Some(reason)))
            .await;
        failure
            .into_iter()
            .for_each(|why| self.emit(RunEvent::Warning(why)));
    }

    fn heartbeat_context<'a>(
        &'a self,
        at: Timestamp,
        ended: Option<&'a str>,
    ) -> HeartbeatContext<'a> {
        HeartbeatContext {
            run: &self.saved.run,
            head: self.machine.head(),
            at,
            due: self.machine.next_deadline().filter(|_| ended.is_none()),
            ended,
        }
    }
}
