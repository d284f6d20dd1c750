//! The deadline of a stop: by when everything that the run started has to be gone.

use std::time::{Duration, Instant};

use crate::times::ABORT;

/// The deadline of a stop. It only moves earlier, whoever requests what, and how often.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use loop_state::{StopDeadline, times};
///
/// let (now, second) = (Instant::now(), Duration::from_secs(1));
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
        by: Instant,
    },
    /// The run is being stopped, and what runs is not asked to end by itself.
    Abort {
        /// When everything has to be gone.
        by: Instant,
    },
}

impl StopDeadline {
    /// Takes notice of a stop that has this budget.
    pub fn stop(&mut self, now: Instant, budget: Duration) {
        let by = self.earlier(now + budget);
        *self = match self {
            Self::Abort { .. } => Self::Abort { by },
            _ => Self::Stop { by },
        };
    }

    /// Takes notice of an abort.
    pub fn abort(&mut self, now: Instant) {
        let by = self.earlier(now + ABORT);
        *self = Self::Abort { by };
    }

    /// Returns when everything has to be gone; `None` when the run is not being stopped.
    #[must_use]
    pub fn by(self) -> Option<Instant> {
        match self {
            Self::Open => None,
            Self::Stop { by } | Self::Abort { by } => Some(by),
        }
    }

    /// Returns how long something that has to end now may take, and `otherwise` when the run is not being stopped.
    #[must_use]
    pub fn budget(self, now: Instant, otherwise: Duration) -> Duration {
        self.by()
            .map_or(otherwise, |by| by.saturating_duration_since(now))
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

    fn earlier(self, by: Instant) -> Instant {
        self.by().map_or(by, |before| before.min(by))
    }
}
