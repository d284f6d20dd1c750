//! Decides when a worker renews its lease, and by when its agent must be dead. It is separate because it must work without the server.

use std::time::Duration;

use crate::Moment;
use crate::sabotage::{self, Sabotage};

/// The lease of a worker on one run, as far as the worker can know it.
///
/// The server counts the lease from the arrival of a renewal. The worker counts from the sending of the newest answered renewal, which is earlier, so
/// the worker never overestimates its lease. The agent must be dead before the lease ends: the kill deadline is half of the lease after that sending.
///
/// A renewal is due a quarter of the lease after the newest answered one was sent. An unanswered renewal is repeated after a sixteenth. The loss of
/// the lease is final: a renewal that a frozen worker sends after it wakes up could prolong the lease of its successor.
///
/// # Assumption
///
/// In one lease, the clocks of worker and server drift apart by less than half of the lease, less the time that the end of the agent takes.
///
/// # Examples
///
/// ```
/// use rlm_fleet::{LeaseClock, LeaseInput, LeaseOutput, Moment};
/// use std::time::Duration;
///
/// let at = |seconds: u64| Moment::from_millis(seconds * 1000);
/// let mut lease = LeaseClock::new(Duration::from_secs(60), at(0));
/// let outputs = lease.step(LeaseInput::Time, at(1));
/// assert_eq!(outputs, [LeaseOutput::Renew { sent: at(1) }, LeaseOutput::WakeAt(Moment::from_millis(4750))]);
/// let outputs = lease.step(LeaseInput::Answered { sent: at(1) }, at(2));
/// assert_eq!(outputs, [LeaseOutput::KillAt(at(31)), LeaseOutput::WakeAt(at(16))]);
/// assert_eq!(lease.step(LeaseInput::Time, at(31)), [LeaseOutput::Lost]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseClock {
    lease: Duration,
    state: LeaseState,
}

/// The state of a [`LeaseClock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum LeaseState {
    Held {
        /// When the newest answered renewal was sent.
        confirmed: Moment,
        /// When the newest renewal was sent; `None` before the first.
        sent: Option<Moment>,
    },
    Lost,
}

/// An input of a [`LeaseClock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseInput {
    /// The server answered the renewal that was sent at this moment.
    Answered {
        /// The moment of [`LeaseOutput::Renew`].
        sent: Moment,
    },
    /// The worker's appender ended.
    Fenced,
    /// Time passed.
    Time,
}

/// An action for the caller of a [`LeaseClock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseOutput {
    /// Send a renewal now.
    Renew {
        /// The present moment. Pass it with the answer.
        sent: Moment,
    },
    /// Move the kill deadline of the agent to this moment.
    KillAt(Moment),
    /// Kill the agent, and send nothing about this delivery: no renewal, no acknowledgement.
    Lost,
    /// Pass [`LeaseInput::Time`] at this moment.
    WakeAt(Moment),
}

impl LeaseClock {
    /// Creates the clock of a run that the server delivered. `pulled` is the moment at which the worker sent its request for a run.
    ///
    /// The lease counts from this request, because the time that the delivery took is unknown. So a request should wait for at most a quarter of the
    /// lease. Pass [`LeaseInput::Time`] at once: the first renewal is due.
    #[must_use]
    pub fn new(lease: Duration, pulled: Moment) -> Self {
        Self {
            lease,
            state: LeaseState::Held {
                confirmed: pulled,
                sent: None,
            },
        }
    }

    /// Returns the moment by which the agent must be killed; `None` if the lease is lost and the agent must be killed now.
    #[must_use]
    pub fn kill_at(&self) -> Option<Moment> {
        match self.state {
            LeaseState::Held { confirmed, .. } => Some(confirmed + self.kill_after()),
            LeaseState::Lost => None,
        }
    }

    /// Takes one input, and returns what the caller must do now, in order.
    #[must_use]
    pub fn step(&mut self, input: LeaseInput, now: Moment) -> Vec<LeaseOutput> {
        let LeaseState::Held { confirmed, sent } = self.state else {
            return match input {
                LeaseInput::Answered { sent } if sabotage::is_on(Sabotage::ReviveLease) => {
                    *self = Self::new(self.lease, sent);
                    self.kill_at()
                        .map(LeaseOutput::KillAt)
                        .into_iter()
                        .collect()
                }
                _ => Vec::new(),
            };
        };
        // The loss comes first: an answer that arrives after the kill deadline must not prolong the lease.
        if input == LeaseInput::Fenced || now >= confirmed + self.kill_after() {
            self.state = LeaseState::Lost;
            return vec![LeaseOutput::Lost];
        }
        let mut outputs = Vec::new();
        let mut held = (confirmed, sent);
        if let LeaseInput::Answered { sent } = input {
            let counted = match sabotage::is_on(Sabotage::CountFromAnswer) {
                true => now,
                false => sent.min(now),
            };
            if counted > confirmed {
                held.0 = counted;
                outputs.push(LeaseOutput::KillAt(counted + self.kill_after()));
            }
        }
        if now >= self.due(held.0, held.1) {
            held.1 = Some(now);
            outputs.push(LeaseOutput::Renew { sent: now });
        }
        let kill_at = held.0 + self.kill_after();
        outputs.push(LeaseOutput::WakeAt(self.due(held.0, held.1).min(kill_at)));
        let (confirmed, sent) = held;
        self.state = LeaseState::Held { confirmed, sent };
        outputs
    }

    fn kill_after(&self) -> Duration {
        if sabotage::is_on(Sabotage::NeverKill) {
            // Longer than any test.
            return Duration::from_secs(3600);
        }
        match sabotage::is_on(Sabotage::KillAtLeaseEnd) {
            true => self.lease,
            false => self.lease / 2,
        }
    }

    /// Returns when the next renewal is due.
    fn due(&self, confirmed: Moment, sent: Option<Moment>) -> Moment {
        match sent {
            None => confirmed,
            Some(unanswered) if unanswered > confirmed => unanswered + self.lease / 16,
            Some(_) => confirmed + self.lease / 4,
        }
    }
}
