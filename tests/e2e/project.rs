//! The files that a run writes into its project, and reads from it.

use std::path::Path;
use std::process::Command;

use rlm_tests::Sandbox;

use crate::scene::{PROMPT, Scene, events, expect_in_order, text};
use crate::{LONG, RLM};

#[test]
fn s22a_the_commit_of_the_project_is_recorded() {
    let scene = Scene::new("append work {start}");
    scene.run(&["--once"]).run(LONG).expect_code(0);
    assert_eq!(
        scene.status()["git_commit"],
        scene.sandbox.git(&["rev-parse", "HEAD"])
    );
    assert_eq!(
        scene.sandbox.git(&["status", "--porcelain"]),
        "?? work",
        "git ignores the state directory"
    );
}

#[test]
fn s22b_outside_of_git_there_is_no_commit() {
    let scene = Scene::new("print fine");
    let bare = scene.sandbox.path().join("bare");
    fs_err::create_dir(&bare).unwrap();
    scene.run(&["--once"]).dir(&bare).run(LONG).expect_code(0);
    let ended = scene
        .rlm(&["status", "--json"])
        .dir(&bare)
        .run(LONG)
        .expect_code(0);
    assert_eq!(
        events(&ended.stdout)[0]["git_commit"],
        serde_json::Value::Null
    );
    assert!(bare.join(".rlm").is_dir() && !scene.file(".rlm").exists());
}

#[test]
fn s26_no_private_file_of_an_agent_is_opened() {
    if !traces() {
        return println!("skipped: strace does not work here");
    }
    let scene = Scene::new("print fine");
    let homes = [
        ".claude",
        ".codex",
        ".gemini",
        ".config/gemini",
        ".config/opencode",
        ".local/share/opencode",
    ];
    for home in homes {
        let folder = scene.sandbox.home().join(home);
        fs_err::create_dir_all(&folder).unwrap();
        fs_err::write(folder.join(".credentials.json"), "{}").unwrap();
    }
    fs_err::write(scene.sandbox.home().join(".claude.json"), "{}").unwrap();
    let trace = scene.sandbox.path().join("trace");
    scene
        .sandbox
        .rlm("strace")
        .args(["-f", "-qq", "-e", "trace=%file", "-s", "4096", "-o"])
        .args([trace.as_os_str(), RLM.as_ref()])
        .args([
            "run", "--sleep", "0", "--prompt", PROMPT, "--until", "true", "--gate", "true", "--",
        ])
        .args(scene.agent.argv())
        .run(LONG * 2)
        .expect_code(0);
    let trace = fs_err::read_to_string(trace).unwrap();
    assert!(
        trace.contains("rlm.toml") && trace.contains(".rlm/runs"),
        "the trace contains opened files"
    );
    let home = scene.sandbox.home().display().to_string();
    let secret = |line: &&str| {
        line.contains(&home)
            && [".claude", ".codex", "gemini", "opencode"]
                .iter()
                .any(|name| line.contains(name))
    };
    let opened: Vec<&str> = trace.lines().filter(secret).collect();
    assert!(opened.is_empty(), "{opened:#?}");
}

/// Whether strace is installed and may trace.
fn traces() -> bool {
    let status = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "true"])
        .status();
    status.is_ok_and(|status| status.success())
}

#[test]
fn events_of_a_run_are_one_json_object_per_line() {
    let scene = Scene::new("@1 garbage\nprint turn {start}\n@2 touch done\n@2 child daemon");
    let run = ["--json", "--gate", "true", "--until", "test -e done"];
    let ended = scene.run(&run).run(LONG).expect_code(0);
    assert_eq!(ended.stderr, "");
    let events = events(&ended.stdout);
    assert!(
        events
            .iter()
            .all(|event| event["event"].is_string() && event["at"].is_string()),
        "{ended}"
    );
    let kinds: Vec<String> = events
        .iter()
        .map(|event| text(&event["event"]))
        .filter(|kind| kind != "output")
        .collect();
    let turn = [
        "attempt_started",
        "agent_started",
        "command_started",
        "command_ended",
        "command_started",
        "command_ended",
    ];
    let expected = [
        &["run_started"],
        &turn[..],
        &["iteration_changes", "iteration_ended"],
        &turn,
        &[
            "iteration_changes",
            "processes_ended",
            "iteration_ended",
            "run_ended",
        ],
    ];
    assert_eq!(kinds, expected.concat());
    let last = events.last().unwrap();
    assert_eq!(last["reason"], "done: the check passed");
    assert_eq!(
        (&last["left"], &last["run"]),
        (&0.into(), &events[0]["run"])
    );
    let said = |what: &str| {
        events
            .iter()
            .any(|event| event["event"] == "output" && event["text"] == what)
    };
    assert!(said("turn 1") && said("turn 2"), "{ended}");
}

#[test]
fn agent_environment_has_only_the_attempt_variables() {
    let scene = Scene::new("print turn {start}");
    scene.run(&["-n", "2"]).run(LONG).expect_code(0);
    let starts = scene.agent.starts();
    let run = scene.run_id();
    for (start, number) in starts.iter().zip(["1", "2"]) {
        let env = &start.env;
        assert_eq!(
            (
                &env["RLM_RUN_ID"],
                &*env["RLM_ITERATION"],
                &*env["RLM_ATTEMPT"]
            ),
            (&run, number, "1")
        );
        assert!(
            env["RLM_MARKER"].ends_with(&format!(".{number}.1")),
            "{}",
            env["RLM_MARKER"]
        );
        assert_eq!(
            start.fds.keys().collect::<Vec<_>>(),
            [&0, &1, &2],
            "{:?}",
            start.fds
        );
        assert_eq!(start.sid, start.pid, "it leads a session of its own");
    }
    assert_ne!(starts[0].env["RLM_MARKER"], starts[1].env["RLM_MARKER"]);
}

#[test]
fn options_override_project_settings() {
    let scene = Scene::new("print turn {start}");
    scene.rlm(&["init"]).run(LONG).expect_code(0);
    assert!(scene.file("rlm.toml").is_file() && scene.file("PROMPT.md").is_file());
    let argv = scene.agent.argv();
    let settings =
        format!("command = {argv:?}\nsleep = 0\nmax-iterations = 3\nuntil = \"false\"\n");
    fs_err::write(scene.file("rlm.toml"), settings).unwrap();
    scene.rlm(&["run"]).run(LONG).expect_code(3);
    assert_eq!(scene.start_count(), 3);
    scene
        .rlm(&["run", "-n", "2", "--until", "test -e README.md"])
        .run(LONG)
        .expect_code(0);
    assert_eq!(scene.start_count(), 4);
    scene.rlm(&["init"]).run(LONG).expect_code(0);
    assert!(
        fs_err::read_to_string(scene.file("rlm.toml"))
            .unwrap()
            .starts_with("command"),
        "rlm init keeps the file"
    );
}

#[test]
fn agent_text_is_in_logs() {
    let scene = Scene::new("print turn {start}\nwarn oh {start}");
    scene.run(&["-n", "2"]).run(LONG).expect_code(0);
    let logs = |arguments: &[&str]| {
        scene
            .rlm(&["logs"])
            .args(arguments)
            .run(LONG)
            .expect_code(0)
            .stdout
    };
    expect_in_order(
        &logs(&[]),
        &[
            "iteration 1",
            PROMPT,
            "turn 1",
            "iteration 2",
            "turn 2",
            "completed",
        ],
    );
    let second = logs(&["--iteration", "2"]);
    assert!(
        second.contains("[stderr] oh 2") && !second.contains("turn 1"),
        "{second}"
    );
    let kinds: Vec<String> = events(&logs(&["--json", "--iteration", "1"]))
        .iter()
        .map(|r| text(&r["kind"]))
        .collect();
    assert_eq!(
        (&kinds[0][..], &kinds[kinds.len() - 1][..]),
        ("prompt", "changes")
    );
    scene
        .rlm(&["logs", "--iteration", "9"])
        .run(LONG)
        .expect_code(10);
}

#[test]
fn agent_can_run_in_a_subdirectory() {
    let scene = Scene::new("print turn {start}");
    let below = scene.file("below/here");
    fs_err::create_dir_all(&below).unwrap();
    scene
        .run(&[
            "--once",
            "--until",
            "test $PWD = $(git rev-parse --show-toplevel)/below/here",
        ])
        .dir(&below)
        .run(LONG)
        .expect_code(0);
    assert_eq!(
        Path::new(&scene.agent.starts()[0].cwd),
        below.canonicalize().unwrap()
    );
    assert!(
        scene.file(".rlm").is_dir() && !below.join(".rlm").exists(),
        "the state directory is at the top"
    );
}

#[test]
fn two_projects_are_independent() {
    let (one, other) = (Sandbox::new(), Scene::new("print fine"));
    other.run(&["--once"]).run(LONG).expect_code(0);
    one.rlm(RLM).args(["status"]).run(LONG).expect_code(10);
    assert!(
        !one.repo().join(".rlm").exists(),
        "`rlm status` creates nothing"
    );
}

#[test]
fn the_settings_are_shown_as_text() {
    let scene = Scene::new("print fine");
    let ended = scene.run(&["--once", "--json"]).run(LONG).expect_code(0);
    let argv = scene.agent.argv();
    let shown = &events(&ended.stdout)[0]["settings"]["agent"]["program"];
    let shown: Vec<String> = shown.as_array().unwrap().iter().map(text).collect();
    assert_eq!(
        argv.iter()
            .map(|word| word.to_string_lossy())
            .collect::<Vec<_>>(),
        shown
    );
}
