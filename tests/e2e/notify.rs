//! Notify commands, and the bell.

use fs_err as fs;
use rlm_tests::wait_for;
use rustix::process::Signal;
use serde_json::Value;

use crate::LONG;
use crate::permissions;
use crate::scene::{Scene, expect_in_order, says, stop};

/// Appends its input to `told`, one line per call.
const TELL: &str = "command:cat >> told";

/// Returns the inputs of the command, in order.
fn notifications(scene: &Scene) -> Vec<Value> {
    let text = fs::read_to_string(scene.file("told")).unwrap_or_default();
    let whole = text.lines().filter(|line| line.ends_with('}'));
    whole
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn events(scene: &Scene) -> Vec<String> {
    let told = notifications(scene).into_iter();
    told.map(|it| it["event"].as_str().unwrap().to_owned())
        .collect()
}

/// Returns a check that waits until the command got this number of notifications.
fn until_told(count: usize) -> String {
    format!("while [ \"$(grep -c . told)\" -lt {count} ]; do sleep 0.05; done")
}

#[test]
fn x113h_notify_command_runs_after_the_save() {
    let scene = Scene::new("print turn {start}\n@2 exit 3");
    // The command reads the status, so each event must be saved before it.
    let notify = format!(
        "{TELL}; echo \"$RLM_EVENT|$RLM_RUN_ID|$RLM_ITERATION|$RLM_EXIT_CODE|$RLM_TEXT\" >> words; {} status --json >> seen",
        crate::RLM
    );
    let on = "started,iteration,iteration-failed,done";
    let run = ["--run-id", "nightly", "-n", "3", "--notify", &notify];
    let ended = scene.run(&[&run, &["--notify-on", on][..]].concat());
    ended.env("API_TOKEN", "5ecret").run(LONG).expect_code(0);
    assert_eq!(
        events(&scene),
        [
            "started",
            "iteration",
            "iteration-failed",
            "iteration",
            "done"
        ]
    );
    let told = notifications(&scene);
    let last = &told[4];
    assert_eq!(
        (&last["exit_code"], &last["state"]),
        (&0.into(), &"ended".into())
    );
    assert_eq!(last["run"], "nightly");
    assert_eq!(told[2]["iteration"], 2);
    let seen = fs::read_to_string(scene.file("seen")).unwrap();
    let seen: Vec<Value> = seen
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(seen.len(), told.len());
    for (told, seen) in told.iter().zip(&seen) {
        let complete = |it: &Value| it["iterations_complete"].as_u64().unwrap();
        assert!(complete(seen) >= complete(told), "{told}\n{seen}");
    }
    let words = fs::read_to_string(scene.file("words")).unwrap();
    assert!(
        words.contains("iteration-failed|nightly|2||run nightly: iteration 2 failed: "),
        "{words}"
    );
    assert!(
        words.contains("done|nightly|3|0|run nightly: finished"),
        "{words}"
    );
    let all = fs::read_to_string(scene.file("told")).unwrap();
    assert!(!all.contains("5ecret"), "{all}");
    scene.expect_nothing_alive();
}

#[test]
fn x113h_stop_is_notified_within_budget() {
    let scene = Scene::new("print ready\nhang");
    let on = "resumed,done,stopped";
    let running = scene.ready(&["--once", "--notify", TELL, "--notify-on", on]);
    stop(running, Signal::TERM);
    let told = notifications(&scene);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        (&told[0]["event"], &told[0]["exit_code"]),
        (&"stopped".into(), &143.into())
    );
    assert_eq!(told[0]["state"], "stopped");
    assert!(told[0]["next"].as_str().unwrap().starts_with("rlm resume "));
    scene.agent.set_script("print turn {start}");
    let resume = ["resume", "--notify", TELL, "--notify-on", on];
    scene.rlm(&resume).run(LONG).expect_code(0);
    assert_eq!(events(&scene), ["stopped", "resumed", "done"]);
}

#[test]
fn x101g_notify_command_processes_end_with_the_run() {
    let scene = Scene::new("print turn {start}");
    let leaves =
        "command:setsid sleep 600 >/dev/null 2>&1 & (setsid sleep 600 >/dev/null 2>&1 &); true";
    let run = ["--once", "--notify", leaves, "--notify-on", "started"];
    let until = ["--until", "true"];
    let ended = scene
        .run(&[&run[..], &until].concat())
        .run(LONG)
        .expect_code(0);
    assert!(
        ended.stdout.contains("left running by a notify command"),
        "{ended}"
    );
    scene.expect_nothing_alive();

    // The same for a command that hangs and ignores signals, during a stop.
    let scene = Scene::new("print ready\nhang");
    let hangs =
        "command:trap '' INT TERM HUP; touch begun; setsid sleep 600 & sleep 600; sleep 600";
    let run = [
        "--once",
        "--notify",
        hangs,
        "--notify-on",
        "started,stopped",
    ];
    let mut running = scene.run(&run).env("RLM_SHUTDOWN_TIMEOUT", "3s").spawn();
    says(&mut running, "ready");
    scene.wait_for_file("begun");
    let ended = stop(running, Signal::TERM);
    expect_in_order(
        &ended.stdout,
        &[
            "the notification of `started` by command failed",
            "all processes ended",
        ],
    );
    scene.expect_nothing_alive();
}

#[test]
fn x113h_failing_notify_command_is_reported_once() {
    let scene = Scene::new("print turn {start}");
    let run = ["-n", "3", "--notify", "command:exit 1"];
    let on = ["--notify-on", "iteration"];
    let ended = scene.run(&[&run[..], &on].concat());
    let ended = ended.run(LONG).expect_code(0);
    let warnings = ended.stdout.matches("by command failed");
    assert_eq!(warnings.count(), 1, "{ended}");
    assert!(ended.stdout.contains("exit status 1"), "{ended}");
}

#[test]
fn x113h_slow_notify_command_delays_nothing_and_gets_missed_count() {
    let scene = Scene::new("print turn {start}");
    // The first call lasts until the last iteration of the run.
    let wait = "[ -e told ] || while [ ! -e go ]; do sleep 0.05; done";
    let notify = format!("command:{wait}; cat >> told");
    let until = format!(
        "[ \"$RLM_ITERATION\" -lt 15 ] && exit 1; touch go; {}",
        until_told(9)
    );
    let run = [
        "-n",
        "20",
        "--notify",
        &notify,
        "--notify-on",
        "iteration,done",
    ];
    let ended = scene.run(&[&run[..], &["--until", &until]].concat());
    ended.run(LONG).expect_code(0);
    let told = notifications(&scene);
    let missed: u64 = told.iter().map(|it| it["missed"].as_u64().unwrap()).sum();
    assert_eq!(told.last().unwrap()["event"], "done");
    assert!(missed > 0, "{told:?}");
    assert_eq!(
        told.len() as u64 + missed,
        16,
        "15 iterations and the end: {told:?}"
    );
}

#[test]
fn x113h_notify_command_runs_only_at_the_end_by_default() {
    let scene = Scene::new("print turn {start}");
    fs::write(scene.file("rlm.toml"), format!("notify = ['{TELL}']\n")).unwrap();
    scene.run(&["-n", "2"]).run(LONG).expect_code(0);
    assert_eq!(events(&scene), ["done"]);
}

#[test]
fn x124b_permission_notification_has_no_details_and_rings() {
    let scene = Scene::new("ask Bash touch s3cret\nturn");
    let asks = ["--once", "--permissions", "ask"];
    let run = [&asks[..], &["--notify", "bell", "--notify", TELL]].concat();
    let (running, terminal) = scene.claude(&run).spawn_on_terminal();
    terminal.sees("touch s3cret", LONG);
    wait_for("the permission request", LONG, || {
        (events(&scene) == ["permission"]).then_some(())
    });
    assert_eq!(notifications(&scene)[0]["reason"], "permission for Bash?");
    assert!(terminal.bytes().contains(&7));
    permissions::answer(&terminal, "Bash: touch s3cret", "n");
    running.wait(LONG).expect_code(0);
    assert_eq!(events(&scene), ["permission", "done"]);
    let all = fs::read_to_string(scene.file("told")).unwrap();
    assert!(!all.contains("s3cret"), "{all}");
}

#[test]
fn x113h_bell_rings_at_the_end_if_enabled() {
    let bell: &[&str] = &["--once", "--notify", "bell"];
    for (run, count) in [(bell, 1), (&["--once"], 0)] {
        let scene = Scene::new("no-stdin\nprint turn {start}");
        let (running, terminal) = scene.run(run).spawn_on_terminal();
        running.wait(LONG).expect_code(0);
        let rung = || terminal.bytes().iter().filter(|byte| **byte == 7).count();
        wait_for("the end line", LONG, || {
            terminal
                .text()
                .contains("all processes ended")
                .then_some(())
        });
        assert_eq!(rung(), count, "{}", terminal.text());
    }
    // Without a terminal there is no bell.
    let scene = Scene::new("print turn {start}");
    let ended = scene.run(bell).run(LONG).expect_code(0);
    assert!(!ended.stdout.contains('\u{7}') && !ended.stderr.contains('\u{7}'));
}
