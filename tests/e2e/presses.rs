//! Signals and presses that come twice, are ignored, or come from a terminal.

use std::time::{Duration, Instant};

use rlm_tests::{Running, Terminal, poll_until, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use crate::scene::{STUBBORN_TREE, Scene, says, stop, until_ready};
use crate::{LONG, RLM};

/// Waits until the debounce has passed.
pub(crate) fn pause() {
    assert!(poll_until(Duration::from_millis(100), || None::<()>).is_none());
}

/// Sends two signals with more time between them than the debounce.
fn twice(running: &Running, first: Signal, second: Signal) {
    running.signal(first);
    pause();
    running.signal(second);
}

#[test]
fn j33a_j47b_c72_a_second_press_ends_the_process_at_once() {
    let scene = Scene::new(STUBBORN_TREE);
    // The stop would take much longer than the test.
    let mut run = until_ready(scene.run(&["--once"]).env("RLM_SHUTDOWN_TIMEOUT", "600s"));
    run.signal(Signal::INT);
    says(&mut run, "stopping:");
    pause();
    run.signal(Signal::INT);
    let ended = run.wait(LONG).expect_signal(Signal::INT);
    assert!(
        !ended.stdout.contains("left; "),
        "the run did not end in the ordinary way: {ended}"
    );
    assert!(ended.stderr.contains("stopped immediately"), "{ended}");
    scene.wait_until_nothing_is_alive();
    let status = scene.status();
    assert_eq!(
        (&status["iteration"], &status["iterations_complete"]),
        (&1.into(), &0.into())
    );
    let reason = status["reason"].as_str().unwrap();
    assert!(reason.contains("by a person, immediately"), "{reason}");
    scene.agent.set_script("print turn {start}");
    scene.rlm(&["resume"]).run(LONG).expect_code(0);
    assert_eq!(scene.start_count(), 2);
}

#[test]
fn j33b_a_second_sigterm_is_no_press() {
    let scene = Scene::new("ignore INT\nprint ready\nhang");
    let running = until_ready(scene.run(&["--once"]).env("RLM_SHUTDOWN_TIMEOUT", "3s"));
    twice(&running, Signal::TERM, Signal::TERM);
    let ended = running.wait(LONG).expect_signal(Signal::TERM);
    assert!(
        ended
            .stdout
            .contains("stopped by SIGTERM; all processes ended"),
        "{ended}"
    );
}

#[test]
fn w20_stop_budget_comes_from_the_layer_with_precedence() {
    let cases: [(&[&str], Option<&str>, &str); 3] = [
        (&[], None, "up to 3s"),
        (&[], Some("2s"), "up to 2s"),
        (&["--shutdown-timeout", "1s"], Some("2s"), "up to 1s"),
    ];
    for (options, variable, words) in cases {
        let scene = Scene::new("print ready\nhang");
        fs_err::write(scene.file("rlm.toml"), "shutdown-timeout = '3s'\n").unwrap();
        let mut run = scene.run(&[&["--once"], options].concat());
        if let Some(variable) = variable {
            run = run.env("RLM_SHUTDOWN_TIMEOUT", variable);
        }
        let ended = stop(until_ready(run), Signal::TERM);
        assert!(ended.stdout.contains(words), "{words}: {ended}");
        // A resume reads the setting again.
        let starts = scene.start_count();
        let resumed = scene.rlm(&["resume"]).spawn();
        scene.wait_until_started(starts + 1);
        let ended = stop(resumed, Signal::TERM);
        assert!(ended.stdout.contains("up to 3s"), "{ended}");
    }
}

/// With the default debounce, the second signal would end the process at once.
#[test]
fn w20_debounce_of_the_file_makes_two_presses_one() {
    let scene = Scene::new(STUBBORN_TREE);
    fs_err::write(scene.file("rlm.toml"), "debounce = '1s'\n").unwrap();
    let mut run = until_ready(scene.run(&["--once"]).env("RLM_SHUTDOWN_TIMEOUT", "600s"));
    let began = Instant::now();
    twice(&run, Signal::INT, Signal::INT);
    let is_one = began.elapsed() < Duration::from_millis(900);
    says(&mut run, "stopping:");
    pause();
    // On a busy machine the signals may come further apart, and then they are two presses.
    assert!(!is_one || !run.has_ended(), "{}", run.stdout());
    if is_one {
        let debounce = Duration::from_millis(1_200);
        wait_for("the end of the debounce", LONG, || {
            (began.elapsed() > debounce).then_some(())
        });
        run.signal(Signal::INT);
    }
    let ended = run.wait(LONG).expect_signal(Signal::INT);
    assert!(ended.stderr.contains("stopped immediately"), "{ended}");
    scene.wait_until_nothing_is_alive();
}

#[test]
fn j41d_a_shutdown_timeout_of_zero_ends_at_once() {
    let scene = Scene::new(STUBBORN_TREE);
    let running = until_ready(scene.run(&["--once"]).env("RLM_SHUTDOWN_TIMEOUT", "0"));
    let ended = stop(running, Signal::TERM);
    assert!(ended.stderr.contains("stopped immediately"), "{ended}");
    scene.wait_until_nothing_is_alive();
}

#[test]
fn j41d_a_stop_by_another_process_has_the_same_deadline() {
    let scene = Scene::new(STUBBORN_TREE);
    let running = until_ready(scene.run(&["--once"]).env("RLM_SHUTDOWN_TIMEOUT", "0"));
    scene.rlm(&["stop"]).run(LONG);
    let ended = running.wait(LONG).expect_code(7);
    assert!(ended.stderr.contains("stopped immediately"), "{ended}");
    scene.wait_until_nothing_is_alive();
}

#[test]
fn j42d_signals_that_were_ignored_at_the_start_stay_ignored() {
    for (name, signal) in [("HUP", Signal::HUP), ("INT", Signal::INT)] {
        let scene = Scene::new("print ready\nawait go");
        let argv = scene.agent.argv();
        let shell = scene.sandbox.rlm("/bin/sh").args([
            "-c",
            &format!("trap '' {name}; exec \"$@\""),
            "sh",
            RLM,
        ]);
        let mut running = until_ready(shell.args(["run", "-p", "x", "--once", "--"]).args(argv));
        for _ in 0..3 {
            twice(&running, signal, signal);
        }
        assert!(
            !running.has_ended() && !running.stdout().contains("stopping"),
            "{}",
            running.stdout()
        );
        fs_err::write(scene.file("go"), "").unwrap();
        running.wait(LONG).expect_code(0);
    }
}

#[test]
fn j42b_sigquit_ends_at_once_without_a_core_file() {
    let scene = Scene::new(STUBBORN_TREE);
    // The limit allows a core file, so that its absence proves something.
    let allowed = "ulimit -c unlimited && exec \"$@\"";
    let shell = scene.sandbox.rlm("/bin/sh");
    let shell = shell.args(["-c", allowed, "sh", RLM, "run", "-p", "x", "--once", "--"]);
    let run = shell.args(scene.agent.argv());
    let running = until_ready(run.env("RLM_SHUTDOWN_TIMEOUT", "600s"));
    let ended = stop(running, Signal::QUIT);
    assert!(!ended.stdout.contains("stopping"), "{ended}");
    assert!(!ended.core_dumped(), "{ended}");
    scene.wait_until_nothing_is_alive();
    assert_eq!(scene.status()["state"], "crashed");
}

/// Whether a signal of the process is pending.
fn is_pending(process: i32, signal: Signal) -> bool {
    let status = fs_err::read_to_string(format!("/proc/{process}/status")).unwrap();
    let masks = status.lines().filter_map(|line| {
        line.strip_prefix("ShdPnd:")
            .or(line.strip_prefix("SigPnd:"))
    });
    let mut masks = masks.map(|mask| u64::from_str_radix(mask.trim(), 16).unwrap());
    masks.any(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}

#[test]
fn j46_agent_gets_signals_only_from_rlm() {
    let scene = Scene::new("ignore USR2\nchild plain ignore USR2\nhang");
    let (running, terminal) = scene.run(&["--once", "--no-input"]).spawn_on_terminal();
    wait_for("the child", LONG, || scene.agent.children().pop());
    let (agent, child) = (scene.agent.starts()[0].pid, scene.agent.children()[0].pid);
    running.signal(Signal::STOP);
    wait_for("the stop", LONG, || {
        let mut alive = scene.alive().into_iter();
        alive.find(|process| process.pid == running.pid() && process.state == 'T')
    });
    terminal.send(b"\x03");
    wait_for("the terminal's signal", LONG, || {
        is_pending(running.pid(), Signal::INT).then_some(())
    });
    // Signals from the terminal would arrive before this one.
    for target in [agent, child] {
        kill_process(Pid::from_raw(target).unwrap(), Signal::USR2).unwrap();
    }
    wait_for("the second signals", LONG, || {
        (scene.agent.signals().len() >= 2).then_some(())
    });
    assert!(
        scene.agent.signals().iter().all(|got| got.signal == "USR2"),
        "{:?}",
        scene.agent.signals()
    );
    running.signal(Signal::CONT);
    running.wait(LONG).expect_signal(Signal::INT);
    let got = |who| {
        scene
            .agent
            .signals()
            .into_iter()
            .filter(move |got| got.pid == who)
            .map(|got| got.signal)
            .collect::<Vec<_>>()
    };
    assert_eq!(got(agent), ["USR2", "INT"]);
    scene.expect_nothing_alive();
}

#[test]
fn terminal_is_restored_at_the_end() {
    let show = |terminal: &Terminal| format!("{:?}", terminal.settings());
    for presses in 1..=2 {
        let scene = Scene::new(if presses == 1 {
            "print ready\nhang"
        } else {
            STUBBORN_TREE
        });
        let run = scene.run(&["--once", "--no-input"]);
        let run = run.env("RLM_SHUTDOWN_TIMEOUT", "600s");
        let (running, terminal) = run.spawn_on_terminal();
        let before = show(&terminal);
        terminal.wait_text("ready", 0, LONG);
        terminal.send(b"\x03");
        if presses == 2 {
            terminal.wait_text("stopping:", 0, LONG);
            pause();
            terminal.send(b"\x03");
        }
        running.wait(LONG).expect_signal(Signal::INT);
        assert_eq!(show(&terminal), before);
        scene.wait_until_nothing_is_alive();
    }
}

#[test]
fn shell_script_stops_with_its_stopped_run() {
    let scene = Scene::new("print ready\nhang");
    let script = r#"for i in 1 2 3; do "$@"; echo "next $i"; done"#;
    let argv = scene.agent.argv();
    let shell = scene
        .sandbox
        .rlm("/bin/bash")
        .args(["-c", script, "bash", RLM]);
    let (running, terminal) = shell
        .args(["run", "-p", "x", "--once", "--"])
        .args(argv)
        .spawn_on_terminal();
    terminal.wait_text("│", 0, LONG);
    terminal.wait_text("ready", terminal.text().find('│').unwrap(), LONG);
    terminal.send(b"\x03");
    terminal.sees("save and exit", LONG);
    pause();
    terminal.send(b"\x03");
    running.wait(LONG).expect_signal(Signal::INT);
    assert_eq!(scene.start_count(), 1);
    assert!(!terminal.text().contains("next 1"), "{}", terminal.text());
    scene.expect_nothing_alive();
}
