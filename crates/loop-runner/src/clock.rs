//! The run's time, made of two clocks, since its deadlines outlive processes, suspends and clocks that are set.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use loop_state::Timestamp;
use rlm_store::timestamp;
use tokio::time::Instant;

/// The shortest time that is taken for a jump; what is less may be a clock that is being set right bit by bit, or a machine that is busy.
const JUMP: Duration = Duration::from_secs(5);

/// Wall-clock time that never goes backwards or stands still within one process.
///
/// Deadlines of a run outlive processes and suspends, so they are on the wall clock; one that is set back must not make them wait again, and passes
/// on as if it had not been.
#[derive(Clone, Default)]
pub(crate) struct Clock {
    /// The newest time that was read from the wall clock, and when.
    read: Option<(Timestamp, Instant)>,
    /// How much of it passed in no time, and was not told yet.
    jumped: Duration,
    /// Where the time of day comes from, if not from the system.
    given: Option<Arc<dyn Fn() -> SystemTime + Send + Sync>>,
}

impl Clock {
    pub(crate) fn given(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self {
            read: None,
            jumped: Duration::ZERO,
            given: Some(Arc::new(now)),
        }
    }

    pub(crate) fn now(&mut self) -> Timestamp {
        let now = { self.given.as_ref() }.map_or_else(SystemTime::now, |now| now());
        let now = timestamp(now);
        match self.read.map(|(read, at)| read + at.elapsed()) {
            Some(passed) if passed > now => passed,
            passed => {
                let jumped = passed.map_or(Duration::ZERO, |passed| now.since(passed));
                if jumped >= JUMP {
                    self.jumped += jumped;
                }
                self.read = Some((now, Instant::now()));
                now
            }
        }
    }

    /// Returns by how much time went on, since this was last asked, in which nothing could be done: the machine was suspended, or its clock was set.
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
    async fn a_wall_clock_that_is_set_back_neither_goes_back_nor_stands_still() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let wall = Arc::new(Mutex::new(at(1_000)));
        let shown = Arc::clone(&wall);
        let mut clock = Clock::given(move || *shown.lock().unwrap());
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
