//! Mistakes that a test can switch on, one at a time, to show that it detects each of them.
//!
//! Without the feature `test-util` none of this is in the program: `is_on` is then a constant. A switch affects only the thread that sets it.

/// One mistake that a store could make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "test-util"), expect(unreachable_pub))]
pub enum Sabotage {
    /// A new file gets its name without being synced; its bytes are never made durable.
    DropFileSync,
    /// The directory is not synced after a file got its name.
    DropDirSync,
    /// A new file gets its name first and is synced afterwards.
    SyncAfterRename,
    /// Checksums are not checked.
    SkipCrc,
    /// All files share one salt, so blocks of an older file are valid in a newer one.
    SkipSalt,
    /// Frames out of sequence are accepted.
    SkipSeq,
    /// A new writer keeps the torn tail. The store never truncates a file in place; instead a new writer copies the last good frames to its own
    /// journal. With this mistake, the copy includes the torn bytes.
    SkipTailCut,
    /// A new writer does not sync its copy of the good frames.
    CutWithoutSync,
    /// A new writer links all saves that it sees in the journal before its own, also the last one, which may not be durable.
    LinkLastSave,
    /// A failed sync is repeated on the same file, and its success is trusted.
    RetrySync,
    /// A save is acknowledged before its sync; the next save syncs it.
    AckBeforeSync,
    /// A repair from memory lacks the newest acknowledged save. The name comes from stores with a queue of events. There, the mistake is to advance
    /// the watermark of the queue only at the acknowledgement. This store has no queue, because the caller passes the events with each save.
    WatermarkAtAck,
    /// The progress is removed before the phase that replaces it is durable.
    DropProgressEarly,
    /// Bytes after a value or after the end frame are not checked.
    IgnoreTrailing,
    /// A new journal takes the name of the one before and replaces it.
    ReuseName,
    /// Phase files of the same number do not conflict, and the epoch is not checked when a phase is written. A random part in their name would have
    /// this effect.
    RandomPhaseName,
    /// A writer counts as taken over only when the journal of a newer writer exists.
    EpochByPresence,
    /// A new writer reads the files before it takes its epoch, and not after.
    ScanBeforeCreate,
    /// One save is two frames with one sync.
    TwoFrames,
    /// A repair writes only the saves in memory, without the older saves, which only the journal has.
    RepairFromMemory,
    /// A writer acknowledges a save before it knows the answer of its replica, so it ignores the answer.
    AcknowledgeBeforeReplica,
    /// A replica gets a save before the save is on disk.
    ReplicateBeforeDisk,
    /// A writer saves again after its replica did not confirm a save.
    ContinueAfterRefusal,
    /// A rebuild does not notice that a record is missing.
    RebuildSkipsGap,
    /// A writer does not notice that the name of its journal or of its base phase refers to another file or to none.
    SkipNameCheck,
}

#[cfg(feature = "test-util")]
thread_local! {
    static NOW: std::cell::Cell<Option<Sabotage>> = const { std::cell::Cell::new(None) };
}

/// Switches on one mistake for this thread; `None` switches off all mistakes.
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
