//! The deadline of a stop: by when everything that the run started has to be gone.

use std::time::Duration;

use crate::Timestamp;
use crate::times::{ABORT, NOTIFY_RESERVE, NOTIFY_STOPPED};

/// The deadline of a stop. Requests only move it earlier; time in which the run was suspended moves it later.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use loop_state::{StopDeadline, Timestamp, times};
///
/// let (now, second) = (Timestamp(0), Duration::from_secs(1));
/// let mut deadline = StopDeadline::default();
/// deadline.stop(now, times::STOP_BUDGET);
/// // A second request does not buy more time.
/// deadline.stop(now + second, times::STOP_BUDGET);
/// assert_eq!(deadline.by(), Some(now + times::STOP_BUDGET));
/// deadline.abort(now + second);
/// assert_eq!(deadline.by(), Some(now + second + times::ABORT));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StopDeadline {
    /// The run is not being stopped.
    #[default]
    Open,
    /// The run is being stopped.
    Stop {
        /// When everything has to be gone.
        by: Timestamp,
    },
    /// The run is being stopped, and what runs is not asked to end by itself.
    Abort {
        /// When everything has to be gone.
        by: Timestamp,
    },
}

impl StopDeadline {
    /// Takes notice of a stop that has this budget.
    pub fn stop(&mut self, now: Timestamp, budget: Duration) {
        let by = self.earlier(now + budget);
        *self = match self {
            Self::Abort { .. } => Self::Abort { by },
            _ => Self::Stop { by },
        };
    }

    /// Takes notice of an abort.
    pub fn abort(&mut self, now: Timestamp) {
        let by = self.earlier(now + ABORT);
        *self = Self::Abort { by };
    }

    /// Returns when everything has to be gone; `None` when the run is not being stopped.
    #[must_use]
    pub fn by(self) -> Option<Timestamp> {
        match self {
            Self::Open => None,
            Self::Stop { by } | Self::Abort { by } => Some(by),
        }
    }

    /// Returns how long something that has to end now may take, and `otherwise` when the run is not being stopped.
    #[must_use]
    pub fn budget(self, now: Timestamp, otherwise: Duration) -> Duration {
        self.by().map_or(otherwise, |by| by.since(now))
    }

    /// Returns whether the run is being stopped.
    #[must_use]
    pub fn is_stop(self) -> bool {
        self != Self::Open
    }

    /// Returns whether what runs is ended without being asked first.
    #[must_use]
    pub fn is_abort(self) -> bool {
        matches!(self, Self::Abort { .. })
    }

    /// Returns how long the last call of the notify command may take, and `otherwise` when the run is not being stopped.
    #[must_use]
    pub fn last_call(self, now: Timestamp, otherwise: Duration) -> Duration {
        match self {
            Self::Open => otherwise,
            Self::Stop { by } => by
                .since(now)
                .saturating_sub(NOTIFY_RESERVE)
                .min(NOTIFY_STOPPED),
            Self::Abort { .. } => Duration::ZERO,
        }
    }

    /// Takes notice that the run was suspended for this long: nothing could end meanwhile.
    pub fn thawed(&mut self, frozen: Duration) {
        if let Self::Stop { by } | Self::Abort { by } = self {
            *by = *by + frozen;
        }
    }

    fn earlier(self, by: Timestamp) -> Timestamp {
        self.by().map_or(by, |before| before.min(by))
    }
}
