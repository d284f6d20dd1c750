//! Permissions of an agent: automatic decisions, permission requests, and the answers.

use std::time::Duration;

use rlm_tests::{Terminal, poll_until};
use rustix::process::Signal;

use crate::LONG;
use crate::scene::{Scene, text};

/// The script requests an edit and a harmless command, and prints the results.
const WANTS: &str = "ask Edit notes.md\nask Bash touch made\nrecall\nturn";

#[test]
fn x124a_x124c_edits_are_allowed_and_other_calls_denied_with_a_message() {
    let scene = Scene::new(WANTS);
    let ended = scene.claude(&["--once"]).run(LONG).expect_code(0);
    assert!(!scene.file("made").exists());
    let answers = scene.agent.answers();
    assert_eq!(
        answers.len(),
        1,
        "edits need no permission request: {answers:?}"
    );
    assert_eq!(
        (answers[0].summary.as_str(), answers[0].behavior.as_str()),
        ("touch made", "deny")
    );
    assert!(
        answers[0].message.contains("only file edits"),
        "{answers:?}"
    );
    assert!(
        ended.stdout.contains("denied:") && ended.stdout.contains("touch made"),
        "{ended}"
    );
    assert!(
        ended.stdout.contains("may edit files"),
        "the banner shows it: {ended}"
    );
    let status = scene.status();
    assert_eq!(
        (&status["permissions"], &status["denied"]),
        (&"edits".into(), &1.into())
    );
}

#[test]
fn x124d_denials_are_shown_in_every_view() {
    let scene = Scene::new(WANTS);
    let ended = scene
        .claude(&["--once", "--permissions", "all"])
        .run(LONG)
        .expect_code(0);
    assert!(scene.file("made").exists());
    assert!(scene.agent.answers().is_empty());
    assert!(ended.stdout.contains("MAY DO EVERYTHING"), "{ended}");
    assert!(text(&scene.status()["agent"]).contains("MAY DO EVERYTHING"));
    let argv = &scene.agent.starts()[0].argv;
    assert!(
        argv.contains(&"--dangerously-skip-permissions".into()),
        "{argv:?}"
    );
    for other in ["ask", "edits", "deny"] {
        let scene = Scene::new(WANTS);
        scene
            .claude(&["--once", "--permissions", other])
            .run(LONG)
            .expect_code(0);
        let argv = &scene.agent.starts()[0].argv;
        assert!(
            !argv.iter().any(|word| word.contains("dangerously")),
            "{other}: {argv:?}"
        );
    }
}

#[test]
fn x124a_deny_also_denies_edits() {
    let scene = Scene::new(WANTS);
    scene
        .claude(&["--once", "--permissions", "deny"])
        .run(LONG)
        .expect_code(0);
    let answers = scene.agent.answers();
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert!(answers.iter().all(|answer| answer.behavior == "deny"));
    assert_eq!(scene.status()["denied"], 2);
}

#[test]
fn x124c_unattended_permission_request_is_denied_and_counted() {
    let scene = Scene::new(WANTS);
    let ask = ["--once", "--permissions", "ask"];
    scene.claude(&ask).run(LONG).expect_code(0);
    let answers = scene.agent.answers();
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert!(
        answers[0].message.contains("no person is attached"),
        "{answers:?}"
    );
    assert_eq!(scene.status()["denied"], 2);

    let scene = Scene::new(WANTS);
    let (running, _terminal) = scene
        .claude(&[&ask[..], &["--no-input"]].concat())
        .spawn_on_terminal();
    running.wait(LONG).expect_code(0);
    assert_eq!(scene.agent.answers().len(), 2, "nor with --no-input");
}

#[test]
fn x124e_command_agent_has_its_own_flags() {
    let scene = Scene::new("print hi");
    let ended = scene
        .run(&["--once", "--permissions", "all"])
        .run(LONG)
        .expect_code(2);
    assert!(ended.stderr.contains("own options"), "{ended}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
    assert!(!scene.file(".rlm").exists());
}

#[test]
fn x124a_environment_sets_permissions_and_the_flag_wins() {
    let scene = Scene::new(WANTS);
    let run = scene.claude(&["--once"]).env("RLM_PERMISSIONS", "deny");
    run.run(LONG).expect_code(0);
    assert_eq!(scene.status()["permissions"], "deny");
    let scene = Scene::new(WANTS);
    let run = scene
        .claude(&["--once", "--permissions", "edits"])
        .env("RLM_PERMISSIONS", "all");
    run.run(LONG).expect_code(0);
    assert_eq!(scene.status()["permissions"], "edits");
    let scene = Scene::new(WANTS);
    let run = scene
        .claude(&["--once"])
        .env("RLM_PERMISSIONS", "everything");
    let ended = run.run(LONG).expect_code(2);
    assert!(ended.stderr.contains("RLM_PERMISSIONS"), "{ended}");
}

/// Waits until the terminal shows the permission request, and answers after the time that a person needs to read it: an earlier key decides nothing.
pub(crate) fn answer(terminal: &Terminal, question: &str, key: &str) {
    terminal.sees(&format!("allow? {question}"), LONG);
    wait(1500);
    terminal.send(key);
}

fn wait(millis: u64) {
    assert!(poll_until(Duration::from_millis(millis), || None::<()>).is_none());
}

#[test]
fn x124b_x132c_permission_request_reaches_the_person() {
    let scene = Scene::new(
        "ask Bash touch made\nask Bash touch unmade\nask Bash touch skipped\nsay done\nturn",
    );
    let (running, terminal) = scene
        .claude(&["--once", "--permissions", "ask"])
        .spawn_on_terminal();
    answer(&terminal, "Bash: touch made", "y");
    answer(&terminal, "Bash: touch unmade", "n");
    assert!(scene.file("made").exists());
    answer(&terminal, "Bash: touch skipped", "\u{1b}");
    running.wait(LONG).expect_code(0);
    let behaviors: Vec<_> = scene
        .agent
        .answers()
        .into_iter()
        .map(|answer| (answer.behavior, answer.message))
        .collect();
    assert_eq!(
        behaviors
            .iter()
            .map(|(behavior, _)| behavior.as_str())
            .collect::<Vec<_>>(),
        ["allow", "deny", "deny"]
    );
    assert!(behaviors[2].1.contains("skipped"), "{behaviors:?}");
    assert!(!scene.file("unmade").exists() && !scene.file("skipped").exists());
    assert_eq!(scene.status()["denied"], 2);
}

#[test]
fn x124g_keys_before_question_do_not_answer() {
    let scene = Scene::new("say ready\nawait go\nask Bash touch made\nsay done\nturn");
    let (running, terminal) = scene
        .claude(&["--once", "--permissions", "ask"])
        .spawn_on_terminal();
    terminal.sees("ready", LONG);
    terminal.send("y");
    fs_err::write(scene.file("go"), "").unwrap();
    terminal.sees("allow? Bash: touch made", LONG);
    assert!(scene.agent.answers().is_empty());
    // An immediate key doesn't count either: the person may be typing a word.
    terminal.send("y");
    wait(1500);
    assert!(scene.agent.answers().is_empty());
    terminal.send("n");
    running.wait(LONG).expect_code(0);
    let answers = scene.agent.answers();
    assert_eq!((answers.len(), answers[0].behavior.as_str()), (1, "deny"));
    assert!(!scene.file("made").exists());
}

#[test]
fn x124g_permission_requests_are_shown_one_by_one() {
    let scene = Scene::new("say ready\nawait go\nask Bash touch one\nask Bash touch two\nturn");
    let (running, terminal) = scene
        .claude(&["--once", "--permissions", "ask"])
        .spawn_on_terminal();
    terminal.sees("ready", LONG);
    // The request waits while another prompt is open.
    terminal.send("\r");
    terminal.sees("steer>", LONG);
    fs_err::write(scene.file("go"), "").unwrap();
    scene.wait_until_recorded("touch one");
    assert!(
        !terminal.screen().contains("allow?"),
        "{}",
        terminal.screen()
    );
    terminal.send(b"\x1b");
    for name in ["one", "two"] {
        answer(&terminal, &format!("Bash: touch {name}"), "y");
        scene.wait_for_file(name);
    }
    running.wait(LONG).expect_code(0);
}

#[test]
fn x115a_permission_text_is_harmless() {
    let scene =
        Scene::new("ask Bash \\e[2J\\e]0;owned\\x07y\\ry allow\\e[1A rm -rf\nsay done\nturn");
    let (running, terminal) = scene
        .claude(&["--once", "--permissions", "ask"])
        .spawn_on_terminal();
    terminal.sees("allow? Bash:", LONG);
    terminal.sees("rm -rf", LONG);
    wait(1500);
    terminal.send("n");
    running.wait(LONG).expect_code(0);
    let text = terminal.text();
    for bad in ["\u{1b}[2J", "\u{1b}]0;owned", "\u{1b}[1A rm"] {
        assert!(!text.contains(bad), "{bad:?}: {text:?}");
    }
}

#[test]
fn x132b_ctrl_c_in_a_permission_prompt_opens_the_menu_and_returns() {
    let scene = Scene::new("ask Bash touch made\nsay done\nturn");
    let (running, terminal) = scene
        .claude(&["--once", "--permissions", "ask"])
        .spawn_on_terminal();
    terminal.sees("allow? Bash: touch made", LONG);
    terminal.send(b"\x03");
    terminal.sees("save and exit", LONG);
    terminal.send("\r");
    terminal.sees_no("save and exit", LONG);
    terminal.wait_screen("the permission request", LONG, |screen| {
        screen.contains("allow? Bash: touch made")
    });
    assert!(scene.agent.answers().is_empty());
    wait(1500);
    terminal.send("y");
    running.wait(LONG).expect_code(0);
    assert!(scene.file("made").exists());
}

#[test]
fn x132b_withdrawn_permission_prompt_disappears() {
    let scene = Scene::new("ask Bash touch made\nturn\nsay next");
    let (running, terminal) = scene
        .claude(&["--once", "--permissions", "ask"])
        .spawn_on_terminal();
    terminal.sees("allow? Bash: touch made", LONG);
    terminal.send(b"\x03");
    terminal.sees("save and exit", LONG);
    terminal.send("x");
    let ended = running.wait(LONG);
    assert!(
        ended.code() == Some(7) || ended.signal() == Some(Signal::INT.as_raw()),
        "{ended}"
    );
    assert!(!scene.file("made").exists());
    scene.expect_nothing_alive();
}
