//! The screen of a run, and its cost.

use std::time::Duration;

use rlm_tests::story::Story;
use rlm_tests::{Terminal, poll_until, wait_for};
use rustix::process::Signal;

use crate::idle::{peak_memory, ticks};
use crate::scene::{PROMPT, Scene, events, stop};
use crate::{FAKE_AGENT, LONG};

/// Returns a script that reads the same file often, prints a text, and fails with a long output.
fn busy() -> String {
    let mut script = "say I look at all of it first.\n".to_owned();
    for n in 1..=9 {
        script += &format!("tool Read src/part_{n}.rs\ntool-end {n} fn part()\n");
    }
    script += "await first\nsay 書くものは多くない。\ntool Bash cargo test --workspace --all-features -- --nocapture\n\
        tool-end 10 running 3 tests\\ntest a ... ok\\ntest b ... ok\\ntest c ... FAILED\\n1 failed\n\
        retry 529 2 1\nsay It is done.\nawait second\nturn";
    script
}

#[test]
fn screen_of_a_run_at_three_moments_snapshot() {
    let scene = Scene::new(&busy());
    let run = ["-n", "4", "--sleep", "600", "-p", PROMPT];
    let rlm = scene.claude_bare(&run).size(30, 80).env("NO_COLOR", "1");
    let (running, terminal) = rlm.spawn_on_terminal();
    let mut story = Story::default();
    let mut keep = |moment: &str, signs: &[&str]| {
        // The cost is printed after the activity.
        for sign in signs {
            terminal.sees(sign, LONG);
        }
        story.add(&[moment], &terminal.scrolled());
    };
    keep("while it reads", &["Read 6 more times", "0.10 USD"]);
    fs_err::write(scene.file("first"), "").unwrap();
    keep("when it has tried", &["It is done.", "0.13 USD"]);
    fs_err::write(scene.file("second"), "").unwrap();
    // The status line may appear before the log line.
    let sleeps = ["next iteration at", "next iteration in", "0.13 USD"];
    keep("while it sleeps", &sleeps);
    let home = scene.sandbox.path().to_string_lossy();
    insta::assert_snapshot!(story.stable(&[
        (&*home, "/HOME"),
        (FAKE_AGENT, "AGENT"),
        ("10m", "…"),
        ("9m50s", "…")
    ]));
    stop(running, Signal::TERM);
}

#[test]
fn resized_screen_is_left_clean() {
    let scene = Scene::new("print here\nawait go");
    // The terminal emulator cuts rows that don't fit.
    let rlm = scene.run(&["--once"]).env("TERM", "linux").size(20, 100);
    let (running, terminal) = rlm.spawn_on_terminal();
    terminal.sees("│ here", LONG);
    terminal.sees("agent works", LONG);
    for columns in [60, 30, 20, 12, 9, 40, 120, 80] {
        terminal.resize(20, columns);
        let fits = |screen: &str| {
            let works = |row: &&str| row.split(' ').any(|word| word.starts_with("work"));
            let rows: Vec<&str> = screen.lines().filter(works).collect();
            matches!(rows[..], [row] if row.chars().count() < columns.into())
                && (columns < 40 || screen.contains("agent works"))
        };
        terminal.wait_screen("one status row that fits", LONG, fits);
        assert!(
            terminal.scrolled().contains("│ here"),
            "{}",
            terminal.scrolled()
        );
    }
    fs_err::write(scene.file("go"), "").unwrap();
    running.wait(LONG).expect_code(0);
    let left = terminal.scrolled().matches("agent works").count();
    assert_eq!(left, 0, "{}", terminal.scrolled());
}

#[test]
fn typed_ahead_line_loses_no_log_line() {
    let lines: String = (1..=60)
        .map(|n| format!("print line {n}.\ndelay 5\n"))
        .collect();
    let scene = Scene::new(&format!("print begun\nawait typed\n{lines}"));
    let (running, terminal) = scene.run(&["--once"]).spawn_on_terminal();
    terminal.sees("begun", LONG);
    fs_err::write(scene.file("typed"), "").unwrap();
    for _ in 0..20 {
        // An unknown command has no effect except its echo.
        terminal.send("no command\r");
        poll_until(Duration::from_millis(15), || None::<()>);
    }
    running.wait(LONG).expect_code(0);
    terminal.sees("planned", LONG);
    let all = terminal.scrolled();
    for n in 1..=60 {
        assert!(
            all.contains(&format!("line {n}.")),
            "line {n} is missing:\n{all}"
        );
    }
}

#[test]
fn idle_screen_costs_almost_nothing() {
    let scene = Scene::new("print ready\nhang");
    let (running, terminal) = scene.run(&["--once"]).spawn_on_terminal();
    terminal.sees("ready", LONG);
    // The clock of the status line changes every second in the first minute, which is the worst case, and every ten seconds later.
    poll_until(Duration::from_millis(1500), || None::<()>);
    let (before, drawn) = (ticks(running.pid()), terminal.bytes().len());
    poll_until(Duration::from_secs(5), || None::<()>);
    let (used, drawn) = (
        ticks(running.pid()) - before,
        terminal.bytes().len() - drawn,
    );
    // A tick is a hundredth of a second: five of 500 are 1 %.
    assert!(used <= 5, "{used} ticks");
    assert!(drawn <= 7 * 200, "{drawn} bytes");
    stop(running, Signal::TERM);
}

#[test]
fn x115d_x115e_blocked_terminal_delays_nothing() {
    let scene = Scene::new("print ready\nawait begin\nflood 30M\ntouch through\nawait go");
    let (running, terminal) = scene.run(&["--once"]).spawn_on_terminal();
    terminal.sees("ready", LONG);
    let stalled = terminal.stall();
    fs_err::write(scene.file("begin"), "").unwrap();
    wait_for("the end of the flood", 5 * LONG, || {
        scene.file("through").exists().then_some(())
    });
    let peak = peak_memory(running.pid());
    fs_err::write(scene.file("go"), "").unwrap();
    // The run continues on disk while its terminal is blocked.
    wait_for("the end of the run", LONG, || {
        (scene.status()["iterations_complete"] == 1).then_some(())
    });
    drop(stalled);
    running.wait(5 * LONG).expect_code(0);
    terminal.wait_text("lines not shown", 0, LONG);
    assert!(peak < 64 << 10, "{peak} KiB");
}

fn attach(scene: &Scene, more: &[&str]) -> (rlm_tests::Running, Terminal) {
    scene.rlm(&[&["attach"], more].concat()).spawn_on_terminal()
}

#[test]
fn attach_shows_earlier_events() {
    let scene = Scene::new(
        "@1 say The first thing.\n@2 flood 200K\n@2 say The second thing.\n@2 await go\n@3 say The third.",
    );
    scene
        .claude(&["-n", "3", "--detach"])
        .run(LONG)
        .expect_code(0);
    scene.wait_until_recorded("The second thing.");
    let (watching, terminal) = attach(&scene, &[]);
    terminal.sees("The second thing.", LONG);
    let all = terminal.scrolled();
    crate::scene::expect_in_order(
        &all,
        &[
            "attached to run",
            "iteration 1",
            "iteration 1 complete",
            "iteration 2",
            "The second thing.",
        ],
    );
    for once in ["── iteration 2 ──", "The second thing."] {
        assert_eq!(all.matches(once).count(), 1, "{once}:\n{all}");
    }
    let (quiet, other) = attach(&scene, &["-q"]);
    other.sees("iteration 1 complete", LONG);
    fs_err::write(scene.file("go"), "").unwrap();
    watching.wait(LONG).expect_code(0);
    quiet.wait(LONG).expect_code(0);
    terminal.sees("planned", LONG);
    assert!(
        !other.scrolled().contains("The third."),
        "{}",
        other.scrolled()
    );
}

#[test]
fn attach_with_json_ends_with_the_end_event() {
    let scene = Scene::new("print begun\nawait go");
    scene.run(&["--once", "--detach"]).run(LONG).expect_code(0);
    let watching = scene.rlm(&["attach", "--json"]).spawn();
    wait_for("the last event", LONG, || {
        watching.stdout().contains("begun").then_some(())
    });
    fs_err::write(scene.file("go"), "").unwrap();
    let ended = watching.wait(LONG).expect_code(0);
    let all = events(&ended.stdout);
    let last = all.last().unwrap();
    assert_eq!(
        (&last["event"], &last["exit_code"]),
        (&"run_ended".into(), &0.into()),
        "{last}"
    );
    assert!(
        last["reason"].as_str().unwrap().contains("planned"),
        "{last}"
    );
}
