//! The status of a live run in all commands, and the view of attached terminals.

use std::os::unix::fs::PermissionsExt;

use rlm_tests::wait_for;
use rustix::process::Signal;

use crate::LONG;
use crate::scene::{Scene, json, says, text};

fn now(scene: &Scene) -> String {
    text(&scene.status()["now"])
}

/// Returns the line of `rlm ps` for the only run.
fn listed(scene: &Scene) -> String {
    scene.rlm(&["ps"]).run(LONG).expect_code(0).stdout
}

#[test]
fn x113i_suspended_run_is_not_reported_as_working() {
    let scene = Scene::new("print ready\nhang");
    let running = scene.ready(&["--once", "--run-id", "r1"]);
    assert!(now(&scene).starts_with("the agent works, for "));
    running.signal(Signal::STOP);
    let trouble = "is suspended";
    let alive = || scene.rlm(&["status", "r1", "--alive"]).run(LONG);
    let hung = alive().expect_code(1);
    let whole = scene.rlm(&["status", "r1"]).run(LONG).expect_code(0).stdout;
    let list = scene.rlm(&["status"]).run(LONG).expect_code(0).stdout;
    for told in [hung.stderr, whole, list, listed(&scene), now(&scene)] {
        assert!(told.contains(trouble), "{told}");
        assert!(!told.contains("the agent works"), "{told}");
    }
    let next = text(&scene.status()["next"]);
    // The command works as printed.
    let (shell, kill) = next.split_once(", or: ").unwrap();
    assert_eq!(shell, "`fg` in its shell", "{next}");
    assert_eq!(kill, format!("kill -CONT {}", running.pid()), "{next}");
    let steered = scene
        .rlm(&["steer", "r1", "use tabs"])
        .run(LONG)
        .expect_code(1);
    assert!(steered.stderr.contains(&next), "{steered}");
    let continues = scene.sandbox.rlm("/bin/sh").args(["-c", kill]);
    continues.run(LONG).expect_code(0);
    wait_for("the run to respond again", LONG, || {
        now(&scene).starts_with("the agent works").then_some(())
    });
    alive().expect_code(0);
    assert!(!listed(&scene).contains(trouble));
}

#[test]
fn s19d_status_names_required_check_check_and_commit() {
    let scene = Scene::new("append work {start}");
    scene.sandbox.git(&["config", "user.name", "A. Tester"]);
    let mail = ["config", "user.email", "tester@localhost"];
    scene.sandbox.git(&mail);
    let signs = scene.agent.folder().to_owned();
    let (at, go) = (
        |name: &str| signs.join(name),
        |name: &str| signs.join(format!("{name}-go")),
    );
    let waits = |name: &str| {
        let (at, go) = (at(name), go(name));
        let (at, go) = (at.display(), go.display());
        format!("touch '{at}'; while ! test -e '{go}'; do sleep 0.02; done")
    };
    let hook = scene.file(".git/hooks/pre-commit");
    fs_err::create_dir_all(hook.parent().unwrap()).unwrap();
    fs_err::write(&hook, format!("#!/bin/sh\n{}\n", waits("hook"))).unwrap();
    fs_err::set_permissions(&hook, PermissionsExt::from_mode(0o755)).unwrap();
    let (gate, check) = (waits("gate"), waits("check"));
    let arguments = ["--commit", "--gate", &gate, "--until", &check];
    let running = scene.run(&arguments).spawn();
    for (name, words) in [
        ("gate", "required check 1 runs: touch"),
        ("check", "the check runs: touch"),
        ("hook", "finishes the iteration and commits"),
    ] {
        wait_for(name, LONG, || at(name).exists().then_some(()));
        wait_for(format_args!("{words}: {}", now(&scene)), LONG, || {
            now(&scene).starts_with(words).then_some(())
        });
        assert!(listed(&scene).contains(&words[..12]), "{}", listed(&scene));
        fs_err::write(go(name), "").unwrap();
    }
    running.wait(LONG).expect_code(0);
}

#[test]
fn x109a_remote_steer_is_shown_to_viewers() {
    let scene = Scene::new("say ready\nhang\nturn\nsay on\nhang");
    let told = scene.claude(&["--once", "--detach"]).run(LONG);
    told.expect_code(0);
    scene.wait_until_recorded("ready");
    let (one, here) = scene.rlm(&["attach"]).spawn_on_terminal();
    let (other, there) = scene.rlm(&["attach"]).spawn_on_terminal();
    for terminal in [&here, &there] {
        terminal.sees("ready", LONG);
    }
    let steer = ["steer", "use tabs\nnot spaces"];
    scene.rlm(&steer).run(LONG).expect_code(0);
    for terminal in [&here, &there] {
        terminal.sees("you: use tabs (and 1 more", LONG);
    }
    here.send("/steer mind the docs\r");
    for terminal in [&here, &there] {
        terminal.sees("you: mind the docs", LONG);
        terminal.sees("steer 2: ", LONG);
    }
    // The terminal of the sender has shown the message before.
    assert_eq!(here.scrolled().matches("mind the docs").count(), 1);
    // JSON output has all of it.
    let lines = scene.rlm(&["attach", "--json"]).spawn();
    wait_for("the event", LONG, || {
        let said = lines.stdout().lines().any(|line| {
            let event = json(line);
            event["event"] == "steer_sent" && event["text"] == "use tabs\nnot spaces"
        });
        said.then_some(())
    });
    for looks in [one, other, lines] {
        drop(looks);
    }
    scene.rlm(&["stop"]).run(LONG).expect_code(0);
}

/// An interrupt ends a viewer without a menu, as it ends any program. The run continues.
#[test]
fn viewer_without_menu_dies_by_signal() {
    let scene = Scene::new("print ready\nhang");
    let mut running = scene.run(&["--once"]).spawn();
    says(&mut running, "ready");
    let help = scene.rlm(&["attach", "--help"]).run(LONG).stdout;
    assert!(
        help.contains("130 detached by Ctrl-C without a menu"),
        "{help}"
    );
    let (looks, terminal) = scene.rlm(&["attach", "--no-input"]).spawn_on_terminal();
    terminal.sees("ready", LONG);
    terminal.send("\x03");
    looks.wait(LONG).expect_signal(Signal::INT);
    terminal.sees("detached; run", LONG);
    assert_eq!(scene.status()["state"], "running");
}

/// The viewer waits for a run that does not respond. A signal ends the viewer without a detach.
#[cfg(target_os = "linux")]
#[test]
fn waiting_viewer_can_leave_suspended_run() {
    let scene = Scene::new("print ready\nhang");
    let running = scene.ready(&["--once"]);
    running.signal(Signal::STOP);
    for press in [Signal::INT, Signal::TERM, Signal::HUP] {
        let looks = scene.rlm(&["attach"]).spawn();
        crate::scene::wait_until_caught(&looks, press);
        looks.signal(press);
        looks.wait(LONG).expect_signal(press);
    }
    let unseen = scene.rlm(&["attach"]).run(LONG).expect_code(1);
    assert!(unseen.stderr.contains("is suspended"), "{unseen}");
    // The error mentions no request, because there was none.
    assert!(!unseen.stderr.contains("the request"), "{unseen}");
    running.signal(Signal::CONT);
    scene.rlm(&["stop"]).run(LONG).expect_code(0);
    running.wait(LONG).expect_code(7);
}

/// A viewer that ^Z suspended reads no output, so the run closes the connection. After `fg` the viewer connects again.
#[cfg(target_os = "linux")]
#[test]
fn x126a_connection_given_up_by_stop_is_retried() {
    let scene = Scene::new("print ready\nawait go\nflood 4M\nprint behind\nawait end\nprint late");
    let mut running = scene.run(&["--once"]).spawn();
    says(&mut running, "ready");
    let watched = format!("/proc/{}/fd", running.pid());
    let sockets = || {
        let all = fs_err::read_dir(&watched).unwrap();
        let links = all.filter_map(|it| std::fs::read_link(it.ok()?.path()).ok());
        links
            .filter(|link| link.to_string_lossy().starts_with("socket:"))
            .count()
    };
    let alone = sockets();
    let (shell, terminal) = scene.sandbox.shell().spawn_on_terminal();
    terminal.sees("$ ", LONG);
    terminal.send(format!("{} attach\r", crate::RLM));
    terminal.sees("ready", LONG);
    assert!(sockets() > alone);
    terminal.send("\x1a");
    let stopped = terminal.wait_text("Stopped", 0, LONG);
    fs_err::write(scene.file("go"), "").unwrap();
    wait_for("the end of its connection", LONG, || {
        (sockets() <= alone).then_some(())
    });
    // A flooded viewer may miss lines, so the transcript shows the end.
    scene.wait_until_recorded("behind");
    terminal.send("fg\r");
    terminal.wait_text("attached to run", stopped, LONG);
    fs_err::write(scene.file("end"), "").unwrap();
    terminal.sees("late", LONG);
    running.wait(LONG).expect_code(0);
    terminal.sees("$ ", LONG);
    assert_eq!(terminal.scrolled().matches("│ late").count(), 1);
    drop(shell);
}

/// Changes to files that git reported before also count as progress.
#[test]
fn additional_uncommitted_files_count_as_progress() {
    let nothing = |script: &str| {
        let scene = Scene::new(script);
        let arguments = ["-n", "2", "--json"];
        let ended = scene.claude(&arguments).run(LONG).expect_code(0);
        ended.stdout.contains("no_progress")
    };
    assert!(nothing("say I think"));
    assert!(!nothing("append work more\nsay I wrote"));
    let inside = "@1 run mkdir new\n@1 append new/work x\n@2.. append new/work more\nsay on";
    assert!(!nothing(inside));
}
