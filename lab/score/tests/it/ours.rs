//! The score of `rlm`, with the smaller number of repetitions.

use std::path::Path;

use rlm_score::{ScoreName, Tool, Verdict};

use crate::{RLM, cells, scored};

#[track_caller]
fn expect_kept(name: ScoreName) {
    let score = scored(&Tool::ours(Path::new(RLM)), name);
    // Without root, no disk can be made full.
    let skipped = cells(&score, Verdict::Skipped);
    let all = score.cells.iter().map(|it| it.cell.as_str());
    let all: Vec<&str> = all.filter(|it| !skipped.contains(it)).collect();
    assert_eq!(cells(&score, Verdict::Kept), all, "{:#?}", score.cells);
}

#[test]
fn rlm_keeps_every_cell_of_done() {
    expect_kept(ScoreName::Done);
}

#[test]
#[ignore = "takes minutes of waiting: cargo xtask nightly --only lab"]
fn rlm_keeps_every_cell_of_resume() {
    expect_kept(ScoreName::Resume);
}

#[test]
#[ignore = "takes minutes of waiting: cargo xtask nightly --only lab"]
fn rlm_keeps_every_cell_of_control() {
    expect_kept(ScoreName::Control);
}

#[test]
#[ignore = "takes minutes of waiting: cargo xtask nightly --only lab"]
fn rlm_keeps_every_cell_of_night() {
    expect_kept(ScoreName::Night);
}
