//! The fake agents follow their scripts.

use std::io::Read;
use std::process::{Command, Stdio};

use rlm_tests::agent::FakeAgent;
use rlm_tests::{Ended, Running, Sandbox, wait_for};
use rustix::process::Signal;

use crate::{FAKE_AGENT, LONG};

fn start(sandbox: &Sandbox, agent: &FakeAgent, stdin: &str) -> Running {
    agent.prepare(sandbox).input(stdin).spawn()
}

fn perform(script: &str) -> Ended {
    let sandbox = Sandbox::new();
    let agent = sandbox.fake_agent(FAKE_AGENT, script);
    start(&sandbox, &agent, "a prompt").wait(LONG)
}

#[test]
fn start_is_recorded_with_arguments_environment_and_input() {
    let sandbox = Sandbox::new();
    let agent = sandbox.fake_agent(FAKE_AGENT, "echo");
    let ended = start(&sandbox, &agent, "do it\n").wait(LONG).expect_code(0);
    assert_eq!(ended.stdout, "do it\n");
    let record = agent.starts().remove(0);
    assert_eq!(record.stdin.as_deref(), Some("do it\n"));
    assert_eq!(record.env["RLM_TEST_MARK"], sandbox.survivors().marker());
    assert_eq!(
        record.cwd,
        sandbox.repo().canonicalize().unwrap().display().to_string()
    );
    assert_eq!(record.argv[0], FAKE_AGENT);
    assert!(
        record.fds[&0].ends_with(".stdin") && record.fds[&1].ends_with(".stdout"),
        "{:?}",
        record.fds
    );
    assert_eq!(record.ppid, std::process::id().cast_signed());
    assert!(record.ignored.is_empty(), "{:?}", record.ignored);
}

#[test]
fn start_notices_the_agents_that_are_alive() {
    let sandbox = Sandbox::new();
    let agent = sandbox.fake_agent(FAKE_AGENT, "@1 print ready\n@1 await go");
    let mut first = start(&sandbox, &agent, "");
    first.until("the first agent", LONG, |first| {
        first.stdout().contains("ready").then_some(())
    });
    start(&sandbox, &agent, "").wait(LONG).expect_code(0);
    fs_err::write(sandbox.repo().join("go"), "").unwrap();
    first.wait(LONG).expect_code(0);
    start(&sandbox, &agent, "").wait(LONG).expect_code(0);
    let starts = agent.starts();
    let beside: Vec<_> = starts.iter().map(|start| start.beside.clone()).collect();
    assert_eq!(beside, [vec![], vec![1], vec![]]);
}

#[test]
fn script_lines_depend_on_the_number_of_starts() {
    let sandbox = Sandbox::new();
    let agent = sandbox.fake_agent(
        FAKE_AGENT,
        "@1 exit 7\n@2.. append done {start}\n@3 die KILL",
    );
    start(&sandbox, &agent, "").wait(LONG).expect_code(7);
    start(&sandbox, &agent, "").wait(LONG).expect_code(0);
    start(&sandbox, &agent, "")
        .wait(LONG)
        .expect_signal(Signal::KILL);
    assert_eq!(
        fs_err::read_to_string(sandbox.repo().join("done")).unwrap(),
        "2\n3\n"
    );
    assert_eq!(
        agent
            .starts()
            .iter()
            .map(|start| start.start)
            .collect::<Vec<_>>(),
        [1, 2, 3]
    );
}

#[test]
fn p53_fake_agent_ends_as_scripted() {
    assert_eq!(
        perform("part half a li\ndie TERM")
            .expect_signal(Signal::TERM)
            .stdout,
        "half a li"
    );
    perform("die SEGV").expect_signal(Signal::SEGV);
    perform("delay 1\nexit 3\nprint never").expect_code(3);
    let ended = perform("print a\nfly").expect_code(99);
    assert!(ended.stderr.contains("line 2: no such action"), "{ended}");
}

#[test]
fn files_are_written_appended_and_awaited() {
    let sandbox = Sandbox::new();
    let agent = sandbox.fake_agent(
        FAKE_AGENT,
        "write a one\nappend a two\ntouch b\nawait c\nprint seen",
    );
    let mut running = start(&sandbox, &agent, "");
    running.until("file b", LONG, |_| {
        sandbox.repo().join("b").exists().then_some(())
    });
    assert_eq!(running.stdout(), "");
    fs_err::write(sandbox.repo().join("c"), "").unwrap();
    assert_eq!(running.wait(LONG).expect_code(0).stdout, "seen\n");
    assert_eq!(
        fs_err::read_to_string(sandbox.repo().join("a")).unwrap(),
        "one\ntwo\n"
    );
}

#[test]
fn p53_flood_has_the_scripted_size() {
    let ended = perform("flood 1M\nflood 65 stderr unbroken");
    assert_eq!(
        (ended.stdout.len(), ended.stdout.lines().count()),
        (1 << 20, 1 << 11)
    );
    assert_eq!((ended.stderr.len(), ended.stderr.lines().count()), (65, 1));
}

#[test]
fn garbage_is_invalid_utf_8_with_terminal_sequences() {
    let sandbox = Sandbox::new();
    let agent = sandbox.fake_agent(FAKE_AGENT, "garbage\nprint \\xff\\e[2J");
    let argv = agent.argv();
    let output = Command::new(&argv[0])
        .args(&argv[1..])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(std::str::from_utf8(&output.stdout).is_err());
    assert!(output.stdout.windows(4).any(|bytes| bytes == b"\x1b[2J"));
    assert!(output.stdout.ends_with(b"\xff\x1b[2J\n"));
}

#[test]
fn p53_signals_are_logged_and_only_the_named_ones_ignored() {
    let sandbox = Sandbox::new();
    let agent = sandbox.fake_agent(FAKE_AGENT, "ignore TERM INT\nno-stdin\nhang");
    let running = start(&sandbox, &agent, "never read");
    wait_for("the start", LONG, || agent.starts().pop());
    for (count, signal) in [Signal::TERM, Signal::INT, Signal::TERM]
        .into_iter()
        .enumerate()
    {
        running.signal(signal);
        wait_for("the log", LONG, || {
            (agent.signals().len() > count).then_some(())
        });
    }
    running.signal(Signal::HUP);
    running.wait(LONG).expect_signal(Signal::HUP);
    let names: Vec<String> = agent
        .signals()
        .into_iter()
        .map(|received| received.signal)
        .collect();
    assert_eq!(names, ["TERM", "INT", "TERM", "HUP"]);
    assert_eq!(agent.starts()[0].stdin, None);
}

#[test]
fn p53_child_can_ignore_its_own_set_of_signals() {
    let sandbox = Sandbox::new();
    let agent = sandbox.fake_agent(FAKE_AGENT, "child setsid ignore TERM\nchild plain\nhang");
    let _running = start(&sandbox, &agent, "");
    wait_for("both children", LONG, || {
        (agent.children().len() == 2).then_some(())
    });
    let (stubborn, meek) = (agent.children()[0].pid, agent.children()[1].pid);
    for pid in [stubborn, meek] {
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::TERM)
            .unwrap();
    }
    wait_for("the signal in both children", LONG, || {
        (agent.signals().len() == 2).then_some(())
    });
    let state = |pid| {
        sandbox
            .survivors()
            .scan()
            .into_iter()
            .find(|process| process.pid == pid)
            .map(|process| process.is_zombie())
    };
    wait_for("the end of the child that obeys signals", LONG, || {
        (state(meek) == Some(true)).then_some(())
    });
    assert_eq!(state(stubborn), Some(false));
}

#[test]
fn closed_stdout_ends_the_reader_unless_another_process_holds_it() {
    let sandbox = Sandbox::new();
    let read_all = |script: &str| {
        let agent = FakeAgent::new(
            FAKE_AGENT,
            sandbox.path().join(format!("agent-{}", script.len())),
            script,
        );
        let argv = agent.argv();
        let mut command = Command::new(&argv[0]);
        command
            .args(&argv[1..])
            .env_clear()
            .envs(sandbox.environment())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        (agent, command.spawn().unwrap())
    };
    let (_agent, mut child) = read_all("print last\nclose stdout\nhang");
    let mut text = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "last\n");
    assert!(
        child.try_wait().unwrap().is_none(),
        "the end of stdout is not the end of the process"
    );
    child.kill().unwrap();
    child.wait().unwrap();

    let (agent, mut child) = read_all("child holder\nprint done");
    child.wait().unwrap();
    let (finished, end) = std::sync::mpsc::channel();
    let mut stdout = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        stdout.read_to_end(&mut Vec::new()).unwrap();
        finished.send(()).unwrap();
    });
    assert!(end.try_recv().is_err(), "the holder keeps it open");
    let holder = rustix::process::Pid::from_raw(agent.children()[0].pid).unwrap();
    rustix::process::kill_process(holder, Signal::KILL).unwrap();
    end.recv_timeout(LONG).unwrap();
    reader.join().unwrap();
}
