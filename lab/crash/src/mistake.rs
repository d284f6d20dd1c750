//! The mistake that the store or a worker of a fleet makes in this thread, if a test switched one on. Layers pass it to their threads and programs.

use std::cell::Cell;
use std::fmt;

use checkpoint_store::sabotage::{self, Sabotage};
use rlm_fleet::sabotage::{self as fleet_sabotage, Sabotage as FleetSabotage};

/// One mistake.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// A mistake of `checkpoint-store`.
    Store(Sabotage),
    /// A mistake of `rlm-fleet`.
    Fleet(FleetSabotage),
}

impl fmt::Debug for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(mistake) => mistake.fmt(f),
            Self::Fleet(mistake) => mistake.fmt(f),
        }
    }
}

impl From<Sabotage> for Mistake {
    fn from(mistake: Sabotage) -> Self {
        Self::Store(mistake)
    }
}

impl From<FleetSabotage> for Mistake {
    fn from(mistake: FleetSabotage) -> Self {
        Self::Fleet(mistake)
    }
}

thread_local! {
    static NOW: Cell<Option<Mistake>> = const { Cell::new(None) };
}

/// Returns the mistake that is on in this thread.
pub fn now() -> Option<Mistake> {
    NOW.get()
}

/// Switches a mistake on in this thread, or the current one off.
pub fn set(mistake: Option<Mistake>) {
    NOW.set(mistake);
    let (store, fleet) = match mistake {
        Some(Mistake::Store(mistake)) => (Some(mistake), None),
        Some(Mistake::Fleet(mistake)) => (None, Some(mistake)),
        None => (None, None),
    };
    sabotage::set(store);
    fleet_sabotage::set(fleet);
}

/// Runs `act` with a mistake switched on in this thread, and switches it off afterwards.
pub fn during<T>(mistake: impl Into<Mistake>, act: impl FnOnce() -> T) -> T {
    set(Some(mistake.into()));
    let result = act();
    set(None);
    result
}

/// Returns all mistakes.
pub fn all() -> impl Iterator<Item = Mistake> {
    let fleet = FLEET.into_iter().map(Mistake::Fleet);
    STORE.into_iter().map(Mistake::Store).chain(fleet)
}

/// All mistakes of the store.
pub const STORE: [Sabotage; 25] = [
    Sabotage::DropFileSync,
    Sabotage::DropDirSync,
    Sabotage::SyncAfterRename,
    Sabotage::SkipCrc,
    Sabotage::SkipSalt,
    Sabotage::SkipSeq,
    Sabotage::SkipTailCut,
    Sabotage::CutWithoutSync,
    Sabotage::LinkLastSave,
    Sabotage::RetrySync,
    Sabotage::AckBeforeSync,
    Sabotage::WatermarkAtAck,
    Sabotage::DropProgressEarly,
    Sabotage::IgnoreTrailing,
    Sabotage::ReuseName,
    Sabotage::RandomPhaseName,
    Sabotage::EpochByPresence,
    Sabotage::ScanBeforeCreate,
    Sabotage::TwoFrames,
    Sabotage::RepairFromMemory,
    Sabotage::SkipNameCheck,
    Sabotage::AcknowledgeBeforeReplica,
    Sabotage::ReplicateBeforeDisk,
    Sabotage::ContinueAfterRefusal,
    Sabotage::RebuildSkipsGap,
];

/// All mistakes of a worker of a fleet.
pub const FLEET: [FleetSabotage; 15] = [
    FleetSabotage::FenceWithoutReadBack,
    FleetSabotage::TrustLostAnswer,
    FleetSabotage::FollowOtherOwner,
    FleetSabotage::AppendAfterFence,
    FleetSabotage::TakeOldAnswers,
    FleetSabotage::ReviveLease,
    FleetSabotage::KillAtLeaseEnd,
    FleetSabotage::CountFromAnswer,
    FleetSabotage::SkipGrace,
    FleetSabotage::SkipProbe,
    FleetSabotage::IgnoreOwner,
    FleetSabotage::SkipPoison,
    FleetSabotage::ClaimAfterLoss,
    FleetSabotage::ClaimEnded,
    FleetSabotage::ReleaseTooEarly,
];
