//! `storm-subject`: `rlm`, or `rlm` with mistakes of its fleet switched on. `STORM_MISTAKES` names them, separated by commas.

use std::process::ExitCode;

use rlm_fleet::sabotage::{self, Sabotage};

/// The mistakes that a storm can switch on.
const MISTAKES: [Sabotage; 2] = [Sabotage::NeverKill, Sabotage::SaveWithoutCommits];
/// The exit code for a name that is not in the list.
const UNKNOWN: u8 = 99;

fn main() -> ExitCode {
    let names = std::env::var(rlm_storm::MISTAKES).unwrap_or_default();
    for name in names.split(',').filter(|name| !name.is_empty()) {
        match MISTAKES.iter().find(|it| format!("{it:?}") == name) {
            Some(found) => sabotage::set_everywhere(*found),
            None => return ExitCode::from(UNKNOWN),
        }
    }
    rlm::main_impl()
}
