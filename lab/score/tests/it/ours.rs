//! The score of `rlm`, with the smaller number of repetitions.

use std::path::Path;

use rlm_score::{ScoreName, Tool, Verdict};

use crate::{RLM, cells, scored};

#[track_caller]
fn expect_kept(name: ScoreName) {
    let score = scored(&Tool::ours(Path::new(RLM)), name);
    let all: Vec<&str> = score.cells.iter().map(|it| it.cell.as_str()).collect();
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
fn rlm_loses_a_night_only_to_outages_in_plain_text_and_to_a_full_disk() {
    let score = scored(&Tool::ours(Path::new(RLM)), ScoreName::Night);
    let skipped = cells(&score, Verdict::Skipped);
    // A command can't say that its service is limited, so `rlm` counts failed turns. `rlm resume` doesn't continue a run that ended as stuck.
    let known = ["429 with a reset", "529", "full disk", "whole night"];
    let known = known.into_iter().filter(|it| !skipped.contains(it));
    let known: Vec<&str> = known.collect();
    assert_eq!(cells(&score, Verdict::Broken), known, "{:#?}", score.cells);
    assert!(cells(&score, Verdict::NotShown).is_empty(), "{score:#?}");
}
