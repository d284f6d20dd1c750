//! The state after a stop, and the resume from it.

use rlm_tests::wait_for;
use rustix::process::Signal;

use crate::scene::{
    HANGS_IN_THE_THIRD, PROMPT, Scene, crash, events, expect_in_order, says, stop, text,
    until_ready,
};
use crate::{FAKE_AGENT, LONG};

#[test]
fn j42a_j42c_signal_saves_and_ends_the_process_by_that_signal() {
    let reasons = [
        (Signal::INT, "stopped by a person"),
        (Signal::TERM, "stopped by SIGTERM"),
        (Signal::HUP, "stopped by SIGHUP"),
    ];
    for (signal, reason) in reasons {
        let scene = Scene::new(HANGS_IN_THE_THIRD);
        let ended = stop(scene.third_iteration(), signal);
        let end = ended.stdout.lines().last().unwrap();
        let run = scene.run_id();
        assert_eq!(
            end,
            format!("{reason}; all processes ended; to continue: rlm resume {run}")
        );
        let status = scene.status();
        assert_eq!(
            (&status["state"], &status["reason"]),
            (&"stopped".into(), &reason.into())
        );
        assert_eq!(
            (&status["iteration"], &status["iterations_complete"]),
            (&3.into(), &2.into())
        );
    }
}

#[test]
fn s13a_s13b_unfinished_iteration_runs_again_and_complete_one_does_not() {
    let scene = Scene::new(HANGS_IN_THE_THIRD);
    stop(scene.third_iteration(), Signal::INT);
    let run = scene.run_id();
    assert_eq!(
        scene.status()["next"],
        format!("rlm resume {run}: iteration 3 again (unfinished)")
    );
    let ended = scene.rlm(&["resume"]).run(LONG).expect_code(0);
    let why = format!("resuming run {run} at iteration 3, unfinished in attempt 1");
    expect_in_order(
        &ended.stdout,
        &[
            &why,
            "iteration 3, attempt 2",
            "turn 4",
            "iteration 4 ",
            "turn 5",
            "done",
        ],
    );
    assert_eq!(scene.start_count(), 5);
    let prompts = scene.prompts();
    expect_in_order(
        &prompts[3],
        &[
            "attempt 1 of iteration 3 did not finish because the run was stopped",
            PROMPT,
        ],
    );
    assert!(!prompts[4].contains("did not finish"), "{}", prompts[4]);

    let scene = Scene::new("print turn {start}\n@2 touch done");
    let sleeping = [
        "--prompt",
        PROMPT,
        "--sleep",
        "600",
        "--until",
        "test -e done",
    ];
    let mut running = scene.run_bare(&sleeping).spawn();
    says(&mut running, "next iteration");
    stop(running, Signal::INT);
    let run = scene.run_id();
    let ended = scene.rlm(&["resume", &run]).run(LONG).expect_code(0);
    let why = format!("resuming run {run} at iteration 2, 1 iteration complete");
    expect_in_order(&ended.stdout, &[&why, "iteration 2 ", "turn 2", "done"]);
    assert_eq!(scene.start_count(), 2);
}

#[test]
fn s13c_s13d_from_accepts_only_earlier_iterations() {
    let scene = Scene::new("print turn {start}\n@4 print ready\n@4 hang\n@7 touch done");
    stop(scene.third_iteration(), Signal::INT);
    let before = scene.status();
    assert_eq!(before["iteration"], 4);
    let run = scene.run_id();
    for beyond in ["5", "0"] {
        let refused = scene
            .rlm(&["resume", &run, "--from", beyond])
            .run(LONG)
            .expect_code(2);
        assert!(refused.stderr.contains("--from"), "{refused}");
    }
    assert_eq!(scene.start_count(), 4);
    assert_eq!(scene.status()["iteration"], 4);

    let ended = scene
        .rlm(&["resume", &run, "--from", "2"])
        .run(LONG)
        .expect_code(0);
    let why =
        format!("resuming run {run} at iteration 2, discarding this iteration and all later ones");
    expect_in_order(
        &ended.stdout,
        &[
            &why,
            "iteration 2",
            "turn 5",
            "iteration 3",
            "turn 6",
            "iteration 4",
            "turn 7",
            "done",
        ],
    );
    assert_eq!(scene.start_count(), 7);
    let numbers: Vec<_> = scene
        .agent
        .starts()
        .iter()
        .map(|start| start.env["RLM_ITERATION"].clone())
        .collect();
    assert_eq!(numbers, ["1", "2", "3", "4", "2", "3", "4"]);
    let logs = scene.rlm(&["logs"]).run(LONG).expect_code(0).stdout;
    assert!(
        (1..=7).all(|turn| logs.contains(&format!("turn {turn}"))),
        "no transcript is overwritten: {logs}"
    );
}

#[test]
fn s15a_s15b_resume_flags_win_and_persist() {
    let scene = Scene::new(HANGS_IN_THE_THIRD);
    stop(scene.third_iteration(), Signal::INT);
    let limits = [
        "resume",
        "--json",
        "-n",
        "4",
        "--until",
        "test -e never",
        "--max-failures",
        "7",
        "--sleep",
        "1ms",
    ];
    let ended = scene.rlm(&limits).run(LONG).expect_code(3);
    let settings = |stdout: &str| events(stdout)[0]["settings"].clone();
    let shown = settings(&ended.stdout);
    assert_eq!(shown["max_iterations"], 4);
    assert_eq!(shown["until"], "test -e never");
    assert_eq!(
        (&shown["max_failures"], &shown["sleep_ms"]),
        (&7.into(), &1.into())
    );
    let sleeps = |event: &serde_json::Value| event["event"] == "sleeping";
    assert!(
        events(&ended.stdout).iter().any(sleeps),
        "the shown sleep is used: {ended}"
    );
    assert_eq!(
        scene.start_count(),
        5,
        "iterations 3 and 4 use the shown prompt"
    );

    let run = scene.run_id();
    let again = scene
        .rlm(&["resume", "--json", &run, "-n", "5"])
        .run(LONG)
        .expect_code(3);
    assert_eq!(
        settings(&again.stdout)["until"],
        "test -e never",
        "the new value is saved"
    );
    assert_eq!(scene.start_count(), 6);
}

#[test]
fn s16a_s16b_resume_needs_neither_directory_nor_prompt_file() {
    let scene = Scene::new("print turn {start}\n@1 print ready\n@1 hang");
    fs_err::write(scene.file("PROMPT.md"), "Kept text.\n").unwrap();
    stop(
        until_ready(scene.run_bare(&["--sleep", "0", "--once"])),
        Signal::INT,
    );
    fs_err::remove_file(scene.file("PROMPT.md")).unwrap();
    let repo = scene.sandbox.repo().display().to_string();
    let ended = scene
        .rlm(&["-C", &repo, "resume"])
        .dir("/")
        .run(LONG)
        .expect_code(0);
    assert!(ended.stdout.contains("PROMPT.md` is missing"), "{ended}");
    let start = scene.agent.starts().remove(1);
    assert_eq!(start.cwd, scene.agent.starts()[0].cwd);
    assert!(start.stdin.unwrap().ends_with("Kept text.\n"));
}

#[test]
fn s16c_a_resume_without_its_agent_is_a_clear_error() {
    let scene = Scene::new("print turn {start}\n@1 print ready\n@1 hang");
    let agent = scene.file("agent");
    std::os::unix::fs::symlink(FAKE_AGENT, &agent).unwrap();
    let argv = scene.agent.argv();
    let run = scene
        .rlm(&["run", "-p", "x", "--until", "test -e done", "--", "./agent"])
        .args(&argv[1..]);
    stop(until_ready(run), Signal::INT);
    fs_err::remove_file(&agent).unwrap();
    let ended = scene.rlm(&["resume"]).run(LONG).expect_code(2);
    assert!(
        format!("{}{}", ended.stdout, ended.stderr).contains("agent`"),
        "the error names it: {ended}"
    );
    assert_eq!(scene.start_count(), 1, "{ended}");
    // With the agent installed again, the run continues.
    fs_err::write(scene.file("done"), "").unwrap();
    std::os::unix::fs::symlink(FAKE_AGENT, &agent).unwrap();
    let run = scene.run_id();
    scene.rlm(&["resume", &run]).run(LONG).expect_code(0);
}

#[test]
fn s16c_resume_without_its_directory_is_a_clear_error() {
    let scene = Scene::new("print turn {start}\n@1 print ready\n@1 hang");
    let below = scene.file("below");
    fs_err::create_dir(&below).unwrap();
    stop(until_ready(scene.run(&["--once"]).dir(&below)), Signal::INT);
    fs_err::remove_dir(&below).unwrap();
    let ended = scene.rlm(&["resume"]).run(LONG).expect_code(1);
    assert!(
        format!("{}{}", ended.stdout, ended.stderr).contains("below"),
        "the error names it: {ended}"
    );
    assert_eq!(scene.start_count(), 1);
}

#[test]
fn s17a_s17b_resume_without_saved_run_reports_it() {
    let scene = Scene::new("print fine");
    let ended = scene.rlm(&["resume"]).run(LONG).expect_code(10);
    assert!(ended.stderr.contains("nothing to resume"), "{ended}");
    assert!(!scene.file(".rlm").exists());
    scene.run(&["--once"]).run(LONG).expect_code(0);
    scene.rlm(&["resume"]).run(LONG).expect_code(10);
    let run = scene.run_id();
    let planned = scene.rlm(&["resume", &run]).run(LONG).expect_code(2);
    let more = format!("rlm resume {run} -n MORE");
    assert!(planned.stderr.contains(&more), "{planned}");
    let ended = scene
        .rlm(&["resume", "no-such-run"])
        .run(LONG)
        .expect_code(10);
    assert!(ended.stderr.contains("no-such-run"), "{ended}");
    assert_eq!(scene.start_count(), 1);
}

#[test]
fn finished_run_has_nothing_to_resume() {
    let scene = Scene::new("print fine");
    scene.run(&["--until", "true"]).run(LONG).expect_code(0);
    let run = scene.run_id();
    let ended = scene.rlm(&["resume", &run]).run(LONG).expect_code(2);
    assert!(ended.stderr.contains("done: the check passed"), "{ended}");
    assert_eq!(scene.start_count(), 1);
}

#[test]
fn several_runs_that_can_be_resumed_are_listed() {
    let scene = Scene::new("print ready\nhang");
    for _ in 0..2 {
        stop(scene.ready(&["--once"]), Signal::INT);
    }
    let ended = scene.rlm(&["resume"]).run(LONG).expect_code(2);
    assert_eq!(scene.statuses().len(), 2);
    for status in scene.statuses() {
        assert!(ended.stderr.contains(&text(&status["run"])), "{ended}");
    }
    let beside = scene.run(&["--once"]).spawn();
    let mut beside = beside;
    says(&mut beside, "2 runs can be resumed instead");
    stop(beside, Signal::INT);
}

#[test]
fn suggested_end_command_works() {
    let cases: [(&str, &[&str], &str); 2] = [
        ("exit 1", &[], "failed: "),
        ("print fine", &["--until", "false"], "iteration limit (1) "),
    ];
    for (script, criterion, end) in cases {
        let scene = Scene::new(script);
        let ended = scene.run(&[&["-n", "1"], criterion].concat()).run(LONG);
        let line = ended.stdout.lines().last().unwrap().to_owned();
        assert!(line.starts_with(end), "{ended}");
        let offered = line
            .split_once("to continue: rlm ")
            .unwrap()
            .1
            .replace("MORE", "2");
        let offered: Vec<&str> = offered.split_whitespace().collect();
        let again = scene.rlm(&offered).run(LONG);
        assert_eq!(scene.start_count(), 2, "{line}\n{again}");
    }
}

#[test]
fn x113a_run_that_crashed_before_its_first_save_starts_with_its_id() {
    let scene = Scene::new("print turn {start}");
    scene
        .run(&["--once", "--run-id", "nightly"])
        .run(LONG)
        .expect_code(0);
    let store = scene.file(".rlm/runs/nightly");
    let forget = || {
        for file in fs_err::read_dir(&store).unwrap() {
            let path = file.unwrap().path();
            if path
                .extension()
                .is_some_and(|end| end == "ckj" || end == "ckpt")
            {
                fs_err::remove_file(path).unwrap();
            }
        }
    };
    // A started run without state counts as lost, and is not silently started again.
    forget();
    assert_eq!(scene.status()["state"], "damaged");
    let run = ["--once", "--run-id", "nightly", "--resume-or-start"];
    scene.run(&run).run(LONG).expect_code(1);
    // The state after a kill between the creation of the store and the first save.
    fs_err::remove_dir_all(store.join("transcripts")).unwrap();
    assert_eq!(scene.status()["state"], "empty");
    let refused = scene.rlm(&["resume", "nightly"]).run(LONG).expect_code(10);
    assert!(refused.stderr.contains("--run-id nightly"), "{refused}");
    scene.run(&run).run(LONG).expect_code(0);
    assert_eq!(scene.start_count(), 2);
    // A run that did save is never started again.
    let refused = scene
        .run(&["--once", "--run-id", "nightly"])
        .run(LONG)
        .expect_code(2);
    assert!(refused.stderr.contains("nightly"), "{refused}");
}

#[test]
fn s13e_feedback_is_in_the_next_prompt() {
    let scene = Scene::new("@1 print ready\n@1 hang");
    let running = scene.ready(&["-n", "2"]);
    stop(running, Signal::TERM);
    let empty = scene.rlm(&["resume", "--feedback", " "]).run(LONG);
    assert!(empty.expect_code(2).stderr.contains("the text is empty"));
    let resume = ["resume", "--feedback", "-"];
    let resume = scene.rlm(&resume).input("mind the docs");
    resume.run(LONG).expect_code(0);
    let prompts: Vec<_> = scene
        .agent
        .starts()
        .into_iter()
        .filter_map(|it| it.stdin)
        .collect();
    let told: Vec<bool> = prompts
        .iter()
        .map(|it| it.contains("mind the docs"))
        .collect();
    assert_eq!(told, [false, true, false], "{prompts:?}");
    let new = scene.rlm(&["resume", "--feedback", "x"]).run(LONG);
    new.expect_code(10);
}

#[test]
fn s13a_s13b_stop_after_the_turn_keeps_the_turn() {
    let scene = Scene::new("print worked");
    let gate = "test -e go || { touch began; sleep 600; }";
    let running = scene.run(&["--once", "--gate", gate]).spawn();
    scene.wait_for_file("began");
    stop(running, Signal::TERM);
    let list = scene.rlm(&["checkpoints", "list"]).run(LONG).expect_code(0);
    assert!(list.stdout.contains("the turn ended"), "{list}");
    let status = scene.rlm(&["status"]).run(LONG).expect_code(0);
    assert!(
        status.stdout.contains("iteration 1, whose turn ended"),
        "{status}"
    );
    fs_err::write(scene.file("go"), "").unwrap();
    let ended = scene.rlm(&["resume"]).run(LONG).expect_code(0);
    expect_in_order(
        &ended.stdout,
        &["at iteration 1, whose turn ended", "iteration 1 complete"],
    );
    assert_eq!(scene.start_count(), 1);
    let list = scene.rlm(&["checkpoints", "list"]).run(LONG).expect_code(0);
    assert!(list.stdout.contains("attempt 1: complete"), "{list}");
}

#[test]
fn dry_resume_shows_the_next_steps_and_changes_nothing() {
    let scene = Scene::new("print turn {start}\n@2 hang");
    let mut running = scene.run(&["-n", "3"]).spawn();
    says(&mut running, "turn 2");
    stop(running, Signal::TERM);
    let run_dir = scene.file(".rlm/runs").join(scene.run_id());
    let saved = || {
        let entries = fs_err::read_dir(&run_dir).unwrap();
        let mut all: Vec<_> = entries
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name(), entry.metadata().unwrap().len()))
            .collect();
        all.sort();
        all
    };
    let before = saved();
    let steer = ["resume", "--dry-run", "--feedback", "mind the gap"];
    let told = scene.rlm(&steer).run(LONG).expect_code(0).stdout;
    expect_in_order(
        &told,
        &[
            "dry run: nothing is changed",
            "at iteration 2, unfinished in attempt 1",
            "first steps",
            "iteration 2, attempt 2",
            "max-iterations",
            "prompt of phase main, iteration 2",
            "attempt 1 of iteration 2 did not finish because the run was stopped",
            "mind the gap",
            PROMPT,
        ],
    );
    let json = ["resume", "--dry-run", "--json", "--from", "1", "-n", "9"];
    let told = scene.rlm(&json).run(LONG).expect_code(0).stdout;
    let [told] = &events(&told)[..] else {
        panic!("{told}")
    };
    assert_eq!(told["settings"]["max_iterations"], 9);
    assert_eq!(told["prompts"][0]["text"], PROMPT);
    assert!(told["save"].as_u64().unwrap() > 0);
    assert_eq!(saved(), before);
    assert_eq!(scene.start_count(), 2);
    let far = scene.rlm(&["resume", "--dry-run", "--from", "7"]);
    far.run(LONG).expect_code(2);
}

#[test]
fn x131a_a_pause_after_two_iterations_shows_the_state() {
    let scene = Scene::new("print turn {start}\n@2 await go");
    let mut running = scene.run(&["-n", "3"]).spawn();
    says(&mut running, "turn 2");
    let pause = scene.rlm(&["pause", "--wait", "0"]);
    pause.run(LONG).expect_code(0);
    fs_err::write(scene.file("go"), "").unwrap();
    wait_for("the pause", LONG, || {
        (scene.status()["state"] == "paused").then_some(())
    });
    assert_eq!(scene.status()["iterations_complete"], 2);
    assert_eq!(scene.start_count(), 2);
    scene.rlm(&["resume"]).run(LONG).expect_code(0);
    running.wait(LONG).expect_code(0);
    assert_eq!(scene.start_count(), 3);
}

#[test]
fn x131c_run_saved_after_iteration_3_resumes_at_4() {
    let scene = Scene::new("print turn {start}\n@4 print ready\n@4 hang");
    crash(scene.ready(&["-n", "5"]));
    assert_eq!(scene.status()["iterations_complete"], 3);
    let ended = scene.rlm(&["resume"]).run(LONG).expect_code(0);
    let words = ["at iteration 4", "iteration 4, attempt 2", "iteration 5"];
    expect_in_order(&ended.stdout, &words);
    assert_eq!(scene.start_count(), 6);
}
