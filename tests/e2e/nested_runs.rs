//! An agent can't act as a person: a process below a guard controls only runs that were started there.

use std::process::{Command, Stdio};

use rlm_tests::{Ended, Running, wait_for};
use rustix::process::Signal;

use crate::control::{quick, socket};
use crate::scene::{PROMPT, Scene, events, expect_in_order, json, says, stop, until_ready};
use crate::{LONG, RLM};

/// A program that connects to a socket, sends one line and prints the response. Every machine with git has `perl`.
const ASK: &str = r#"use Socket; my ($path, $line) = @ARGV; socket(S, AF_UNIX, SOCK_STREAM, 0) or die;
connect(S, sockaddr_un($path)) or die; syswrite(S, "$line\n"); while (<S>) { print }"#;
/// The same program without waiting for the response.
const ASK_AND_GO: &str = r#"use Socket; my ($path, $line) = @ARGV; socket(S, AF_UNIX, SOCK_STREAM, 0) or die;
connect(S, sockaddr_un($path)) or die; syswrite(S, "$line\n");"#;

/// Commands that an agent could try on its own run.
const COMMANDS: [&str; 8] = [
    "stop",
    "stop --now",
    "stop --force",
    "set max-cost=1000",
    "steer more",
    "pause",
    "interrupt",
    "attach --no-input",
];

fn has_perl() -> bool {
    let perl = Command::new("perl")
        .arg("-v")
        .stdout(Stdio::null())
        .status();
    perl.is_ok_and(|status| status.success())
}

/// Runs an agent that executes only this tool. Returns the end of the run.
fn tool(scene: &Scene, tool: &str) -> Ended {
    let run = [
        "run", "-p", PROMPT, "--once", "--run-id", "own", "--", "sh", "-c", tool,
    ];
    scene.rlm(&run).run(LONG)
}

/// Starts a run in a second project of the same user.
fn other_run(scene: &Scene, arguments: &[&str]) -> Running {
    let other = scene.sandbox.path().join("other");
    fs_err::create_dir(&other).unwrap();
    let run = [&["--once", "--run-id", "other"], arguments].concat();
    until_ready(scene.run(&run).dir(&other))
}

fn refusals(ended: &Ended) -> usize {
    ended.stdout.matches("runs inside an agent").count()
}

#[test]
fn h13a_agent_without_the_variable_may_only_read_the_status() {
    let scene = Scene::new("");
    let mut script: String = COMMANDS
        .iter()
        .map(|it| format!("env -u RLM_RUN_ID {RLM} {it} </dev/null; echo \"code $?\"; "))
        .collect();
    script += &format!("env -u RLM_RUN_ID {RLM} status --json");
    let ended = tool(&scene, &script).expect_code(0);
    assert_eq!(
        ended.stdout.matches("code 2").count(),
        COMMANDS.len(),
        "{ended}"
    );
    // `rlm` reports each refusal to the agent, and in the log of the run.
    for request in [
        "stop",
        "abort",
        "set",
        "steer",
        "pause",
        "interrupt",
        "attach",
    ] {
        let note = format!("warning: refused `{request}` from pid ");
        assert!(ended.stdout.contains(&note), "{request}: {ended}");
    }
    assert!(refusals(&ended) >= 2 * COMMANDS.len() - 1, "{ended}");
    assert!(ended.stdout.contains("\"state\":\"running\""), "{ended}");
    let status = scene.status();
    assert_eq!(status["iterations_complete"], 1, "{status}");
}

#[test]
fn h13b_double_fork_in_own_session_without_environment_is_refused() {
    let scene = Scene::new("");
    let inner = format!("env -i PATH=\"$PATH\" HOME=\"$HOME\" {RLM} stop >out 2>&1; echo $? >code");
    let script = format!(
        "( (setsid sh -c '{inner}') & ) & wait; while ! test -s code; do sleep 0.02; done; cat out code"
    );
    let ended = tool(&scene, &script).expect_code(0);
    assert_eq!(refusals(&ended), 2, "{ended}");
    assert_eq!(fs_err::read_to_string(scene.file("code")).unwrap(), "2\n");
}

#[test]
fn h13c_agent_cannot_answer_its_own_permission_request() {
    if !has_perl() {
        println!("skipped: no perl to connect to a socket with");
        return;
    }
    let scene = Scene::new("");
    let forge = scene.file("forge.sh");
    let socket = scene.file(".rlm/runs/own/control.sock");
    let ask = format!(
        "for id in ask-1 ask-2 ask-3 ask-4; do \
         perl -e '{ASK}' {} '{{\"v\":1,\"request\":\"answer\",\"permission_request\":\"'$id'\",\"allow\":true}}'; done >>answers",
        socket.display()
    );
    fs_err::write(&forge, format!("while :; do {ask}; sleep 0.1; done\n")).unwrap();
    scene.agent.set_script(&format!(
        "number-asks\nrun env -u RLM_RUN_ID setsid sh {} >/dev/null 2>&1 &\nask Bash touch forged\nturn",
        forge.display()
    ));
    let arguments = ["--once", "--permissions", "ask", "--run-id", "own"];
    let (running, terminal) = scene.claude(&arguments).spawn_on_terminal();
    terminal.sees("touch forged", LONG);
    wait_for("answers to the forger", LONG, || {
        let answers = fs_err::read_to_string(scene.file("answers")).ok()?;
        assert!(!answers.contains("applied"), "{answers}");
        (answers.matches("\"refused\"").count() > 10).then_some(())
    });
    assert!(!scene.file("forged").exists());
    running.signal(Signal::TERM);
    running.wait(LONG);
    scene.wait_until_nothing_is_alive();
}

#[test]
fn h13d_agent_cannot_raise_its_own_budget() {
    if !has_perl() {
        println!("skipped: no perl to connect to a socket with");
        return;
    }
    let scene = Scene::new("");
    let socket = scene.file(".rlm/runs/own/control.sock");
    let line = r#"{"v":1,"request":"set","key":"max-iterations","value":99}"#;
    let script = format!("perl -e '{ASK}' {} '{line}'", socket.display());
    let run = [
        "run", "-p", PROMPT, "-n", "2", "--sleep", "0", "--run-id", "own", "--", "sh", "-c",
        &script,
    ];
    let ended = scene.rlm(&run).run(LONG).expect_code(0);
    assert_eq!(
        ended.stdout.matches("\"response\":\"refused\"").count(),
        2,
        "{ended}"
    );
    assert_eq!(scene.status()["iterations_complete"], 2);
}

#[test]
fn h13e_agent_can_neither_stop_nor_steer_runs_of_other_projects() {
    let scene = Scene::new("print ready\nhang");
    let other = other_run(&scene, &[]);
    let mut script = String::new();
    for command in [
        "stop other",
        "stop other --force",
        "steer other more",
        "set other max-iterations=9",
        "pause other",
    ] {
        for variable in ["", "env -u RLM_RUN_ID "] {
            script += &format!("{variable}{RLM} {command} </dev/null; echo \"code $?\"; ");
        }
    }
    let ended = tool(&scene, &script).expect_code(0);
    assert_eq!(ended.stdout.matches("code 2").count(), 10, "{ended}");
    assert!(other.stdout().contains("refused `stop` from pid"));
    // A person outside of the agent can still control the run.
    quick(scene.rlm(&["pause", "other", "--wait", "0"])).expect_code(0);
    quick(scene.rlm(&["stop", "other"])).expect_code(0);
    other.wait(LONG).expect_code(7);
    scene.wait_until_nothing_is_alive();
}

#[test]
fn h13f_agent_needs_nested_to_remove_export_or_fork_a_run() {
    let scene = Scene::new("print once");
    quick(scene.run(&["--once", "--run-id", "old"])).expect_code(0);
    let mut script = String::new();
    for command in [
        "clean --yes --all --days 0",
        "clean old --yes",
        "checkpoints export old -o -",
        "checkpoints fork old --at 1",
        "checkpoints import nothing.tar.zst",
        "report old",
    ] {
        script += &format!("{RLM} {command} </dev/null; echo \"code $?\"; ");
    }
    for command in [
        "clean --dry-run",
        "checkpoints list",
        "checkpoints verify old",
        "report old -o -",
        "report old --json",
        "logs old",
        "ps",
        "config show",
    ] {
        script += &format!("{RLM} {command} </dev/null >/dev/null; echo \"read $?\"; ");
    }
    let ended = tool(&scene, &script).expect_code(0);
    assert_eq!(ended.stdout.matches("code 2").count(), 6, "{ended}");
    assert_eq!(ended.stdout.matches("read 0").count(), 8, "{ended}");
    expect_in_order(
        &ended.stdout,
        &["this command runs inside the agent of run own", "--nested"],
    );
    assert!(scene.file(".rlm/runs/old").exists());
    // An explicit option permits it.
    quick(scene.rlm(&["clean", "own", "--yes"])).expect_code(0);
    let nested = tool(&scene, &format!("{RLM} clean old --yes --nested")).expect_code(0);
    assert!(!scene.file(".rlm/runs/old").exists(), "{nested}");
}

#[test]
fn h13g_run_below_the_same_guard_can_be_controlled_from_there() {
    let scene = Scene::new("print ready\nhang");
    let inner = scene.sandbox.path().join("inner");
    fs_err::create_dir(&inner).unwrap();
    let rlm = format!("{RLM} -C {}", inner.display());
    let agent = scene.agent.argv().into_iter();
    let agent: Vec<String> = agent.map(|it| it.to_string_lossy().into_owned()).collect();
    let agent = agent.join("' '");
    let script = format!(
        "{rlm} run -p inner --once --nested --detach --run-id inner -- '{agent}'; \
         while ! {rlm} logs inner 2>/dev/null | grep -q ready; do sleep 0.05; done; \
         {rlm} pause inner --wait 0; echo \"code $?\"; {rlm} stop inner; echo \"code $?\""
    );
    let ended = tool(&scene, &script).expect_code(0);
    assert_eq!(ended.stdout.matches("code 0").count(), 2, "{ended}");
    assert_eq!(refusals(&ended), 0, "{ended}");
    scene.wait_until_nothing_is_alive();
}

#[test]
fn h13h_process_that_exited_before_the_lookup_is_refused() {
    if !has_perl() {
        println!("skipped: no perl to connect to a socket with");
        return;
    }
    let scene = Scene::new("print ready\nhang");
    let mut running = scene.ready(&["--once"]);
    let path = socket(&scene);
    running.signal(Signal::STOP);
    let line = r#"{"v":1,"request":"stop"}"#;
    let asked = Command::new("perl")
        .args(["-e", ASK_AND_GO])
        .arg(&path)
        .arg(line)
        .status();
    assert!(asked.unwrap().success());
    running.signal(Signal::CONT);
    says(&mut running, "refused `stop`");
    assert_eq!(scene.status()["state"], "running");
    stop(running, Signal::INT);
}

#[test]
fn h13i_refused_requests_are_in_events_and_transcript() {
    let scene = Scene::new("");
    let script = format!("env -u RLM_RUN_ID {RLM} stop; sleep 0.2");
    let run = [
        "run", "-p", PROMPT, "--once", "--json", "--", "sh", "-c", &script,
    ];
    let ended = scene.rlm(&run).run(LONG).expect_code(0);
    let mut told = events(&ended.stdout).into_iter();
    let told = told
        .any(|it| it["event"] == "warning" && it.to_string().contains("refused `stop` from pid"));
    assert!(told, "{ended}");
    let logs = quick(scene.rlm(&["logs", "--json"])).expect_code(0);
    let noted = logs.stdout.lines().map(json);
    let mut noted = noted.filter(|it| it.to_string().contains("refused `stop` from pid"));
    assert!(noted.next().is_some(), "{logs}");
}
