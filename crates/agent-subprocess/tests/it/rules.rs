//! The rules of the guard's start, and process trees that resist their end.
//!
//! Other modules test the rest. `lost` tests that a host killed at any moment leaves nothing, that the host sweeps after a dead or silent guard, and
//! that a later sweep ends everything after both were killed. The end-to-end tests of `rlm` test the init, because such a test needs a program that
//! can run as init. `spawn` tests that a lock is held until the process tree is gone, and the environment of the agent. There is no separate test for
//! two facts: a report never blocks the kill (a host that does not read has the same effect as a stopped host), and a guard kills the descendants of
//! a process that it may not kill.

use crate::containment::quick;
use crate::lost::host;
use crate::scene::{Scene, VARIABLE, alone, is_gone, kill, own_test, wait_for, wait_for_line};
use agent_subprocess::{Containment, StopPolicy};
use rustix::process::{Signal, geteuid};
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const GUARD: &str = env!("CARGO_BIN_EXE_agent-guard");
const HOST: &str = "AGENT_SUBPROCESS_TEST_RULES";
const NOBODY: u32 = 65534;

/// Returns whether this command works here; prints what is skipped if it does not.
pub fn works(program: &str, args: &[&str]) -> bool {
    let quiet = Command::new(program)
        .args(args)
        .stderr(Stdio::null())
        .status();
    let works = quiet.is_ok_and(|status| status.success());
    if !works {
        println!("skipped: this use of {program} does not work here");
    }
    works
}

/// Not a test by itself: with the variable set, it starts a script, stops it as soon as it is ready, and prints the result.
#[tokio::test]
async fn helper_stops() {
    let Ok(settings) = std::env::var(HOST) else {
        return;
    };
    let mut settings = settings.splitn(3, ' ');
    let mut next = || settings.next().unwrap();
    let (scope, folder, script) = (next(), next(), next());
    let mut scene = Scene::new();
    scene.marker.scope = scope.to_owned();
    let command = || scene.agent(script).current_dir(folder);
    let mut agent = match command().containment(Containment::Guard).spawn().await {
        Ok(agent) => agent,
        Err(error) => {
            println!("\nrefused: {error}");
            let fallback = command().containment(Containment::Auto);
            fallback.spawn().await.unwrap()
        }
    };
    wait_for_line(&mut agent, "ready").await;
    println!("\nstopped: {}", agent.stop(&quick()).await);
}

/// Runs [`helper_stops`] in a process of its own, perhaps under another program, to stop a script; returns its output.
fn stopped_by(scene: &Scene, under: &[&str], script: &str) -> String {
    let test = own_test("rules::helper_stops");
    let mut line = under
        .iter()
        .map(std::ffi::OsStr::new)
        .chain([test.get_program()]);
    let mut command = Command::new(line.next().unwrap());
    command
        .args(line)
        .args(test.get_args())
        .stdin(Stdio::null());
    let folder = scene.directory.path().display();
    command.env(HOST, format!("{} {folder} {script}", scene.marker.scope));
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{said} {}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

fn status(pid: u32, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(field));
    lines.next().unwrap().trim().to_owned()
}

#[test]
fn guard_needs_its_argument_and_the_socket() {
    for word in ["--agent-guard", "--help"] {
        let run = Command::new(GUARD)
            .arg(word)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(
            !run.status.success() && said.contains("can't be started by hand"),
            "{said}"
        );
    }
    let (_ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let run = Command::new(GUARD)
        .stdin(std::os::fd::OwnedFd::from(theirs))
        .output()
        .unwrap();
    assert!(!run.status.success(), "a socket alone makes no guard");
}

#[tokio::test]
async fn guard_ignores_signals_and_holds_only_its_own_descriptors() {
    // Every child of this process would inherit the descriptor that is leaked on purpose.
    if !alone("rules::guard_ignores_signals_and_holds_only_its_own_descriptors") {
        return;
    }
    let scene = Scene::new();
    // A host with another name: a guard must not have the name of its host.
    fs::copy(GUARD, scene.path("some-host")).unwrap();
    agent_subprocess::guard::guard_program(scene.path("some-host"));
    let lock = fs::File::create(scene.path("lock")).unwrap();
    let leaked = rustix::io::fcntl_dupfd_cloexec(&lock, 200).unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    let command = scene.agent("echo ready; sleep 600").arg("a-secret");
    let mut agent = command.hold(lock.into()).spawn().await.unwrap();
    wait_for_line(&mut agent, "ready").await;
    scene.wait_for_program("sleep", "600");
    let guard = agent.guard().unwrap().pid;
    let read = |file: &str| fs::read(format!("/proc/{guard}/{file}")).unwrap();
    assert_eq!(read("comm"), b"agent-guard\n");
    let (line, environment) = (read("cmdline"), read("environ"));
    let mut line = line.split(|byte| *byte == 0);
    assert_eq!(
        [line.next(), line.next()],
        [Some(&b"agent-guard"[..]), Some(b"--agent-guard")]
    );
    let tells = |text: &[u8], word: &str| String::from_utf8_lossy(text).contains(word);
    assert!(!tells(&read("cmdline"), "a-secret") && !tells(&read("cmdline"), &scene.marker.scope));
    assert!(
        !tells(&environment, &scene.marker.scope),
        "only the agent has the marker"
    );
    assert_eq!(
        fs::read_link(format!("/proc/{guard}/cwd")).unwrap(),
        Path::new("/")
    );
    let mut held: Vec<String> = fs::read_dir(format!("/proc/{guard}/fd"))
        .unwrap()
        .map(|entry| {
            fs::read_link(entry.unwrap().path())
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .map(|target| target.split(':').next().unwrap().to_owned())
        .collect();
    held.sort();
    let lock = scene
        .path("lock")
        .canonicalize()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let expected = [
        "/dev/null",
        "/dev/null",
        "/dev/null",
        &lock,
        "anon_inode",
        "socket",
    ];
    assert_eq!(held, expected, "and not {}", leaked.as_raw_fd());
    for signal in [
        Signal::TERM,
        Signal::INT,
        Signal::HUP,
        Signal::QUIT,
        Signal::PIPE,
    ] {
        kill(guard, signal);
    }
    assert_eq!(agent.leftovers().await.len(), 1, "it still answers");
    let report = agent.stop(&quick()).await;
    assert!(report.is_proven(), "{report}");
}

#[test]
fn suspended_host_is_not_treated_as_dead() {
    let scene = Scene::new();
    let (mut host, guard, members) = host(&scene);
    kill(host.id(), Signal::STOP);
    // Longer than a guard waits after its host has died.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(2) {
        assert!(guard.is_alive() && members.iter().all(agent_subprocess::ProcessId::is_alive));
        std::thread::park_timeout(Duration::from_millis(50));
    }
    host.kill().unwrap();
    host.wait().unwrap();
    wait_for("their end", || scene.find().is_empty() && !guard.is_alive());
    assert!(members.iter().all(is_gone));
}

#[test]
fn process_of_another_user_is_named_and_does_not_block_a_stop() {
    if !geteuid().is_root() || !works("setpriv", &["--version"]) {
        return println!("skipped: only root can start as another user");
    }
    let scene = Scene::new();
    let tool = scene.path("become-root");
    fs::copy("/usr/bin/setpriv", &tool).unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o4755)).unwrap();
    fs::set_permissions(scene.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let as_nobody = [
        "setpriv",
        "--reuid",
        "65534",
        "--clear-groups",
        tool.to_str().unwrap(),
        "--reuid",
        "0",
        "true",
    ];
    if !works(as_nobody[0], &as_nobody[1..]) {
        return;
    }
    chown(scene.directory.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let script = "setsid ./become-root --reuid 0 sleep 617 >root 2>&1 & pid=$!; sleep 618 & until [ \"$(cat /proc/$pid/comm)\" = sleep ]; do sleep 0.02; done; echo $pid >pid; echo ready; sleep 619";
    let said = stopped_by(
        &scene,
        &[
            "setpriv",
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
        ],
        script,
    );
    let pid: u32 = fs::read_to_string(scene.path("pid"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let survivor = format!(" left: {pid} sleep");
    assert_eq!(status(pid, "Uid:"), "0\t0\t0\t0");
    kill(pid, Signal::KILL);
    assert!(
        said.lines()
            .any(|line| line.starts_with("stopped: 1 of ") && line.ends_with(&survivor)),
        "{said}"
    );
    wait_for("the end of the others", || scene.find().is_empty());
}

/// Starts `sleep` as an agent, and a tracer outside of its process tree.
async fn traced(scene: &Scene) -> (agent_subprocess::ProcessTree, std::process::Child) {
    let agent = scene.agent("exec sleep 620").spawn().await.unwrap();
    scene.wait_for_program("sleep", "620");
    let pid = agent.pid();
    let tracer = Command::new("strace")
        .args(["-qo", "/dev/null", "-p", &pid.to_string()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the tracer", || status(pid, "TracerPid:") != "0");
    (agent, tracer)
}

fn ends(mut tracer: std::process::Child) {
    tracer.kill().unwrap();
    tracer.wait().unwrap();
}

#[tokio::test]
async fn traced_process_is_ended_and_one_with_suspended_tracer_is_named() {
    if !works("strace", &["-qo", "/dev/null", "true"]) {
        return;
    }
    let scene = Scene::new();
    let (mut agent, tracer) = traced(&scene).await;
    let report = agent.stop(&quick()).await;
    ends(tracer);
    assert!(report.is_proven() && report.ended.len() == 1, "{report}");

    let (mut agent, tracer) = traced(&scene).await;
    kill(tracer.id(), Signal::STOP);
    let report = agent.stop(&quick()).await;
    ends(tracer);
    assert_eq!(
        report.to_string(),
        format!("1 of 1 left: {} sleep", agent.pid())
    );
    assert_eq!(report.exit, None);
    wait_for("its end", || scene.find().is_empty());
}

#[tokio::test]
async fn a_tracer_that_belongs_to_the_tree_is_ended_with_its_victim() {
    if !works("strace", &["-qo", "/dev/null", "true"]) {
        return;
    }
    let scene = Scene::new();
    let script = "setsid strace -qfo /dev/null sleep 621 & echo ready; wait";
    let mut agent = scene.agent(script).spawn().await.unwrap();
    wait_for_line(&mut agent, "ready").await;
    scene.wait_for_program("sleep", "621");
    let sleeper = scene
        .members()
        .into_iter()
        .find(|member| {
            fs::read_to_string(format!("/proc/{}/comm", member.pid))
                .is_ok_and(|name| name == "sleep\n")
        })
        .unwrap();
    kill(
        status(sleeper.pid, "TracerPid:").parse().unwrap(),
        Signal::STOP,
    );
    let report = agent.stop(&quick()).await;
    assert!(report.is_proven() && report.ended.len() == 3, "{report:?}");
    scene.assert_no_process_is_left();
}

#[tokio::test]
async fn agent_with_its_own_pid_namespace_is_ended_completely() {
    let own = ["--pid", "--fork", "--mount-proc"];
    if !works("unshare", &[&own[..], &["true"]].concat()) {
        return;
    }
    let scene = Scene::new();
    let script =
        "setsid sleep 622 & (setsid sh -c 'trap \"\" TERM; sleep 623' &); echo ready; wait";
    let mut agent = scene
        .agent("exec unshare \"$@\"")
        .arg("sh")
        .args(own)
        .args(["sh", "-c", script])
        .spawn()
        .await
        .unwrap();
    wait_for_line(&mut agent, "ready").await;
    scene.wait_for_program("sleep", "622");
    scene.wait_for_program("sleep", "623");
    let before = scene.members();
    let report = agent.stop(&quick()).await;
    assert!(
        report.is_proven() && before.iter().all(is_gone),
        "{report:?}"
    );
    assert!(before.len() >= 5, "{before:?}");
    scene.assert_no_process_is_left();
}

#[test]
fn foreign_proc_disables_the_guard_and_spares_other_processes() {
    if !works("unshare", &["--pid", "--fork", "true"]) {
        return;
    }
    let scene = Scene::new();
    // Only the group is known. A process that leaves it escapes, here until the namespace ends.
    let script = "setsid sleep 624 & sleep 625 & echo ready; wait";
    let said = stopped_by(
        &scene,
        &[
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            r#""$@"; exit $?"#,
            "sh",
        ],
        script,
    );
    assert!(
        said.contains("/proc belongs to another pid namespace"),
        "{said}"
    );
    assert!(said.contains("(no guard: checked only the"), "{said}");
    assert!(said.contains("stopped: all processes ended"), "{said}");
    scene.assert_no_process_is_left();
}

#[test]
fn guard_works_without_close_range() {
    let old = [
        "-fqqo",
        "/dev/null",
        "-e",
        "inject=close_range:error=ENOSYS",
    ];
    if !works("strace", &[&old[..], &["true"]].concat()) {
        return;
    }
    let scene = Scene::new();
    let script = "ls -l /proc/$PPID/fd >held; sleep 629 & setsid sleep 629 & echo ready; wait";
    let said = stopped_by(&scene, &[&["strace"], &old[..]].concat(), script);
    assert!(
        said.contains("stopped: all processes ended\n") && !said.contains("refused"),
        "{said}"
    );
    // The three standard streams, the socket, and the descriptor that reports the end of children.
    let held = fs::read_to_string(scene.path("held")).unwrap();
    assert_eq!(held.matches("->").count(), 5, "{held}");
    scene.assert_no_process_is_left();
}

#[tokio::test]
async fn p34a_an_agent_that_forks_as_it_is_stopped_is_ended() {
    let scene = Scene::new();
    // Bounded, and far from finished when the stop begins.
    let script = "echo ready; n=0; while [ $n -lt 150 ]; do n=$((n + 1)); (trap '' TERM; exec sleep 626) & done; wait";
    let mut agent = scene.agent(script).spawn().await.unwrap();
    wait_for_line(&mut agent, "ready").await;
    let report = agent.stop(&StopPolicy::kill()).await;
    assert!(report.is_proven() && !report.ended.is_empty(), "{report}");
    scene.assert_no_process_is_left();
}

/// The spec and its descriptors wait in the socket when the host ends.
#[test]
fn guard_does_not_start_the_program_of_a_host_that_is_gone() {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::os::fd::AsFd as _;
    let scene = Scene::new();
    let (ran, value) = (scene.path("ran"), format!("{}.1.1", scene.marker.scope));
    let spec = serde_json::json!({
        "program": "/bin/sh",
        "args": ["-c", format!("echo >{}", ran.display())],
        "env": [format!("{VARIABLE}={value}")],
        "directory": "/",
        "stdin": false,
    });
    let spec = spec.to_string();
    let length = u32::try_from(spec.len()).unwrap().to_le_bytes();
    let bytes = [&length[..], spec.as_bytes()].concat();
    let null = fs::File::options().write(true).open("/dev/null").unwrap();
    for is_alive in [true, false] {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let outputs = [null.as_fd(), null.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&outputs)));
        let slices = [std::io::IoSlice::new(&bytes)];
        let sent = sendmsg(&ours, &slices, &mut control, SendFlags::empty());
        assert_eq!(sent, Ok(bytes.len()));
        let ours = Some(ours).filter(|_| is_alive);
        let mut guard = Command::new(GUARD);
        guard
            .arg("--agent-guard")
            .stdin(std::os::fd::OwnedFd::from(theirs));
        let mut guard = guard.spawn().unwrap();
        wait_for("the end of the guard", || {
            guard.try_wait().unwrap().is_some()
        });
        assert_eq!(fs::remove_file(&ran).is_ok(), is_alive);
        drop(ours);
    }
    scene.assert_no_process_is_left();
}

#[tokio::test]
async fn guard_does_not_start_a_cancelled_agent() {
    let scene = Scene::new();
    // Dropped at every stage of a start: before the guard, during its hello, during the spawn.
    for polls in 0..12 {
        let spawn = scene.agent("sleep 628").spawn();
        tokio::pin!(spawn);
        for _ in 0..polls {
            tokio::select! {
                biased;
                agent = &mut spawn => { drop(agent.unwrap()); break }
                () = tokio::task::yield_now() => {}
            }
            std::thread::park_timeout(Duration::from_micros(300));
        }
    }
    scene.wait_for_the_end_of_all();
}
