//! A person presses Ctrl-C on a terminal and selects from the menu.

use std::fmt::Write as _;
use std::time::Duration;

use rlm_tests::agent::SessionEntry;
use rlm_tests::{Running, Terminal, poll_until, wait_for};
use rustix::process::Signal;

use crate::LONG;
use crate::full_disk::has_mounts;
use crate::presses::pause;
use crate::scene::{PROMPT, Scene, json, text};

pub(crate) const PRESS: &[u8] = b"\x03";
pub(crate) const ESC: &[u8] = b"\x1b";
/// A line that appears only in the menu.
pub(crate) const MENU: &str = "save and exit";

/// Presses Ctrl-C, after the debounce of the previous press.
fn press(terminal: &Terminal) {
    pause();
    terminal.send(PRESS);
}

pub(crate) fn open(terminal: &Terminal) {
    press(terminal);
    terminal.sees(MENU, LONG);
}

/// Returns a run whose agent works and prints nothing more.
fn at_work(scene: &Scene, arguments: &[&str]) -> (Running, Terminal) {
    let (running, terminal) = scene.claude(arguments).spawn_on_terminal();
    terminal.sees("ready", LONG);
    (running, terminal)
}

fn sleeping(scene: &Scene) -> (Running, Terminal) {
    let run = ["--sleep", "600", "--prompt", PROMPT, "-n", "3"];
    let (running, terminal) = scene.claude_bare(&run).spawn_on_terminal();
    wait_for("the sleep", LONG, || {
        let statuses = scene.statuses();
        (statuses.first()?["iterations_complete"] == 1).then_some(())
    });
    (running, terminal)
}

#[test]
fn s7_s9a_s9b_press_during_sleep_opens_menu_that_can_skip_the_sleep() {
    let scene = Scene::new("run true\nturn");
    let (running, terminal) = sleeping(&scene);
    open(&terminal);
    assert!(terminal.screen().contains("skip the sleep"));
    terminal.send("k");
    terminal.sees_no(MENU, LONG);
    wait_for("the second iteration", LONG, || {
        (scene.status()["iterations_complete"] == 2).then_some(())
    });
    open(&terminal);
    terminal.send("x");
    running.wait(LONG).expect_code(7);
    assert_eq!(scene.start_count(), 2);
}

#[test]
fn j41d_a_stop_from_the_menu_has_the_deadline_of_a_shutdown() {
    for key in ["x", "a"] {
        let scene =
            Scene::new("deaf interrupt end_session eof\nignore INT TERM HUP\nsay ready\nhang");
        let run = scene.claude(&["--once"]).env("RLM_SHUTDOWN_TIMEOUT", "0");
        let (running, terminal) = run.spawn_on_terminal();
        terminal.sees("ready", LONG);
        open(&terminal);
        terminal.send(key);
        running.wait(LONG).expect_code(7);
        let text = terminal.text();
        assert!(text.contains("stopped immediately"), "{key}: {text}");
        scene.wait_until_nothing_is_alive();
    }
}

#[test]
fn s8a_s8b_the_agents_output_waits_until_the_menu_is_closed() {
    let scene = Scene::new("say ready\nawait go\nsay LATER words\nawait on\nsay LAST\nturn");
    let (running, terminal) = at_work(&scene, &["--once"]);
    open(&terminal);
    let before = terminal.screen();
    fs_err::write(scene.file("go"), "").unwrap();
    scene.wait_until_recorded("LATER words");
    assert!(
        !terminal.text().contains("LATER"),
        "{}",
        terminal.scrolled()
    );
    assert_eq!(terminal.screen(), before);
    terminal.send("\r");
    terminal.sees("LATER words", LONG);
    terminal.sees_no(MENU, LONG);
    fs_err::write(scene.file("on"), "").unwrap();
    running.wait(LONG).expect_code(0);
    assert!(
        terminal.scrolled().contains("LAST"),
        "{}",
        terminal.scrolled()
    );
    assert_eq!(scene.start_count(), 1);
}

#[test]
fn s9b_turn_ended_from_the_menu_keeps_its_session() {
    const END_TURN: &str = "end this turn, keep the session";
    let scene = Scene::new("say ready\nhang\nturn\nrun true\nsay on\nturn");
    let (running, terminal) = at_work(&scene, &["--once"]);
    open(&terminal);
    terminal.sees(END_TURN, LONG);
    terminal.send("t");
    terminal.sees("interrupted", LONG);
    terminal.sees_no(MENU, LONG);
    // The turn has ended, so the menu doesn't offer to end it.
    open(&terminal);
    assert!(!terminal.screen().contains(END_TURN));
    terminal.send("c");
    running.wait(LONG).expect_code(0);
    let messages = scene.agent.messages();
    let place = |at: usize| (messages[at].pid, messages[at].session.clone());
    assert_eq!(place(0), place(1));

    // A command agent has no conversation.
    let scene = Scene::new("print ready\nhang");
    let (running, terminal) = scene.run(&["--once"]).spawn_on_terminal();
    terminal.sees("ready", LONG);
    open(&terminal);
    assert!(!terminal.screen().contains(END_TURN));
    terminal.send("x");
    running.wait(LONG).expect_code(7);
}

#[test]
fn s9a_s9c_s9d_s9e_menu_offers_all_choices_and_prompts_again_after_wrong_key() {
    let scene = Scene::new("say ready\nawait go\nturn");
    let (running, terminal) = at_work(&scene, &["--once"]);
    open(&terminal);
    let offers = [
        "continue",
        "steer",
        "edit prompt",
        "restart the iteration",
        "start over",
        "save and exit",
        "abort",
    ];
    for offer in offers {
        assert!(
            terminal.screen().contains(offer),
            "{offer}: {}",
            terminal.screen()
        );
    }
    terminal.send("z");
    terminal.sees("`z`", LONG);
    assert!(
        terminal.screen().contains(MENU),
        "the menu opens again: {}",
        terminal.screen()
    );
    terminal.send("k");
    terminal.sees("`k`", LONG);
    terminal.send("C");
    terminal.sees_no(MENU, LONG);
    open(&terminal);
    terminal.send("\r");
    terminal.sees_no(MENU, LONG);
    fs_err::write(scene.file("go"), "").unwrap();
    running.wait(LONG).expect_code(0);
    assert_eq!(scene.start_count(), 1);
    assert!(
        !scene.controls().contains(&"interrupt".into()),
        "the agent got no interrupt"
    );
}

#[test]
fn j52_continue_does_not_disturb_the_agent() {
    let scene = Scene::new(
        "say 5 ready a b c d e f g h i j k l m n o p q r s t u v w x y z\nawait go\nturn",
    );
    let (running, terminal) = scene.claude(&["--once"]).spawn_on_terminal();
    for _ in 0..4 {
        wait_for("the start", LONG, || scene.agent.starts().pop());
        open(&terminal);
        terminal.send(ESC);
        terminal.sees_no(MENU, LONG);
    }
    fs_err::write(scene.file("go"), "").unwrap();
    running.wait(LONG).expect_code(0);
    assert_eq!(scene.start_count(), 1);
    assert!(scene.agent.signals().is_empty());
    assert!(!scene.controls().contains(&"interrupt".into()));
}

#[test]
fn s12a_s12b_save_and_exit_is_a_stop() {
    let scene = Scene::new("child setsid\nsay ready\nhang");
    let (running, terminal) = at_work(&scene, &["--once"]);
    open(&terminal);
    terminal.send("x");
    running.wait(LONG).expect_code(7);
    assert!(
        terminal.scrolled().contains("stopped by a person"),
        "{}",
        terminal.scrolled()
    );
    let status = scene.status();
    assert_eq!(status["state"], "stopped", "{status}");
    assert_eq!(status["reason"], "stopped by a person");
    assert!(text(&status["next"]).contains("rlm resume"), "{status}");
    assert!(
        scene.controls().contains(&"interrupt".into()),
        "the agent got an interrupt first"
    );
    scene.expect_nothing_alive();
}

#[test]
fn s9f_abort_ends_an_agent_that_ignores_requests_and_stops_the_run() {
    let scene = Scene::new("deaf interrupt\nignore INT TERM HUP\nsay ready\nhang");
    let run = scene.claude(&["--once"]).env("RLM_SHUTDOWN_TIMEOUT", "8s");
    let (running, terminal) = run.spawn_on_terminal();
    terminal.sees("ready", LONG);
    open(&terminal);
    terminal.send("a");
    running.wait(LONG).expect_code(7);
    let status = scene.status();
    assert_eq!(
        (&status["state"], &status["reason"]),
        (&"stopped".into(), &"stopped by a person".into())
    );
    scene.expect_nothing_alive();
}

/// Returns the sessions of all messages, numbered from 1.
fn sessions(scene: &Scene) -> Vec<usize> {
    let mut names = Vec::new();
    let messages = scene.agent.messages().into_iter();
    messages
        .map(|message| {
            if !names.contains(&message.session) {
                names.push(message.session.clone());
            }
            1 + names.iter().position(|it| *it == message.session).unwrap()
        })
        .collect()
}

#[test]
fn s25a_restart_makes_a_new_attempt_in_a_fresh_session() {
    for (policy, in_sessions) in [("fresh", [1, 2, 3, 4]), ("continue", [1, 1, 2, 2])] {
        let scene = Scene::new("@2 say ready\n@2 hang\nrun true\nturn");
        let (running, terminal) = at_work(&scene, &["-n", "3", "--session", policy]);
        open(&terminal);
        terminal.send("r");
        running.wait(LONG).expect_code(0);
        assert_eq!(sessions(&scene), in_sessions, "{policy}");
        let starts = scene.agent.starts();
        let attempts: Vec<String> = { starts.iter() }
            .map(|start| {
                format!(
                    "{}.{}",
                    start.env["RLM_ITERATION"], start.env["RLM_ATTEMPT"]
                )
            })
            .collect();
        assert_eq!(attempts, ["1.1", "2.1", "2.2", "3.1"], "{policy}");
        assert_eq!(scene.status()["iterations_complete"], 3);
    }
}

#[test]
fn s25b_start_over_begins_with_the_first_iteration_in_a_fresh_session() {
    for (policy, in_sessions) in [
        ("fresh", [1, 2, 3, 4, 5, 6]),
        ("continue", [1, 1, 1, 2, 2, 2]),
    ] {
        let scene = Scene::new("@3 say ready\n@3 hang\nrun true\nturn");
        let (running, terminal) = at_work(&scene, &["-n", "3", "--session", policy]);
        open(&terminal);
        terminal.send("o");
        running.wait(LONG).expect_code(0);
        assert_eq!(sessions(&scene), in_sessions, "{policy}");
        let starts = scene.agent.starts();
        let iterations: Vec<&str> = starts
            .iter()
            .map(|start| start.env["RLM_ITERATION"].as_str())
            .collect();
        assert_eq!(iterations, ["1", "2", "3", "1", "2", "3"], "{policy}");
        let names: std::collections::BTreeSet<&str> = starts
            .iter()
            .map(|start| start.env["RLM_MARKER"].as_str())
            .collect();
        assert_eq!(names.len(), 6, "no attempt has the name of another");
    }
}

#[test]
fn j39a_a_press_on_the_menu_is_a_shutdown() {
    let scene = Scene::new("child setsid\nsay ready\nhang");
    let (running, terminal) = at_work(&scene, &["--once"]);
    open(&terminal);
    press(&terminal);
    running.wait(LONG).expect_signal(Signal::INT);
    assert_eq!(scene.status()["reason"], "stopped by a person");
    scene.expect_nothing_alive();
}

#[test]
fn j39b_j39c_esc_continues_and_resets_the_presses() {
    let scene = Scene::new("say ready\nawait go\nturn");
    let (running, terminal) = at_work(&scene, &["--once"]);
    for _ in 0..5 {
        open(&terminal);
        terminal.send(ESC);
        terminal.sees_no(MENU, LONG);
    }
    fs_err::write(scene.file("go"), "").unwrap();
    running.wait(LONG).expect_code(0);
    assert!(
        !terminal.scrolled().contains("stopping"),
        "{}",
        terminal.scrolled()
    );
}

#[test]
fn j40a_j40b_press_without_a_prompt_decides_nothing_and_stays_counted() {
    if !has_mounts() {
        return println!("skipped: no mount namespaces here");
    }
    let scene = Scene::new("say ready\nhang");
    let mut shell = scene.sandbox.rlm("unshare");
    for (name, value) in scene.agent.variables() {
        shell = shell.env(name, value);
    }
    // The process has a terminal, but can't open it.
    let script = "mount --bind /dev/null /dev/tty && exec \"$@\"";
    let run = ["-m", "sh", "-c", script, "sh", crate::RLM, "run", "--once"];
    let agent = [
        "-p",
        "x",
        "--agent",
        "claude",
        "--agent-bin",
        crate::FAKE_AGENT,
    ];
    let (running, terminal) = shell.args(run).args(agent).spawn_on_terminal();
    terminal.sees("ready", LONG);
    let told = |count: usize| {
        press(&terminal);
        wait_for("the report of the press", LONG, || {
            (terminal.text().matches("can't be shown").count() == count).then_some(())
        });
        assert_eq!(scene.controls(), ["initialize"], "nothing was decided");
    };
    told(1);
    // A press counts for two seconds. A later press counts as a first one again.
    assert!(poll_until(Duration::from_millis(2500), || None::<()>).is_none());
    told(2);
    press(&terminal);
    running.wait(LONG).expect_signal(Signal::INT);
    assert_eq!(scene.status()["reason"], "stopped by a person");
    scene.expect_nothing_alive();
}

#[test]
fn j44_a_press_while_the_agent_starts_shows_the_menu() {
    let scene = Scene::new("no-stdin\nhang");
    let (running, terminal) = scene.claude(&["--once"]).spawn_on_terminal();
    wait_for("the start", LONG, || scene.agent.starts().pop());
    open(&terminal);
    terminal.send("x");
    running.wait(LONG).expect_code(7);
    scene.expect_nothing_alive();
}

#[test]
fn j47d_menu_is_on_the_terminal_if_stdout_is_a_pipe() {
    let scene = Scene::new("say ready\nawait go\nsay after\nturn");
    let mut line = String::new();
    for (name, value) in scene.agent.variables() {
        write!(line, "{name}='{}' ", value.display()).unwrap();
    }
    let program = [
        crate::RLM,
        "run",
        "--agent",
        "claude",
        "--agent-bin",
        crate::FAKE_AGENT,
        "--once",
        "-p",
        "x",
        "--json",
    ];
    line += &program.join(" ");
    let shell = scene.sandbox.rlm("/bin/bash").args([
        "-c",
        &format!("set -o pipefail; {line} | (trap \"\" INT; exec cat > out)"),
    ]);
    let (running, terminal) = shell.spawn_on_terminal();
    let out = || fs_err::read_to_string(scene.file("out")).unwrap_or_default();
    wait_for("the agent's text", LONG, || {
        out().contains("ready").then_some(())
    });
    open(&terminal);
    terminal.send("\r");
    terminal.sees_no(MENU, LONG);
    fs_err::write(scene.file("go"), "").unwrap();
    running.wait(LONG).expect_code(0);
    for line in out().lines() {
        json(line);
    }
    assert!(!out().contains(MENU) && out().contains("after"));
    assert!(!terminal.text().contains("\"event\""));
}

#[test]
fn j47c_without_input_there_is_no_menu() {
    let scene = Scene::new("say ready\nhang");
    let (running, terminal) = at_work(&scene, &["--once", "--no-input"]);
    terminal.send(PRESS);
    running.wait(LONG).expect_signal(Signal::INT);
    assert!(!terminal.text().contains(MENU));
    scene.expect_nothing_alive();
}

#[test]
fn terminal_is_restored_after_every_kind_of_end() {
    type End = fn(&Terminal, &Running);
    let ends: [(&str, End); 5] = [
        ("in the menu, by x", |terminal, _| terminal.send("x")),
        ("in the menu, by a press", |terminal, _| press(terminal)),
        ("in the menu, by SIGTERM", |_, running| {
            running.signal(Signal::TERM)
        }),
        ("in the menu, by SIGQUIT", |_, running| {
            running.signal(Signal::QUIT)
        }),
        ("in the menu, by two presses", |terminal, _| {
            press(terminal);
            terminal.sees("stopping", LONG);
            press(terminal);
        }),
    ];
    for (name, end) in ends {
        let deaf = if name.contains("two") {
            "deaf interrupt end_session eof\nignore INT TERM HUP\n"
        } else {
            ""
        };
        let scene = Scene::new(&format!("{deaf}say ready\nhang"));
        let run = scene
            .claude(&["--once"])
            .env("RLM_SHUTDOWN_TIMEOUT", "600s");
        let run = if deaf.is_empty() {
            run.env("RLM_SHUTDOWN_TIMEOUT", "8s")
        } else {
            run
        };
        let (running, terminal) = run.spawn_on_terminal();
        let before = format!("{:?}", terminal.settings());
        terminal.sees("ready", LONG);
        open(&terminal);
        assert_ne!(
            format!("{:?}", terminal.settings()),
            before,
            "single keys decide"
        );
        end(&terminal, &running);
        running.wait(LONG);
        assert_eq!(format!("{:?}", terminal.settings()), before, "{name}");
        scene.wait_until_nothing_is_alive();
    }
}

#[test]
fn menu_fits_a_terminal_of_twenty_columns() {
    let scene = Scene::new("say ready\nawait go\nturn");
    let run = scene.claude(&["--once"]).size(11, 20);
    let (running, terminal) = run.spawn_on_terminal();
    terminal.sees("ready", LONG);
    let rows = terminal.scrolled().lines().count();
    let drawn = terminal.bytes().len();
    wait_for("a new status line", LONG, || {
        (terminal.bytes().len() > drawn).then_some(())
    });
    assert_eq!(
        terminal.scrolled().lines().count(),
        rows,
        "the status line is in its place:\n{}",
        terminal.scrolled()
    );
    press(&terminal);
    terminal.wait_screen("the menu", LONG, |screen| {
        screen.contains("menu") && screen.contains("exit")
    });
    terminal.send(ESC);
    terminal.sees_no("abort", LONG);
    terminal.resize(6, 9);
    press(&terminal);
    terminal.sees("menu", LONG);
    terminal.send(ESC);
    fs_err::write(scene.file("go"), "").unwrap();
    running.wait(LONG).expect_code(0);
}

#[test]
fn interrupted_turn_waits_in_its_session() {
    let scene = Scene::new("say ready\nsay 600000 half a thought\nturn\nrun true\nsay on");
    let (running, terminal) = scene.claude(&["--once"]).spawn_on_terminal();
    terminal.sees("half", LONG);
    terminal.send("/interrupt\r");
    terminal.sees("interrupted", LONG);
    wait_for("the status", LONG, || {
        (scene.status()["state"] == "paused").then_some(())
    });
    let session = scene.agent.messages()[0].session.clone();
    let memories = scene.agent.session(&session);
    assert!(
        memories
            .iter()
            .any(|memory| matches!(memory, SessionEntry::Marker(_))),
        "{memories:?}"
    );
    open(&terminal);
    terminal.send("\r");
    running.wait(LONG).expect_code(0);
    assert_eq!(scene.start_count(), 1);
    assert_eq!(scene.agent.messages()[1].session, session);
}
