//! A tool that keeps every promise is green in all cells. The same tool, made to break one promise, is red in the cell of this promise and in no other.

use rlm_score::{Score, ScoreName, Tool, Verdict};

use crate::{cells, scored};

/// The loop runner of the controls.
const LOOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/loop.sh");

/// The cell with all events of a night.
const WHOLE_NIGHT: &str = "whole night";

/// Returns the loop runner with a fault.
fn tool(fault: &str) -> Tool {
    let start = format!(
        "FAULT={fault} exec bash {LOOP} start {{agent}} {{prompt}} {{check}} {{iterations}}"
    );
    Tool {
        message: Some(format!("exec bash {LOOP} message {{message}}")),
        ..Tool::of_command("loop", &start, None).unwrap()
    }
}

#[track_caller]
fn expect_red(score: ScoreName, faults: &[(&str, &str)]) {
    let honest = scored(&tool(""), score);
    let is_together = |cell: &str| cell == WHOLE_NIGHT;
    let all: Vec<&str> = honest.cells.iter().map(|it| it.cell.as_str()).collect();
    assert_eq!(cells(&honest, Verdict::Kept), all, "{:#?}", honest.cells);
    let with_fault: Vec<&str> = faults.iter().map(|(_, cell)| *cell).collect();
    assert_eq!(with_fault, all, "each cell has its control");
    for (fault, cell) in faults {
        let mut score = scored(&tool(fault), score);
        // The whole night contains the faults of all other cells of this score.
        if !is_together(cell) {
            score.cells.retain(|it| !is_together(&it.cell));
        }
        expect_only(&score, fault, cell);
    }
}

#[track_caller]
fn expect_only(score: &Score, fault: &str, cell: &str) {
    let broken = cells(score, Verdict::Broken);
    assert_eq!(broken, [cell], "{fault}: {:#?}", score.cells);
    let kept = cells(score, Verdict::Kept);
    assert_eq!(
        kept.len() + 1,
        score.cells.len(),
        "{fault}: {:#?}",
        score.cells
    );
}

#[test]
#[ignore = "takes seconds of processor time: cargo xtask nightly --only lab"]
fn each_false_report_is_red_in_its_cell_of_done_and_in_no_other() {
    expect_red(
        ScoreName::Done,
        &[
            ("tool-output", "promise in tool output"),
            ("prompt", "promise in the prompt"),
            ("lying-agent", "lying agent"),
            ("zero-work", "zero work"),
            ("failed-check", "failed check"),
            ("failed-agent", "failed agent"),
            ("exit-zero", "exit 0 after a failure"),
            ("exit-one", "exit 1 after success"),
            ("honest-agent", "honest agent"),
        ],
    );
}

#[test]
#[ignore = "takes seconds of processor time: cargo xtask nightly --only lab"]
fn each_bad_resume_is_red_in_its_cell_and_in_no_other() {
    expect_red(
        ScoreName::Resume,
        &[
            ("lost", "iterations lost"),
            ("twice", "iterations done twice"),
            ("orphan", "two agents at once"),
            ("race", "eight racing resumes"),
            ("torn", "torn last write"),
        ],
    );
}

#[test]
#[ignore = "takes seconds of processor time: cargo xtask nightly --only lab"]
fn each_lost_message_is_red_in_its_cell_of_control_and_in_no_other() {
    expect_red(
        ScoreName::Control,
        &[
            ("message", "message arrives"),
            ("agent-restart", "agent restarts"),
            ("tool-restart", "tool restarts"),
        ],
    );
}

#[test]
#[ignore = "takes seconds of processor time: cargo xtask nightly --only lab"]
fn each_lost_night_is_red_in_its_cell_and_in_no_other() {
    expect_red(
        ScoreName::Night,
        &[
            ("rate-limit", "429 with a reset"),
            ("overload", "529"),
            ("dropped", "dropped stream"),
            ("hang", "hang"),
            ("long-line", "line of 1 MB"),
            ("flood", "1 GB of output"),
            ("agent-crash", "agent crash"),
            ("tool-crash", "tool crash"),
            ("reboot", "reboot"),
            ("full-disk", "full disk"),
            ("lying-agent", "lying agent"),
            ("whole-night", WHOLE_NIGHT),
        ],
    );
}

#[test]
fn finish_verb_decides_about_reported_work() {
    let start = "for i in $(seq {iterations}); do cat {prompt} | {agent}; done";
    let with = |finish: &str| Tool {
        finish: Some(finish.into()),
        ..Tool::of_command("loop", start, None).unwrap()
    };
    let never = scored(&with("false"), ScoreName::Done);
    assert_eq!(cells(&never, Verdict::Broken), ["honest agent"]);
    let always = scored(&with("true"), ScoreName::Done);
    assert_eq!(cells(&always, Verdict::Kept), ["honest agent"]);
}

#[test]
#[ignore = "takes seconds of processor time: cargo xtask nightly --only lab"]
fn kill_verb_replaces_the_signal_of_the_lab() {
    let with = |kill: &str| Tool {
        kill: Some(kill.into()),
        ..tool("")
    };
    let kills = scored(&with("kill -9 {pid}"), ScoreName::Resume);
    assert_eq!(cells(&kills, Verdict::Kept).len(), kills.cells.len());
    let fails = scored(&with("false"), ScoreName::Resume);
    assert_eq!(cells(&fails, Verdict::NotShown).len(), fails.cells.len());
}
