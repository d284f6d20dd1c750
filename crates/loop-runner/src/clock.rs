//! The run's time. It combines two clocks, because deadlines outlive processes, suspends and changes of the system clock.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use loop_state::Timestamp;
use rlm_store::timestamp;
use tokio::time::Instant;

/// The shortest step of the clock that counts as a jump. A smaller step can come from gradual clock adjustment or a busy machine.
const JUMP: Duration = Duration::from_secs(5);

/// Wall-clock time that always advances within one process.
///
/// Deadlines of a run outlive processes and suspends, so they use the wall clock. If somebody sets the wall clock back, this clock keeps advancing,
/// so that no wait begins again.
#[derive(Clone, Default)]
pub(crate) struct Clock {
    /// The newest reading of the wall clock, and when it was taken.
    read: Option<(Timestamp, Instant)>,
    /// The sum of the clock jumps that [`take_jump`](Self::take_jump) has not returned yet.
    jumped: Duration,
    /// The source of the time of day, if it is not the system.
    source: Option<Arc<dyn Fn() -> SystemTime + Send + Sync>>,
}

impl Clock {
    pub(crate) fn from_source(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self {
            read: None,
            jumped: Duration::ZERO,
            source: Some(Arc::new(now)),
        }
    }

    pub(crate) fn now(&mut self) -> Timestamp {
        let now = { self.source.as_ref() }.map_or_else(SystemTime::now, |now| now());
        let now = timestamp(now);
        let at = Instant::now();
        match self.read.map(|(read, earlier)| read + (at - earlier)) {
            Some(passed) if passed > now => passed,
            passed => {
                let jumped = passed.map_or(Duration::ZERO, |passed| now.since(passed));
                if jumped >= JUMP {
                    self.jumped += jumped;
                }
                self.read = Some((now, at));
                now
            }
        }
    }

    /// Returns how long nothing could run since the last call, because the machine was suspended or its clock was set.
    pub(crate) fn take_jump(&mut self) -> Duration {
        std::mem::take(&mut self.jumped)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.read).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[tokio::test(start_paused = true)]
    async fn monotonic_time_advances_after_the_wall_clock_is_set_back() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let wall = Arc::new(Mutex::new(at(1_000)));
        let shown = Arc::clone(&wall);
        let mut clock = Clock::from_source(move || *shown.lock().unwrap());
        assert_eq!(clock.now(), timestamp(at(1_000)));
        *wall.lock().unwrap() = at(400);
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(clock.now(), timestamp(at(1_030)));
        *wall.lock().unwrap() = at(9_000);
        assert_eq!(clock.take_jump(), Duration::ZERO);
        assert_eq!(clock.now(), timestamp(at(9_000)));
        assert_eq!(clock.take_jump(), Duration::from_secs(7_970));
        assert_eq!(clock.take_jump(), Duration::ZERO);
    }
}
