//! The controls of the lab, the score of `rlm`, and the program itself.
#![expect(clippy::unwrap_used, reason = "a failing helper fails its test")]

mod controls;
mod ours;
mod program;
mod real;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use rlm_score::{Effort, Lab, Score, ScoreName, Tool, Verdict};

const LAB: &str = env!("CARGO_BIN_EXE_lab");
const RLM: &str = env!("CARGO_BIN_EXE_rlm-scored");

/// Plays the faults of a score, with the smaller number of repetitions.
fn scored(tool: &Tool, score: ScoreName) -> Score {
    let lab = Lab {
        tool,
        agent: Path::new(LAB),
        cli: None,
        effort: Effort::Quick,
        seed: 1,
        given_up: &AtomicBool::new(false),
    };
    lab.score(score, 4, |_, _| {})
}

/// Returns the names of the cells with this verdict.
fn cells(score: &Score, verdict: Verdict) -> Vec<&str> {
    let cells = score.cells.iter().filter(|it| it.verdict == verdict);
    cells.map(|it| it.cell.as_str()).collect()
}
