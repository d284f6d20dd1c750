//! The state after a crash, and the resume from it.

use rustix::process::Signal;

use crate::scene::{
    HANGS_IN_THE_THIRD, PROMPT, Scene, crash, expect_in_order, says, stop, text, until_ready,
};
use crate::{LONG, RLM};

#[test]
fn c67b_c67c_start_reports_removed_temporary_files_of_dead_processes() {
    let scene = Scene::new(HANGS_IN_THE_THIRD);
    crash(scene.third_iteration());
    scene.wait_until_nothing_is_alive();
    // No process can have a pid this large.
    let orphan =
        |place: &str| scene.file(&format!("{place}/.holder.json.2147483646.{:032x}.tmp", 7));
    let run = scene.run_id();
    let places = [".rlm".to_owned(), format!(".rlm/runs/{run}")];
    let orphans = places.map(|place| orphan(&place));
    // The store itself removes its temporary file of an earlier process.
    let of_store = scene.file(&format!(".rlm/runs/{run}/.tmp-00000001-0000000000000007"));
    let orphans: Vec<_> = orphans.into_iter().chain([of_store]).collect();
    for orphan in &orphans {
        fs_err::write(orphan, "half").unwrap();
    }
    let resume = || {
        scene
            .rlm(&["resume", "--until", "false", "-n", "3"])
            .run(LONG)
    };
    let words = "temporary files of earlier processes from .rlm";
    let first = resume();
    assert!(
        first.stdout.contains(&format!("removed 3 {words}")),
        "{first}"
    );
    assert!(orphans.iter().all(|orphan| !orphan.exists()));
    let second = scene.run(&["--once"]).run(LONG).expect_code(0);
    assert!(!second.stdout.contains(words), "{second}");
}

#[test]
fn s14a_s14b_a_crash_loses_no_complete_iteration() {
    let scene = Scene::new(HANGS_IN_THE_THIRD);
    crash(scene.third_iteration());
    scene.wait_until_nothing_is_alive();
    let status = scene.status();
    assert_eq!(
        (
            &status["state"],
            &status["iteration"],
            &status["iterations_complete"]
        ),
        (&"crashed".into(), &3.into(), &2.into())
    );
    let ended = scene.rlm(&["resume"]).run(LONG).expect_code(0);
    expect_in_order(
        &ended.stdout,
        &[
            "at iteration 3, unfinished in attempt 1",
            "iteration 3, attempt 2",
            "turn 4",
            "done",
        ],
    );
    let cut = "attempt 1 of iteration 3 did not finish because the loop's process died";
    assert!(
        scene.prompts()[3].starts_with(&format!("Note from the loop: {cut}")),
        "{:?}",
        scene.prompts()
    );
    assert_eq!(scene.status()["unfinished_attempts"], 1);
}

#[test]
fn copy_of_an_unfinished_run_spares_processes_of_the_original() {
    let scene = Scene::new("print ready\nhang");
    crash(scene.ready(&["--once"]));
    scene.wait_until_nothing_is_alive();
    let copy = scene.sandbox.path().join("copy");
    let mut cp = std::process::Command::new("cp");
    let copied = cp.arg("-a").arg(scene.file("")).arg(&copy).status();
    assert!(copied.unwrap().success());
    let one = until_ready(scene.rlm(&["resume"]));
    let other = until_ready(scene.rlm(&["resume"]).dir(&copy));
    assert_eq!(scene.tree_alive(), 2);
    let ended = stop(other, Signal::TERM);
    assert!(!ended.stdout.contains("left alive"), "{ended}");
    assert_eq!(scene.tree_alive(), 1);
    stop(one, Signal::TERM);
}

#[test]
fn s14c_s14d_new_run_names_the_resumable_run() {
    let scene = Scene::new(HANGS_IN_THE_THIRD);
    crash(scene.third_iteration());
    let other = scene.run_id();
    let ended = scene.run(&["--once"]).run(LONG).expect_code(0);
    assert!(
        ended.stdout.contains(&format!(
            "run {other} can be resumed instead: rlm resume {other}\n"
        )),
        "{ended}"
    );
    let statuses = scene.statuses();
    let states: Vec<_> = statuses
        .iter()
        .map(|status| text(&status["state"]))
        .collect();
    assert_eq!(states.len(), 2);
    assert_eq!(
        scene.agent.starts()[3].env["RLM_ITERATION"],
        "1",
        "the new run begins with iteration 1"
    );
    let find = |run: &str| {
        statuses
            .iter()
            .find(|status| status["run"] == run)
            .cloned()
            .unwrap()
    };
    assert_eq!(find(&other)["iteration"], 3, "the other run is unchanged");
    // The original can still be resumed.
    scene.rlm(&["resume", "-n", "3"]).run(LONG);
    assert_eq!(scene.agent.starts()[4].env["RLM_ITERATION"], "3");
}

#[test]
fn c73a_crash_in_fourth_of_five_iterations_repeats_only_the_fourth() {
    let scene = Scene::new("print turn {start}\n@4 print ready\n@4 hang");
    crash(scene.ready(&["-n", "5"]));
    scene.rlm(&["resume"]).run(LONG).expect_code(0);
    let numbers: Vec<_> = scene
        .agent
        .starts()
        .iter()
        .map(|start| start.env["RLM_ITERATION"].clone())
        .collect();
    assert_eq!(numbers, ["1", "2", "3", "4", "4", "5"]);
}

#[test]
fn c73b_a_crash_in_the_sleep_repeats_nothing() {
    let scene = Scene::new("print turn {start}");
    let mut running = scene
        .run_bare(&["-p", PROMPT, "--sleep", "600", "-n", "2"])
        .spawn();
    says(&mut running, "next iteration");
    crash(running);
    let ended = scene.rlm(&["resume"]).run(LONG).expect_code(0);
    assert!(
        ended
            .stdout
            .contains("at iteration 2, 1 iteration complete"),
        "{ended}"
    );
    assert_eq!(scene.start_count(), 2);
}

#[test]
fn crash_during_check_keeps_the_turn() {
    let scene = Scene::new("print turn {start}");
    let check = "touch checking; while ! test -e go; do sleep 0.02; done";
    let running = scene.run(&["--until", check]).spawn();
    scene.wait_for_file("checking");
    crash(running);
    fs_err::write(scene.file("go"), "").unwrap();
    let ended = scene.rlm(&["resume"]).run(LONG).expect_code(0);
    assert!(ended.stdout.contains("done: the check passed"), "{ended}");
    assert_eq!(scene.start_count(), 1);
}

#[test]
fn crash_during_required_check_keeps_the_turn() {
    let scene = Scene::new("print turn {start}");
    let gate = "touch gating; while ! test -e go; do sleep 0.02; done";
    let running = scene.run(&["--gate", gate, "-n", "2"]).spawn();
    scene.wait_for_file("gating");
    crash(running);
    fs_err::write(scene.file("go"), "").unwrap();
    scene.rlm(&["resume"]).run(LONG).expect_code(0);
    let numbers: Vec<_> = scene
        .agent
        .starts()
        .iter()
        .map(|start| start.env["RLM_ITERATION"].clone())
        .collect();
    assert_eq!(numbers, ["1", "2"]);
}

#[test]
fn x110e_crash_streak_ends_the_run_and_a_person_can_resume_it() {
    let scene = Scene::new("print turn {start}\n@1..3 print ready\n@1..3 hang");
    crash(scene.ready(&["--once"]));
    for attempt in ["2", "3"] {
        crash(until_ready(scene.rlm(&["resume"])));
        assert_eq!(
            scene.agent.starts().last().unwrap().env["RLM_ATTEMPT"],
            attempt
        );
    }
    let ended = scene.rlm(&["resume"]).run(LONG).expect_code(6);
    assert!(
        ended.stdout.contains("stuck: 3 crashes in a row"),
        "{ended}"
    );
    assert_eq!(scene.start_count(), 3, "the resume starts no agent");
    let run = scene.run_id();
    scene.rlm(&["resume", &run]).run(LONG).expect_code(0);
    assert_eq!(scene.start_count(), 4);
}

#[test]
fn x110e_completed_turn_resets_the_crash_streak() {
    let scene = Scene::new(
        "print turn {start}\n@1..2 print ready\n@1..2 hang\n@4.. print ready\n@4..5 hang",
    );
    crash(scene.ready(&["-n", "2", "--max-failures", "3"]));
    crash(until_ready(scene.rlm(&["resume"])));
    // The third start ends its turn; the fourth and fifth are unfinished again.
    crash(until_ready(scene.rlm(&["resume"])));
    crash(until_ready(scene.rlm(&["resume"])));
    scene.rlm(&["resume"]).run(LONG).expect_code(0);
    assert_eq!(scene.start_count(), 6);
}

#[test]
fn c76b_reused_pid_hides_no_run() {
    let scene = Scene::new("print turn {start}\n@1 print ready\n@1 hang");
    crash(scene.ready(&["--once"]));
    scene.wait_until_nothing_is_alive();
    // A live process with its true start time: pid and time identify it as the holder.
    let me = std::process::id();
    let stat = fs_err::read_to_string(format!("/proc/{me}/stat")).unwrap();
    let started = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .nth(19)
        .unwrap();
    let run = scene.run_id();
    let holder =
        format!(r#"{{"process":{{"pid":{me},"start_time":{started}}},"since":1,"run":"{run}"}}"#);
    fs_err::write(scene.file(".rlm/holder.json"), holder).unwrap();
    fs_err::write(
        scene.file(&format!(".rlm/runs/{run}/LOCK")),
        format!("pid {me} since 2026-01-01T00:00:00Z\n"),
    )
    .unwrap();
    assert_eq!(scene.status()["state"], "crashed");
    scene.rlm(&["resume"]).run(LONG).expect_code(0);
    assert_eq!(scene.start_count(), 2);
}

#[test]
fn output_before_crash_is_in_transcript() {
    let scene = Scene::new("print half a thought\nprint ready\nhang");
    let mut running = scene.ready(&["--once"]);
    running.until("flush", LONG, |_| {
        let logs = scene.sandbox.rlm(RLM).args(["logs"]).run(LONG).stdout;
        logs.contains("half a thought").then_some(())
    });
    crash(running);
    let logs = scene.rlm(&["logs"]).run(LONG).expect_code(0).stdout;
    expect_in_order(&logs, &[PROMPT, "half a thought", "ready"]);
    let mut other = scene.rlm(&["resume"]).spawn();
    // The agent of the resumed run prints the same again, and hangs.
    says(&mut other, "ready");
    stop(other, Signal::TERM);
    let logs = scene.rlm(&["logs"]).run(LONG).expect_code(0).stdout;
    expect_in_order(
        &logs,
        &[
            "iteration 1, attempt 1",
            "half a thought",
            "iteration 1, attempt 2",
            "half a thought",
        ],
    );
}
