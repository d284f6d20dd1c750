//! The deadline of a stop: the time by which everything that the run started must have ended.

use std::time::Duration;

use crate::Timestamp;
use crate::times::{ABORT, NOTIFY_RESERVE, NOTIFY_STOPPED};

/// The deadline of a stop. Requests can only move the deadline earlier; time in which the run was suspended moves it later.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use loop_state::{StopDeadline, Timestamp};
///
/// let (now, second) = (Timestamp::from_millis(0), Duration::from_secs(1));
/// let deadline = StopDeadline::Stop { by: now + 8 * second };
/// // After 3 s, 5 s are left.
/// assert_eq!(deadline.budget(now + 3 * second, 60 * second), 5 * second);
/// // Without a stop, the usual time applies.
/// assert_eq!(StopDeadline::Unset.budget(now, 60 * second), 60 * second);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StopDeadline {
    /// The run is not being stopped.
    #[default]
    Unset,
    /// The run is being stopped.
    Stop {
        /// When everything must have ended.
        by: Timestamp,
    },
    /// The run is being stopped, and its processes get no interrupt before they are ended.
    Abort {
        /// When everything must have ended.
        by: Timestamp,
    },
}

impl StopDeadline {
    /// Sets the deadline for a stop with this budget.
    #[doc(hidden)] // only the machine sets it, and its tests
    pub fn stop(&mut self, now: Timestamp, budget: Duration) {
        let by = self.earlier(now + budget);
        *self = match self {
            Self::Abort { .. } => Self::Abort { by },
            _ => Self::Stop { by },
        };
    }

    /// Sets the deadline for an abort.
    #[doc(hidden)] // as `stop`
    pub fn abort(&mut self, now: Timestamp) {
        let by = self.earlier(now + ABORT);
        *self = Self::Abort { by };
    }

    /// Returns when everything must have ended; `None` if the run is not being stopped.
    #[must_use]
    pub fn by(self) -> Option<Timestamp> {
        match self {
            Self::Unset => None,
            Self::Stop { by } | Self::Abort { by } => Some(by),
        }
    }

    /// Returns the time for something that must end now; `otherwise` if the run is not being stopped.
    #[must_use]
    pub fn budget(self, now: Timestamp, otherwise: Duration) -> Duration {
        self.by().map_or(otherwise, |by| by.since(now))
    }

    /// Returns whether the run is being stopped.
    #[must_use]
    pub fn is_stop(self) -> bool {
        self != Self::Unset
    }

    /// Returns whether processes get no interrupt before they are ended.
    #[must_use]
    pub fn is_abort(self) -> bool {
        matches!(self, Self::Abort { .. })
    }

    /// Returns the time for the last notifications; `otherwise` if the run is not being stopped.
    #[doc(hidden)] // only `loop-runner` needs it
    #[must_use]
    pub fn last_call(self, now: Timestamp, otherwise: Duration) -> Duration {
        match self {
            Self::Unset => otherwise,
            Self::Stop { by } => by
                .since(now)
                .saturating_sub(NOTIFY_RESERVE)
                .min(NOTIFY_STOPPED),
            Self::Abort { .. } => Duration::ZERO,
        }
    }

    /// Adds the time in which the run was suspended: nothing could end meanwhile.
    #[doc(hidden)] // as `stop`
    pub fn resumed_after_freeze(&mut self, frozen: Duration) {
        if let Self::Stop { by } | Self::Abort { by } = self {
            *by = *by + frozen;
        }
    }

    fn earlier(self, by: Timestamp) -> Timestamp {
        self.by().map_or(by, |before| before.min(by))
    }
}
