//! Limits of a live run are changed from another terminal.

use rustix::process::Signal;

use crate::LONG;
use crate::control::quick;
use crate::scene::{Scene, says, stop};

#[test]
fn a_limit_that_is_set_is_in_effect_and_a_resume_has_it() {
    let scene = Scene::new("print turn {start}\nawait go");
    let mut running = scene.run(&["-n", "1"]).spawn();
    says(&mut running, "turn 1");
    let told = quick(scene.rlm(&["set", "max-iterations=3", "sleep=0", "max-failures=7"]));
    let told = told.expect_code(0).stdout;
    assert!(told.contains("recorded: iterations: 3"), "{told}");
    assert!(told.contains("in effect: failures in a row: 7"), "{told}");
    says(&mut running, "iterations: 3");
    // Also with an option that makes new rules of the saved settings.
    stop(running, Signal::INT);
    fs_err::write(scene.file("go"), "").unwrap();
    quick(scene.rlm(&["resume", "--max-duration", "1h"])).expect_code(0);
    assert_eq!(scene.status()["iterations_complete"], 3);
    let shown = quick(scene.rlm(&["checkpoints", "show", &scene.run_id(), "--json"]));
    assert!(shown.stdout.contains("\"max_failures\":7"), "{shown}");
}

#[test]
fn x117_what_can_not_be_set_is_said_and_changes_nothing() {
    let scene = Scene::new("print turn {start}\nawait go");
    let mut running = scene.run(&["-n", "2"]).spawn();
    says(&mut running, "turn 1");
    for (words, code, why) in [
        (&["sleeep=3"][..], 2, "`sleeep` can't be set"),
        (
            &["max-iterations=5", "sleep=soon"],
            2,
            "sleep: `soon` is not",
        ),
        (&["max-iterations"], 2, "say what to set"),
        (
            &["max-iterations=-1"],
            2,
            "max-iterations: `-1` is no number",
        ),
        (&["max-iterations=0"], 1, "at least 1 is needed"),
        (&["max-iterations=none"], 1, "no end"),
        (&["no-such-run", "sleep=1"], 10, "nothing reached"),
    ] {
        let words: Vec<&str> = ["set"].iter().chain(words).copied().collect();
        let refused = quick(scene.rlm(&words)).expect_code(code);
        assert!(refused.stderr.contains(why), "{refused}");
    }
    fs_err::write(scene.file("go"), "").unwrap();
    running.wait(LONG).expect_code(0);
    assert_eq!(scene.status()["iterations_complete"], 2);
}
