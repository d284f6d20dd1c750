//! Stop means stop: no process that `rlm` started outlives it.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rlm_tests::agent::ChildKind;
use rlm_tests::wait_for;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::presses::pause;
use crate::scene::{
    PROMPT, STUBBORN_TREE, Scene, TREE, TREE_SIZE, crash, expect_in_order, says, stop, until_ready,
};
use crate::{LONG, RLM};

fn expect_every_kind_alive(scene: &Scene) {
    let alive: BTreeSet<i32> = scene.alive().iter().map(|process| process.pid).collect();
    let children = scene.agent.children();
    let kinds: Vec<ChildKind> = children
        .iter()
        .filter(|child| alive.contains(&child.pid))
        .map(|child| child.kind)
        .collect();
    assert_eq!(
        kinds,
        [
            ChildKind::Plain,
            ChildKind::Setsid,
            ChildKind::Daemon,
            ChildKind::Holder
        ]
    );
}

fn x101(signal: Signal) {
    let scene = Scene::new(TREE);
    let running = scene.ready(&["--until", "false"]);
    expect_every_kind_alive(&scene);
    let ended = stop(running, signal);
    scene.expect_nothing_alive();
    let end = ended.stdout.lines().last().unwrap();
    assert!(end.contains("; all processes ended; "), "{ended}");
}

#[test]
fn x101b_x101e_sigterm_leaves_no_process() {
    x101(Signal::TERM);
}

#[test]
fn x101c_x101e_sighup_leaves_no_process() {
    x101(Signal::HUP);
}

#[test]
fn x101a_x101e_sigint_leaves_no_process() {
    x101(Signal::INT);
}

#[test]
fn x101a_x101e_ctrl_c_leaves_no_process() {
    let scene = Scene::new(TREE);
    let (running, terminal) = scene.run(&["--until", "false"]).spawn_on_terminal();
    terminal.wait_text("│", 0, LONG);
    wait_for("the process tree", LONG, || {
        (scene.tree_alive() == TREE_SIZE).then_some(())
    });
    expect_every_kind_alive(&scene);
    terminal.send(b"\x03");
    // The first press opens the menu, the second one stops without reading it.
    terminal.sees("save and exit", LONG);
    pause();
    terminal.send(b"\x03");
    running.wait(LONG).expect_signal(Signal::INT);
    scene.expect_nothing_alive();
    terminal.wait_text("all processes ended", 0, LONG);
}

#[test]
fn x101b_x101f_x113b_sigterm_ends_a_tree_that_ignores_every_signal() {
    let scene = Scene::new(STUBBORN_TREE);
    let run = scene
        .run(&["--until", "false"])
        .env("RLM_SHUTDOWN_TIMEOUT", "3s");
    let running = until_ready(run);
    expect_every_kind_alive(&scene);
    let ended = stop(running, Signal::TERM);
    scene.expect_nothing_alive();
    let says_grace = |line: &str| line.starts_with("stopping") && line.contains("3s");
    assert!(ended.stdout.lines().any(says_grace), "{ended}");
    assert!(ended.stdout.contains("all processes ended"), "{ended}");
}

/// An agent with a process that becomes root. The file `pid` has its pid once it is root.
const BECOMES_ROOT: &str = "setsid ./become-root --reuid 0 sleep 600 >/dev/null 2>&1 &
    until [ \"$(cat /proc/$!/comm)\" = sleep ]; do sleep 0.02; done
    echo $! >new; mv new pid; sleep 600";

#[test]
fn x101i_process_of_another_user_is_named_and_has_its_exit_code() {
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let scene = Scene::new("");
    let tool = scene.file("become-root");
    if !rustix::process::geteuid().is_root() || fs_err::copy("/usr/bin/setpriv", &tool).is_err() {
        return println!("skipped: only root can start as another user, with setpriv");
    }
    std::os::unix::fs::chown(scene.sandbox.path(), Some(65534), Some(65534)).unwrap();
    let own = |folder| std::os::unix::fs::chown(folder, Some(65534), Some(65534)).unwrap();
    [
        scene.sandbox.repo(),
        scene.sandbox.home(),
        scene.file(".git"),
    ]
    .into_iter()
    .for_each(own);
    fs_err::set_permissions(&tool, PermissionsExt::from_mode(0o4755)).unwrap();
    let again = [
        "--reuid=65534",
        tool.to_str().unwrap(),
        "--reuid",
        "0",
        "true",
    ];
    let can = Command::new("setpriv").args(again).status();
    if !can.is_ok_and(|status| status.success()) {
        return println!("skipped: no program with the setuid bit can run here");
    }
    let rlm = scene.sandbox.rlm("setpriv").args(nobody).args([RLM]);
    let run = [
        "run",
        "-p",
        PROMPT,
        "--once",
        "--",
        "sh",
        "-c",
        BECOMES_ROOT,
    ];
    let running = rlm.args(run).spawn();
    scene.wait_for_file("pid");
    let pid = fs_err::read_to_string(scene.file("pid")).unwrap();
    running.signal(Signal::TERM);
    let ended = running.wait(LONG).expect_code(8);
    let named = format!("could not end: {} (sleep)", pid.trim());
    expect_in_order(&ended.stdout, &[&named, "stopped by SIGTERM; 1 of "]);
    let survivor = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    kill_process(survivor, Signal::KILL).unwrap();
}

#[test]
fn x101h_control_group_kill_leaves_processes_outside_the_group() {
    let scene = Scene::new(TREE);
    // On its own terminal, the agent leads its own process group.
    let (running, terminal) = scene.agent.prepare(&scene.sandbox).spawn_on_terminal();
    terminal.send(b"\x04");
    terminal.wait_text("ready", 0, LONG);
    expect_every_kind_alive(&scene);
    kill_process_group(Pid::from_raw(running.pid()).unwrap(), Signal::KILL).unwrap();
    running.wait(LONG).expect_signal(Signal::KILL);
    let left: BTreeSet<i32> = scene
        .alive()
        .iter()
        .filter(|process| !process.is_zombie())
        .map(|process| process.pid)
        .collect();
    let children = scene.agent.children();
    let outside = |child: &&rlm_tests::agent::Child| {
        matches!(child.kind, ChildKind::Setsid | ChildKind::Daemon)
    };
    assert!(
        children
            .iter()
            .filter(outside)
            .all(|child| left.contains(&child.pid)),
        "{left:?}"
    );
}

/// Stops a run whose agent ignores some signals. Returns the signals that the agent received, and the output of the run.
fn asked(ignore: &str) -> (Vec<String>, String) {
    let scene = Scene::new(&format!("{ignore}\nprint ready\nhang"));
    let run = scene.run(&["--once"]).env("RLM_SHUTDOWN_TIMEOUT", "3s");
    let ended = stop(until_ready(run), Signal::TERM);
    scene.expect_nothing_alive();
    let signals = scene.agent.signals().into_iter().map(|got| got.signal);
    (
        signals.filter(|name| name != "CONT").collect(),
        ended.stdout,
    )
}

#[test]
fn l90a_l90f_stages_of_a_stop_run_in_order() {
    assert_eq!(
        asked("").0,
        ["INT"],
        "an agent that ends after the interrupt gets no further signal"
    );
    assert_eq!(asked("ignore INT").0, ["INT", "TERM"]);
    let (signals, said) = asked("ignore INT TERM");
    assert_eq!(signals, ["INT", "TERM"]);
    assert!(
        said.contains("stopped by SIGTERM; all processes ended"),
        "{said}"
    );
}

#[test]
fn l90a_interrupted_agent_can_end_itself_and_its_last_output_is_stored() {
    let scene = Scene::new("");
    // Split into two words, because the banner shows the command before the agent runs.
    let agent =
        "trap 'echo last words; exit 0' INT; printf 'rea%s\\n' dy; while :; do sleep 0.05; done";
    let running = until_ready(scene.rlm(&["run", "-p", "x", "--once", "--", "sh", "-c", agent]));
    stop(running, Signal::INT);
    let logs = scene.rlm(&["logs"]).run(LONG).expect_code(0).stdout;
    expect_in_order(&logs, &["ready", "last words", "stopped"]);
    assert_eq!(
        scene.status()["iterations_complete"],
        0,
        "an interrupted turn is not complete"
    );
}

#[test]
fn c56c_c70a_c70b_a_signal_in_the_sleep_ends_the_run_at_once() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let scene = Scene::new("print once");
        let mut running = scene
            .run_bare(&["-p", PROMPT, "--sleep", "600", "-n", "2"])
            .spawn();
        says(&mut running, "next iteration");
        let ended = stop(running, signal);
        assert!(
            ended.stdout.contains("all processes ended; to continue"),
            "{ended}"
        );
        let status = scene.status();
        assert_eq!(
            (&status["state"], &status["iterations_complete"]),
            (&"stopped".into(), &1.into())
        );
        scene.expect_nothing_alive();
    }
}

#[test]
fn signal_during_a_check_ends_it_and_keeps_the_turn() {
    for (option, signal) in [
        ("--gate", Signal::INT),
        ("--until", Signal::TERM),
        ("--gate", Signal::HUP),
    ] {
        let scene = Scene::new("child daemon\nprint turn {start}");
        let command = "test -e go || { touch begun; setsid sleep 600 & sleep 600; }";
        let running = scene.run(&["--once", option, command]).spawn();
        scene.wait_for_file("begun");
        let ended = stop(running, signal);
        scene.expect_nothing_alive();
        assert!(ended.stdout.contains("; all processes ended"), "{ended}");
        assert_eq!(scene.status()["state"], "stopped");
        fs_err::write(scene.file("go"), "").unwrap();
        scene.rlm(&["resume"]).run(LONG).expect_code(0);
        assert_eq!(scene.start_count(), 1, "the turn is not made again");
    }
}

#[test]
fn c71b_c71c_stop_during_turn_reports_the_save_before_ending_the_agent() {
    let scene = Scene::new("ignore INT\nprint ready\nhang");
    let mut running = until_ready(scene.run(&["--once"]).env("RLM_SHUTDOWN_TIMEOUT", "10s"));
    running.signal(Signal::TERM);
    says(&mut running, "stopping: state saved");
    // The state is saved already: after a crash during the stop, the run still counts as stopped.
    crash(running);
    scene.wait_until_nothing_is_alive();
    scene.agent.set_script("print turn {start}");
    let ended = scene.rlm(&["resume"]).run(LONG).expect_code(0);
    assert!(
        scene.prompts()[1].contains("did not finish because the run was stopped"),
        "{:?}\n{ended}",
        scene.prompts()
    );
}
