//! Mistakes that a test can switch on, one at a time, to show that the explorations detect each of them.
//!
//! Without the feature `test-util`, outside of the tests of this crate, none of this is in the program: `is_on` is then a constant. A switch affects
//! only the thread that sets it; [`set_everywhere`] affects all threads of a process, for storms on real workers.

#[cfg(feature = "test-util")]
use std::sync::atomic::{AtomicU64, Ordering};

/// One mistake that a decision could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "test-util"), expect(unreachable_pub))]
pub enum Sabotage {
    /// A publish that was refused counts as fenced, without a read of the last record.
    FenceWithoutReadBack,
    /// A publish without an answer counts as stored.
    TrustLostAnswer,
    /// A refused append is repeated after the record of the other owner.
    FollowOtherOwner,
    /// An appender that was fenced appends the next record.
    AppendAfterFence,
    /// Answers to earlier calls are taken for answers to the present one.
    TakeOldAnswers,
    /// A lost lease is held again after the answer to a renewal.
    ReviveLease,
    /// The agent is killed only when the lease ends.
    KillAtLeaseEnd,
    /// The agent is never killed, and the lease is never lost.
    NeverKill,
    /// A lease counts from the answer to a renewal, not from its sending.
    CountFromAnswer,
    /// A claimant decides about a run although its connection is young, so the owner may not be connected again yet.
    SkipGrace,
    /// A claimant goes on although it lost the connection.
    ClaimAcrossRestart,
    /// A claimant sends no probe.
    SkipProbe,
    /// A claimant takes the run from an owner that answers.
    IgnoreOwner,
    /// A run is claimed however many claims stalled.
    SkipPoison,
    /// A worker continues its claim after it lost the lease.
    ClaimAfterLoss,
    /// A parked or ended run is claimed.
    ClaimEnded,
    /// A run is released before its processes are gone.
    ReleaseTooEarly,
    /// A save does not send the commits of the run.
    #[cfg(feature = "nats")]
    SaveWithoutCommits,
}

#[cfg(any(test, feature = "test-util"))]
thread_local! {
    static NOW: std::cell::Cell<Option<Sabotage>> = const { std::cell::Cell::new(None) };
}

/// Switches on one mistake for this thread; `None` switches off all mistakes.
#[cfg(any(test, feature = "test-util"))]
#[cfg_attr(not(feature = "test-util"), expect(unreachable_pub))]
pub fn set(sabotage: Option<Sabotage>) {
    NOW.set(sabotage);
}

/// The mistakes of all threads: a bit for each.
#[cfg(feature = "test-util")]
static EVERYWHERE: AtomicU64 = AtomicU64::new(0);

/// Switches on a mistake for all threads of this process, in addition to others.
#[cfg(feature = "test-util")]
pub fn set_everywhere(sabotage: Sabotage) {
    EVERYWHERE.fetch_or(1 << sabotage as u64, Ordering::Relaxed);
}

/// Returns whether the current thread makes this mistake.
#[cfg(any(test, feature = "test-util"))]
pub(crate) fn is_on(mistake: Sabotage) -> bool {
    #[cfg(feature = "test-util")]
    if EVERYWHERE.load(Ordering::Relaxed) & (1 << mistake as u64) != 0 {
        return true;
    }
    NOW.get() == Some(mistake)
}

/// Returns whether the current thread makes this mistake; outside of tests, no thread does.
#[cfg(not(any(test, feature = "test-util")))]
pub(crate) const fn is_on(_: Sabotage) -> bool {
    false
}

/// Calls `work` while the current thread makes this mistake.
#[cfg(test)]
pub(crate) fn with<T>(mistake: Option<Sabotage>, work: impl FnOnce() -> T) -> T {
    set(mistake);
    let result = work();
    set(None);
    result
}
