//! The facts about a record of a run's stream that the decisions need. The content of a record is not among them.

/// The id of a record. The process that appends the record chooses it at random, and each repeated publish carries the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(u128);

impl RecordId {
    /// Creates an id from the bits of a UUID.
    #[must_use]
    pub const fn new(bits: u128) -> Self {
        Self(bits)
    }

    /// Returns the bits of the id.
    #[must_use]
    pub const fn bits(self) -> u128 {
        self.0
    }
}

/// How far a save brought the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    /// The save is in the middle of an iteration.
    Working,
    /// The save completed an iteration.
    IterationCompleted,
    /// The run has ended.
    RunEnded,
}

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecordKind {
    /// The whole state of the run at this record. The first record of each run is a base.
    Base,
    /// A worker became the owner of the run.
    Claim,
    /// A save of the run.
    Save(Progress),
    /// A save that removes earlier saves.
    Undo,
    /// A finished phase of the run.
    Phase,
    /// The owner stopped the run's processes and gave the run back.
    Release,
    /// The run's process ended without an end of the run, and the owner gave the run back.
    Failure,
    /// The run waits for a person, and no worker claims it.
    Park,
    /// A person lets the workers claim a parked run again.
    Unpark,
    /// A person removes the run, which has ended or is parked. The removal of its records follows.
    Remove,
    /// The run left the fleet, and no worker claims it until it returns.
    Export,
    /// A kind, or a version of a kind, that this program does not know.
    Unknown,
}

impl RecordKind {
    /// Returns the number of stalled claims up to and including a record of this kind, if the record before it has the number `before`.
    ///
    /// The number counts the claims in a row in which no iteration was completed, including the present claim. A claim that ended with a release
    /// doesn't count. [`MAX_STALLED`](crate::MAX_STALLED) limits the number.
    #[must_use]
    pub const fn stalled(self, before: u32) -> u32 {
        match self {
            Self::Claim => before.saturating_add(1),
            Self::Release => before.saturating_sub(1),
            _ if self.ends_failed_claims() => 0,
            _ => before,
        }
    }

    /// Returns whether a record of this kind ends a row of failed claims.
    #[must_use]
    pub(crate) const fn ends_failed_claims(self) -> bool {
        matches!(
            self,
            Self::Save(Progress::IterationCompleted | Progress::RunEnded) | Self::Unpark
        )
    }
}

/// The last record of a run's stream, as the leader of the stream returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LastRecord {
    /// The sequence number of the record in the stream; greater than 0.
    pub seq: u64,
    /// The id of the record.
    pub id: RecordId,
    /// The epoch of the claim under which the record was appended; 0 before the first claim.
    pub epoch: u64,
    /// The kind of the record.
    pub kind: RecordKind,
    /// The number of stalled claims up to this record; see [`RecordKind::stalled`].
    pub stalled: u32,
}
