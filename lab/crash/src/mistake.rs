//! The mistake that the store makes in this thread, if a test switched one on. Layers pass it to their threads and programs.

use std::cell::Cell;

use checkpoint_store::sabotage::{self, Sabotage};

thread_local! {
    static NOW: Cell<Option<Sabotage>> = const { Cell::new(None) };
}

/// Returns the sabotage that is on in this thread.
pub fn now() -> Option<Sabotage> {
    NOW.get()
}

/// Switches a sabotage on in this thread, or the current one off.
pub fn set(sabotage: Option<Sabotage>) {
    NOW.set(sabotage);
    sabotage::set(sabotage);
}

/// Runs `act` with a sabotage switched on in this thread, and switches it off afterwards.
pub fn during<T>(sabotage: Sabotage, act: impl FnOnce() -> T) -> T {
    set(Some(sabotage));
    let result = act();
    set(None);
    result
}

/// All sabotages.
pub const ALL: [Sabotage; 25] = [
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
