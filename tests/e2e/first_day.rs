//! The first day of a new user: errors name their cause, and printed commands work.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rlm_tests::{Ended, Rlm};
use rustix::process::Signal;

use crate::LONG;
use crate::scene::{Scene, events, expect_in_order, says, stop};

const DISABLED: &str = "Your organization has disabled this agent";

/// Prepares `rlm run --agent claude -n 2 ARGUMENTS`, with a shell script as the agent.
fn with_agent<'a>(scene: &'a Scene, script: &str, arguments: &[&str]) -> Rlm<'a> {
    let path = scene.sandbox.home().join("agent");
    fs::write(&path, format!("#!/bin/sh\n{script}")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let agent = path.to_str().unwrap();
    let run = ["run", "-p", "x", "-n", "2", "--sleep", "0"];
    let named = ["--agent", "claude", "--agent-bin", agent];
    scene.rlm(&[&run[..], &named, arguments].concat())
}

/// Returns everything that a user can read of a run that ended: the screen, the transcript and the report.
fn read(scene: &Scene, ended: &Ended) -> [String; 3] {
    let report = scene.sandbox.home().join("report.html");
    let written = report.to_str().unwrap();
    scene
        .rlm(&["report", "-o", written])
        .run(LONG)
        .expect_code(0);
    [
        format!("{}{}", ended.stdout, ended.stderr),
        scene.rlm(&["logs"]).run(LONG).expect_code(0).stdout,
        fs::read_to_string(report).unwrap(),
    ]
}

/// Some launchers print their errors to standard output, where the protocol is.
#[test]
fn text_of_an_agent_that_dies_is_on_screen_in_logs_and_in_report() {
    for script in [
        format!("echo '{DISABLED}.'; exit 1"),
        format!("echo '{DISABLED}.' >&2; exit 1"),
        format!(
            "read -r line; echo '{{\"type\":\"system\",\"subtype\":\"init\"}}'; read -r line; echo '{DISABLED}.'; exit 1"
        ),
    ] {
        let scene = Scene::new("");
        let ended = with_agent(&scene, &script, &["--max-failures", "1"]).run(LONG);
        assert_ne!(ended.code(), Some(0), "{ended}");
        for text in read(&scene, &ended) {
            assert!(text.contains(DISABLED), "{script}: {text}");
        }
    }
}

#[test]
fn goal_is_the_prompt() {
    let scene = Scene::new("echo");
    let agent = scene.agent.argv();
    let run = scene.rlm(&["run", "make the tests pass", "--once", "--"]);
    run.args(agent).run(LONG).expect_code(0);
    assert_eq!(scene.prompts(), ["make the tests pass"]);
}

#[test]
fn command_without_separator_is_explained() {
    let scene = Scene::new("");
    for words in [
        &["run", "-n", "1", "-p", "x", "bash", "agent.sh"][..],
        &["run", "-n", "1", "bash", "agent.sh"],
    ] {
        let ended = scene.rlm(words).run(LONG).expect_code(2);
        assert!(ended.stderr.contains("put it after `--`"), "{ended}");
    }
}

#[test]
fn help_explains_itself() {
    let scene = Scene::new("");
    let help = scene.rlm(&["help"]).run(LONG).expect_code(0).stdout;
    for words in [["help", "--help"], ["help", "-h"]] {
        assert_eq!(scene.rlm(&words).run(LONG).expect_code(0).stdout, help);
    }
}

#[test]
fn option_that_a_command_ignores_is_refused() {
    let scene = Scene::new("");
    for command in ["list", "verify"] {
        let words = ["checkpoints", command, "RUN", "--alive"];
        scene.rlm(&words).run(LONG).expect_code(2);
    }
}

#[test]
fn run_is_found_by_a_part_of_its_id_and_as_the_last() {
    let scene = Scene::new("echo");
    for id in ["alpha-one", "alpha-two", "beta-two"] {
        scene
            .run(&["--once", "--run-id", id])
            .run(LONG)
            .expect_code(0);
    }
    let status = |name: &str| scene.rlm(&["status", name, "--json"]).run(LONG);
    for (name, run) in [
        ("beta", "beta-two"),
        ("one", "alpha-one"),
        ("alpha-t", "alpha-two"),
        ("last", "beta-two"),
        ("alpha-one", "alpha-one"),
    ] {
        let shown = status(name).expect_code(0);
        assert_eq!(events(&shown.stdout)[0]["run"], run, "{name}");
    }
    let several = status("two").expect_code(2);
    assert!(several.stderr.contains("alpha-two, beta-two"), "{several}");
    status("gamma").expect_code(10);
    scene
        .rlm(&["clean", "one", "--yes"])
        .run(LONG)
        .expect_code(0);
    assert!(
        !scene
            .rlm(&["status"])
            .run(LONG)
            .stdout
            .contains("alpha-one")
    );
}

/// The run works in the first half of the test, and is stopped in the second.
#[test]
fn status_and_ps_answer_what_the_run_is_for_and_what_happens_now() {
    let scene = Scene::new("print ready\nhang");
    let goal = "# Fix the parser\n\nIt fails for empty files.";
    let mut running = scene.run_bare(&["-n", "5", "-p", goal]).spawn();
    says(&mut running, "ready");
    let shown = |command: &str| scene.rlm(&[command]).run(LONG).expect_code(0).stdout;
    let words = [
        "running, iteration 1 of 5",
        "title   Fix the parser",
        "now     the agent works, for",
    ];
    expect_in_order(&shown("status"), &words);
    assert!(
        !shown("status").contains("next  "),
        "there is nothing to do"
    );
    expect_in_order(&shown("ps"), &["1/5", "Fix the parser: the agent works"]);
    stop(running, Signal::TERM);
    expect_in_order(
        &shown("status"),
        &["stopped, iteration 1 of 5", "next    rlm resume"],
    );
}

#[test]
fn run_outside_a_git_repository_says_so() {
    let scene = Scene::new("echo");
    let outside = scene.sandbox.home().join("plain");
    fs::create_dir(&outside).unwrap();
    let note = "not in a git repository";
    let ended = scene
        .run(&["--once"])
        .dir(&outside)
        .run(LONG)
        .expect_code(0);
    assert!(ended.stdout.contains(note), "{ended}");
    let inside = scene.run(&["--once"]).run(LONG).expect_code(0);
    assert!(!inside.stdout.contains(note), "{inside}");
}

#[test]
fn dry_run_names_nothing_that_will_not_exist() {
    let scene = Scene::new("echo");
    let shown = scene
        .run(&["--once", "--dry-run"])
        .run(LONG)
        .expect_code(0)
        .stdout;
    assert!(shown.contains("ends    after 1 iteration"), "{shown}");
    assert!(
        !shown.contains("rlm resume") && !shown.contains(".rlm/runs"),
        "{shown}"
    );
}

/// Both printed the inside of the saved state: nested JSON, and times in milliseconds.
#[test]
fn dry_run_of_a_resume_and_a_saved_state_are_written_for_people() {
    let scene = Scene::new("print ready\nhang");
    let running = scene.ready(&["-n", "3", "--iteration-timeout", "2h", "--run-id", "r1"]);
    stop(running, Signal::INT);
    let dry = scene
        .rlm(&["resume", "--dry-run"])
        .run(LONG)
        .expect_code(0)
        .stdout;
    expect_in_order(
        &dry,
        &[
            "settings",
            "iteration-timeout        2h",
            "max-iterations           3",
        ],
    );
    let shown = scene
        .rlm(&["checkpoints", "show"])
        .run(LONG)
        .expect_code(0)
        .stdout;
    expect_in_order(
        &shown,
        &["r1  save ", "at      iteration 1, attempt 1, unfinished"],
    );
    for text in [&dry, &shown] {
        assert!(!text.contains('{') && !text.contains("_ms"), "{text}");
    }
    // The command for the rest works as printed.
    let (_, command) = shown.trim_end().rsplit_once(": ").unwrap();
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    let whole = scene.rlm(&words).run(LONG).expect_code(0).stdout;
    let whole: serde_json::Value = serde_json::from_str(&whole).unwrap();
    assert_eq!(whole["head"]["machine"]["unfinished"]["cause"], "stop");
}

/// Presets for common kinds of work: what `init` prints as the next step works.
#[test]
fn each_preset_is_a_run_that_can_start() {
    for preset in ["tdd", "fix-ci", "review", "refactor", "plan-then-build"] {
        let scene = Scene::new("print turn {start}");
        let init = ["init", "--preset", preset];
        let told = scene.rlm(&init).run(LONG).expect_code(0).stdout;
        assert!(
            told.contains("next: ") && told.contains(", then: rlm run"),
            "{told}"
        );
        let dry = scene.run_bare(&["--dry-run"]).run(LONG).expect_code(0);
        let prompt = fs::read_to_string(scene.file("PROMPT.md")).unwrap();
        let first = match scene.file("prompts").exists() {
            true => "The task is in PROMPT.md",
            false => prompt.lines().next().unwrap(),
        };
        assert!(dry.stdout.contains(first), "{preset}: {dry}");
    }
    // The review needs no more settings, and runs to its end.
    let scene = Scene::new("touch REVIEW.md");
    scene
        .rlm(&["init", "--preset", "review"])
        .run(LONG)
        .expect_code(0);
    scene.run_bare(&[]).run(LONG).expect_code(0);
    assert!(scene.file("REVIEW.md").exists());
}
