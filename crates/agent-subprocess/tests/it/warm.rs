//! The warm guard: a program gets it if it fits, and each failure of it means an ordinary start, with exactly one program.

use crate::lost::fake_guard;
use crate::scene::{DEADLINE, Scene, alone, children, kill, own_test, stdout, wait_for};
use agent_subprocess::{ProcessId, StdinMode, StopPolicy, WarmGuard, sweep};
use rustix::process::{
    Pid, Resource, Signal, WaitOptions, getrlimit, kill_process_group, setrlimit, waitpid,
};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

const HOST: &str = "AGENT_SUBPROCESS_TEST_WARM_HOST";
const STARTER: &str = "AGENT_SUBPROCESS_TEST_STARTER";

fn read(pid: u32, file: &str) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default()
}

fn stat_field(pid: u32, number: usize) -> String {
    let stat = String::from_utf8(read(pid, "stat")).unwrap();
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    rest.split(' ').nth(number).unwrap_or_default().to_owned()
}

/// Waits until the guard waits for its program. Returns its pid.
fn wait_until_ready(warm: &WarmGuard) -> u32 {
    let mut ready = 0;
    wait_for("the warm guard", || {
        ready = warm.pid().unwrap_or(0);
        // It has its name after it has closed all descriptors, and sleeps when it has sent its hello.
        read(ready, "comm") == b"agent-guard\n" && stat_field(ready, 0) == "S"
    });
    ready
}

fn ready_guard(scene: &Scene) -> (WarmGuard, u32) {
    let warm = WarmGuard::new(&scene.marker.scope);
    warm.want();
    let pid = wait_until_ready(&warm);
    (warm, pid)
}

fn runs(scene: &Scene) -> usize {
    let text = fs::read_to_string(scene.path("runs")).unwrap_or_default();
    text.lines().count()
}

#[tokio::test]
async fn program_runs_under_the_guard_that_waits() {
    let scene = Scene::new();
    let (warm, pid) = ready_guard(&scene);
    warm.want();
    assert_eq!(warm.pid(), Some(pid), "one guard waits at most");
    // The program gets everything at its start.
    fs::create_dir(scene.path("later")).unwrap();
    let command = scene
        .agent("pwd; echo $LATER; cat; exit 7")
        .env("LATER", "set");
    let command = command
        .current_dir(scene.path("later"))
        .stdin(StdinMode::Bytes(b"input\n".to_vec()));
    let mut agent = command.warm_guard(&warm).spawn().await.unwrap();
    assert_eq!(agent.guard().unwrap().pid, pid);
    let directory = scene.path("later").canonicalize().unwrap();
    let expected = [directory.to_str().unwrap(), "set", "input"];
    assert_eq!(stdout(&mut agent).await, expected);
    assert_eq!(agent.wait().await.code, Some(7));
    let report = agent.stop(&StopPolicy::default()).await;
    assert!(report.is_proven(), "{report}");

    assert_eq!(warm.pid(), None);
    let mut cold = scene
        .agent("exit 3")
        .warm_guard(&warm)
        .spawn()
        .await
        .unwrap();
    assert_eq!(
        cold.wait().await.code,
        Some(3),
        "without a guard that waits"
    );
    // A description larger than the buffer of a socket.
    warm.want();
    let pid = wait_until_ready(&warm);
    let large = "v".repeat(100 << 10);
    let command = scene.agent("echo ${#LARGE_14}").warm_guard(&warm);
    let command = (0..15).fold(command, |command, n| {
        command.env(format!("LARGE_{n}"), &large)
    });
    let mut agent = command.spawn().await.unwrap();
    assert_eq!(agent.guard().unwrap().pid, pid);
    assert_eq!(stdout(&mut agent).await, [large.len().to_string()]);
    agent.stop(&StopPolicy::kill()).await;
    warm.close().await;
    scene.assert_no_process_is_left();
}

#[tokio::test]
async fn errors_of_a_start_are_the_same_with_a_warm_guard() {
    // The guard program is a setting of the whole process.
    if !alone("warm::errors_of_a_start_are_the_same_with_a_warm_guard") {
        return;
    }
    let scene = Scene::new();
    fake_guard(&scene, "exec $guard \"$@\"");
    let guards = || {
        let tries = fs::read_to_string(scene.path("tries")).unwrap();
        tries.lines().count()
    };
    for n in 0..3 {
        let command = || {
            let command = scene.agent("exit 0");
            match n {
                0 => command.current_dir(scene.path("none")),
                1 => agent_subprocess::TreeCommand::new("/no/such/agent"),
                _ => agent_subprocess::TreeCommand::new("/etc/passwd"),
            }
            .marker(scene.marker.clone())
        };
        let cold = command().spawn().await.unwrap_err();
        let before = guards();
        let (warm, pid) = ready_guard(&scene);
        let error = command().warm_guard(&warm).spawn().await.unwrap_err();
        assert_eq!(error.to_string(), cold.to_string());
        assert_eq!(guards(), before + 1, "no other guard starts");
        wait_for("the end of the guard", || read(pid, "stat").is_empty());
    }
}

#[tokio::test]
async fn x102g_guard_that_waits_holds_nothing_of_its_host() {
    // Every child of this process would inherit the descriptor that is leaked on purpose.
    if !alone("warm::x102g_guard_that_waits_holds_nothing_of_its_host") {
        return;
    }
    let scene = Scene::new();
    let lock = fs::File::create(scene.path("lock")).unwrap();
    let leaked = rustix::io::fcntl_dupfd_cloexec(&lock, 200).unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    let (warm, pid) = ready_guard(&scene);
    let mut held: Vec<_> = fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .map(|entry| fs::read_link(entry.unwrap().path()).unwrap())
        .map(|target| {
            target
                .to_str()
                .unwrap()
                .split(':')
                .next()
                .unwrap()
                .to_owned()
        })
        .collect();
    held.sort();
    let null = "/dev/null";
    assert_eq!(held, [null, null, null, "anon_inode", "socket"]);
    let directory = fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
    assert_eq!(directory, Path::new("/"));
    assert_eq!(stat_field(pid, 3), pid.to_string(), "a session of its own");
    for file in ["environ", "cmdline"] {
        let text = String::from_utf8_lossy(&read(pid, file)).into_owned();
        assert!(!text.contains(&scene.marker.scope), "{file}: {text}");
    }
    for signal in [
        Signal::TERM,
        Signal::INT,
        Signal::HUP,
        Signal::QUIT,
        Signal::PIPE,
    ] {
        kill(pid, signal);
    }
    let mut agent = scene
        .agent("exit 0")
        .warm_guard(&warm)
        .spawn()
        .await
        .unwrap();
    assert_eq!(agent.guard().unwrap().pid, pid, "it is still there");
    assert!(agent.wait().await.success());
}

#[tokio::test]
async fn guard_that_dies_while_it_waits_is_replaced() {
    if !alone("warm::guard_that_dies_while_it_waits_is_replaced") {
        return;
    }
    let scene = Scene::new();
    let (warm, pid) = ready_guard(&scene);
    kill(pid, Signal::KILL);
    wait_for("its end", || stat_field(pid, 0) == "Z");
    let command = scene.agent("echo >>runs").warm_guard(&warm);
    let mut agent = command.spawn().await.unwrap();
    assert_ne!(agent.guard().unwrap().pid, pid);
    assert!(agent.wait().await.success());
    agent.stop(&StopPolicy::default()).await;
    warm.close().await;
    assert_eq!((runs(&scene), children()), (1, String::new()));
}

#[tokio::test]
async fn suspended_guard_continues_for_its_program() {
    let scene = Scene::new();
    let (warm, pid) = ready_guard(&scene);
    kill(pid, Signal::STOP);
    wait_for("the suspension", || stat_field(pid, 0) == "T");
    let command = scene.agent("echo >>runs").warm_guard(&warm);
    let mut agent = command.spawn().await.unwrap();
    assert_eq!(agent.guard().unwrap().pid, pid);
    assert!(agent.wait().await.success());
    assert_eq!(runs(&scene), 1);
}

/// The guard dies at each moment of a start. Sometimes the program runs, and never twice.
#[tokio::test]
async fn x102h_program_starts_at_most_once_if_its_guard_dies_at_any_moment() {
    for n in 0..40 {
        let scene = Scene::new();
        let (warm, pid) = ready_guard(&scene);
        let killer = std::thread::spawn(move || {
            let start = std::time::Instant::now();
            while start.elapsed() < Duration::from_micros(40 * n) {}
            // The guard is possibly reaped by then. The test starts no other process that could have its pid.
            if read(pid, "comm") == b"agent-guard\n" {
                kill(pid, Signal::KILL);
            }
        });
        let command = scene.agent("echo >>runs").warm_guard(&warm);
        let spawned = command.spawn().await;
        killer.join().unwrap();
        match spawned {
            Ok(mut agent) => {
                let exit = agent.wait().await;
                agent.stop(&StopPolicy::kill()).await;
                assert!(!exit.success() || runs(&scene) == 1, "{exit}");
            }
            Err(error) => assert!(error.is_guard(), "{error}"),
        }
        assert!(runs(&scene) <= 1);
        warm.close().await;
        scene.assert_no_process_is_left();
    }
}

#[tokio::test]
async fn warm_guard_that_serves_nothing_is_replaced_and_one_that_accepted_is_not() {
    // The guard program is a setting of the whole process.
    if !alone("warm::warm_guard_that_serves_nothing_is_replaced_and_one_that_accepted_is_not") {
        return;
    }
    for (first, is_replaced) in [
        ("send refused; exit 0", true),
        ("send hello; exit 0", true),
        // As if it were suspended.
        ("send hello; exec sleep 672", true),
        ("exec sleep 672", true),
        ("send hello; head -c 100 <&0 >/dev/null; exit 0", true),
        (
            "send hello; until head -c 100 <&0 >/dev/null; do :; done; send accepted; exit 0",
            false,
        ),
    ] {
        let scene = Scene::new();
        fake_guard(
            &scene,
            &format!("if [ $(wc -l <tries) = 1 ]; then {first}; fi; exec $guard \"$@\""),
        );
        let warm = WarmGuard::new(&scene.marker.scope);
        warm.want();
        wait_for("the fake", || scene.path("tries").exists());
        let command = scene.agent("echo >>runs").warm_guard(&warm);
        match command.spawn().await {
            Ok(mut agent) => {
                assert!(is_replaced && agent.wait().await.success(), "{first}");
            }
            Err(error) => assert!(!is_replaced && error.is_guard(), "{first}: {error}"),
        }
        let tries = fs::read_to_string(scene.path("tries")).unwrap();
        let expected = if is_replaced { (2, 1) } else { (1, 0) };
        assert_eq!((tries.lines().count(), runs(&scene)), expected, "{first}");
    }
}

#[tokio::test]
async fn changed_limits_or_groups_need_another_guard() {
    // Both are settings of the whole process.
    if !alone("warm::changed_limits_or_groups_need_another_guard") {
        return;
    }
    let scene = Scene::new();
    let (warm, pid) = ready_guard(&scene);
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(limit.current.unwrap_or(1024) - 1);
    setrlimit(Resource::Nofile, limit).unwrap();
    let command = scene.agent("ulimit -n").warm_guard(&warm);
    let mut agent = command.spawn().await.unwrap();
    assert_ne!(agent.guard().unwrap().pid, pid);
    let soft = limit.current.unwrap().to_string();
    assert_eq!(stdout(&mut agent).await, [soft]);
    wait_for("the end of the unfit guard", || {
        read(pid, "stat").is_empty()
    });

    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can change its groups");
    }
    warm.close().await;
    let (warm, pid) = ready_guard(&scene);
    rustix::thread::set_thread_groups(&[rustix::process::Gid::from_raw(4242)]).unwrap();
    let command = scene.agent("id -G").warm_guard(&warm);
    let mut agent = command.spawn().await.unwrap();
    assert_ne!(agent.guard().unwrap().pid, pid);
    let groups = stdout(&mut agent).await;
    assert!(
        groups[0].split(' ').any(|group| group == "4242"),
        "{groups:?}"
    );
    // The thread that starts the next guard has not changed its groups. So the guard doesn't have them, although it starts after the change.
    warm.close().await;
    let (warm, pid) = ready_guard(&scene);
    let status = String::from_utf8(read(pid, "status")).unwrap();
    let groups = status.lines().find(|line| line.starts_with("Groups:"));
    assert!(!groups.unwrap().contains("4242"), "{groups:?}");
    let command = scene.agent("id -G").warm_guard(&warm);
    let mut agent = command.spawn().await.unwrap();
    assert_ne!(agent.guard().unwrap().pid, pid);
    let groups = stdout(&mut agent).await;
    assert!(groups[0].contains("4242"), "{groups:?}");
    // A program of another user has no group of root.
    let command = scene.agent("id -G").uid(65534).gid(65534);
    let mut agent = command.spawn().await.unwrap();
    assert_eq!(stdout(&mut agent).await, ["65534"]);
}

#[tokio::test]
async fn close_ends_the_guard_and_starts_no_other() {
    if !alone("warm::close_ends_the_guard_and_starts_no_other") {
        return;
    }
    let scene = Scene::new();
    let (warm, first) = ready_guard(&scene);
    warm.discard().await;
    assert_eq!(
        (warm.pid(), children()),
        (None, String::new()),
        "{first} is reaped"
    );
    warm.want();
    let second = wait_until_ready(&warm);
    kill(second, Signal::STOP);
    warm.close().await;
    assert_eq!(
        children(),
        "",
        "{second} is reaped, although it was suspended"
    );
    warm.want();
    assert_eq!(warm.pid(), None);
    let mut agent = scene
        .agent("exit 0")
        .warm_guard(&warm)
        .spawn()
        .await
        .unwrap();
    assert!(agent.wait().await.success());
    warm.close().await;
    // Without a wait for its start.
    let warm = WarmGuard::new(&scene.marker.scope);
    warm.want();
    warm.close().await;
    agent.stop(&StopPolicy::kill()).await;
    assert_eq!(children(), "");
}

/// The start of a program is dropped while its guard has the program. Only the place of the guard knows the guard then.
#[tokio::test]
async fn close_waits_for_the_guard_of_a_dropped_start() {
    if !alone("warm::close_waits_for_the_guard_of_a_dropped_start") {
        return;
    }
    let scene = Scene::new();
    let (warm, pid) = ready_guard(&scene);
    kill(pid, Signal::STOP);
    wait_for("the suspension", || stat_field(pid, 0) == "T");
    let spawning = scene.agent("echo >>runs").warm_guard(&warm).spawn();
    let dropped = tokio::time::timeout(Duration::ZERO, spawning).await;
    assert!(dropped.is_err() && warm.pid().is_none());
    warm.close().await;
    assert_eq!((children(), runs(&scene)), (String::new(), 0));
}

#[tokio::test]
async fn discard_kills_at_once_and_waits_only_for_its_guard() {
    if !alone("warm::discard_kills_at_once_and_waits_only_for_its_guard") {
        return;
    }
    let scene = Scene::new();
    let (warm, pid) = ready_guard(&scene);
    let discarded = warm.discard();
    // The runtime does not run here, as if its process were suspended.
    wait_for("its end", || stat_field(pid, 0) == "Z");
    warm.want();
    discarded.await;
    assert!(read(pid, "stat").is_empty(), "it is reaped");
    wait_until_ready(&warm);
    drop(warm.discard());
    warm.close().await;
    assert_eq!(children(), "");
}

/// A change of the user makes the memory of a process unreadable for everybody who may not trace other processes. The root of a container usually
/// may not, and its sweeps must find the guard.
#[tokio::test]
async fn sweep_finds_the_guard_of_a_program_of_another_user() {
    use rustix::thread::{self, CapabilitySet};
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can start a program of another user");
    }
    // These are attributes of this thread only, which starts the guard.
    let traces = CapabilitySet::SYS_PTRACE | CapabilitySet::SYS_ADMIN | CapabilitySet::PERFMON;
    for capability in traces {
        // Fails for a capability that this thread can't have anyway.
        let _unknown = thread::remove_capability_from_bounding_set(capability);
    }
    let mut own = thread::capabilities(None).unwrap();
    own.effective.remove(traces);
    own.permitted.remove(traces);
    thread::set_capabilities(None, own).unwrap();
    let scene = Scene::new();
    let command = scene.agent("exec sleep 676").uid(65534).gid(65534);
    let mut agent = command.current_dir("/").spawn().await.unwrap();
    let guard = agent.guard().unwrap();
    let found = scene.find();
    assert!(found.iter().any(|it| it.process == guard), "{found:?}");
    agent.stop(&StopPolicy::kill()).await;
    // The errors are those of the same user.
    for program in ["/no/such/agent", "/etc/passwd"] {
        let command = || agent_subprocess::TreeCommand::new(program);
        let own = command().spawn().await.unwrap_err().to_string();
        let other = command().uid(65534).gid(65534).spawn().await;
        assert_eq!(other.unwrap_err().to_string(), own);
    }
    let command = scene
        .agent("exit 0")
        .uid(65534)
        .current_dir(scene.path("none"));
    assert!(command.spawn().await.unwrap_err().is_bad_directory());
}

/// The end of a program is known before its guard is reaped. Its lock is free by then, and `close` waits for the guard.
#[tokio::test]
async fn lock_is_free_at_the_end_of_a_program_and_close_reaps_its_guard() {
    if !alone("warm::lock_is_free_at_the_end_of_a_program_and_close_reaps_its_guard") {
        return;
    }
    let scene = Scene::new();
    let path = scene.path("lock");
    fs::File::create(&path).unwrap();
    for _ in 0..100 {
        let warm = WarmGuard::new(&scene.marker.scope);
        warm.want();
        let lock = fs::File::open(&path).unwrap();
        lock.lock().unwrap();
        let command = scene.agent("sleep 673 & exit 0").hold(lock.into());
        let mut agent = command.warm_guard(&warm).spawn().await.unwrap();
        agent.wait().await;
        let other = fs::File::open(&path).unwrap();
        assert!(other.try_lock().is_err(), "a process is left");
        let report = agent.stop(&StopPolicy::kill()).await;
        assert!(report.is_proven(), "{report}");
        other.try_lock().unwrap();
        warm.close().await;
        assert_eq!(children(), "");
    }
}

#[test]
fn dropped_warm_guard_ends() {
    if !alone("warm::dropped_warm_guard_ends") {
        return;
    }
    // The end of the thread that started a guard would continue it too.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().thread_keep_alive(4 * DEADLINE).build();
    runtime.unwrap().block_on(async {
        for suspended in [false, true] {
            let scene = Scene::new();
            let (warm, pid) = ready_guard(&scene);
            if suspended {
                kill(pid, Signal::STOP);
            }
            drop(warm);
            let start = std::time::Instant::now();
            while !children().is_empty() && start.elapsed() < DEADLINE {
                tokio::task::yield_now().await;
            }
            assert_eq!(children(), "", "{pid} is reaped");
        }
    });
}

#[cfg(feature = "test-util")]
#[tokio::test]
async fn guard_that_is_too_old_ends_on_both_sides() {
    if !alone("warm::guard_that_is_too_old_ends_on_both_sides") {
        return;
    }
    let scene = Scene::new();
    let warm = WarmGuard::with_max_age(&scene.marker.scope, Duration::from_millis(50));
    warm.want();
    wait_until_ready(&warm);
    let start = std::time::Instant::now();
    while (warm.pid().is_some() || !children().is_empty()) && start.elapsed() < DEADLINE {
        tokio::task::yield_now().await;
    }
    assert_eq!((warm.pid(), children()), (None, String::new()));
    warm.want();
    wait_for("the next guard", || warm.pid().is_some());

    // A guard whose host can't end it: the host never reads, and keeps its socket open.
    let (_ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut guard = std::process::Command::new(env!("CARGO_BIN_EXE_agent-guard"));
    guard
        .arg("--agent-guard")
        .stdin(std::os::fd::OwnedFd::from(theirs));
    let mut guard = guard.env("AGENT_GUARD_WAIT_MS", "50").spawn().unwrap();
    wait_for("its end", || guard.try_wait().unwrap().is_some());
}

/// Not a test by itself: with the variable set, this process starts programs, each with a warm guard, until a test kills it.
#[tokio::test]
async fn helper_host() {
    let Ok(scope) = std::env::var(HOST) else {
        return;
    };
    let mut scene = Scene::new();
    scene.marker.scope = scope;
    let warm = WarmGuard::new(&scene.marker.scope);
    for n in 0_u64.. {
        warm.want();
        // Half of the guards are ready when they are needed.
        if n.is_multiple_of(2) {
            wait_until_ready(&warm);
        }
        let command = scene
            .agent("sleep 0.001; exec sleep 0.002")
            .warm_guard(&warm);
        let mut agent = command.spawn().await.unwrap();
        agent.wait().await;
        agent.stop(&StopPolicy::kill()).await;
    }
}

fn helper(scene: &Scene) -> std::process::Command {
    let mut command = own_test("warm::helper_host");
    command.env(HOST, &scene.marker.scope);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Not a test by itself: with the variable set, this process starts guards one after the other, until a test kills it.
#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn helper_starter() {
    let Ok(scope) = std::env::var(STARTER) else {
        return;
    };
    let _scene = Scene::new();
    let start = || {
        let scope = scope.clone();
        async move {
            loop {
                let warm = WarmGuard::new(&scope);
                warm.want();
                wait_until_ready(&warm);
                warm.close().await;
            }
        }
    };
    let starters: Vec<_> = (0..6).map(|_| tokio::spawn(start())).collect();
    for starter in starters {
        let () = starter.await.unwrap();
    }
}

/// A host that is only half stopped keeps the terminal, and its shell learns nothing.
#[test]
fn x126a_terminal_stops_a_host_that_starts_a_guard() {
    let scene = Scene::new();
    let mut host = own_test("warm::helper_starter");
    host.env(STARTER, &scene.marker.scope);
    host.stdin(Stdio::null()).stdout(Stdio::null());
    let mut host = host.process_group(0).spawn().unwrap();
    let pid = Pid::from_child(&host);
    for n in 0_u64..50 {
        std::thread::park_timeout(Duration::from_micros(5_000 + 130 * n));
        kill_process_group(pid, Signal::TSTP).unwrap();
        wait_for("the stop of the whole host", || {
            let options = WaitOptions::UNTRACED | WaitOptions::NOHANG;
            let status = waitpid(Some(pid), options).unwrap();
            status.is_some_and(|(_, status)| status.stopped())
        });
        kill_process_group(pid, Signal::CONT).unwrap();
    }
    host.kill().unwrap();
    host.wait().unwrap();
    scene.wait_for_the_end_of_all();
}

#[test]
fn x102g_host_killed_at_any_moment_leaves_no_warm_guard() {
    let scenes: Vec<Scene> = (0..30).map(|_| Scene::new()).collect();
    let mut had_guard = false;
    for (scene, n) in scenes.iter().zip(0_u64..) {
        let mut host = helper(scene).spawn().unwrap();
        std::thread::park_timeout(Duration::from_micros(15_000 + 1_300 * n));
        // A search delays the kill until no exec is in progress, so most of the hosts are killed without one.
        if n.is_multiple_of(3) {
            had_guard |= scene.find().iter().any(|found| found.is_guard);
        }
        host.kill().unwrap();
        host.wait().unwrap();
    }
    assert!(had_guard, "each host was killed before it had a guard");
    for scene in &scenes {
        scene.wait_for_the_end_of_all();
    }
}

/// Not a test by itself: with the variable set, this process starts a warm guard and waits until a test kills it.
#[tokio::test]
async fn helper_host_that_waits() {
    let Ok(scope) = std::env::var(HOST) else {
        return;
    };
    let mut scene = Scene::new();
    scene.marker.scope = scope;
    let (_warm, pid) = ready_guard(&scene);
    println!("\nguard: {pid}");
    loop {
        std::thread::park_timeout(DEADLINE);
    }
}

/// Starts a host whose warm guard waits. Returns the host and the guard.
fn host_that_waits(scene: &Scene) -> (Child, ProcessId) {
    let mut host = own_test("warm::helper_host_that_waits");
    let host = host.env(HOST, &scene.marker.scope).stdout(Stdio::piped());
    let mut host = host.spawn().unwrap();
    let lines = BufReader::new(host.stdout.take().unwrap()).lines();
    let mut pids = lines.map_while(Result::ok).filter_map(|line| {
        let pid = line.strip_prefix("guard: ")?;
        pid.parse::<u32>().ok()
    });
    let pid = pids.next().unwrap();
    let start_time = stat_field(pid, 19).parse().unwrap();
    (host, ProcessId { pid, start_time })
}

#[test]
fn x102g_warm_guard_ends_with_its_killed_host_also_if_it_is_suspended() {
    for suspended in [false, true] {
        let scene = Scene::new();
        let (mut host, guard) = host_that_waits(&scene);
        assert!(scene.find().iter().any(|found| found.process == guard));
        if suspended {
            kill(guard.pid, Signal::STOP);
        }
        host.kill().unwrap();
        host.wait().unwrap();
        wait_for("its end", || !guard.is_alive());
        scene.assert_no_process_is_left();
    }
}

#[tokio::test]
async fn sweep_ends_each_guard_and_names_only_one_with_a_program() {
    let scene = Scene::new();
    let (mut host, guard) = host_that_waits(&scene);
    let report = sweep::end(scene.find(), DEADLINE);
    assert_eq!(report, sweep::SweepReport::default());
    assert!(!guard.is_alive());
    host.kill().unwrap();
    host.wait().unwrap();

    let mut agent = scene.agent("exec sleep 677").spawn().await.unwrap();
    scene.wait_for_program("sleep", "677");
    let report = sweep::end(scene.find(), DEADLINE);
    let mut ended: Vec<_> = report.ended.iter().map(|it| it.name.as_str()).collect();
    ended.sort_unstable();
    assert_eq!(
        (ended, report.survivors.len()),
        (vec!["agent-guard", "sleep"], 0)
    );
    agent.stop(&StopPolicy::kill()).await;
}
