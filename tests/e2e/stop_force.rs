//! A person can always stop a run, whatever program listens on its socket, floods it, or damages its state.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rlm_tests::{Running, wait_for};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use crate::LONG;
use crate::control::{quick, socket};
use crate::scene::{STUBBORN_TREE, Scene, expect_in_order};

/// The number of connections that send nothing.
const FLOOD: usize = 60;

/// A program that listens on the socket of the run. Dropping it ends it.
struct Fake {
    path: PathBuf,
    end: Arc<AtomicBool>,
    asked: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Fake {
    fn wait_until_asked(&self) {
        wait_for("a request", LONG, || {
            self.asked.load(Ordering::SeqCst).then_some(())
        });
    }

    /// Listens in place of a suspended run. Answers each request with `first`, and then endlessly with `then`.
    fn new(path: PathBuf, first: &'static str, then: &'static str) -> Self {
        fs_err::remove_file(&path).unwrap();
        let listener = UnixListener::bind(&path).unwrap();
        let end = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&end);
        let asked = Arc::new(AtomicBool::new(false));
        let is_asked = Arc::clone(&asked);
        let thread = std::thread::spawn(move || {
            let mut open = Vec::new();
            while let Ok((stream, _)) = listener.accept() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                let copy = stream.try_clone().unwrap();
                open.push(copy);
                is_asked.store(true, Ordering::SeqCst);
                std::thread::spawn(move || answer(stream, first, then));
            }
        });
        Self {
            path,
            end,
            asked,
            thread: Some(thread),
        }
    }
}

fn answer(mut stream: UnixStream, first: &str, then: &str) {
    let mut request = String::new();
    let _gone = BufReader::new(stream.try_clone().unwrap()).read_line(&mut request);
    let mut is_heard = stream.write_all(first.as_bytes()).is_ok();
    while is_heard && !then.is_empty() {
        is_heard = stream.write_all(then.as_bytes()).is_ok();
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.end.store(true, Ordering::SeqCst);
        // This connection wakes the thread that listens, so that it ends. If the run has recreated its socket, the run gets the connection instead.
        let _woken = UnixStream::connect(&self.path);
        drop(fs_err::remove_file(&self.path));
        drop(self.thread.take());
    }
}

/// Returns a suspended run.
fn frozen(scene: &Scene) -> Running {
    let running = scene.ready(&["--until", "false", "--run-id", "r1"]);
    running.signal(Signal::STOP);
    running
}

/// Ends a suspended run while another program listens on its socket.
fn h5_forced(first: &'static str, then: &'static str) {
    let scene = Scene::new("print ready\nhang");
    let running = frozen(&scene);
    let fake = Fake::new(socket(&scene), first, then);
    let forced = quick(scene.rlm(&["stop", "--force", "--wait", "2s"])).expect_code(0);
    assert!(forced.stdout.len() < 4096, "{} bytes", forced.stdout.len());
    assert!(forced.stderr.len() < 4096, "{} bytes", forced.stderr.len());
    running.wait(LONG);
    drop(fake);
    scene.wait_until_nothing_is_alive();
}

#[test]
fn h5a_force_ends_a_run_whose_socket_is_silent() {
    h5_forced("", "");
}

#[test]
fn h5a_suspended_run_is_continued_and_saves_its_end() {
    let scene = Scene::new("print ready\nhang");
    let running = frozen(&scene);
    quick(scene.rlm(&["stop", "--force", "--wait", "15s"])).expect_code(0);
    running.wait(LONG).expect_signal(Signal::TERM);
    assert_eq!(scene.status()["state"], "stopped");
    scene.wait_until_nothing_is_alive();
}

#[test]
fn h5b_force_ends_a_run_whose_socket_sends_garbage() {
    h5_forced("garbage\n", "\u{1b}[2J");
}

#[test]
fn h5c_force_ends_a_run_whose_socket_repeats_delivered() {
    let delivered = "{\"v\":1,\"response\":\"delivered\"}\n".repeat(4096);
    h5_forced("", delivered.leak());
}

#[test]
fn h5d_force_ends_a_run_whose_socket_refuses() {
    h5_forced(
        "{\"v\":1,\"response\":\"rejected\",\"reason\":\"no\"}\n",
        "",
    );
}

#[test]
fn h5e_force_ends_a_run_whose_socket_is_always_busy() {
    h5_forced("{\"v\":1,\"response\":\"busy\"}\n", "");
}

#[test]
fn h5f_force_ends_a_run_whose_socket_falsely_reports_its_end() {
    h5_forced(
        "{\"v\":1,\"response\":\"run_ended\",\"reason\":\"done\",\"ended_processes\":0,\"survivors\":[],\"proven\":true}\n",
        "",
    );
}

#[test]
fn h5g_force_ends_a_run_whose_socket_only_promises_to_stop() {
    let recorded = "{\"v\":1,\"response\":\"recorded\",\"budget_ms\":18446744073709551615}\n";
    h5_forced(recorded, recorded);
    h5_forced(recorded, "");
}

#[test]
fn h5g_force_kills_a_run_that_stops_too_slowly() {
    let scene = Scene::new(STUBBORN_TREE);
    let slow = ["--until", "false", "--shutdown-timeout", "600s"];
    let running = scene.ready(&slow);
    let forced = quick(scene.rlm(&["stop", "--force", "--wait", "1s"])).expect_code(0);
    assert!(forced.stderr.contains("was killed"), "{forced}");
    running.wait(LONG).expect_signal(Signal::KILL);
    scene.wait_until_nothing_is_alive();
}

#[test]
fn h5f_a_socket_of_another_process_proves_no_end() {
    let scene = Scene::new("print ready\nhang");
    let running = frozen(&scene);
    let ended = "{\"v\":1,\"response\":\"run_ended\",\"reason\":\"done\",\"ended_processes\":0,\"survivors\":[],\"proven\":true}\n";
    let fake = Fake::new(socket(&scene), ended, "");
    let stop = scene.rlm(&["stop", "--wait", "15s"]).spawn();
    fake.wait_until_asked();
    running.signal(Signal::KILL);
    let stopped = stop.wait(LONG).expect_code(0);
    let words = "all processes ended, as far as rlm can see";
    assert!(stopped.stdout.contains(words), "{stopped}");
    running.wait(LONG);
    drop(fake);
    scene.wait_until_nothing_is_alive();
}

fn flood(scene: &Scene) -> Vec<UnixStream> {
    let path = socket(scene);
    let connect = |_| {
        let stream = UnixStream::connect(&path).ok()?;
        { &stream }.write_all(b"{\"v\":1").ok()?;
        Some(stream)
    };
    (0..FLOOD).filter_map(connect).collect()
}

/// Connects until the system accepts no more connections. Closed ones stay in the queue until the run accepts them.
fn fill(scene: &Scene) {
    let address = SocketAddrUnix::new(socket(scene)).unwrap();
    let connect = || {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        rustix::net::connect(&stream, &address)
    };
    let full = (0..100_000).find_map(|_| connect().err());
    assert_eq!(full, Some(Errno::AGAIN));
}

#[test]
fn h5h_force_ends_a_flooded_and_suspended_run() {
    let scene = Scene::new("print ready\nhang");
    let running = frozen(&scene);
    let flood = flood(&scene);
    fill(&scene);
    quick(scene.rlm(&["stop", "--force", "--wait", "2s"])).expect_code(0);
    running.wait(LONG);
    drop(flood);
    scene.wait_until_nothing_is_alive();
}

#[test]
fn h5i_flood_of_slow_connections_does_not_block_a_stop() {
    let scene = Scene::new("print ready\nhang");
    let running = scene.ready(&["--until", "false"]);
    for _ in 0..3 {
        let flood = flood(&scene);
        assert_eq!(flood.len(), FLOOD);
        quick(scene.rlm(&["pause", "--wait", "0"])).expect_code(0);
    }
    let flood = flood(&scene);
    let stopped = quick(scene.rlm(&["stop"])).expect_code(0);
    expect_in_order(&stopped.stdout, &["recorded", "stopped by a person"]);
    drop(flood);
    running.wait(LONG).expect_code(7);
    scene.expect_nothing_alive();
}

#[test]
fn h5j_force_needs_no_state() {
    for name in [&["r1"][..], &[]] {
        let scene = Scene::new("print ready\nhang");
        let running = frozen(&scene);
        fs_err::remove_dir_all(scene.file(".rlm")).unwrap();
        let stop = [&["stop"], name, &["--force", "--wait", "1s"]].concat();
        let forced = quick(scene.rlm(&stop)).expect_code(0);
        // The run was continued and has saved its end.
        assert!(forced.stdout.starts_with("r1: "), "{forced}");
        running.wait(LONG);
        scene.wait_until_nothing_is_alive();
    }
}

/// Ends a suspended run after a shell command changed its project.
fn h5j_forced(options: &[&str], deed: &str) {
    let scene = Scene::new("print ready\nhang");
    let run = [&["--until", "false", "--run-id", "r1"], options].concat();
    let running = scene.ready(&run);
    running.signal(Signal::STOP);
    let done = scene.sandbox.rlm("/bin/sh").args(["-ec", deed]).run(LONG);
    assert_eq!(done.code(), Some(0), "{deed}: {done}");
    let forced = quick(scene.rlm(&["stop", "r1", "--force", "--wait", "1s"])).expect_code(0);
    assert!(forced.stdout.starts_with("r1: "), "{deed}: {forced}");
    running.wait(LONG);
    scene.wait_until_nothing_is_alive();
}

#[test]
fn h5j_force_needs_no_readable_state() {
    for deed in [
        "mv .rlm x; ln -s x .rlm",
        "mv .rlm x; echo >.rlm",
        "mv .rlm/runs x; echo >.rlm/runs",
        "mv .rlm/runs/r1 x; ln -s ../../x .rlm/runs/r1",
        "mv .rlm/runs/r1 x; echo >.rlm/runs/r1",
        "cp -r .rlm/runs/r1 x; mv .rlm/runs/r1 y; mv x .rlm/runs/r1",
        "for it in .rlm/runs/r1/*.ck*; do echo x >$it; done",
    ] {
        h5j_forced(&[], deed);
    }
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can give files away");
    }
    for deed in ["chown 65534 .rlm", "chown 65534 .rlm/runs/r1"] {
        h5j_forced(&[], deed);
    }
}

#[test]
fn h5j_force_needs_no_working_tree() {
    for deed in [
        "rm -rf .rlm/worktrees/r1",
        "mv .rlm/worktrees/r1 ../moved",
        "rm -rf .rlm",
        "mv .rlm x",
    ] {
        h5j_forced(&["--worktree"], deed);
    }
}

#[test]
fn h5k_force_needs_no_lock_file() {
    let scene = Scene::new("print ready\nhang");
    let running = frozen(&scene);
    // The new file has no lock.
    let lock = scene.file(".rlm/runs/r1/LOCK");
    fs_err::remove_file(&lock).unwrap();
    fs_err::write(&lock, "").unwrap();
    quick(scene.rlm(&["stop", "r1", "--force", "--wait", "1s"])).expect_code(0);
    running.wait(LONG);
    scene.wait_until_nothing_is_alive();
}

fn is_alive(pid: u32) -> bool {
    test_kill_process(Pid::from_raw(pid.cast_signed()).unwrap()).is_ok()
}

/// Returns the start time of a process, in clock ticks since boot.
fn start_time(pid: u32) -> u64 {
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1;
    fields.split_whitespace().nth(19).unwrap().parse().unwrap()
}

#[test]
fn h11a_process_named_in_holder_file_gets_no_signal() {
    let scene = Scene::new("print ready\nhang");
    let running = frozen(&scene);
    let mut stranger = Command::new("sleep").arg("600").spawn().unwrap();
    let path = scene.file(".rlm/holder.json");
    let mut written: Value = serde_json::from_slice(&fs_err::read(&path).unwrap()).unwrap();
    written["process"]["pid"] = stranger.id().into();
    written["process"]["start_time"] = start_time(stranger.id()).into();
    fs_err::write(&path, written.to_string()).unwrap();
    let refused = quick(scene.rlm(&["stop", "--wait", "300ms"])).expect_code(1);
    let own = format!("kill -9 {}", running.pid());
    assert!(refused.stderr.contains(&own), "{refused}");
    quick(scene.rlm(&["stop", "--force", "--wait", "1s"])).expect_code(0);
    running.wait(LONG);
    assert!(stranger.try_wait().unwrap().is_none(), "it was ended");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    scene.wait_until_nothing_is_alive();
}

#[test]
fn h11b_process_that_only_opens_the_directory_gets_no_signal() {
    let scene = Scene::new("print ready\nhang");
    let running = scene.ready(&["--until", "false", "--run-id", "r1"]);
    running.signal(Signal::KILL);
    running.wait(LONG);
    scene.wait_until_nothing_is_alive();
    // A forged lock of the run, and another program of the person that has locked the directory.
    let hold = |path: PathBuf| {
        let mut flock = Command::new("flock");
        flock.arg(path).args(["sleep", "600"]);
        flock.stdin(Stdio::null()).spawn()
    };
    let Ok(mut state) = hold(scene.file(".rlm/runs/r1/LOCK")) else {
        println!("skipped: no flock to hold a lock with");
        return;
    };
    let mut stranger = hold(scene.sandbox.repo().to_owned()).unwrap();
    wait_for("both locks", LONG, || {
        (scene.status()["state"] == "running"
            && fs_err::read_to_string("/proc/locks")
                .unwrap()
                .contains(&format!(" {} ", stranger.id())))
        .then_some(())
    });
    let refused = quick(scene.rlm(&["stop", "r1", "--force", "--wait", "300ms"])).expect_code(1);
    let pid = stranger.id().to_string();
    assert!(
        refused.stderr.contains(&pid) && refused.stderr.contains("perhaps does not work on run"),
        "{refused}"
    );
    for held in [&mut state, &mut stranger] {
        assert!(is_alive(held.id()) && held.try_wait().unwrap().is_none());
        // Also ends its `sleep`.
        let children = format!("/proc/{0}/task/{0}/children", held.id());
        for child in fs_err::read_to_string(children).unwrap().split_whitespace() {
            kill_process(Pid::from_raw(child.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
        }
        held.wait().unwrap();
    }
}

#[test]
fn w12a_repeated_socket_output_is_printed_once() {
    let scene = Scene::new("print ready\nhang");
    let running = frozen(&scene);
    let delivered = "{\"v\":1,\"response\":\"delivered\"}\n";
    let fake = Fake::new(socket(&scene), delivered, delivered);
    for command in ["stop", "interrupt", "steer"] {
        let mut words = vec![command, "--wait", "1s"];
        words.extend((command == "steer").then_some("more"));
        let ended = quick(scene.rlm(&words));
        let printed = ended.stdout.len() + ended.stderr.len();
        assert!(printed < 4096, "{command}: {printed} bytes");
        assert_eq!(ended.stdout.matches("delivered").count(), 1, "{ended}");
    }
    drop(fake);
    running.signal(Signal::KILL);
    running.wait(LONG);
    scene.wait_until_nothing_is_alive();
}

#[test]
fn w12b_long_socket_response_is_shortened_and_sanitized() {
    let scene = Scene::new("print ready\nhang");
    let running = frozen(&scene);
    let why = format!(
        "{}{}",
        "\u{1b}]0;x\u{7}".escape_default(),
        "y".repeat(900_000)
    );
    let why = why
        .replace("\\u{1b}", "\\u001b")
        .replace("\\u{7}", "\\u0007");
    let line = format!("{{\"v\":1,\"response\":\"rejected\",\"reason\":\"{why}\"}}\n");
    let fake = Fake::new(socket(&scene), Box::leak(line.into_boxed_str()), "");
    let refused = quick(scene.rlm(&["stop", "--wait", "1s"])).expect_code(1);
    assert!(
        refused.stderr.len() < 8192,
        "{} bytes",
        refused.stderr.len()
    );
    assert!(!refused.stderr.contains('\u{1b}'), "{refused}");
    drop(fake);
    running.signal(Signal::KILL);
    running.wait(LONG);
    scene.wait_until_nothing_is_alive();
}
