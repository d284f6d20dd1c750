//! Decides what a worker does with a run that the server delivered to it. It is separate because a delivery is no proof that the run has no owner.

use std::time::Duration;

use crate::Moment;
use crate::append::AppendOutput;
use crate::record::{LastRecord, Progress, RecordKind};
use crate::sabotage::{self, Sabotage};

/// The number of claims in a row that may complete no iteration. After them, the run is parked.
pub const MAX_STALLED: u32 = 3;

/// The time that the owner of a run has to answer a probe.
const PROBE: Duration = Duration::from_secs(2);
/// The time that an owner has to connect again after the server was away. A claimant whose own connection is younger sends no probe.
const RECONNECT_GRACE: Duration = Duration::from_secs(3);

/// Decides about one delivered run: the worker claims it, parks it, acknowledges it, or leaves it alone.
///
/// The claim is an append like every other, so at most one of several claimants succeeds. A claimant first asks the owner of the newest claim whether
/// it is alive. After a restart, a server can deliver a run before the lease of its owner ends, and the owner may not be connected again yet. So a
/// claimant whose own connection is young returns the delivery at once: a worker with an older connection can decide about it now, and this one later.
///
/// Otherwise a claimant never returns a delivery that it does not use: it would get the run again and again while the owner is alive. It leaves the
/// delivery alone until the server delivers the run again by itself.
///
/// # Examples
///
/// ```
/// use rlm_fleet::{Claim, ClaimInput, ClaimOutput, ClaimRecord, LastRecord, Moment, RecordId, RecordKind};
///
/// let now = Moment::from_millis(60_000);
/// let mut claim = Claim::new();
/// assert_eq!(claim.step(ClaimInput::Delivered, now), [ClaimOutput::ReadLast]);
/// let base = LastRecord { seq: 41, id: RecordId::new(7), epoch: 0, kind: RecordKind::Base, stalled: 0 };
/// let record = ClaimRecord { epoch: 1, kind: RecordKind::Claim, stalled: 1 };
/// let connected = Moment::from_millis(0);
/// assert_eq!(claim.step(ClaimInput::Last { last: Some(base), connected }, now), [ClaimOutput::Append { expect: 41, record }]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim(ClaimState);

/// The state of a [`Claim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ClaimState {
    New,
    Reading,
    Probing { last: LastRecord },
    Appending { record: ClaimRecord },
    Decided,
}

/// The record that a claimant appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClaimRecord {
    /// The epoch of the record: that of the last record, plus 1.
    pub epoch: u64,
    /// [`RecordKind::Claim`] or [`RecordKind::Park`].
    pub kind: RecordKind,
    /// The number of stalled claims up to this record; see [`RecordKind::stalled`].
    pub stalled: u32,
}

/// An input of a [`Claim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimInput {
    /// The server delivered the run.
    Delivered,
    /// The leader of the stream returned the last record of the run.
    Last {
        /// The record; `None` if there is none.
        last: Option<LastRecord>,
        /// When this worker connected to the server. If the server was away, the owner of the run may need the same time to connect.
        connected: Moment,
    },
    /// The last record can't be read.
    ReadFailed,
    /// The probe has this result.
    Probed(ProbeResult),
    /// The appender of the claim returned this output.
    Append(AppendOutput),
    /// The lease of this delivery is lost.
    LeaseLost,
    /// The connection to the server is lost. The server may restart, so the answer to a probe can be lost, and a claim could be stored when it is back.
    Disconnected,
}

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbeResult {
    /// A worker answered that it owns the run. A worker must answer so from the moment at which it publishes its claim, before it knows whether the
    /// claim is stored, until the process tree of its agent is gone, even if its lease is lost.
    Owner {
        /// The epoch of its claim.
        epoch: u64,
    },
    /// The server reports that no worker listens for the probe.
    NoResponders,
    /// No answer arrived in time.
    NoAnswer,
}

/// An action for the caller of a [`Claim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimOutput {
    /// Read the last record of the run from the leader of the stream.
    ReadLast,
    /// Ask the owner of the run for an answer.
    Probe {
        /// The time that the owner has to answer.
        within: Duration,
    },
    /// Append this record with a new [`Appender`](crate::Appender), and pass what it returns.
    Append {
        /// The sequence number that the last record of the run must have.
        expect: u64,
        /// The record.
        record: ClaimRecord,
    },
    /// This worker owns the run: rebuild the run from the stream, and start it.
    Own {
        /// The epoch of the claim.
        epoch: u64,
        /// The sequence number of the claim in the stream.
        seq: u64,
    },
    /// Acknowledge the delivery, so that the server does not deliver the run again.
    Acknowledge,
    /// Send nothing about the delivery. The server delivers the run again when the lease ends.
    LeaveAlone,
    /// Return the delivery, so that the server delivers the run to another worker, and ask for no run before this moment.
    Return {
        /// When the connection of this worker is old enough.
        until: Moment,
    },
}

impl Default for Claim {
    fn default() -> Self {
        Self::new()
    }
}

impl Claim {
    /// Creates the decision about a delivery.
    #[must_use]
    pub fn new() -> Self {
        Self(ClaimState::New)
    }

    /// Takes one input, and returns what the caller must do now, in order. An input that does not fit the state has no effect.
    #[must_use]
    pub fn step(&mut self, input: ClaimInput, now: Moment) -> Vec<ClaimOutput> {
        let output = match (self.0, input) {
            (ClaimState::Decided, _) => return Vec::new(),
            (_, ClaimInput::LeaseLost) if sabotage::is_on(Sabotage::ClaimAfterLoss) => {
                return Vec::new();
            }
            (_, ClaimInput::LeaseLost) => self.decide(ClaimOutput::LeaveAlone),
            (_, ClaimInput::Disconnected) if sabotage::is_on(Sabotage::ClaimAcrossRestart) => {
                return Vec::new();
            }
            (_, ClaimInput::Disconnected) => self.decide(ClaimOutput::LeaveAlone),
            (ClaimState::New, ClaimInput::Delivered) => {
                self.0 = ClaimState::Reading;
                ClaimOutput::ReadLast
            }
            (ClaimState::Reading, ClaimInput::Last { last, connected }) => {
                self.decide_by_last(last, connected, now)
            }
            (ClaimState::Reading, ClaimInput::ReadFailed) => self.decide(ClaimOutput::LeaveAlone),
            (ClaimState::Probing { .. }, ClaimInput::Probed(ProbeResult::Owner { .. }))
                if !sabotage::is_on(Sabotage::IgnoreOwner) =>
            {
                self.decide(ClaimOutput::LeaveAlone)
            }
            (ClaimState::Probing { last }, ClaimInput::Probed(_)) => self.take_over(last),
            (ClaimState::Appending { record }, ClaimInput::Append(append)) => {
                match (append, record.kind) {
                    (AppendOutput::Done { .. }, RecordKind::Park) => {
                        self.decide(ClaimOutput::Acknowledge)
                    }
                    (AppendOutput::Done { seq, .. }, _) => {
                        let epoch = record.epoch;
                        self.decide(ClaimOutput::Own { epoch, seq })
                    }
                    (AppendOutput::Ended(_), _) => self.decide(ClaimOutput::LeaveAlone),
                    _ => return Vec::new(),
                }
            }
            _ => return Vec::new(),
        };
        vec![output]
    }

    fn decide_by_last(
        &mut self,
        last: Option<LastRecord>,
        connected: Moment,
        now: Moment,
    ) -> ClaimOutput {
        let Some(last) = last else {
            return self.decide(ClaimOutput::Acknowledge);
        };
        match last.kind {
            RecordKind::Save(Progress::RunEnded)
            | RecordKind::Park
            | RecordKind::Remove
            | RecordKind::Export
                if !sabotage::is_on(Sabotage::ClaimEnded) =>
            {
                self.decide(ClaimOutput::Acknowledge)
            }
            RecordKind::Unknown => self.decide(ClaimOutput::LeaveAlone),
            RecordKind::Base | RecordKind::Release | RecordKind::Failure | RecordKind::Unpark => {
                self.take_over(last)
            }
            _ => self.ask_owner(last, connected, now),
        }
    }

    /// Handles a run whose newest claim can have an owner.
    fn ask_owner(&mut self, last: LastRecord, connected: Moment, now: Moment) -> ClaimOutput {
        let until = connected + RECONNECT_GRACE;
        if sabotage::is_on(Sabotage::SkipProbe) {
            return self.take_over(last);
        }
        if now < until && !sabotage::is_on(Sabotage::SkipGrace) {
            return self.decide(ClaimOutput::Return { until });
        }
        self.0 = ClaimState::Probing { last };
        ClaimOutput::Probe { within: PROBE }
    }

    fn take_over(&mut self, last: LastRecord) -> ClaimOutput {
        let is_poison = last.stalled >= MAX_STALLED && !sabotage::is_on(Sabotage::SkipPoison);
        let kind = match is_poison {
            true => RecordKind::Park,
            false => RecordKind::Claim,
        };
        let record = ClaimRecord {
            epoch: last.epoch.saturating_add(1),
            kind,
            stalled: kind.stalled(last.stalled),
        };
        self.0 = ClaimState::Appending { record };
        ClaimOutput::Append {
            expect: last.seq,
            record,
        }
    }

    fn decide(&mut self, output: ClaimOutput) -> ClaimOutput {
        self.0 = ClaimState::Decided;
        output
    }
}
