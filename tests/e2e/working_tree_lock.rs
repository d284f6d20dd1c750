//! One run at a time per working tree, and the lifetime of its processes.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rlm_tests::wait_for;
use rustix::process::Signal;

use crate::scene::{PROMPT, STUBBORN_TREE, Scene, crash, expect_in_order, says, stop, until_ready};
use crate::{LONG, RLM};

#[test]
fn j53a_j53b_second_run_names_the_holder() {
    let scene = Scene::new("print ready\nhang");
    let first = scene.ready(&["--once"]);
    let (run, pid) = (scene.run_id(), first.pid());
    let below = scene.file("below");
    fs_err::create_dir(&below).unwrap();
    let others = [
        scene.run(&["--once"]),
        scene.run(&["--once"]).dir(&below),
        scene.rlm(&["resume", &run]),
        scene.rlm(&["resume"]),
    ];
    for (number, other) in others.into_iter().enumerate() {
        let refused = other.run(LONG).expect_code(9);
        assert!(
            refused.stderr.contains(&format!("run `{run}`")),
            "{refused}"
        );
        assert_eq!(refused.stderr.lines().count(), 1, "{refused}");
        if number < 3 {
            assert!(
                refused.stderr.contains(&format!("pid {pid}, for ")),
                "{refused}"
            );
        }
    }
    assert_eq!(
        (scene.start_count(), scene.statuses().len()),
        (1, 1),
        "it left no file"
    );
    stop(first, Signal::INT);
    scene.agent.set_script("print turn {start}");
    scene.run(&["--once"]).run(LONG).expect_code(0);
}

#[test]
fn w5_a_lock_of_another_user_is_named_with_its_process_and_user() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can start a process of another user");
    }
    let scene = Scene::new("print never");
    let (repo, ready) = (scene.sandbox.repo(), scene.file("ready"));
    fs_err::set_permissions(scene.sandbox.path(), PermissionsExt::from_mode(0o755)).unwrap();
    fs_err::set_permissions(&repo, PermissionsExt::from_mode(0o1777)).unwrap();
    let hold = "open(D, '<', $ARGV[0]) && flock(D, 6) && open(R, '>', $ARGV[1]) || die; sleep 600";
    let mut stranger = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args(["perl", "-e", hold])
        .args([&repo, &ready])
        .spawn()
        .unwrap();
    scene.wait_for_file("ready");
    let refused = scene.run(&["--once"]).run(LONG).expect_code(9);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    let named = format!(
        "process {} (perl, user 65534) holds a lock on it",
        stranger.id()
    );
    assert!(refused.stderr.contains(&named), "{refused}");
    assert_eq!(refused.stderr.lines().count(), 1, "{refused}");
    assert_eq!(scene.start_count(), 0);
    scene.agent.set_script("print fine");
    scene.run(&["--once"]).run(LONG).expect_code(0);
}

#[test]
fn j53e_locks_of_two_working_trees_are_independent() {
    let scene = Scene::new("print ready\nhang");
    let first = scene.ready(&["--once"]);
    let other = scene.sandbox.path().join("other");
    scene
        .sandbox
        .git(&["worktree", "add", "-q", &other.display().to_string()]);
    let second = until_ready(scene.run(&["--once"]).dir(&other));
    assert_eq!(scene.start_count(), 2);
    stop(second, Signal::INT);
    stop(first, Signal::INT);
}

#[test]
fn j53c_j53d_working_tree_is_free_after_a_kill_when_the_agent_is_gone() {
    // The guard needs time to end these processes, and the next run must wait for it.
    let scene = Scene::new(STUBBORN_TREE);
    crash(scene.ready(&["--once"]));
    scene.agent.set_script("print ready\nhang");
    let next = scene.run(&["--once"]).spawn();
    scene.wait_until_started(2);
    assert_eq!(
        scene.children_alive(1),
        [],
        "two agents never work in one working tree"
    );
    let first = scene.agent.starts()[0].pid;
    assert!(scene.alive().iter().all(|process| process.pid != first));
    stop(next, Signal::INT);
}

#[test]
fn j53c_suspended_loop_is_not_treated_as_dead() {
    let scene = Scene::new("print ready\nhang");
    let first = scene.ready(&["--once"]);
    first.signal(Signal::STOP);
    scene.run(&["--once"]).run(LONG).expect_code(9);
    scene.rlm(&["resume"]).run(LONG).expect_code(9);
    assert_eq!(scene.status()["state"], "running");
    assert_eq!(scene.start_count(), 1);
    first.signal(Signal::CONT);
    stop(first, Signal::INT);
}

#[test]
fn j53c_w5_a_deleted_state_directory_does_not_break_the_lock() {
    let scene = Scene::new("print ready\nhang");
    let first = scene.ready(&["--once"]);
    fs_err::remove_dir_all(scene.file(".rlm")).unwrap();
    let refused = scene.run(&["--once"]).run(LONG).expect_code(9);
    let stranger = "holds a lock on it";
    assert!(!refused.stderr.contains(stranger), "{refused}");
    assert_eq!(scene.start_count(), 1);
    first.signal(Signal::INT);
    first.wait(LONG);
    scene.expect_nothing_alive();
}

#[test]
fn c76c_copy_of_a_working_tree_has_no_holder() {
    let scene = Scene::new("print ready\nhang");
    let running = scene.ready(&["--once", "--run-id", "r1"]);
    let copy = scene.sandbox.home().join("copy");
    let mut copies = Command::new("cp");
    copies.arg("-a").args([&scene.sandbox.repo(), &copy]);
    assert!(copies.status().unwrap().success());
    let there = |arguments: &[&str]| scene.rlm(arguments).dir(&copy).run(LONG);
    let listed = there(&["ps", "--json"]).expect_code(0);
    assert_eq!(listed.stdout, "", "{listed}");
    there(&["stop", "r1", "--force"]).expect_code(10);
    assert_eq!(scene.status()["state"], "running");
    // The run in the copy has its own working tree, and resumes there.
    let plan = ["resume", "r1", "--until", "false"];
    let resumed = scene.talking(&plan).dir(&copy).spawn();
    scene.wait_until_started(2);
    resumed.signal(Signal::INT);
    resumed.wait(LONG);
    assert_eq!(scene.status()["state"], "running");
    running.signal(Signal::INT);
    running.wait(LONG);
    scene.expect_nothing_alive();
}

/// Runs `rlm` as a tool of an agent would, in another repository. Returns its output and its exit code.
fn inside(options: &str, environment: &str) -> (Scene, String) {
    let scene = Scene::new("");
    let other = scene.sandbox.path().join("other");
    fs_err::create_dir(&other).unwrap();
    let tool = format!(
        "{environment} {RLM} -C {} run -p inner --once {options} -- sh -c 'env >env'; echo \"code $?\"",
        other.display()
    );
    let run = ["run", "-p", PROMPT, "--once", "--", "sh", "-c", &tool];
    let ended = scene.rlm(&run).run(LONG).expect_code(0);
    (scene, ended.stdout)
}

#[test]
fn x130a_a_run_inside_an_agents_tool_is_refused() {
    let (scene, said) = inside("", "");
    // The output of two pipes has no fixed order.
    expect_in_order(
        &said,
        &["this command runs inside the agent of run", "--nested"],
    );
    assert!(said.contains("code 2"), "{said}");
    assert!(!scene.sandbox.path().join("other/.rlm").exists());
}

#[test]
fn x130b_nested_run_inherits_no_identity_of_the_outer_run() {
    let (scene, said) = inside(
        "--nested",
        "RLM_ITERATION=none RLM_ATTEMPT=-1 RLM_EPOCH=x RLM_PHASE=/ RLM_MARKER=..",
    );
    expect_in_order(&said, &["finished: all planned iterations ran", "code 0"]);
    let outer = scene.run_id();
    let env = fs_err::read_to_string(scene.sandbox.path().join("other/env")).unwrap();
    let value = |name: &str| {
        env.lines()
            .find_map(|line| line.strip_prefix(&format!("{name}=")))
            .unwrap()
    };
    assert_ne!(value("RLM_RUN_ID"), outer);
    assert_eq!(
        (
            value("RLM_ITERATION"),
            value("RLM_ATTEMPT"),
            value("RLM_PHASE")
        ),
        ("1", "1", "main")
    );
}

#[test]
fn x130c_nested_run_finds_the_same_working_tree_locked() {
    let scene = Scene::new("");
    let tool = format!("{RLM} run -p inner --once --nested -- true; echo \"code $?\"");
    let run = ["run", "-p", PROMPT, "--once", "--", "sh", "-c", &tool];
    let ended = scene.rlm(&run).run(LONG).expect_code(0);
    for words in ["is working in", "code 9"] {
        assert!(ended.stdout.contains(words), "{ended}");
    }
}

#[test]
fn x130d_agent_can_neither_raise_its_limits_nor_stop_its_run() {
    let scene = Scene::new("");
    let words = [
        "set max-iterations=9",
        "stop",
        "pause",
        "steer more",
        "attach",
    ];
    let tool: String = words
        .iter()
        .map(|it| format!("{RLM} {it} </dev/null; echo \"code $?\"; "))
        .collect();
    let run = [
        "run", "-p", PROMPT, "-n", "2", "--sleep", "0", "--", "sh", "-c", &tool,
    ];
    let ended = scene.rlm(&run).run(LONG).expect_code(0);
    let refused = ended.stdout.matches("an agent may not control its own run");
    assert_eq!(refused.count(), 2 * words.len(), "{ended}");
    assert_eq!(ended.stdout.matches("code 2").count(), 2 * words.len());
    assert_eq!(scene.status()["iterations_complete"], 2);
}

#[test]
fn x130c_a_stop_of_the_outer_run_ends_the_nested_one() {
    let scene = Scene::new("child daemon\nprint ready\nhang");
    let other = scene.sandbox.path().join("other");
    fs_err::create_dir(&other).unwrap();
    let outer = [
        "run",
        "-p",
        PROMPT,
        "--once",
        "--",
        RLM,
        "-C",
        other.to_str().unwrap(),
        "run",
        "-p",
        "x",
        "--once",
        "--nested",
        "--",
    ];
    let running = until_ready(scene.rlm(&outer).args(scene.agent.argv()));
    crash(running);
    scene.wait_until_nothing_is_alive();
}

/// Prints whether the process with the pid in the file is alive.
const PROBE: &str = "if kill -0 $(cat pid); then echo it lives; else echo it is gone; fi";

#[test]
fn x127b_leftovers_live_until_the_checks_ended() {
    let scene = Scene::new("");
    let agent = format!(
        "if test -e pid; then {PROBE} >second 2>&1; else setsid sleep 600 >/dev/null 2>&1 & echo $! >pid; fi"
    );
    let run = [
        "run",
        "-p",
        PROMPT,
        "--sleep",
        "0",
        "-n",
        "2",
        "--gate",
        PROBE,
        "--until",
        &format!("{PROBE}; false"),
        "--",
        "sh",
        "-c",
        &agent,
    ];
    let ended = scene.rlm(&run).run(LONG).expect_code(3);
    let pid = fs_err::read_to_string(scene.file("pid")).unwrap();
    let named = format!("left running by the agent: {} (sleep)", pid.trim());
    expect_in_order(
        &ended.stdout,
        &[
            "check did not pass",
            "it lives",
            &named,
            "iteration 1 complete",
            "iteration 2",
            "it is gone",
        ],
    );
    assert!(
        fs_err::read_to_string(scene.file("second"))
            .unwrap()
            .contains("it is gone")
    );
    // `rlm` does not show the output of a passing required check, so the test reads it from the log.
    scene.expect_nothing_alive();
}

#[test]
fn x127b_leftovers_of_the_last_attempt_end_with_the_run() {
    let scene = Scene::new("child plain\nchild setsid\nchild daemon\nchild holder");
    let ended = scene.run(&["--until", "true"]).run(LONG).expect_code(0);
    scene.expect_nothing_alive();
    expect_in_order(
        &ended.stdout,
        &[
            "ended 4 processes left running by the agent",
            "done: the check passed; all processes ended",
        ],
    );
}

#[test]
fn x127b_leftovers_of_a_failed_turn_are_ended() {
    let scene = Scene::new("@1 child daemon\n@1 exit 1\n@2 print ready\n@2 hang");
    let running = scene.ready(&["-n", "2"]);
    assert_eq!(scene.children_alive(1), []);
    stop(running, Signal::INT);
}

#[test]
fn x127d_processes_of_a_required_check_end_with_it() {
    // The process also keeps the output of the required check open, which must not block the loop.
    for keeps in ["", ">/dev/null 2>&1"] {
        let scene = Scene::new("print turn {start}");
        let gate = format!("setsid sleep 600 {keeps} & echo $! >pid");
        let ended = scene
            .run(&[
                "-n",
                "1",
                "--gate",
                &gate,
                "--until",
                &format!("{PROBE}; false"),
            ])
            .run(LONG)
            .expect_code(3);
        let named = "left running by the command";
        expect_in_order(
            &ended.stdout,
            &[
                "required check 1 passed",
                named,
                "check did not pass",
                "it is gone",
            ],
        );
        scene.expect_nothing_alive();
    }
}

#[test]
fn process_that_holds_the_output_does_not_keep_a_turn_open() {
    let scene = Scene::new("@1 child holder\nprint turn {start}");
    let ended = scene.run(&["-n", "2"]).run(LONG).expect_code(0);
    expect_in_order(
        &ended.stdout,
        &[
            "turn 1",
            "iteration 1 complete",
            "turn 2",
            "iteration 2 complete",
        ],
    );
}

#[test]
fn agent_that_closes_its_output_is_awaited() {
    let scene = Scene::new("close stdout\nclose stderr\nawait go");
    let mut running = scene.run(&["--once"]).spawn();
    scene.wait_until_started(1);
    wait_for("its closed output", LONG, || {
        let pid = scene.agent.starts()[0].pid;
        let target = fs_err::read_link(format!("/proc/{pid}/fd/1")).ok()?;
        (target.as_os_str() == "/dev/null").then_some(())
    });
    assert!(!running.has_ended());
    says(&mut running, "agent runs");
    assert!(
        !running.stdout().contains("complete"),
        "{}",
        running.stdout()
    );
    fs_err::write(scene.file("go"), "").unwrap();
    running.wait(LONG).expect_code(0);
}
