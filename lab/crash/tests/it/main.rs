//! The harness's own controls, and a quick version of its layers.
#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

mod controls;
mod disk;
mod layers;
mod real;

use rlm_crash::outcome::Outcome;

/// Fails unless a layer looked at more than `least` histories, or could not run here, and none broke a promise.
fn keeps_all_promises(outcome: &Outcome, least: u64) {
    assert_eq!(outcome.lost, 0, "{}", outcome.notes.join("\n"));
    assert!(outcome.tried > least || is_skipped(outcome), "{outcome:?}");
}

/// Whether a part of a layer could not run here, which is told.
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn is_skipped(outcome: &Outcome) -> bool {
    for skip in &outcome.skipped {
        println!("skipped: {skip}");
    }
    !outcome.skipped.is_empty()
}
