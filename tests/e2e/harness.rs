//! The foundations of the other tests: a sandbox finds and ends its own processes, and a terminal works like a terminal.

use std::path::Path;

use rlm_tests::agent::ChildKind;
use rlm_tests::{Sandbox, wait_for};
use rustix::process::Signal;

use crate::{FAKE_AGENT, LONG};

const EVERY_KIND: &str = "child plain\nchild setsid\nchild daemon\nchild holder\nprint ready\n";

#[test]
fn every_kind_of_child_is_found_after_its_parents_exited() {
    let sandbox = Sandbox::new();
    let agent = sandbox.fake_agent(FAKE_AGENT, EVERY_KIND);
    agent.prepare(&sandbox).run(LONG).expect_code(0);

    let kinds: Vec<ChildKind> = agent.children().iter().map(|child| child.kind).collect();
    assert_eq!(
        kinds,
        [
            ChildKind::Plain,
            ChildKind::Setsid,
            ChildKind::Daemon,
            ChildKind::Holder
        ]
    );
    let mut expected: Vec<i32> = agent.children().iter().map(|child| child.pid).collect();
    expected.sort_unstable();
    let found = sandbox.survivors().scan();
    assert_eq!(
        found.iter().map(|process| process.pid).collect::<Vec<_>>(),
        expected
    );
    assert!(
        found
            .iter()
            .all(|process| process.ppid == std::process::id().cast_signed()),
        "the harness adopts orphans: {found:?}"
    );
}

#[test]
fn a_sandbox_ends_its_own_processes_and_no_others() {
    let (one, other) = (Sandbox::new(), Sandbox::new());
    let start = |sandbox: &Sandbox| {
        let agent = sandbox.fake_agent(
            FAKE_AGENT,
            "child daemon ignore TERM HUP INT\nprint ready\nhang",
        );
        let mut running = agent.prepare(sandbox).spawn();
        running.until("daemon", LONG, |running| {
            running.stdout().contains("ready").then_some(())
        });
        running
    };
    let (first, _second) = (start(&one), start(&other));
    assert_eq!(
        (one.survivors().scan().len(), other.survivors().scan().len()),
        (2, 2)
    );
    let daemon = one
        .survivors()
        .scan()
        .into_iter()
        .find(|process| process.pid != first.pid())
        .unwrap();
    drop(first);
    drop(one);
    wait_for("the end of the daemon", LONG, || {
        (!std::path::Path::new(&format!("/proc/{}", daemon.pid)).exists()).then_some(())
    });
    assert_eq!(other.survivors().scan().len(), 2);
}

#[test]
fn an_unreaped_child_of_a_test_process_is_listed_as_a_zombie() {
    let sandbox = Sandbox::new();
    let running = sandbox
        .rlm("/bin/sh")
        .args(["-c", "true & exec sleep 600"])
        .spawn();
    let zombie = wait_for("a zombie", LONG, || {
        sandbox
            .survivors()
            .scan()
            .into_iter()
            .find(|process| process.is_zombie())
    });
    assert_eq!(zombie.ppid, running.pid());
    drop(running);
    wait_for("the end of all processes", LONG, || {
        sandbox.survivors().scan().is_empty().then_some(())
    });
}

#[test]
fn process_without_marker_is_recognised_by_its_relatives() {
    let sandbox = Sandbox::new();
    let script = "env -i setsid sh -c 'sleep 600 & sleep 600' & exec sleep 600";
    let running = sandbox.rlm("/bin/sh").args(["-c", script]).spawn();
    wait_for("four processes", LONG, || {
        (sandbox.survivors().scan().len() == 4).then_some(())
    });
    drop(running);
    assert_eq!(
        sandbox.survivors().scan().len(),
        3,
        "even after the relative has exited"
    );
}

#[test]
fn ctrl_c_on_the_terminal_interrupts_its_foreground_process() {
    let sandbox = Sandbox::new();
    let agent = sandbox.fake_agent(FAKE_AGENT, "no-stdin\nprint here\nhang");
    let (running, terminal) = agent.prepare(&sandbox).spawn_on_terminal();
    let before = terminal.settings();
    terminal.wait_text("here", 0, LONG);
    terminal.send(b"\x03");
    running.wait(LONG).expect_signal(Signal::INT);
    let start = agent.starts().remove(0);
    assert_eq!(start.sid, start.pid, "it leads the session of the terminal");
    assert_eq!(agent.signals()[0].signal, "INT");
    assert_eq!(format!("{before:?}"), format!("{:?}", terminal.settings()));
}

#[test]
fn screen_matches_a_terminal() {
    let sandbox = Sandbox::new();
    let script =
        "no-stdin\nprint \\e[31mred\\e[0m\npart working\\rdone   \nawait go\nprint \\e[2Jafter";
    let agent = sandbox.fake_agent(FAKE_AGENT, script);
    let (running, terminal) = agent.prepare(&sandbox).spawn_on_terminal();
    terminal.sees("done", LONG);
    assert_eq!(terminal.screen(), "red\ndone   ");
    assert_eq!(terminal.cursor(), (1, 7));
    fs_err::write(sandbox.repo().join("go"), "").unwrap();
    terminal.sees_no("red", LONG);
    terminal.sees("after", LONG);
    running.wait(LONG).expect_code(0);

    let (running, terminal) = sandbox
        .rlm("/bin/sh")
        .args(["-c", "seq 100; stty size; read line; stty size"])
        .spawn_on_terminal();
    terminal.sees("40 120", LONG);
    assert!(!terminal.screen().contains("\n7\n"));
    let lines: Vec<String> = terminal.scrolled().lines().map(str::to_owned).collect();
    assert_eq!((lines[0].as_str(), lines[99].as_str()), ("1", "100"));
    terminal.resize(10, 20);
    terminal.send("\r");
    terminal.sees("10 20", LONG);
    running.wait(LONG).expect_code(0);
}

#[test]
fn a_shell_on_a_terminal_controls_its_jobs() {
    let sandbox = Sandbox::new();
    let (shell, terminal) = sandbox.shell().spawn_on_terminal();
    terminal.sees("$ ", LONG);
    assert_eq!(terminal.foreground(), Some(shell.pid()));
    terminal.send("sleep 600\r");
    wait_for("the sleep in the foreground", LONG, || {
        (terminal.foreground() != Some(shell.pid())).then_some(())
    });
    let state = || {
        let alive = sandbox.survivors().scan();
        alive
            .into_iter()
            .find(|process| process.name == "sleep")
            .map(|process| process.state)
    };
    wait_for("the sleep", LONG, || (state() == Some('S')).then_some(()));
    terminal.send(b"\x1a");
    wait_for("the stop", LONG, || (state() == Some('T')).then_some(()));
    terminal.sees("Stopped", LONG);
    terminal.send("fg\r");
    wait_for("the continuation", LONG, || {
        (state() == Some('S')).then_some(())
    });
    terminal.send(b"\x03");
    wait_for("the end", LONG, || state().is_none().then_some(()));
    terminal.send("exit 3\r");
    shell.wait(LONG).expect_code(3);
}

#[test]
fn sandbox_is_a_repository_with_one_commit_and_its_own_home() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.git(&["rev-list", "--count", "HEAD"]), "1");
    assert_eq!(sandbox.git(&["status", "--porcelain"]), "");
    let ended = sandbox
        .rlm("/bin/sh")
        .args(["-c", "echo $HOME $PWD; env | wc -l"])
        .run(LONG)
        .expect_code(0);
    assert!(
        ended.stdout.starts_with(&format!(
            "{} {}\n",
            sandbox.home().display(),
            sandbox.repo().display()
        )),
        "{ended}"
    );
    let count: usize = ended.stdout.lines().last().unwrap().trim().parse().unwrap();
    assert!(
        count <= sandbox.environment().len() + 4,
        "only the given variables, and the shell's own: {ended}"
    );
}

/// The clippy lint of CI knows each plain sleep, and exempts only the module that makes a sleep cancellable.
#[test]
fn c56a_every_sleep_in_product_code_can_be_cancelled() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &Path| fs_err::read_to_string(path).unwrap();
    let known = read(&root.join("clippy.toml"));
    for sleep in [
        "std::thread::sleep",
        "tokio::time::sleep",
        "tokio::time::sleep_until",
    ] {
        assert!(known.contains(&format!("path = \"{sleep}\"")), "{sleep}");
    }
    assert!(read(&root.join("Cargo.toml")).contains("\ndisallowed_methods = "));
    let mut folders = Vec::new();
    for entry in fs_err::read_dir(root.join("crates")).unwrap() {
        folders.push(entry.unwrap().path().join("src"));
    }
    let (mut files, mut excused) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                files += 1;
                if read(&path).contains("disallowed_methods") {
                    excused.push(path.strip_prefix(root.join("crates")).unwrap().to_owned());
                }
            }
        }
    }
    assert!(files > 300, "{files} files");
    assert_eq!(excused, [Path::new("cancellable-sleep/src/sleep.rs")]);
}
