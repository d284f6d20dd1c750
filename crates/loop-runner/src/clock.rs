use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use loop_state::Timestamp;

/// Wall-clock time that never goes backwards within one process.
///
/// Deadlines of a run outlive processes and suspends, so they are on the wall clock; a clock set back must not make them wait again.
#[derive(Default)]
pub(crate) struct Clock {
    latest: Timestamp,
    /// Where the time of day comes from, if not from the system.
    given: Option<Arc<dyn Fn() -> SystemTime + Send + Sync>>,
}

impl Clock {
    pub(crate) fn given(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self {
            latest: Timestamp::default(),
            given: Some(Arc::new(now)),
        }
    }

    pub(crate) fn now(&mut self) -> Timestamp {
        let now = self
            .given
            .as_ref()
            .map_or_else(SystemTime::now, |now| now());
        self.latest = self.latest.max(timestamp(now));
        self.latest
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.latest).finish()
    }
}

pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
