//! The warm guard, which starts ahead of its agent: it outlives neither its host nor a wait, and there are never two agents.

use std::time::{Duration, Instant};

use rlm_tests::{Process, poll_until, wait_for};

use crate::LONG;
use crate::scene::{Scene, crash};

/// Less than the time for which a guard would wait for its agent.
const SOON: Duration = Duration::from_secs(15);

/// Returns the guards of the scene. A run without an agent has none.
fn guards(scene: &Scene) -> Vec<Process> {
    let mut alive = scene.alive();
    // A guard that has ended stays a zombie while the run is suspended.
    alive.retain(|process| process.name == "agent-guard" && !process.is_zombie());
    alive
}

/// Returns the guards that have no program.
fn idle_guards(scene: &Scene) -> Vec<Process> {
    let alive = scene.alive();
    let has_child = |guard: &Process| alive.iter().any(|it| it.ppid == guard.pid);
    let mut idle = guards(scene);
    idle.retain(|guard| !has_child(guard));
    idle
}

/// An agent that adds a line to `runs`, and one to `twice` if another agent runs beside it.
const AGENT: &str =
    "cat >/dev/null; echo >>runs; flock -n -E 9 busy sleep 0.003; test $? != 9 || echo >>twice";

#[test]
fn x102a_x102c_run_killed_at_any_moment_leaves_no_guard_and_no_second_agent() {
    for n in 0..20 {
        let scene = Scene::new("");
        let run = scene.rlm(&["run", "-p", "x", "--sleep", "0", "--until", "test -e end"]);
        let running = run.args(["--", "sh", "-c", AGENT]).spawn();
        match n % 2 {
            0 => _ = poll_until(Duration::from_micros(30_000 + n * 3_700), || None::<()>),
            // While a guard waits for its agent.
            _ => wait_for("a guard without a program", LONG, || {
                let is_later = scene.file("runs").exists();
                (is_later && !idle_guards(&scene).is_empty()).then_some(())
            }),
        }
        crash(running);
        let left = poll_until(SOON, || scene.alive().is_empty().then_some(()));
        assert!(left.is_some(), "{:?}", scene.alive());
        fs_err::write(scene.file("end"), "").unwrap();
        let resumed = scene.rlm(&["resume"]).run(LONG);
        // It is possibly killed before there is a run.
        if scene.file("runs").exists() {
            resumed.expect_code(0);
        }
        scene.expect_nothing_alive();
        assert!(!scene.file("twice").exists(), "two agents at a time");
    }
}

#[test]
fn x126d_no_guard_waits_during_a_sleep() {
    let scene = Scene::new("");
    let run = scene.rlm(&[
        "run",
        "-p",
        "x",
        "--sleep",
        "1h",
        "-n",
        "2",
        "--gate",
        "echo >gated",
    ]);
    let running = run.args(["--", "sh", "-c", AGENT]).spawn();
    scene.wait_for_file("gated");
    // Git and the end of the iteration have guards of their own before the sleep begins.
    let mut quiet_since = Instant::now();
    let sleeps = poll_until(SOON, || {
        if !guards(&scene).is_empty() {
            quiet_since = Instant::now();
        }
        (quiet_since.elapsed() >= Duration::from_secs(1)).then_some(())
    });
    assert!(sleeps.is_some(), "{:?}", guards(&scene));
    crate::scene::stop(running, rustix::process::Signal::TERM);
    scene.expect_nothing_alive();
}

/// Each agent that is suspended keeps its guard. A guard without an agent would wait for the end of the suspension.
#[test]
fn x126d_no_guard_waits_while_the_run_is_suspended() {
    let scene = Scene::new("");
    let (shell, terminal) = scene.sandbox.shell().spawn_on_terminal();
    terminal.sees("$ ", LONG);
    let rlm = crate::RLM;
    terminal.send(format!(
        "{rlm} run -p x --sleep 0 --until 'test -e end' -- sh -c '{AGENT}'\r"
    ));
    scene.wait_for_file("runs");
    for n in 0..8 {
        let _moment = poll_until(Duration::from_micros(5_000 + n * 1_900), || None::<()>);
        // A press between the two steps of `fg` is lost: the system removes a pending SIGTSTP when the shell sends SIGCONT.
        let again = Duration::from_secs(2);
        let mut pressed = None::<Instant>;
        wait_for("the shell in the foreground", LONG, || {
            let is_done = terminal.foreground() == Some(shell.pid());
            if !is_done && pressed.is_none_or(|at| at.elapsed() > again) {
                terminal.send(b"\x1a");
                pressed = Some(Instant::now());
            }
            is_done.then_some(())
        });
        let none = poll_until(SOON, || idle_guards(&scene).is_empty().then_some(()));
        assert!(none.is_some(), "{:?}", idle_guards(&scene));
        // A guard suspends its program a moment after the run has asked for it, and sleeps when it has done so.
        wait_for("a suspension of all programs", SOON, || {
            let mut alive = scene.alive();
            alive.retain(|it| it.pid != shell.pid() && !it.is_zombie());
            // A shell waits in the kernel for a child that was suspended before its exec.
            let waits = |it: &Process| {
                let mut children = alive.iter().filter(|child| child.ppid == it.pid);
                it.state == 'D' && children.any(|child| child.state == 'T')
            };
            let is_suspended = |it: &Process| match it.name.as_str() {
                "agent-guard" => it.state == 'S',
                _ => it.state == 'T' || waits(it),
            };
            alive.iter().all(is_suspended).then_some(())
        });
        let started = || fs_err::read_to_string(scene.file("runs")).unwrap().len();
        let before = started();
        let _time = poll_until(Duration::from_millis(200), || None::<()>);
        assert_eq!(started(), before, "an agent ran during the suspension");
        terminal.send("fg\r");
        wait_for("rlm in the foreground", LONG, || {
            (terminal.foreground() != Some(shell.pid())).then_some(())
        });
    }
    fs_err::write(scene.file("end"), "").unwrap();
    wait_for("the end of the run", LONG, || {
        (terminal.foreground() == Some(shell.pid())).then_some(())
    });
    terminal.send("exit\r");
    shell.wait(LONG);
    scene.expect_nothing_alive();
    assert!(!scene.file("twice").exists(), "two agents at a time");
}
