//! An agent removes the state of its own run.

use rlm_tests::Rlm;

use crate::LONG;
use crate::countdown::slow_calls;
use crate::scene::{PROMPT, Scene, crash, events, expect_in_order, says, until_ready};

/// The agent prints the number of its start; the third start hangs.
const SCRIPT: &str = "print turn {start}\n@3 print ready\n@3 hang";

/// Replaces the state by a file, so that it can't be written again. `rlm` can write it again between the two commands, and then they are repeated.
const REPLACE: &str = "until test -f .rlm; do rm -rf .rlm; touch .rlm; done";

/// Prepares `rlm run -n 4` with an agent that first performs the action of this turn.
fn run<'a>(scene: &'a Scene, deeds: &str) -> Rlm<'a> {
    let deeds = format!("case $RLM_ITERATION.$RLM_ATTEMPT in {deeds} esac; exec \"$0\" \"$@\"");
    let command = [
        "run", "--sleep", "0", "-p", PROMPT, "-n", "4", "--", "sh", "-c",
    ];
    scene.rlm(&command).args([deeds]).args(scene.agent.argv())
}

fn iterations(scene: &Scene) -> Vec<String> {
    let starts = scene.agent.starts().into_iter();
    starts
        .map(|start| start.env["RLM_ITERATION"].clone())
        .collect()
}

/// Kills the run in its third iteration, and expects that the resume repeats only that one.
#[track_caller]
fn expect_resumed(scene: &Scene) {
    scene.wait_until_nothing_is_alive();
    let status = scene.status();
    let found = (
        &status["state"],
        &status["iteration"],
        &status["iterations_complete"],
    );
    assert_eq!(found, (&"crashed".into(), &3.into(), &2.into()), "{status}");
    scene
        .rlm(&["checkpoints", "verify"])
        .run(LONG)
        .expect_code(0);
    scene.rlm(&["resume"]).run(LONG).expect_code(0);
    assert_eq!(iterations(scene), ["1", "2", "3", "3", "4"]);
    let prompts = scene.prompts();
    assert!(
        prompts.iter().all(|prompt| prompt.ends_with(PROMPT)),
        "{prompts:?}"
    );
}

#[test]
fn x128b_x128c_x128d_git_clean_loses_only_old_transcripts() {
    let scene = Scene::new(SCRIPT);
    let running = until_ready(run(&scene, "2.1) git clean -fdx;;"));
    let said = running.stdout();
    // The run notices the removal at its next write, which can be before or after it reads the agent's lines.
    expect_in_order(&said, &["Removing .rlm/", "turn 2"]);
    expect_in_order(
        &said,
        &[
            "── iteration 2 ──",
            "was removed while it was open",
            "on disk again",
            "lost: the transcript of 1 attempt\n",
            "iteration 2 complete",
        ],
    );
    let run = scene.run_id();
    for name in [
        ".rlm/.gitignore",
        ".rlm/holder.json",
        &format!(".rlm/runs/{run}/blobs"),
    ] {
        assert!(scene.file(name).exists(), "{name}");
    }
    assert_eq!(scene.sandbox.git(&["status", "--porcelain"]), "");
    let logs = scene
        .rlm(&["logs", "--iteration", "2"])
        .run(LONG)
        .expect_code(0)
        .stdout;
    expect_in_order(
        &logs,
        &[PROMPT, "Removing .rlm/", "turn 2", "[end] completed"],
    );
    let markers = fs_err::read_dir(scene.file(".rlm/runs").join(&run)).unwrap();
    let names = markers.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let markers: Vec<String> = names.filter(|name| name.starts_with("epoch-")).collect();
    assert_eq!(markers, ["epoch-00000002"], "a new epoch");
    crash(running);
    expect_resumed(&scene);
}

#[test]
fn x128a_working_tree_stays_locked_without_its_state() {
    let scene = Scene::new(SCRIPT);
    let deed = "2.1) rm -rf .rlm; touch gone; while ! test -e go; do sleep 0.02; done;;";
    let mut running = run(&scene, deed).spawn();
    scene.wait_for_file("gone");
    let refused = scene.run(&["--once"]).run(LONG).expect_code(9);
    assert!(refused.stderr.contains("is working in"), "{refused}");
    fs_err::write(scene.file("go"), "").unwrap();
    says(&mut running, "ready");
    let refused = scene.run(&["--once"]).run(LONG).expect_code(9);
    assert!(
        refused.stderr.contains(&scene.run_id()),
        "the refusal names the run again: {refused}"
    );
    crash(running);
    expect_resumed(&scene);
}

#[test]
fn x128d_removal_in_every_turn_and_of_single_files_is_repaired() {
    let deeds = [
        "1.1|2.1|3.1) rm -rf .rlm;;",
        "1.1|2.1) rm .rlm/runs/*/progress-*;;",
        "1.1) rm .rlm/runs/*/epoch-*;; 2.1) rm -r .rlm/runs;;",
        "2.1) rm .rlm/runs/*/*;;",
    ];
    for deed in deeds {
        let scene = Scene::new("print turn {start}\n@4 print ready\n@4 hang");
        let running = until_ready(run(&scene, deed));
        crash(running);
        scene.wait_until_nothing_is_alive();
        assert_eq!(scene.status()["iterations_complete"], 3, "{deed}");
        scene.rlm(&["resume"]).run(LONG).expect_code(0);
        assert_eq!(iterations(&scene), ["1", "2", "3", "4", "4"], "{deed}");
    }
}

#[test]
fn x128b_removal_by_a_driven_agent_is_repaired() {
    let scene = Scene::new("");
    let script = "@2 say before\n@2 run rm -rf .rlm\n@2 say after\n@3 say ready\n@3 hang";
    scene.agent.set_script(script);
    let arguments = ["-n", "4", "--permissions", "all", "--json"];
    let mut running = scene.claude(&arguments).spawn();
    says(&mut running, "\"iteration\":3");
    scene.wait_until_started(3);
    scene.wait_until_recorded("ready");
    let warned = events(&running.stdout()).into_iter();
    let warned = warned.filter(|event| event.to_string().contains("on disk again"));
    // There are two warnings if a save happened while `rm` was running.
    assert!(warned.count() >= 1);
    let logs = scene
        .rlm(&["logs", "--iteration", "2"])
        .run(LONG)
        .expect_code(0)
        .stdout;
    expect_in_order(&logs, &["before", "rm -rf .rlm", "after"]);
    crash(running);
    scene.wait_until_nothing_is_alive();
    assert_eq!(scene.status()["iteration"], 3);
    scene.talking(&["resume"]).run(LONG).expect_code(0);
}

/// No save happens between two commands of the loop itself.
#[test]
fn x128b_removal_by_a_required_check_is_repaired_and_later_checks_run() {
    let scene = Scene::new("print turn {start}");
    let run = ["--gate", "rm -rf .rlm", "--gate", "true", "--until", "true"];
    let ended = scene.run(&run).run(LONG).expect_code(0);
    assert!(!ended.stdout.contains("can't be run"), "{ended}");
    assert_eq!(scene.status()["state"], "ended");
}

/// The rename of the file hangs for ten minutes, as on a failing disk.
#[test]
fn x128e_hanging_heartbeat_does_not_delay_the_end() {
    let scene = Scene::new(SCRIPT);
    let deeds = format!(
        "1.1) while ! test -e go; do sleep 0.02; done;; 2.1) while ! test -e end; do sleep 0.02; done; {REPLACE};;"
    );
    let pulse = scene.file("pulse");
    fs_err::create_dir(&pulse).unwrap();
    fs_err::write(scene.file("rlm.toml"), "heartbeat = \"pulse/beat\"\n").unwrap();
    let mut running = run(&scene, &deeds).spawn();
    scene.wait_for_file("pulse/beat");
    let filter = ["-P", pulse.to_str().unwrap()];
    let Some(strace) = slow_calls(&running, "renameat,renameat2", &filter, 600) else {
        return println!("skipped: strace is missing or may not trace here");
    };
    fs_err::write(scene.file("go"), "").unwrap();
    // The next heartbeat is written, but not renamed.
    rlm_tests::wait_for("a heartbeat that hangs", LONG, || {
        (fs_err::read_dir(&pulse).unwrap().count() > 1).then_some(())
    });
    fs_err::write(scene.file("end"), "").unwrap();
    let words = "was deleted during the run";
    running.until(words, LONG, |it| it.stderr().contains(words).then_some(()));
    let left = fs_err::read_dir(&pulse).unwrap().count();
    assert_eq!(left, 2, "it hangs still");
    drop(strace);
    running.wait(LONG).expect_code(1);
    scene.expect_nothing_alive();
}

/// The control for X128: the result if a repair is impossible.
#[test]
fn x128e_unrepairable_state_ends_the_run_with_a_message() {
    let scene = Scene::new(SCRIPT);
    let ended = run(&scene, &format!("2.1) {REPLACE};;"))
        .run(LONG)
        .expect_code(1);
    for words in ["was deleted during the run", "start a new run"] {
        assert!(ended.stderr.contains(words), "{ended}");
    }
    scene.expect_nothing_alive();
    // The run can end before the second agent has recorded its start.
    let iterations = iterations(&scene);
    assert!(
        iterations == ["1"] || iterations == ["1", "2"],
        "{iterations:?}"
    );
}
