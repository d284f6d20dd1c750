//! "The newest run" is the run with the latest activity, whatever its name.

use rustix::process::Signal;

use crate::LONG;
use crate::scene::{Scene, expect_in_order, says, stop, text};

/// Starts and stops a run with this name.
fn stopped(scene: &Scene, name: &str) {
    let mut running = scene.run(&["--once", "--run-id", name]).spawn();
    says(&mut running, "ready");
    stop(running, Signal::TERM);
}

#[test]
fn w17_every_command_selects_the_last_active_run() {
    let scene = Scene::new("print ready\nprint start-{start}\nhang");
    // The order of the names is the reverse of the order of the runs.
    for name in ["z", "m", "a"] {
        stopped(&scene, name);
    }
    let named = |arguments: &[&str]| scene.rlm(arguments).run(LONG).expect_code(0).stdout;
    let logs = named(&["logs"]);
    assert!(
        logs.contains("start-3") && !logs.contains("start-1"),
        "{logs}"
    );
    let report = named(&["report"]);
    assert!(report.contains("rlm-a.html"), "{report}");
    let names: Vec<String> = scene.statuses().iter().map(|it| text(&it["run"])).collect();
    assert_eq!(names, ["z", "m", "a"], "the newest last");
    expect_in_order(&named(&["status"]), &["z", "m", "a"]);
    let mut fourth = scene.run(&["--once", "--run-id", "n"]).spawn();
    says(&mut fourth, "ready");
    let told = stop(fourth, Signal::TERM).stdout;
    assert!(
        told.contains("3 runs can be resumed instead; the newest: rlm resume a"),
        "{told}"
    );
    // A resumed run is the newest again.
    let mut running = scene.rlm(&["resume", "z"]).spawn();
    says(&mut running, "ready");
    stop(running, Signal::TERM);
    let logs = named(&["logs"]);
    assert!(
        logs.contains("start-1") && logs.contains("start-5"),
        "{logs}"
    );
    let refused = scene.rlm(&["resume"]).run(LONG).expect_code(2);
    assert!(refused.stderr.contains("name one: m, a, n, z"), "{refused}");
}
