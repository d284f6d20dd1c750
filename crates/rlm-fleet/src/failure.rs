//! Decides what a worker does with a run that it can't continue, and keeps the evidence: which claims failed, and why.

use std::time::Duration;

use crate::claim::MAX_STALLED;
use crate::record::RecordKind;

/// The number of failed claims that a run keeps. The oldest ones go first.
pub const MAX_FAILED: usize = 8;
/// The longest text of a failed claim, in bytes.
pub const MAX_FAILURE_TEXT: usize = 1000;

/// The longest pause of a worker that can't start runs.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// A claim that completed no iteration, as the evidence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedClaim {
    /// The epoch of the claim.
    pub epoch: u64,
    /// The name of the worker; empty if it is unknown.
    pub worker: String,
    /// When the worker reported the failure, or for [`FailureCause::NoAnswer`] when it last saved something; in milliseconds since 1970.
    pub at: i64,
    /// The part of the claim that failed.
    pub cause: FailureCause,
    /// The report of the worker; empty without an answer.
    pub text: String,
}

/// The part of a claim that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureCause {
    /// The worker could not start the run, for example because it has no disk space, no git or no program of the agent. The claim does not count as
    /// stalled.
    Start,
    /// The process of the run ended without an end of the run.
    Process,
    /// The worker gave no answer any more: it crashed, froze, or lost its connection.
    NoAnswer,
}

impl FailedClaim {
    /// Creates the evidence of a claim. A long text loses its beginning.
    #[must_use]
    pub fn new(epoch: u64, worker: &str, at: i64, cause: FailureCause, text: &str) -> Self {
        let too_many = text.len().saturating_sub(MAX_FAILURE_TEXT);
        let begin = (too_many..=text.len()).find(|at| text.is_char_boundary(*at));
        Self {
            epoch,
            worker: worker.into(),
            at,
            cause,
            text: text[begin.unwrap_or(0)..].trim().into(),
        }
    }
}

/// Adds a failed claim. A worker that often can't start a run has only its newest failure in the list.
pub fn add_failed(failed: &mut Vec<FailedClaim>, new: FailedClaim) {
    let is_repeated = |old: &FailedClaim| {
        (old.cause, new.cause) == (FailureCause::Start, FailureCause::Start)
            && old.worker == new.worker
    };
    failed.retain(|old| !is_repeated(old));
    failed.push(new);
    let too_many = failed.len().saturating_sub(MAX_FAILED);
    failed.drain(..too_many);
}

/// Returns the kind of the record with which a worker gives a run back, after the newest claim in `failed` failed. `stalled` is the number of stalled
/// claims with this one; see [`RecordKind::stalled`].
///
/// A worker that can't start a run is at fault, so its claim does not count, until so many different workers can't start the run.
///
/// # Examples
///
/// ```
/// use rlm_fleet::{FailedClaim, FailureCause, RecordKind, give_back};
///
/// let start = |worker: &str| FailedClaim::new(1, worker, 0, FailureCause::Start, "no git");
/// assert_eq!(give_back(&[start("w1")], 1), RecordKind::Release);
/// assert_eq!(give_back(&[start("w1"), start("w2"), start("w3")], 1), RecordKind::Park);
/// let process = FailedClaim::new(1, "w1", 0, FailureCause::Process, "exit code 1");
/// assert_eq!(give_back(&[process.clone()], 2), RecordKind::Failure);
/// assert_eq!(give_back(&[process], 3), RecordKind::Park);
/// ```
#[must_use]
pub fn give_back(failed: &[FailedClaim], stalled: u32) -> RecordKind {
    let not_started = |it: &&FailedClaim| it.cause == FailureCause::Start;
    match failed.last() {
        Some(newest) if newest.cause == FailureCause::Start => {
            // `add_failed` keeps one of each worker.
            let workers = failed.iter().filter(not_started).count();
            match u32::try_from(workers).is_ok_and(|workers| workers < MAX_STALLED) {
                true => RecordKind::Release,
                false => RecordKind::Park,
            }
        }
        _ if stalled >= MAX_STALLED => RecordKind::Park,
        _ => RecordKind::Failure,
    }
}

/// Returns how long a worker asks for no run after so many failed starts in a row. Meanwhile the other workers get the runs.
///
/// The first pause is half of the lease, and each later one twice as long, up to ten minutes.
#[must_use]
pub fn pause_after_failed_starts(failures: u32, lease: Duration) -> Duration {
    match failures.checked_sub(1) {
        None => Duration::ZERO,
        Some(doublings) => (lease / 2)
            .saturating_mul(2_u32.saturating_pow(doublings))
            .min(LONGEST_PAUSE),
    }
}
