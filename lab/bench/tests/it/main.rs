//! Runs each bench at its smallest size. The tests show that it runs, not how fast it is.
#![cfg(unix)]

use std::path::Path;
use std::process::Command;

#[test]
fn every_bench_prints_tables_and_writes_json() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("figures.json");
    let ended = Command::new(env!("CARGO_BIN_EXE_rlm-bench"))
        .args(["--quick", "--tiny", "--out"])
        .arg(directory.path())
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let figures: serde_json::Value =
        serde_json::from_str(&fs_err::read_to_string(json).unwrap()).unwrap();
    let benches = figures["benches"].as_array().unwrap();
    let printed = String::from_utf8(ended.stdout).unwrap();
    assert!(printed.contains("\n== all targets\n"), "{printed}");
    // A build of only the tests builds no `rlm`. The benches that need it are then skipped.
    let rlm = Path::new(env!("CARGO_BIN_EXE_rlm-bench")).with_file_name("rlm");
    for bench in benches {
        let id = bench["id"].as_str().unwrap();
        assert!(printed.contains(&format!("\n== {id} ")), "{printed}");
        let notes = bench["notes"].as_array().unwrap();
        let saw_one_press = notes
            .iter()
            .any(|note| note.as_str().unwrap().ends_with("presses as one"));
        let mut measured = 0;
        for series in bench["series"].as_array().unwrap() {
            for contender in series["contenders"].as_array().unwrap() {
                // The fastest way to stop does not end all processes of some process trees, and a process of a busy machine may see two presses as one.
                let may_be_lost = contender["role"] == "floor" || saw_one_press;
                let may_be_lost = may_be_lost && contender["lost"] != 0;
                let is_measured = contender["role"] != "peer" && !may_be_lost;
                if is_measured {
                    assert_ne!(contender["samples"], serde_json::Value::Null, "{bench:#}");
                    measured += 1;
                }
            }
        }
        let is_skipped = !rlm.is_file() && bench["skipped"] != serde_json::json!([]);
        assert!(measured > 0 || is_skipped, "{bench:#}");
    }
    let ids: Vec<&str> = benches
        .iter()
        .filter_map(|bench| bench["id"].as_str())
        .collect();
    assert_eq!(
        ids,
        [
            "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8", "b9", "b10", "b10-git", "b11", "b12",
            "b13", "b14", "b15", "b16", "b17", "b18"
        ]
    );
}

#[test]
fn only_benches_that_exist_are_run() {
    let ended = Command::new(env!("CARGO_BIN_EXE_rlm-bench"))
        .args(["b1", "b77"])
        .output()
        .unwrap();
    assert_eq!(ended.status.code(), Some(2));
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.contains("the benches are b1, b2"), "{said}");
}
