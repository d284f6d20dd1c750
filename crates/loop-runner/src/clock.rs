use std::time::SystemTime;

use loop_state::Timestamp;

/// Wall-clock time that never goes backwards within one process.
///
/// Deadlines of a run outlive processes and suspends, so they are on the wall clock; a clock set back must not make them wait again.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    latest: Timestamp,
}

impl Clock {
    pub(crate) fn now(&mut self) -> Timestamp {
        self.latest = self.latest.max(timestamp(SystemTime::now()));
        self.latest
    }
}

pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
