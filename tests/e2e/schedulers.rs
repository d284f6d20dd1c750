//! Runs that other programs start: repeatedly, in a container, or with a minimal environment.

use std::process::Command;
use std::time::Duration;

use fs_err as fs;
use rlm_tests::{Ended, Rlm, Running, poll_until, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::scene::{HANGS_IN_THE_THIRD, PROMPT, Scene, TREE, crash, expect_in_order, says, stop};
use crate::{LONG, RLM};

/// The arguments of a scheduler.
const JOB: [&str; 3] = ["--resume-or-start", "--run-id", "job"];

/// Prepares `rlm run --resume-or-start --run-id job ARGUMENTS`.
fn job<'a>(scene: &'a Scene, arguments: &[&str]) -> Rlm<'a> {
    scene.run(&[&JOB, arguments].concat())
}

fn beat(scene: &Scene) -> Option<Value> {
    let text = fs::read_to_string(scene.file(".rlm/heartbeat")).ok()?;
    Some(serde_json::from_str(&text).expect("a reader sees the whole file"))
}

#[test]
fn x113a_x113e_second_start_of_live_run_ends_at_once_without_changes() {
    let scene = Scene::new("print ready\nhang");
    let mut running = job(&scene, &["--once"]).spawn();
    says(&mut running, "ready");
    let state = |scene: &Scene| {
        let mut status = scene.status();
        status
            .as_object_mut()
            .unwrap()
            .retain(|key, _| !key.starts_with("age") && key != "now"); // both have the time
        status
    };
    let before = state(&scene);
    for more in [&["--once"][..], &["-n", "9"], &["--once", "--detach"]] {
        let held = job(&scene, more).run(LONG).expect_code(9);
        assert!(held.stderr.contains("is live"), "{held}");
    }
    assert_eq!(state(&scene), before);
    assert_eq!(scene.start_count(), 1);
    stop(running, Signal::TERM);
}

#[test]
fn x113a_x113e_start_of_ended_run_reports_its_end_and_starts_no_agent() {
    let cases: [(&str, &[&str], i32, &str); 4] = [
        ("print hi", &["-n", "1"], 0, "planned"),
        (
            "print hi",
            &["-n", "5", "--until", "true"],
            0,
            "done: the check passed",
        ),
        (
            "print hi",
            &["-n", "1", "--until", "false"],
            3,
            "iteration limit",
        ),
        ("exit 1", &["-n", "9", "--max-failures", "2"], 6, "stuck"),
    ];
    for (script, arguments, code, reason) in cases {
        let scene = Scene::new(script);
        job(&scene, arguments).run(LONG).expect_code(code);
        let (starts, before) = (scene.start_count(), scene.status());
        for more in [&[][..], &["--detach"], &["--json"]] {
            let again = job(&scene, &[arguments, more].concat());
            let again = again.run(LONG).expect_code(code);
            assert!(again.stdout.contains(reason), "{again}");
            if more == ["--json"] {
                let event: Value = serde_json::from_str(again.stdout.trim()).unwrap();
                assert_eq!(
                    (&event["event"], &event["exit_code"]),
                    (&"run_ended".into(), &code.into())
                );
            }
        }
        assert_eq!(scene.start_count(), starts);
        assert_eq!(scene.status()["saved_at"], before["saved_at"]);
        assert_eq!(scene.status()["attempt"], before["attempt"]);
    }
}

#[test]
fn x113a_higher_limit_continues_an_ended_run_but_not_a_finished_one() {
    let scene = Scene::new("print hi\n@3 touch done");
    let until = ["--until", "test -e done"];
    job(&scene, &[&["-n", "2"][..], &until].concat())
        .run(LONG)
        .expect_code(3);
    job(&scene, &[&["-n", "4"][..], &until].concat())
        .run(LONG)
        .expect_code(0);
    assert_eq!(scene.start_count(), 3);
    job(&scene, &[&["-n", "9"][..], &until].concat())
        .run(LONG)
        .expect_code(0);
    assert_eq!(scene.start_count(), 3);
}

#[test]
fn x113a_x113b_unfinished_iteration_is_resumed() {
    for signal in [Signal::TERM, Signal::HUP, Signal::KILL] {
        let scene = Scene::new(HANGS_IN_THE_THIRD);
        let until = ["--until", "test -e done"];
        let mut running = job(&scene, &until).spawn();
        says(&mut running, "ready");
        stop(running, signal);
        let again = job(&scene, &until).run(LONG).expect_code(0);
        expect_in_order(
            &again.stdout,
            &["resuming run job at iteration 3", "iteration 3, attempt 2"],
        );
        assert_eq!(scene.status()["run"], "job");
    }
    // After a stop by a person, the scheduler's command does not continue the run.
    let scene = Scene::new("print ready\nhang");
    let mut running = job(&scene, &["--once"]).spawn();
    says(&mut running, "ready");
    scene.rlm(&["stop", "job"]).run(LONG).expect_code(0);
    running.wait(LONG).expect_code(7);
    let refused = job(&scene, &["--once"]).run(LONG).expect_code(7);
    assert!(refused.stderr.contains("stopped by a person"), "{refused}");
    assert_eq!(scene.start_count(), 1);
}

#[test]
fn x113d_heartbeat_follows_the_run_through_long_required_checks() {
    let scene = Scene::new("print turn {start}");
    let gate = "touch gating; while [ ! -e go ]; do sleep 0.05; done";
    let run = ["--once", "--heartbeat", ".rlm/heartbeat", "--gate", gate];
    let running = job(&scene, &run).spawn();
    scene.wait_for_file("gating");
    let first = wait_for("the required check in the heartbeat", LONG, || {
        beat(&scene).filter(|beat| beat["doing"] == "gate")
    });
    assert_eq!(
        (&first["run"], &first["state"]),
        (&"job".into(), &"running".into())
    );
    assert_eq!(
        (&first["iteration"], &first["pid"]),
        (&1.into(), &running.pid().into())
    );
    // Heartbeats continue although nothing happens.
    wait_for("another heartbeat", LONG, || {
        beat(&scene).filter(|beat| beat["at"] != first["at"])
    });
    fs::write(scene.file("go"), "").unwrap();
    running.wait(LONG).expect_code(0);
    let last = beat(&scene).unwrap();
    assert_eq!(last["state"], "ended");
    assert!(
        last["reason"]
            .as_str()
            .unwrap()
            .starts_with("finished: all planned")
    );
    let left = fs::read_dir(scene.file(".rlm")).unwrap();
    let left: Vec<_> = left.map(|it| it.unwrap().file_name()).collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().ends_with(".new")),
        "{left:?}"
    );
}

/// The control for the heartbeat: a suspended process writes none.
#[test]
fn x113d_x113i_control_suspended_run_writes_no_heartbeat() {
    let scene = Scene::new("print ready\nhang");
    let mut running = job(&scene, &["--once", "--heartbeat", ".rlm/heartbeat"]).spawn();
    says(&mut running, "ready");
    let alive = || scene.rlm(&["status", "job", "--alive"]).run(LONG);
    alive().expect_code(0);
    running.signal(Signal::STOP);
    let before = beat(&scene).unwrap();
    let hung = alive().expect_code(1);
    assert!(hung.stderr.contains("is suspended"), "{hung}");
    // Longer than the ten seconds between two heartbeats.
    let next = poll_until(Duration::from_secs(12), || {
        (beat(&scene)? != before).then_some(())
    });
    assert!(next.is_none(), "{:?}", beat(&scene));
    running.signal(Signal::CONT);
    wait_for("status --alive to pass", LONG, || {
        (alive().code() == Some(0)).then_some(())
    });
    crash(running);
    // The time in the remaining heartbeat shows that the heartbeat is stale. No process works on the run.
    assert_eq!(beat(&scene).unwrap()["state"], "running");
    wait_for("status --alive to fail", LONG, || {
        (alive().code() == Some(1)).then_some(())
    });
    let none = scene.rlm(&["status", "nobody", "--alive"]).run(LONG);
    none.expect_code(10);
}

#[test]
fn x113d_unwritable_heartbeat_causes_one_warning() {
    let scene = Scene::new("print hi");
    let run = ["-n", "3", "--heartbeat", "none/heartbeat"];
    let ended = scene.run(&run).run(LONG).expect_code(0);
    let warnings = ended.stdout.matches("can't write the heartbeat");
    assert_eq!(warnings.count(), 1, "{ended}");
    // Not `/dev/null`: a loop that overwrote it would damage the machine.
    let pipe = scene.file("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    let ended = scene.run(&["--once", "--heartbeat", "pipe"]);
    let ended = ended.run(LONG).expect_code(0);
    assert!(
        ended.stdout.contains("pipe` is not a regular file"),
        "{ended}"
    );
}

/// Prepares `sh -c 'exec "$@" REDIRECTIONS' sh rlm run …`.
fn redirected<'a>(scene: &'a Scene, redirections: &str) -> Rlm<'a> {
    let shell = format!("exec \"$@\" {redirections}");
    let run = scene.sandbox.rlm("/bin/sh").args(["-c", &shell, "sh", RLM]);
    let run = run.args(["run", "--once", "--prompt", PROMPT]).args(JOB);
    run.args(["--"]).args(scene.agent.argv())
}

#[test]
fn x113f_run_needs_no_terminal_no_home_and_no_reader() {
    for redirections in [
        "<&-",
        ">&-",
        "2>&-",
        "<&- >&- 2>&-",
        "< /dev/null > /dev/full 2> /dev/full",
        "| true",
        "| sleep 600",
    ] {
        let scene = Scene::new("print {start}\nflood 300000\nprint end");
        let ended = match redirections.contains('|') {
            false => redirected(&scene, redirections).run(LONG),
            true => {
                let shell = format!("\"$@\" {redirections}");
                let run = scene.sandbox.rlm("/bin/sh").args(["-c", &shell, "sh", RLM]);
                let run = run.args(["run", "--once", "--prompt", PROMPT]).args(JOB);
                let running = run.args(["--"]).args(scene.agent.argv()).spawn();
                wait_for(redirections, LONG, || {
                    let status = scene.statuses();
                    let complete = status.first().map(|it| it["iterations_complete"].clone());
                    (complete == Some(1.into())).then_some(())
                });
                drop(running);
                continue;
            }
        };
        // Lost output is a failure, and the run continues to its end.
        let code = i32::from(redirections.contains("full"));
        assert_eq!(ended.code(), Some(code), "{redirections}: {ended}");
        assert_eq!(scene.status()["iterations_complete"], 1, "{redirections}");
    }
    for home in [None, Some("/nonexistent"), Some("")] {
        let scene = Scene::new("print hi");
        let shell = match home {
            None => {
                "unset HOME XDG_CONFIG_HOME XDG_STATE_HOME XDG_RUNTIME_DIR; exec \"$@\"".to_owned()
            }
            Some(home) => format!(
                "export HOME={home}; unset XDG_CONFIG_HOME XDG_STATE_HOME XDG_RUNTIME_DIR; exec \"$@\""
            ),
        };
        let run = scene
            .sandbox
            .rlm("/bin/sh")
            .args(["-c", &shell, "sh", RLM, "run", "--once"]);
        let run = run
            .args(["--prompt", PROMPT, "--"])
            .args(scene.agent.argv());
        run.run(LONG).expect_code(0);
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Prepares `rlm ARGUMENTS` as a user without a name.
fn nobody<'a>(scene: &'a Scene, arguments: &[&str]) -> Rlm<'a> {
    let who = [
        "--reuid",
        "54321",
        "--regid",
        "54321",
        "--clear-groups",
        "--",
        RLM,
    ];
    let run = scene.sandbox.rlm("setpriv").args(who);
    run.args(arguments).env("HOME", "/nonexistent")
}

#[test]
fn x113f_nameless_user_can_run_and_foreign_repository_is_refused_with_hint() {
    let has_setpriv = Command::new("setpriv").arg("--version").output().is_ok();
    if !is_root() || !has_setpriv {
        return println!("skipped: only root can act as another user");
    }
    let scene = Scene::new("print hi");
    let run = [
        "run",
        "--once",
        "-p",
        "x",
        "--commit",
        "--",
        "sh",
        "-c",
        "echo a > work",
    ];
    let refused = nobody(&scene, &run).run(LONG).expect_code(2);
    assert!(
        refused.stderr.contains("belongs to another user")
            && refused.stderr.contains("safe.directory"),
        "{refused}"
    );
    assert_eq!(refused.stderr.lines().count(), 1, "{refused}");
    assert!(!scene.file(".rlm").exists());
    let all = scene.sandbox.path();
    let owner = scene.sandbox.rlm("chown").args(["-R", "54321:54321"]);
    owner.args([all]).run(LONG).expect_code(0);
    // With trust only from the environment, as in the examples, it also works for root.
    let trust = scene.rlm(&["status"]).run(LONG).expect_code(2);
    assert!(trust.stderr.contains("safe.directory"), "{trust}");
    let place = scene.sandbox.repo();
    let trust = scene.rlm(&["ps"]).env("GIT_CONFIG_COUNT", "1");
    let trust = trust
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", place);
    trust.run(LONG).expect_code(0);
    let run = ["run", "--once", "-p", "x", "--", "id", "-u"];
    let ended = nobody(&scene, &run).run(LONG).expect_code(0);
    assert!(ended.stdout.contains("54321"), "{ended}");
}

const CONTAINER: [&str; 5] = ["--pid", "--mount", "--fork", "--mount-proc", "--kill-child"];

fn has_containers() -> bool {
    let status = Command::new("unshare").args(CONTAINER).arg("true").status();
    status.is_ok_and(|status| status.success())
}

/// Returns the command and the environment of the container example.
fn recipe(scene: &Scene) -> (Vec<String>, Vec<(String, String)>) {
    let place = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/schedulers/Dockerfile");
    let text = fs::read_to_string(place).unwrap();
    let (mut line, mut environment) = (Vec::new(), Vec::new());
    for (what, rest) in text.lines().filter_map(|line| line.split_once(' ')) {
        match what {
            "ENTRYPOINT" | "CMD" => line.extend(serde_json::from_str::<Vec<String>>(rest).unwrap()),
            "ENV" => environment.extend(rest.split(' ').map(|pair| {
                let (name, value) = pair.split_once('=').unwrap();
                let here = scene.sandbox.repo().display().to_string();
                (name.to_owned(), value.replace("/project", &here))
            })),
            _ => {}
        }
    }
    (line, environment)
}

/// Runs the container example as PID 1: its root is read-only except the project and `/tmp`, and it has no home.
fn contained(scene: &Scene) -> Running {
    let (line, environment) = recipe(scene);
    let bin = scene.sandbox.path().join("bin");
    if !bin.exists() {
        fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(RLM, bin.join("rlm")).unwrap();
    }
    let project = scene.sandbox.repo().display().to_string();
    let records = scene.sandbox.path().join("agent").display().to_string();
    let mount = "for at in \"$0\" \"$1\"; do mount --bind \"$at\" \"$at\" || exit 99; done; \
        mount -o remount,bind,ro / || exit 99; shift; cd \"$0\" || exit 99; exec \"$@\"";
    let container = scene.sandbox.rlm("unshare").args(CONTAINER);
    let container = container
        .args(["sh", "-c", mount, &project, &records])
        .args(&line);
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let container = container.env("PATH", path).env("HOME", "/nonexistent");
    let container = container
        .env("XDG_STATE_HOME", "")
        .env("XDG_CONFIG_HOME", "")
        .env("XDG_RUNTIME_DIR", "");
    let pairs = environment.into_iter();
    pairs
        .fold(container, |run, (name, value)| run.env(name, value))
        .spawn()
}

fn settings(scene: &Scene, until: &str) {
    let words: Vec<String> = { scene.agent.argv().into_iter() }
        .map(|word| format!("{:?}", word.to_string_lossy()))
        .collect();
    let file = format!(
        "command = [{}]\nuntil = '{until}'\nprompt = 'x'\nsleep = 0\n",
        words.join(", ")
    );
    fs::write(scene.file("rlm.toml"), file).unwrap();
}

/// Ends PID 1 of the container from outside, as a container engine does.
fn end(running: Running, scene: &Scene, signal: Signal) -> Ended {
    let mut processes = scene.alive().into_iter();
    let init = processes
        .find(|it| it.ppid == running.pid())
        .expect("a PID 1");
    kill_process(Pid::from_raw(init.pid).unwrap(), signal).unwrap();
    running.wait(LONG)
}

#[test]
fn x113b_x113c_run_of_a_stopped_container_continues_in_the_next() {
    if !has_containers() || !is_root() {
        return println!("skipped: no containers here");
    }
    let scene = Scene::new(TREE);
    settings(&scene, "test -e done");
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut running = contained(&scene);
        says(&mut running, "ready");
        let ended = end(running, &scene, signal).expect_code(code);
        expect_in_order(&ended.stdout, &["stopped", "all processes ended"]);
        scene.expect_nothing_alive();
        assert_eq!(beat(&scene).unwrap()["state"], "ended");
        assert_eq!(scene.status()["state"], "stopped");
    }
    // A person requested the second stop.
    contained(&scene).wait(LONG).expect_code(7);
    scene.agent.set_script("print turn {start}\ntouch done");
    scene.rlm(&["resume", "job"]).run(LONG).expect_code(0);
    let done = contained(&scene).wait(LONG).expect_code(0);
    assert!(done.stdout.contains("has ended: done"), "{done}");
}

#[test]
fn x113a_x113c_run_of_a_killed_container_continues_in_the_next() {
    if !has_containers() || !is_root() {
        return println!("skipped: no containers here");
    }
    let scene = Scene::new(TREE);
    settings(&scene, "test -e done");
    let mut running = contained(&scene);
    says(&mut running, "ready");
    end(running, &scene, Signal::KILL);
    scene.wait_until_nothing_is_alive();
    assert_eq!(scene.status()["state"], "crashed");
    scene.agent.set_script("print turn {start}\ntouch done");
    let again = contained(&scene).wait(LONG).expect_code(0);
    assert!(
        again.stdout.contains("resuming run job at iteration 1"),
        "{again}"
    );
}
