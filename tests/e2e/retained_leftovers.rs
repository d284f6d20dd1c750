//! `--leftovers keep`: retained leftovers serve the later attempts, and never outlive the run.

use rlm_tests::wait_for;
use rustix::process::Signal;

use crate::LONG;
use crate::scene::{Scene, says, stop};

#[test]
fn x127c_retained_leftovers_live_until_the_run_ends() {
    let scene = Scene::new("@1 child setsid\n@1 child daemon\n@3 print third\n@3 hang\nprint turn");
    let mut running = scene.run(&["-n", "3", "--leftovers", "keep"]).spawn();
    says(&mut running, "third");
    assert_eq!(scene.children_alive(1).len(), 2);
    let ended = stop(running, Signal::TERM);
    scene.expect_nothing_alive();
    assert!(
        ended
            .stdout
            .contains("ended 2 processes retained for later attempts"),
        "{ended}"
    );
}

#[test]
fn x127c_leftovers_of_at_most_eight_attempts_are_retained() {
    let scene = Scene::new("child setsid\n@9 print ninth\n@10 hang");
    let mut running = scene.run(&["-n", "10", "--leftovers", "keep"]).spawn();
    says(&mut running, "iteration 9 complete");
    // The run ends the oldest leftover while the others continue.
    wait_for("the end of the oldest", LONG, || {
        scene.children_alive(1).is_empty().then_some(())
    });
    assert_eq!(scene.children_alive(2).len(), 1);
    stop(running, Signal::INT);
    scene.expect_nothing_alive();
}

#[test]
fn x127c_retained_leftovers_that_print_neither_block_nor_die() {
    let scene = Scene::new("");
    // The server prints more than a pipe buffer, long after the end of its agent. The second turn waits for the end of the server.
    let server = "sleep 1; yes chatter | head -c 1000000; touch done";
    let agent = format!(
        "case $RLM_ITERATION in 1) (trap '' PIPE; set -e; {server}) & ;; \
         *) until test -e done; do sleep 0.05; done ;; esac"
    );
    let run = [
        "run",
        "-p",
        "x",
        "-n",
        "2",
        "--sleep",
        "0",
        "--leftovers",
        "keep",
    ];
    let mut rlm = scene
        .rlm(&run)
        .args(["--iteration-timeout", "15s", "--", "sh", "-c", &agent]);
    rlm = rlm.env("RLM_SHUTDOWN_TIMEOUT", "3s");
    let ended = rlm.run(LONG).expect_code(0);
    assert!(ended.stdout.contains("planned"), "{ended}");
    scene.expect_nothing_alive();
}
