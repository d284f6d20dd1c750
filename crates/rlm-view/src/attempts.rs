//! The attempts of a run that have a transcript, each as the numbers of its iteration and its attempt.

use std::path::Path;

use rlm_store::transcript::path;
use rlm_store::{sorted_by_age, transcripts};

use crate::row::RunRow;

/// Returns the iteration and the attempt of the saved state, if there is a transcript of it. Between two attempts, and after the last one, there is none.
pub(crate) fn saved_attempt(run_dir: &Path, row: &RunRow) -> Option<(u32, u32)> {
    let saved = (row.iteration, row.attempt);
    path(run_dir, saved.0, saved.1).exists().then_some(saved)
}

/// Returns the iteration and the attempt whose transcript a page shows: of the saved state, or else the newest one.
pub(crate) fn current_attempt(run_dir: &Path, row: &RunRow) -> Option<(u32, u32)> {
    let newest = || sorted_attempts(run_dir).pop();
    saved_attempt(run_dir, row).or_else(newest)
}

/// Returns the attempts with a transcript, the newest last.
pub(crate) fn sorted_attempts(run_dir: &Path) -> Vec<(u32, u32)> {
    let all = sorted_by_age(transcripts(run_dir).unwrap_or_default());
    all.into_iter()
        .map(|(iteration, attempt, _)| (iteration, attempt))
        .collect()
}

/// Returns the attempt that began before another one.
pub(crate) fn attempt_before(run_dir: &Path, attempt: (u32, u32)) -> Option<(u32, u32)> {
    let all = sorted_attempts(run_dir);
    let at = all.iter().position(|it| *it == attempt)?;
    all.get(at.checked_sub(1)?).copied()
}

/// Returns the attempt that began after another one.
pub(crate) fn attempt_after(run_dir: &Path, attempt: (u32, u32)) -> Option<(u32, u32)> {
    let all = sorted_attempts(run_dir);
    let at = all.iter().position(|it| *it == attempt)?;
    all.get(at + 1).copied()
}
