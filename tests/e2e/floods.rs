//! An agent with unlimited output costs no memory and does not disturb the run.

use std::time::Duration;

use rlm_tests::{Effort, Running, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use crate::idle::peak_memory;
use crate::menu;
use crate::scene::{PROMPT, Scene, says, stop};
use crate::{LONG, RLM};

/// The memory limit of a run in KiB: the 64 MiB of the acceptance item.
const MOST: u64 = 64 << 10;
/// The megabytes of lines that the agent prints.
const X115_MEGABYTES: Effort = Effort {
    ci: 100,
    nightly: 1000,
};
/// Ten times the duration of a flood of 100 MB on a small machine.
const FLOOD: Duration = Duration::from_secs(100);

/// Waits until the agent has printed everything. Returns the peak resident memory of the loop, in KiB.
fn peak_until_done(scene: &Scene, mut running: Running, deadline: Duration) -> u64 {
    running.until("the end of the flood", deadline, |_| {
        scene.file("through").exists().then_some(())
    });
    let peak = peak_memory(running.pid());
    fs_err::write(scene.file("go"), "").unwrap();
    running.wait(LONG).expect_code(0);
    peak
}

fn wait_until_through(scene: &Scene) {
    wait_for("the end of the flood", FLOOD, || {
        scene.file("through").exists().then_some(())
    });
}

fn flood(script: &str, arguments: &[&str]) -> (Scene, u64) {
    let scene = Scene::new(&format!("{script}\ntouch through\nawait go"));
    let running = scene.run(arguments).spawn();
    let peak = peak_until_done(&scene, running, FLOOD);
    (scene, peak)
}

#[test]
fn x115d_flood_of_lines_needs_constant_memory() {
    let megabytes = X115_MEGABYTES.number();
    let bytes = u64::from(megabytes) * 1_000_000;
    let scene = Scene::new(&format!("flood {bytes}\ntouch through\nawait go"));
    let running = scene.run(&["--once"]).spawn();
    let peak = peak_until_done(&scene, running, FLOOD * (megabytes / 100).max(1));
    assert!(peak < MOST, "{peak} KiB");
    let run = scene.run_id();
    let transcript = scene.file(&format!(".rlm/runs/{run}/transcripts/1-1.ndjson"));
    let kept = fs_err::metadata(transcript).unwrap().len();
    assert!(
        kept > 32 << 20,
        "the flood is in the transcript: {kept} bytes"
    );
    assert!(kept < 80 << 20, "the transcript is limited: {kept} bytes");
}

#[test]
fn x115d_x115e_flood_behind_open_menu_is_bounded_and_counted() {
    let scene = Scene::new("print ready\nawait begin\nflood 30M\ntouch through\nawait go");
    let (running, terminal) = scene.run(&["--once"]).spawn_on_terminal();
    terminal.sees("ready", LONG);
    menu::open(&terminal);
    terminal.sees("Ctrl-C again", LONG);
    let before = terminal.screen();
    fs_err::write(scene.file("begin"), "").unwrap();
    wait_until_through(&scene);
    assert_eq!(
        terminal.screen(),
        before,
        "the output does not disturb the menu"
    );
    let peak = peak_memory(running.pid());
    terminal.send("\r");
    terminal.sees_no(menu::MENU, LONG);
    fs_err::write(scene.file("go"), "").unwrap();
    running.wait(LONG).expect_code(0);
    // The program has ended, but the terminal may still be showing its output.
    terminal.wait_text("lines not shown", 0, LONG);
    assert!(peak < MOST, "{peak} KiB");

    // Machine-readable output stays machine-readable.
    let scene = Scene::new("print ready\nawait begin\nflood 3M\ntouch through\nawait go");
    let (running, terminal) = scene.run(&["--once", "--json"]).spawn_on_terminal();
    terminal.sees("ready", LONG);
    menu::open(&terminal);
    fs_err::write(scene.file("begin"), "").unwrap();
    wait_until_through(&scene);
    terminal.send("\r");
    terminal.sees_no(menu::MENU, LONG);
    fs_err::write(scene.file("go"), "").unwrap();
    running.wait(LONG).expect_code(0);
    terminal.wait_text("run_ended", 0, LONG);
    let text = terminal.text();
    for line in text.lines().filter(|line| line.contains("not shown")) {
        assert!(line.trim_start().starts_with('{'), "{line}");
    }
}

#[test]
fn x115d_endless_line_needs_constant_memory() {
    let (_scene, peak) = flood("flood 64M unbroken", &["--once"]);
    assert!(peak < MOST, "{peak} KiB");
}

#[test]
fn x115d_line_of_only_escaped_bytes_needs_constant_memory() {
    for (bytes, json) in [("\\000", true), ("\\377", false)] {
        let scene = Scene::new("");
        let agent = format!(
            "head -c 20000000 /dev/zero | tr '\\000' '{bytes}'; touch through; while ! test -e go; do sleep 0.02; done"
        );
        let mut run = vec!["run", "-p", PROMPT, "--once"];
        run.extend(json.then_some("--json"));
        let running = scene.rlm(&run).args(["--", "sh", "-c", &agent]).spawn();
        let peak = peak_until_done(&scene, running, FLOOD);
        assert!(peak < MOST, "{bytes}: {peak} KiB");
    }
}

#[test]
fn x115d_x115e_blocked_terminal_needs_constant_memory() {
    let scene = Scene::new("");
    let lines = "for i in $(seq 60); do head -c 4000000 /dev/zero | tr '\\000' x; echo; done";
    let agent = format!("{lines}; touch through; while ! test -e go; do sleep 0.02; done");
    // The reader of the pipe never reads; the inner shell becomes the loop.
    let script = r#"sh -c 'echo $$ >pid; exec "$@"' sh "$@" | exec sleep 600"#;
    let shell = scene.sandbox.rlm("/bin/sh").args(["-c", script, "sh"]);
    let outer = shell.args([
        RLM, "run", "-p", PROMPT, "--json", "--once", "--", "sh", "-c", &agent,
    ]);
    let outer = outer.spawn();
    wait_until_through(&scene);
    let pid: i32 = fs_err::read_to_string(scene.file("pid"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert_eq!(
        fs_err::read_to_string(format!("/proc/{pid}/cmdline"))
            .unwrap()
            .split('\0')
            .next(),
        Some(RLM)
    );
    let peak = peak_memory(pid);
    fs_err::write(scene.file("go"), "").unwrap();
    // Neither the end of the run nor a stop waits for the reader.
    wait_for("the end of the run", LONG, || {
        (scene.status()["state"] == "ended").then_some(())
    });
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    wait_for("the end of the process", LONG, || {
        scene
            .alive()
            .iter()
            .all(|process| process.pid != pid)
            .then_some(())
    });
    drop(outer);
    assert!(peak < MOST, "{peak} KiB");
}

#[test]
fn x115e_flood_does_not_delay_a_stop() {
    let scene = Scene::new("print begun\nflood 900G");
    let mut running = scene.run(&["--once"]).spawn();
    says(&mut running, "begun");
    let ended = stop(running, Signal::INT);
    assert!(
        ended
            .stdout
            .contains("stopped by a person; all processes ended"),
        "{}",
        ended.stdout.lines().last().unwrap()
    );
    scene.expect_nothing_alive();
}

#[test]
fn s5a_a_flood_does_not_delay_the_limit_of_an_iteration() {
    let scene = Scene::new("flood 900G");
    let limits = [
        "--until",
        "false",
        "--max-failures",
        "1",
        "--iteration-timeout",
        "1s",
    ];
    let run = scene.run(&limits).env("RLM_SHUTDOWN_TIMEOUT", "2s");
    run.run(LONG).expect_code(6);
    assert_eq!(
        scene.status()["last_outcome"],
        "iteration 1 failed: the turn took longer than 1s"
    );
}

#[test]
fn only_the_end_of_flooding_check_output_is_shown() {
    let scene = Scene::new("print turn {start}");
    let check =
        "head -c 50000000 /dev/zero | tr '\\000' 'x'; echo; seq 100000; echo the last line; false";
    let mut running = scene.run(&["-n", "2", "--until", check]).spawn();
    scene.wait_until_started(2);
    running.until("a second check", FLOOD, |running| {
        (running.stdout().matches("did not pass").count() == 2).then_some(())
    });
    running.wait(LONG).expect_code(3);
    let prompt = scene.prompts().remove(1);
    assert!(
        prompt.contains("the last line") && prompt.len() < 32 << 10,
        "{} bytes",
        prompt.len()
    );
}
