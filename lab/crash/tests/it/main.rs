//! The controls of the harness, and a quick version of its layers.
#![expect(clippy::unwrap_used, reason = "a failing helper fails its test")]

mod controls;
mod disk;
mod fleets;
mod layers;
mod real;

use rlm_crash::outcome::Outcome;

/// Fails if a layer found a broken promise, or if it tried at most `least` histories without a reason for a skip.
fn keeps_all_promises(outcome: &Outcome, least: u64) {
    assert_eq!(outcome.lost, 0, "{}", outcome.notes.join("\n"));
    assert!(outcome.tried > least || is_skipped(outcome), "{outcome:?}");
}

/// Returns whether a part of a layer could not run here, and prints the reasons.
#[expect(clippy::print_stdout, reason = "a skipped test reports it")]
fn is_skipped(outcome: &Outcome) -> bool {
    for skip in &outcome.skipped {
        println!("skipped: {skip}");
    }
    !outcome.skipped.is_empty()
}
