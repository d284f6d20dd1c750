//! The agent's session: across iterations and crashes, and after its loss.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rlm_tests::poll_until;
use rustix::process::Signal;

use crate::LONG;
use crate::presses::pause;
use crate::scene::{PROMPT, Scene, expect_in_order, says, stop, text};

/// Returns the sessions of all messages, in order of arrival.
fn sessions(scene: &Scene) -> Vec<String> {
    let mut sessions: Vec<String> = scene
        .agent
        .messages()
        .into_iter()
        .map(|message| message.session)
        .collect();
    sessions.dedup();
    sessions
}

#[test]
fn session_continues_across_iterations() {
    let scene = Scene::new("turn ..\nrun true\nrecall");
    let ended = scene
        .claude(&["-n", "3", "--session", "continue"])
        .run(LONG)
        .expect_code(0);
    assert_eq!(sessions(&scene).len(), 1, "{ended}");
    let told = scene.received_messages();
    assert_eq!(told.len(), 3, "{told:?}");
    let all = format!("told: {}", told.join(" | "));
    assert!(
        ended.stdout.contains(all.lines().next().unwrap()),
        "{ended}"
    );
}

#[test]
fn l92a_l92b_a_session_continues_after_a_crash_and_the_prompt_is_not_sent_again() {
    let scene = Scene::new("@1 run true\n@2 say ready\n@2 hang\n@3.. run true\n@3.. recall");
    let first = ["-n", "3", "--session", "continue", "--json"];
    let mut running = scene.claude(&first).spawn();
    scene.wait_until_received(PROMPT);
    says(&mut running, "ready");
    let before = scene.received_messages();
    stop(running, Signal::KILL);
    scene.wait_until_nothing_is_alive();
    let status = scene.status();
    assert_eq!(status["state"], "crashed", "{status}");
    let ended = scene.talking(&["resume"]).run(LONG).expect_code(0);
    assert_eq!(sessions(&scene).len(), 1, "{ended}");
    assert_eq!(text(&status["session"]), sessions(&scene)[0]);
    let after = scene.received_messages();
    let again = &after[before.len()];
    assert!(
        !again.contains(PROMPT),
        "the session already has the prompt: {again}"
    );
    assert!(
        again.contains("did not finish") || again.contains("interrupted"),
        "the prompt gives the reason: {again}"
    );
    assert_eq!(scene.status()["iterations_complete"], 3);
}

#[test]
fn l92c_unfinished_iteration_gets_a_fresh_session_and_its_prompt() {
    let scene = Scene::new("@1 say ready\n@1 hang\n@2 say well");
    let mut running = scene.claude(&["--once"]).spawn();
    says(&mut running, "ready");
    stop(running, Signal::KILL);
    scene.talking(&["resume"]).run(LONG).expect_code(0);
    assert_eq!(sessions(&scene).len(), 2);
    let told = scene.received_messages();
    assert!(
        told[1].contains(PROMPT) && told[1].contains("did not finish"),
        "{}",
        told[1]
    );
}

#[test]
fn lost_session_is_reported_and_replaced() {
    let scene = Scene::new("@1 say ready\n@1 hang\n@2 unknown-session\n@3 run true\n@3 say well");
    let mut running = scene.claude(&["--once", "--session", "continue"]).spawn();
    says(&mut running, "ready");
    stop(running, Signal::KILL);
    let ended = scene.talking(&["resume"]).run(LONG).expect_code(0);
    assert!(ended.stdout.contains("session"), "{ended}");
    assert_eq!(scene.start_count(), 3, "{ended}");
    let told = scene.received_messages();
    assert!(
        told.last().unwrap().contains(PROMPT),
        "the new session is empty: {told:?}"
    );
}

#[test]
fn session_of_another_process_is_refused_with_its_exit_code() {
    let scene = Scene::new("run true\nturn");
    let session = ["-n", "1", "--until", "false", "--session", "continue"];
    scene.claude(&session).run(LONG).expect_code(3);
    let locks = scene.sandbox.home().join(".local/state/rlm/sessions");
    let mut found = Vec::new();
    files(&locks, &mut found);
    let held = File::open(found.pop().unwrap()).unwrap();
    held.lock().unwrap();
    let run = scene.run_id();
    let resume = ["resume", &run, "-n", "2"];
    let ended = scene.talking(&resume).run(LONG).expect_code(9);
    assert!(ended.stdout.contains("in use: "), "{ended}");
    assert!(ended.stdout.contains("rlm resume"), "{ended}");
    assert_eq!(scene.start_count(), 1);
    drop(held);
    scene.talking(&resume).run(LONG).expect_code(3);
    assert_eq!(sessions(&scene).len(), 1);
    assert_eq!(scene.start_count(), 2);
}

#[test]
fn s13a_s13b_unfinished_turn_runs_again_and_complete_one_does_not() {
    let scene = Scene::new("@2 say ready\n@2 hang\nrun true\nturn");
    let mut running = scene.claude(&["-n", "3"]).spawn();
    says(&mut running, "ready");
    let ended = stop(running, Signal::INT);
    assert!(ended.stdout.contains("rlm resume"), "{ended}");
    let ended = scene.talking(&["resume"]).run(LONG).expect_code(0);
    expect_in_order(
        &ended.stdout,
        &["at iteration 2", "iteration 2, attempt 2", "iteration 3 "],
    );
    assert_eq!(scene.start_count(), 4);
    assert_eq!(scene.status()["iterations_complete"], 3);
}

#[test]
fn x110a_x110b_x110d_run_stopped_by_a_person_waits_for_a_person() {
    let scene = Scene::new("say ready\n@1 hang\n@2 hang\nturn");
    let mut running = scene.claude(&["--once", "--run-id", "nightly"]).spawn();
    says(&mut running, "ready");
    stop(running, Signal::INT);
    let again = ["--once", "--run-id", "nightly", "--resume-or-start"];
    let ended = scene.claude(&again).run(LONG).expect_code(7);
    assert!(ended.stderr.contains("stopped by a person"), "{ended}");
    assert_eq!(scene.start_count(), 1);

    let mut running = scene.talking(&["resume", "nightly"]).spawn();
    says(&mut running, "ready");
    let resumed = stop(running, Signal::TERM);
    let words = [
        "resuming run nightly at iteration 1, unfinished in attempt 1",
        "iteration 1, attempt 2",
        "ready",
    ];
    expect_in_order(&resumed.stdout, &words);
    let ended = scene.claude(&again).run(LONG).expect_code(0);
    assert!(
        ended.stdout.contains("resuming run nightly"),
        "SIGTERM is not a person: {ended}"
    );
    assert_eq!(scene.start_count(), 3);
}

#[test]
fn x110c_new_run_starts_beside_a_stopped_run() {
    let scene = Scene::new("print ready\n@1 hang");
    stop(scene.ready(&["--once", "--run-id", "first"]), Signal::INT);
    scene.run(&["--once"]).run(LONG).expect_code(0);
    let statuses = scene.statuses();
    let first = statuses.iter().find(|status| status["run"] == "first");
    let first = first.unwrap();
    assert_eq!(
        (statuses.len(), &first["state"], &first["attempts"]),
        (2, &"stopped".into(), &1.into())
    );
}

#[test]
fn x113a_resume_or_start_without_a_run_starts_one() {
    let scene = Scene::new("say hi");
    let all = ["--once", "--run-id", "nightly", "--resume-or-start"];
    scene.claude(&all).run(LONG).expect_code(0);
    assert_eq!(scene.run_id(), "nightly");
}

#[test]
fn j51a_j51b_partial_text_is_on_disk_after_every_kind_of_end() {
    for signals in [
        &[Signal::KILL][..],
        &[Signal::TERM],
        &[Signal::INT, Signal::INT],
        &[Signal::QUIT],
    ] {
        let deaf = "deaf interrupt end_session eof\nignore INT TERM HUP\n";
        let scene = Scene::new(&format!("{deaf}say ready\nsay 600000 half a thought"));
        let run = scene.claude(&["--once"]);
        let mut running = run.env("RLM_SHUTDOWN_TIMEOUT", "2s").spawn();
        says(&mut running, "ready");
        // The transcript is written every second, by time alone.
        scene.wait_until_recorded("half ");
        for signal in signals {
            running.signal(*signal);
            pause();
        }
        running.wait(LONG);
        scene.wait_until_nothing_is_alive();
        let logs = scene.rlm(&["logs"]).run(LONG).expect_code(0).stdout;
        assert!(logs.contains("half"), "{signals:?}: {logs}");
    }
}

#[test]
fn c74_a_failure_keeps_the_last_good_state() {
    let scene = Scene::new("run true\n@3 not-logged-in");
    let ended = scene.claude(&["-n", "4"]).run(LONG).expect_code(1);
    assert!(ended.stdout.contains("rlm resume"), "{ended}");
    assert_eq!(scene.status()["iterations_complete"], 2);
    let ended = scene.talking(&["resume", &scene.run_id()]);
    let ended = ended.run(LONG).expect_code(0);
    assert!(ended.stdout.contains("at iteration 3"), "{ended}");
    assert_eq!(scene.status()["iterations_complete"], 4);
    let iterations: Vec<String> = scene
        .agent
        .starts()
        .iter()
        .map(|start| start.env["RLM_ITERATION"].clone())
        .collect();
    assert_eq!(iterations, ["1", "2", "3", "3", "4"]);
}

/// Collects all files below a directory.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs_err::read_dir(folder).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            files(&entry.path(), found);
        } else {
            found.push(entry.path());
        }
    }
}

#[test]
fn x118a_x118b_saved_state_is_private_without_environment() {
    let secret = "s3cr3t-of-the-environment";
    let scene = Scene::new("say ready\nrun true\nawait go\nturn");
    let run = scene.claude(&["--once", "--json", "--until", "true"]);
    let mut running = run.env("API_TOKEN", secret).spawn();
    says(&mut running, "ready");
    let alive = scene.alive();
    assert!(alive.len() >= 3, "rlm, the guard and the agent: {alive:?}");
    for process in alive.iter().filter(|it| it.pid != running.pid()) {
        // Between fork and exec, a child has the command line of its parent for a moment.
        let is_private = poll_until(LONG, || {
            let line = fs_err::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            (!line.contains(secret) && !line.contains(PROMPT)).then_some(())
        });
        assert!(is_private.is_some(), "{process:?} shows it");
    }
    assert_eq!(
        scene.agent.starts()[0].env["API_TOKEN"],
        secret,
        "the agent has the message"
    );
    fs_err::write(scene.file("go"), "").unwrap();
    let ended = running.wait(LONG).expect_code(0);
    assert!(!ended.stdout.contains(secret));
    let mut found = Vec::new();
    files(&scene.file(".rlm/runs"), &mut found);
    assert!(found.len() >= 3, "{found:?}");
    for path in found {
        let mode = fs_err::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{} is for others too", path.display());
        let bytes = fs_err::read(&path).unwrap();
        assert!(
            !bytes
                .windows(secret.len())
                .any(|window| window == secret.as_bytes()),
            "{}",
            path.display()
        );
    }
    let mode = fs_err::metadata(scene.file(".rlm"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}
