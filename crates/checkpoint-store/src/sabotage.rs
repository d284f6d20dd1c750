//! Mistakes that a test can switch on, one at a time, to show that it would notice them.
//!
//! Without the feature `test-util` none of this is in the program: `is_on` is then a
//! constant. A switch acts on the thread that sets it.

/// One mistake that a store could make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "test-util"), expect(unreachable_pub))]
pub enum Sabotage {
    /// A new file gets its name before its bytes are durable, which they never are made.
    DropFileSync,
    /// The directory is not synced after a file got its name.
    DropDirSync,
    /// A new file gets its name first and is synced after.
    SyncAfterRename,
    /// Checksums are not looked at.
    SkipCrc,
    /// All files share one salt, so that blocks of an older file validate in a newer one.
    SkipSalt,
    /// Frames out of sequence are taken.
    SkipSeq,
    /// A new writer keeps the torn end. Nothing is ever cut in place here: its place is the
    /// copy to a journal of the writer's own, which then includes the torn bytes.
    SkipTailCut,
    /// The new writer's copy, which stands for cutting the old journal, is not synced.
    CutWithoutSync,
    /// A failed sync is tried again on the same file and believed.
    RetrySync,
    /// A save is acknowledged before its sync, which the next save makes up for.
    AckBeforeSync,
    /// What was enqueued counts as saved only when it is acknowledged. Saves name their
    /// events here, so there is no such mark; the nearest is the memory that heals a store,
    /// which then lacks the newest acknowledged save.
    WatermarkAtAck,
    /// The progress is removed before the phase that replaces it is durable.
    DropProgressEarly,
    /// Bytes behind a value or behind the seal are not looked at.
    IgnoreTrailing,
    /// A new journal takes the name of the one before and replaces it.
    ReuseName,
    /// Phase files of the same number do not conflict, and the epoch is not looked at when
    /// one is sealed: what a random part in their name would mean.
    RandomPhaseName,
    /// A writer counts as taken over only when a newer one's journal is there.
    EpochByPresence,
    /// A new writer looks at the files before it takes its epoch, and not after.
    ScanBeforeCreate,
    /// One save is two frames under one sync.
    TwoFrames,
    /// What is written again is what the memory holds, without the older saves, which only the
    /// journal has.
    HealFromMemory,
    /// That the name of a journal, or of the phase that it stands on, leads to another file or
    /// to none any more is not noticed.
    SkipNameCheck,
}

#[cfg(feature = "test-util")]
thread_local! {
    static NOW: std::cell::Cell<Option<Sabotage>> = const { std::cell::Cell::new(None) };
}

/// Switches a mistake on, on this thread, or the one before off.
#[cfg(feature = "test-util")]
pub fn set(sabotage: Option<Sabotage>) {
    NOW.set(sabotage);
}

#[cfg(feature = "test-util")]
pub(crate) fn is_on(sabotage: Sabotage) -> bool {
    NOW.get() == Some(sabotage)
}

#[cfg(not(feature = "test-util"))]
pub(crate) const fn is_on(_: Sabotage) -> bool {
    false
}
