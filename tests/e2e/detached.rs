//! Runs in the background: how a person starts them, finds them from any directory, attaches to them and detaches.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use rlm_tests::{Ended, Rlm, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::control::quick;
use crate::permissions::answer;
use crate::scene::{Scene, events, expect_in_order, json};
use crate::{LONG, RLM};

/// Starts a run in the background and returns its id.
fn detach(scene: &Scene, arguments: &[&str]) -> String {
    let arguments: Vec<&str> = [&["--detach"], arguments].concat();
    let told = quick(scene.run(&arguments)).expect_code(0).stdout;
    expect_in_order(
        &told,
        &[
            "ends    ",
            "is running in the background",
            "logs -f",
            "attach",
            "stop",
        ],
    );
    scene.run_id()
}

fn output(scene: &Scene) -> PathBuf {
    scene
        .file(".rlm/runs")
        .join(scene.run_id())
        .join("output.log")
}

fn wait_for_output(scene: &Scene, words: &str) -> String {
    wait_for(format_args!("{words} in the output"), LONG, || {
        let text = fs_err::read_to_string(output(scene)).unwrap_or_default();
        text.contains(words).then_some(text)
    })
}

fn wait_until_it_is(scene: &Scene, state: &str) -> Value {
    wait_for(format_args!("the run to be {state}"), LONG, || {
        Some(scene.status()).filter(|status| status["state"] == state)
    })
}

fn elsewhere<'a>(scene: &'a Scene, arguments: &[&str]) -> Rlm<'a> {
    scene.rlm(arguments).dir(scene.sandbox.path().join("tmp"))
}

fn found(ended: Ended) -> Vec<Value> {
    events(&ended.expect_code(0).stdout)
}

#[test]
fn detached_run_outlives_its_parent_and_the_terminal() {
    let scene = Scene::new("print turn {start}\nawait go");
    let (mut shell, terminal) = scene.sandbox.shell().spawn_on_terminal();
    drop(detach(&scene, &["-n", "2"]));
    wait_for_output(&scene, "turn 1");
    terminal.send("exit\r");
    drop(terminal);
    wait_for("the shell to end", LONG, || shell.has_ended().then_some(()));
    assert_eq!(scene.status()["state"], "running");
    // The run has its own session and no terminal that could send signals.
    let listed = found(quick(scene.rlm(&["ps", "--json"])));
    let stat = fs_err::read_to_string(format!("/proc/{}/stat", listed[0]["pid"])).unwrap();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    assert_eq!(fields[3], listed[0]["pid"].to_string(), "its session");
    fs_err::write(scene.file("go"), "").unwrap();
    let text = wait_for_output(&scene, "planned");
    expect_in_order(
        &text,
        &["turn 1", "turn 2", "finished: all planned iterations ran"],
    );
    assert_eq!(wait_until_it_is(&scene, "ended")["iterations_complete"], 2);
}

#[test]
fn detached_run_that_cannot_begin_reports_it_to_its_parent() {
    let scene = Scene::new("print never");
    for (arguments, code, why) in [
        (
            &["--detach", "--once", "-P", "missing.md"][..],
            2,
            "missing.md",
        ),
        (&["--detach", "-p", "x"], 2, "needs a stop condition"),
    ] {
        let refused = quick(scene.run_bare(arguments)).expect_code(code);
        assert!(refused.stderr.contains(why), "{refused}");
        assert!(!refused.stdout.contains("background"), "{refused}");
    }
    let scene = Scene::new("await go");
    drop(detach(&scene, &["--once"]));
    let held = quick(scene.run(&["--detach", "--once"])).expect_code(9);
    assert!(held.stderr.contains("pid"), "{held}");
    quick(scene.rlm(&["stop"])).expect_code(0);
    quick(scene.rlm(&["resume", "--detach"])).expect_code(0);
    wait_until_it_is(&scene, "running");
    fs_err::write(scene.file("go"), "").unwrap();
    wait_until_it_is(&scene, "ended");
}

#[test]
fn x134a_x134b_x134c_live_run_is_found_anywhere_and_index_is_repaired() {
    let (one, other) = (Scene::new("await go"), Scene::new("await go"));
    let (first, second) = (detach(&one, &["--once"]), detach(&other, &["--once"]));
    let index = one.sandbox.home().join(".local/state/rlm/runs");
    let files = || fs_err::read_dir(&index).map_or(0, |it| it.count());
    assert_eq!(files(), 1);
    // Without a name the command refers to this project.
    let nothing = quick(elsewhere(&one, &["stop"])).expect_code(10);
    assert!(nothing.stderr.contains("no live run"), "{nothing}");
    assert!(found(quick(elsewhere(&one, &["ps", "--json"]))).is_empty());
    let all = found(quick(elsewhere(&one, &["ps", "--all", "--json"])));
    assert_eq!(all.len(), 1);
    assert_eq!(all[0]["run"], *first);
    assert_eq!(all[0]["project"], *one.sandbox.repo().to_str().unwrap());
    let no_project = one.sandbox.path().join(OsStr::from_bytes(b"no-\xff"));
    fs_err::create_dir(&no_project).unwrap();
    let from_there = one.rlm(&["-C"]).args([no_project]);
    let all = found(quick(from_there.args(["ps", "--all", "--json"])));
    assert_eq!(all.len(), 1);
    // Each user has an index. The other run belongs to another user.
    let missing = quick(elsewhere(&one, &["status", &second])).expect_code(10);
    assert!(missing.stderr.contains(&second), "{missing}");
    let status = found(quick(elsewhere(&one, &["status", &first, "--json"])));
    assert_eq!(status[0]["state"], "running");
    // After the deletion of the index, a list of the project fills the index again.
    fs_err::remove_dir_all(&index).unwrap();
    quick(elsewhere(&one, &["status", &first])).expect_code(10);
    quick(one.rlm(&["ps"])).expect_code(0);
    assert_eq!(files(), 1);
    let told = quick(elsewhere(&one, &["pause", &first, "--wait", "0"])).expect_code(0);
    assert!(told.stdout.contains("recorded"), "{told}");
    let woken = quick(elsewhere(&one, &["resume", &first])).expect_code(0);
    assert!(woken.stdout.contains("continues"), "{woken}");
    // The reader of the index removes the entry of a dead process.
    let pid = all[0]["pid"].as_i64().unwrap() as i32;
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    wait_until_it_is(&one, "crashed");
    assert!(found(quick(elsewhere(&one, &["ps", "--all", "--json"]))).is_empty());
    assert_eq!(files(), 0);
    let stopped = quick(elsewhere(&other, &["stop", &second])).expect_code(0);
    expect_in_order(&stopped.stdout, &[&second, "stopped", "rlm -C"]);
    other.expect_nothing_alive();
    one.wait_until_nothing_is_alive();
}

#[test]
fn two_runs_of_one_user_do_not_interfere() {
    let scene = Scene::new("await go");
    let place = scene.sandbox.path().join("second");
    fs_err::create_dir(&place).unwrap();
    let first = detach(&scene, &["--once", "--run-id", "night"]);
    // The same name in another project.
    let second = scene.run(&["--detach", "--once", "--run-id", "night"]);
    quick(second.dir(&place)).expect_code(0);
    let all = found(quick(elsewhere(&scene, &["ps", "--all", "--json"])));
    assert_eq!(all.len(), 2, "{all:?}");
    let unclear = quick(elsewhere(&scene, &["stop", &first])).expect_code(2);
    assert!(unclear.stderr.contains("-C"), "{unclear}");
    quick(scene.rlm(&["stop", "night"]).dir(&place)).expect_code(0);
    assert_eq!(scene.status()["state"], "running");
    quick(elsewhere(&scene, &["stop", "night"])).expect_code(0);
}

#[test]
fn attach_shows_the_same_and_detach_changes_nothing() {
    let scene = Scene::new("print turn {start}\n@1 await go");
    drop(detach(&scene, &["-n", "2"]));
    wait_for_output(&scene, "turn 1");
    let watching = scene.rlm(&["attach", "--json"]).spawn();
    wait_for("the last event", LONG, || {
        watching.stdout().contains("turn 1").then_some(())
    });
    watching.signal(Signal::INT);
    let left = watching.wait(LONG).expect_signal(Signal::INT);
    assert!(left.stderr.contains("detached; run"), "{left}");
    assert_eq!(scene.status()["state"], "running");
    let watching = scene.rlm(&["attach"]).spawn();
    wait_for("the last event", LONG, || {
        watching.stdout().contains("turn 1").then_some(())
    });
    fs_err::write(scene.file("go"), "").unwrap();
    let ended = watching.wait(LONG).expect_code(0);
    expect_in_order(
        &ended.stdout,
        &[
            "attached to run",
            "turn 1",
            "iteration 2",
            "turn 2",
            "finished: all planned iterations",
        ],
    );
    let nobody = quick(scene.rlm(&["attach"])).expect_code(10);
    assert!(nobody.stderr.contains("no live run"), "{nobody}");
}

#[test]
fn attached_menu_can_stop_or_detach() {
    let scene = Scene::new("print turn {start}\nhang");
    let run = detach(&scene, &["--once"]);
    wait_for_output(&scene, "turn 1");
    let (watching, terminal) = scene.rlm(&["attach"]).spawn_on_terminal();
    terminal.sees("turn 1", LONG);
    terminal.send("\u{3}");
    terminal.sees("d  detach", LONG);
    terminal.send("d");
    watching.wait(LONG).expect_code(0);
    assert_eq!(scene.status()["state"], "running");
    let (watching, terminal) = scene.rlm(&["attach", &run]).spawn_on_terminal();
    terminal.sees("turn 1", LONG);
    terminal.send("\u{3}");
    terminal.sees("x  save and exit", LONG);
    terminal.send("x");
    watching.wait(LONG).expect_code(7);
    terminal.sees("stopped by a person", LONG);
    scene.expect_nothing_alive();
}

#[test]
fn steer_from_attached_terminal_reaches_agent() {
    let scene = Scene::new("say ready\nhang\nturn\nsay on\nturn");
    let told = scene.claude(&["--once", "--detach"]).run(LONG);
    told.expect_code(0);
    scene.wait_until_recorded("ready");
    let (watching, terminal) = scene.rlm(&["attach"]).spawn_on_terminal();
    terminal.sees("ready", LONG);
    terminal.send("/now use tabs\r");
    terminal.sees("you: use tabs", LONG);
    let message = scene.wait_until_received("use tabs");
    assert!(message.text.contains("use tabs"));
    watching.wait(LONG).expect_code(0);
    drop(terminal);
    assert_eq!(scene.status()["iterations_complete"], 1);
}

#[test]
fn closing_attached_terminal_keeps_run() {
    let scene = Scene::new("print turn {start}\nawait go");
    drop(detach(&scene, &["--once"]));
    wait_for_output(&scene, "turn 1");
    let (mut watching, terminal) = scene.rlm(&["attach"]).spawn_on_terminal();
    terminal.sees("turn 1", LONG);
    drop(terminal);
    wait_for("the view to end", LONG, || {
        watching.has_ended().then_some(())
    });
    assert_eq!(scene.status()["state"], "running");
    fs_err::write(scene.file("go"), "").unwrap();
    wait_until_it_is(&scene, "ended");
    let last = json(quick(scene.rlm(&["status", "--json"])).stdout.trim());
    assert_eq!(last["iterations_complete"], 1);
}

#[test]
fn followed_logs_continue_until_the_run_ends() {
    let scene = Scene::new("print turn {start}\n@1 await go1\n@2 await go2");
    drop(detach(&scene, &["-n", "2"]));
    let follows = scene.rlm(&["logs", "-f"]).spawn();
    let programs = scene
        .rlm(&["logs", "--follow", "--json", "--since", "1h"])
        .spawn();
    wait_for("the first turn", LONG, || {
        follows.stdout().contains("turn 1").then_some(())
    });
    let from_end = scene.rlm(&["logs", "-f", "--tail", "1"]).spawn();
    wait_for("the last line", LONG, || {
        (from_end.stdout() == "turn 1\n").then_some(())
    });
    fs_err::write(scene.file("go1"), "").unwrap();
    wait_for("the second turn", LONG, || {
        follows.stdout().contains("turn 2").then_some(())
    });
    assert!(!follows.stdout().contains("cut off"));
    fs_err::write(scene.file("go2"), "").unwrap();
    let told = follows.wait(LONG).expect_code(0).stdout;
    expect_in_order(
        &told,
        &[
            "iteration 1, attempt 1",
            "turn 1",
            "iteration 2, attempt 1",
            "turn 2",
        ],
    );
    let told_from_end = from_end.wait(LONG).expect_code(0).stdout;
    assert!(told.ends_with(&told_from_end), "{told_from_end}");
    expect_in_order(&told_from_end, &["turn 1", "iteration 2", "turn 2"]);
    let last = quick(scene.rlm(&["logs", "--tail", "1"])).expect_code(0);
    assert_eq!(last.stdout.lines().next(), told.lines().last());
    let lines = events(&programs.wait(LONG).expect_code(0).stdout);
    assert_eq!(
        lines.iter().filter(|line| line["kind"] == "stdout").count(),
        2
    );
    // `--since` also accepts a point in time. No record is newer than this one.
    let none = quick(scene.rlm(&["logs", "--since", "2999-01-31T09:30:00Z"])).expect_code(0);
    assert_eq!(none.stdout, "");
    let wrong = quick(scene.rlm(&["logs", "--since", "yesterday"])).expect_code(2);
    assert!(wrong.stderr.contains("is not a time"), "{wrong}");
}

#[test]
fn only_attached_person_is_asked() {
    let script =
        "say ready\nawait go\nask Bash true\nsay asked\nawait on\nask Bash false\nsay over\nturn";
    let scene = Scene::new(script);
    let ask = ["--once", "--detach", "--permissions", "ask"];
    scene.claude(&ask).run(LONG).expect_code(0);
    scene.wait_until_recorded("ready");
    let (watching, terminal) = scene.rlm(&["attach"]).spawn_on_terminal();
    terminal.sees("attached to run", LONG);
    // The run registered the viewer before the viewer printed this line.
    fs_err::write(scene.file("go"), "").unwrap();
    answer(&terminal, "Bash: true", "y");
    terminal.sees("asked", LONG);
    terminal.send("\u{3}");
    terminal.sees("d  detach", LONG);
    terminal.send("d");
    watching.wait(LONG).expect_code(0);
    fs_err::write(scene.file("on"), "").unwrap();
    wait_until_it_is(&scene, "ended");
    let answers = scene.agent.answers().into_iter();
    let answers: Vec<String> = answers.map(|it| format!("{it:?}")).collect();
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert!(answers[1].contains("no person is attached"), "{answers:?}");
}

#[test]
fn permission_is_denied_when_last_viewer_leaves() {
    let scene = Scene::new("say ready\nawait go\nask Bash true\nsay over\nturn");
    let ask = ["--once", "--detach", "--permissions", "ask"];
    scene.claude(&ask).run(LONG).expect_code(0);
    scene.wait_until_recorded("ready");
    let (watching, terminal) = scene.rlm(&["attach"]).spawn_on_terminal();
    terminal.sees("attached to run", LONG);
    fs_err::write(scene.file("go"), "").unwrap();
    terminal.sees("Bash: true", LONG);
    assert!(scene.agent.answers().is_empty());
    drop(terminal);
    drop(watching);
    wait_until_it_is(&scene, "ended");
    let answers = scene.agent.answers();
    assert_eq!(answers.len(), 1);
    assert!(format!("{answers:?}").contains("no person is attached any more"));
}

#[test]
fn detached_run_ends_with_parent_before_it_begins() {
    let scene = Scene::new("print turn {start}");
    let (running, terminal) = scene
        .rlm(&["run", "--detach", "--once", "-P", "-", "--"])
        .args(scene.agent.argv())
        .spawn_on_terminal();
    let children = || {
        let path = format!("/proc/{0}/task/{0}/children", running.pid());
        let listed = fs_err::read_to_string(path).unwrap_or_default();
        listed.split_whitespace().next().map(str::to_owned)
    };
    let child = wait_for("the child", LONG, children);
    let proc = std::path::Path::new("/proc").join(&child);
    wait_for("the session of the child", LONG, || {
        let stat = fs_err::read_to_string(proc.join("stat")).ok()?;
        let (_, after) = stat.rsplit_once(')')?;
        (after.split_whitespace().nth(3)? == child).then_some(())
    });
    terminal.send("\u{3}");
    running.wait(LONG).expect_signal(Signal::INT);
    // The process that adopted the child may not have reaped it yet.
    wait_for("the end of the child", LONG, || {
        let stat = fs_err::read_to_string(proc.join("stat")).unwrap_or_default();
        (stat.is_empty() || stat.contains(") Z ")).then_some(())
    });
    assert!(!scene.file(".rlm/runs").exists(), "nothing was begun");
}

#[test]
fn detached_run_holds_no_descriptor_of_its_parent() {
    let scene = Scene::new("print turn {start}\nawait go");
    let script = "\"$0\" \"$@\" 7>&1 >/dev/null | cat";
    let shell = scene.sandbox.rlm("sh").dir(scene.sandbox.repo());
    let run = [RLM, "run", "-p", "x", "--detach", "--once", "--"];
    let shell = shell.args(["-c", script]).args(run);
    // The pipe closes now, not at the end of the run.
    shell.args(scene.agent.argv()).run(LONG).expect_code(0);
    assert_eq!(scene.status()["state"], "running");
    fs_err::write(scene.file("go"), "").unwrap();
    wait_until_it_is(&scene, "ended");
}
