//! The host dies, the guard dies, both die, or the guard does not answer.

use crate::scene::{
    DEADLINE, Scene, TREE, TREE_SIZE, VARIABLE, alone, is_gone, kill, own_test, passes, wait_for,
    wait_for_line, wait_for_tree,
};
use agent_subprocess::sweep::{self, SweepReport};
use agent_subprocess::{Containment, ProcessId, StopPolicy};
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const HOST: &str = "AGENT_SUBPROCESS_TEST_HOST";

/// Not a test by itself: if the variable is set, this process starts an agent and is its host until a test kills it.
#[tokio::test]
async fn helper_host() {
    let Ok(settings) = std::env::var(HOST) else {
        return;
    };
    let (scope, folder) = settings.split_once(' ').unwrap();
    let mut scene = Scene::new();
    scene.marker.scope = scope.to_owned();
    let command = scene
        .agent(TREE)
        .current_dir(folder)
        .survivors_file(format!("{folder}/survivors"));
    let mut agent = command.spawn().await.unwrap();
    wait_for_line(&mut agent, "ready").await;
    let guard = agent.guard().unwrap();
    println!("\nhost: {} {} {}", guard.pid, guard.start_time, agent.pid());
    loop {
        std::thread::park_timeout(DEADLINE);
    }
}

/// Returns a command that runs [`helper_host`] for a scene.
pub fn helper(scene: &Scene) -> Command {
    let mut command = own_test("lost::helper_host");
    command.env(
        HOST,
        format!(
            "{} {}",
            scene.marker.scope,
            scene.directory.path().display()
        ),
    );
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// Starts a host in a process of its own and waits for its process tree. Returns the host, its guard and the members of the tree.
pub fn host(scene: &Scene) -> (Child, ProcessId, Vec<ProcessId>) {
    let mut host = helper(scene).spawn().unwrap();
    let mut lines = BufReader::new(host.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let line = lines
        .find_map(|line| line.strip_prefix("host: ").map(str::to_owned))
        .unwrap();
    let mut numbers = line.split(' ').map(|number| number.parse::<u64>().unwrap());
    let guard = ProcessId {
        pid: numbers.next().unwrap().try_into().unwrap(),
        start_time: numbers.next().unwrap(),
    };
    let members = wait_for_tree(scene);
    (host, guard, members)
}

#[test]
fn x102a_x102d_p37_nothing_outlives_a_killed_host_and_the_guard_reports() {
    let scene = Scene::new();
    let (mut host, guard, members) = host(&scene);
    assert!(guard.is_alive() && members.iter().all(ProcessId::is_alive));
    host.kill().unwrap();
    host.wait().unwrap();
    wait_for("the tree and its guard to be gone", || {
        scene.find().is_empty() && !guard.is_alive()
    });
    assert!(members.iter().all(is_gone));
    let report = SweepReport::read(&scene.path("survivors")).unwrap();
    assert_eq!(
        (report.ended.len(), report.survivors.len()),
        (TREE_SIZE, 0),
        "{report:?}"
    );
    let mode = std::fs::metadata(scene.path("survivors"))
        .unwrap()
        .permissions();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777,
        0o600
    );
    assert_eq!(
        SweepReport::read(&scene.path("none")).unwrap(),
        SweepReport::default()
    );
}

#[test]
fn truncated_line_loses_no_other_report() {
    let scene = Scene::new();
    let path = scene.path("survivors");
    let whole = br#"{"ended":[{"pid":7,"name":"earlier"}],"survivors":[]}"#;
    // The second line ends inside a character.
    let cut: [&[u8]; 2] = [
        br#"{"ended":[{"pid":8,"na"#,
        b"{\"ended\":[{\"pid\":8,\"name\":\"\xc3",
    ];
    for cut in cut {
        std::fs::write(&path, [whole, &b"\n"[..], cut].concat()).unwrap();
        let earlier = SweepReport::read(&path).unwrap();
        assert_eq!(earlier.ended.len(), 1, "{earlier:?}");
        let (mut host, guard, _) = host(&scene);
        host.kill().unwrap();
        host.wait().unwrap();
        wait_for("the tree and its guard to be gone", || {
            scene.find().is_empty() && !guard.is_alive()
        });
        let report = SweepReport::read(&path).unwrap();
        assert_eq!(report.ended.len(), 1 + TREE_SIZE, "{report:?}");
    }
}

/// At each moment the host does something else: nothing, starting a guard, spawning, or running.
#[test]
fn x102a_host_killed_at_any_moment_leaves_no_process() {
    let scenes: Vec<Scene> = (0..12).map(|_| Scene::new()).collect();
    for (scene, n) in scenes.iter().zip(0..) {
        let mut host = helper(scene).spawn().unwrap();
        std::thread::park_timeout(Duration::from_millis(3 * n));
        host.kill().unwrap();
        host.wait().unwrap();
    }
    for scene in &scenes {
        scene.wait_for_the_end_of_all();
    }
}

#[test]
fn x102b_sweep_ends_the_rest_after_a_kill_of_host_and_guard() {
    let scene = Scene::new();
    let (mut host, guard, members) = host(&scene);
    // The host is stopped first, so that it can't sweep by itself.
    kill(host.id(), Signal::STOP);
    kill(guard.pid, Signal::KILL);
    host.kill().unwrap();
    host.wait().unwrap();
    // The main process dies with its guard; the others need the sweep.
    wait_for("the guard and its child", || {
        !guard.is_alive() && scene.members().len() == TREE_SIZE - 1
    });
    let found = scene.find();
    let other = sweep::find(VARIABLE, &scene.marker.scope[1..]);
    assert!(
        other.is_empty(),
        "a part of the scope must not match: {other:?}"
    );
    let report = sweep::end(found.clone(), DEADLINE);
    assert_eq!(
        (report.ended.len(), report.survivors.len()),
        (found.len(), 0),
        "{report:?}"
    );
    assert!(members.iter().all(is_gone) || members.iter().all(|member| !member.is_alive()));
    scene.assert_no_process_is_left();
    assert_eq!(
        sweep::end(found, DEADLINE).survivors,
        [],
        "dead processes are not reported again"
    );
}

#[test]
fn sweep_ends_a_suspended_guard_first() {
    let scene = Scene::new();
    let (mut host, guard, _) = host(&scene);
    kill(guard.pid, Signal::STOP);
    // Suspend the host too: the guard would continue when its host ends.
    kill(host.id(), Signal::STOP);
    let found = scene.find();
    assert!(found[0].is_guard && found[0].process == guard, "{found:?}");
    let report = sweep::end(found, DEADLINE);
    assert!(
        report.survivors.is_empty() && report.ended.len() >= TREE_SIZE,
        "{report:?}"
    );
    host.kill().unwrap();
    host.wait().unwrap();
    scene.assert_no_process_is_left();
}

#[test]
fn x102a_suspended_guard_continues_when_its_host_is_killed() {
    let scene = Scene::new();
    let (mut host, guard, members) = host(&scene);
    kill(guard.pid, Signal::STOP);
    host.kill().unwrap();
    host.wait().unwrap();
    wait_for("the tree and its guard to be gone", || !guard.is_alive());
    assert!(!members.iter().any(ProcessId::is_alive));
    scene.assert_no_process_is_left();
}

#[tokio::test]
async fn host_sweeps_as_soon_as_its_guard_is_killed() {
    let scene = Scene::new();
    let mut agent = scene.agent(TREE).spawn().await.unwrap();
    wait_for_line(&mut agent, "ready").await;
    let members = wait_for_tree(&scene);
    kill(agent.guard().unwrap().pid, Signal::KILL);
    assert_eq!(agent.wait().await.to_string(), "exit status unknown");
    let report = agent.stop(&StopPolicy::default()).await;
    assert!(report.guard_lost && report.survivors.is_empty(), "{report}");
    assert!(!members.iter().any(ProcessId::is_alive));
    scene.assert_no_process_is_left();
}

/// The daemons run with idle priority, so a search meets them in the middle of an exec, where they have no environment. Each holds a FIFO open, so that
/// the test needs no search to see that none is left.
#[tokio::test]
async fn host_of_a_killed_guard_ends_the_processes_that_are_still_starting() {
    let daemons = "chrt -i -p 0 $$; for n in 1 2 3; do setsid sh -c 'setsid sh -c \"exec sleep 660\" & exit 0' & done";
    for _ in 0..10 {
        let scene = Scene::new();
        let held = scene.path("held");
        assert!(
            Command::new("mkfifo")
                .arg(&held)
                .status()
                .unwrap()
                .success()
        );
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let reader = rustix::fs::open(&held, flags, Mode::empty()).unwrap();
        let script = format!("exec 9>held; {daemons}; touch up; exec sleep 660");
        let mut tree = scene.agent(&script).spawn().await.unwrap();
        wait_for("the start", || scene.path("up").exists());
        kill(tree.guard().unwrap().pid, Signal::KILL);
        let report = tree.stop(&StopPolicy::kill()).await;
        assert!(report.survivors.is_empty(), "{report}");
        // A FIFO ends when nobody holds it open for writing any more. A killed process closes its files a moment later.
        wait_for("the end of all processes", || {
            rustix::io::read(&reader, &mut [0_u8; 1]) == Ok(0)
        });
    }
}

/// Without its main thread, the process is a zombie with threads, and only the threads have its environment.
#[tokio::test]
async fn process_without_its_main_thread_is_found_and_ended() {
    let python = Command::new("python3")
        .args(["-c", "import ctypes"])
        .status();
    if !python.is_ok_and(|status| status.success()) {
        println!("skipped: python3 is not installed");
        return;
    }
    let scene = Scene::new();
    std::fs::write(scene.path("threads.py"), THREADS).unwrap();
    let mut tree = scene
        .agent("python3 threads.py & while ! test -e up; do sleep 0.01; done; exec sleep 660")
        .spawn()
        .await
        .unwrap();
    wait_for("the thread", || scene.path("up").exists());
    wait_for("the end of the main thread", || {
        scene.find().iter().any(|it| {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", it.process.pid));
            stat.is_ok_and(|stat| stat.contains(") Z "))
        })
    });
    kill(tree.guard().unwrap().pid, Signal::KILL);
    let report = tree.stop(&StopPolicy::kill()).await;
    assert!(report.survivors.is_empty(), "{report}");
    assert!(
        report.ended.iter().any(|it| it.name.contains("python")),
        "{report}"
    );
    scene.assert_no_process_is_left();
}

const THREADS: &str = "import ctypes, threading, time
def stay():
    open('up', 'w').close()
    time.sleep(660)
threading.Thread(target=stay).start()
ctypes.CDLL(None).pthread_exit(None)
";

#[tokio::test]
async fn sweep_ends_a_process_that_lost_its_marker_after_it_was_found() {
    let scene = Scene::new();
    let script = "while ! test -e go; do sleep 0.01; done; exec env -i sleep 663";
    let command = scene.agent(script).containment(Containment::Group);
    let tree = command.spawn().await.unwrap();
    let is_main = |found: &sweep::MarkedProcess| found.process.pid == tree.pid();
    // Within the tick of its start, its pid and start time are not unmistakable.
    std::thread::park_timeout(Duration::from_millis(30));
    let found: Vec<_> = scene.find().into_iter().filter(is_main).collect();
    assert_eq!(found.len(), 1);
    std::fs::write(scene.path("go"), "").unwrap();
    wait_for("the exec", || !scene.find().iter().any(is_main));
    let process = found[0].process;
    assert!(process.is_alive());
    let report = sweep::end(found, DEADLINE);
    assert!(!process.is_alive(), "{report:?}");
    assert_eq!(report.ended.len(), 1, "{report:?}");
}

/// The child has no marker any more, and the sweep knows it only from its parent.
#[tokio::test]
async fn sweep_ends_a_child_without_marker_and_names_it() {
    let scene = Scene::new();
    let tree = scene
        .agent("(env -i sleep 660 & exec sleep 661) & exec sleep 662")
        .containment(Containment::Group)
        .spawn()
        .await
        .unwrap();
    scene.wait_for_program("sleep", "661");
    let all = |argument: &str| {
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        let of = pids.filter(|it| {
            std::fs::read(it.path().join("cmdline"))
                .is_ok_and(|line| line == format!("sleep\0{argument}\0").as_bytes())
        });
        of.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok())
            .collect::<Vec<_>>()
    };
    wait_for("the child", || !all("660").is_empty());
    let parent = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ")
            .and_then(|(_, rest)| rest.split(' ').nth(1)?.parse::<u32>().ok())
    };
    let parents = all("661");
    let ours = all("660")
        .into_iter()
        .find(|pid| parent(*pid).is_some_and(|it| parents.contains(&it)))
        .unwrap();
    let report = sweep::end(scene.find(), DEADLINE);
    assert!(report.ended.iter().any(|it| it.pid == ours), "{report:?}");
    assert!(report.survivors.is_empty(), "{report:?}");
    drop(tree);
}

#[tokio::test]
async fn stop_continues_a_suspended_guard() {
    let scene = Scene::new();
    let mut agent = scene.agent(TREE).spawn().await.unwrap();
    wait_for_line(&mut agent, "ready").await;
    wait_for_tree(&scene);
    kill(agent.guard().unwrap().pid, Signal::STOP);
    let report = agent.stop(&StopPolicy::default()).await;
    assert!(report.is_proven(), "{report}");
    scene.assert_no_process_is_left();
}

#[tokio::test]
async fn a_stop_does_not_hang_on_a_guard_that_does_not_answer() {
    let scene = Scene::new();
    let mut agent = scene.agent(TREE).spawn().await.unwrap();
    wait_for_line(&mut agent, "ready").await;
    let members = wait_for_tree(&scene);
    let guard = agent.guard().unwrap();
    // Stop the guard again after each SIGCONT of the host.
    let pid = rustix::process::Pid::from_raw(guard.pid.try_into().unwrap()).unwrap();
    let stopper = std::thread::spawn(move || {
        while guard.is_alive() {
            let _gone = rustix::process::kill_process(pid, Signal::STOP);
        }
    });
    let report = agent
        .stop(&StopPolicy::default().within(Duration::from_millis(400)))
        .await;
    stopper.join().unwrap();
    assert!(report.survivors.is_empty(), "{report}");
    assert!(!members.iter().any(ProcessId::is_alive));
    scene.assert_no_process_is_left();
}

/// The example is its own guard, like a program without a helper.
#[test]
fn a_program_is_its_own_guard() {
    let example = std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .join("../examples/tree");
    assert!(
        example.exists(),
        "build the examples too: cargo test without --test"
    );
    let run = Command::new(example).output().unwrap();
    let shown = String::from_utf8(run.stdout).unwrap();
    assert!(
        run.status.success(),
        "{shown} {}",
        String::from_utf8_lossy(&run.stderr)
    );
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "owned by: Guard");
    assert!(lines[1].starts_with("left over: "), "{shown}");
    assert_eq!(lines[2..], ["exit status 0; all processes ended"]);
}

#[tokio::test]
async fn guard_that_exits_before_it_answers_is_started_three_times() {
    // The guard program is a setting of the whole process.
    if !alone("lost::guard_that_exits_before_it_answers_is_started_three_times") {
        return;
    }
    let scene = Scene::new();
    let program = scene.path("flaky-guard");
    let script = format!(
        "#!/bin/sh\nread tries <{0} || tries=0; echo $((tries + 1)) >{0}; [ $tries -ge $NEEDED ] || exit 0\nexec {1} \"$@\"\n",
        scene.path("tries").display(),
        env!("CARGO_BIN_EXE_agent-guard"),
    );
    for (needed, works) in [(2, true), (3, false)] {
        let script = script.replace("$NEEDED", &needed.to_string());
        std::fs::write(&program, script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        std::fs::write(scene.path("tries"), "0\n").unwrap();
        agent_subprocess::guard::guard_program(&program);
        match scene.agent("exit 3").spawn().await {
            Ok(mut agent) => assert!(works && agent.wait().await.code == Some(3)),
            Err(error) => {
                assert!(!works && error.is_guard());
                let text = error
                    .to_string()
                    .replace(program.to_str().unwrap(), "PROGRAM");
                insta::assert_snapshot!(text, @"the guard PROGRAM ended 3 times before it answered: check that it calls `run_if_guard` first in main and has the same version as this library");
            }
        }
    }
    agent_subprocess::guard::guard_program("/no/such/guard");
    let error = scene.agent("exit 3").spawn().await.unwrap_err();
    assert!(error.is_guard(), "{error}");
}

/// Writes a shell script that replaces the guard. Each run of it adds a line to the file `tries`; `send hello`, `send refused` and `send accepted` send messages.
pub fn fake_guard(scene: &Scene, script: &str) {
    let frame = |text: &str| {
        let length = u32::try_from(text.len()).unwrap().to_le_bytes();
        [&length[..], text.as_bytes()].concat()
    };
    let hello = r#"{"Hello":{"version":4,"start_time":0,"refused":null}}"#;
    std::fs::write(scene.path("hello"), frame(hello)).unwrap();
    let refused = hello.replace("null", r#""no reason""#);
    std::fs::write(scene.path("refused"), frame(&refused)).unwrap();
    std::fs::write(scene.path("accepted"), frame(r#""Accepted""#)).unwrap();
    let program = scene.path("fake-guard");
    let folder = scene.directory.path().display();
    let script = format!(
        "#!/bin/bash\nguard={}; cd {folder}; echo >>tries\nsend() {{ cat $1 >&0; }}\n{script}\n",
        env!("CARGO_BIN_EXE_agent-guard"),
    );
    std::fs::write(&program, script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    agent_subprocess::guard::guard_program(&program);
}

fn lines_of(scene: &Scene, file: &str) -> usize {
    let text = std::fs::read_to_string(scene.path(file)).unwrap_or_default();
    text.lines().count()
}

#[tokio::test]
async fn guard_that_ends_before_it_accepts_the_spec_is_replaced() {
    // The guard program is a setting of the whole process.
    if !alone("lost::guard_that_ends_before_it_accepts_the_spec_is_replaced") {
        return;
    }
    for reads in ["", "head -c 100 <&0 >/dev/null;"] {
        let scene = Scene::new();
        let first = format!("{reads} send hello; exit 0");
        let script = format!("if [ $(wc -l <tries) = 1 ]; then {first}; fi; exec $guard \"$@\"");
        fake_guard(&scene, &script);
        let mut agent = scene.agent("echo >>runs").spawn().await.unwrap();
        assert!(agent.wait().await.success());
        assert_eq!(
            (lines_of(&scene, "tries"), lines_of(&scene, "runs")),
            (2, 1)
        );
    }
}

/// The guard has possibly spawned the program, so a second guard could start a second program.
#[tokio::test]
async fn guard_that_ends_after_it_accepted_the_spec_is_swept_and_not_replaced() {
    if !alone("lost::guard_that_ends_after_it_accepted_the_spec_is_swept_and_not_replaced") {
        return;
    }
    let scene = Scene::new();
    let script = format!(
        "send hello; send accepted\n{VARIABLE}={}.1.1 setsid sh -c 'echo >up; exec sleep 671' </dev/null &\nuntil test -e up; do sleep 0.01; done",
        scene.marker.scope,
    );
    fake_guard(&scene, &script);
    let error = scene.agent("echo >>runs").spawn().await.unwrap_err();
    assert!(error.is_guard(), "{error}");
    scene.assert_no_process_is_left();
    assert_eq!(
        (lines_of(&scene, "tries"), lines_of(&scene, "runs")),
        (1, 0)
    );
}

#[tokio::test]
async fn p41a_dropping_an_agent_ends_its_tree() {
    let scene = Scene::new();
    let mut agent = scene.agent(TREE).spawn().await.unwrap();
    wait_for_line(&mut agent, "ready").await;
    let (guard, members) = (agent.guard().unwrap(), wait_for_tree(&scene));
    drop(agent);
    wait_for("their end", || scene.find().is_empty() && !guard.is_alive());
    assert!(members.iter().all(is_gone));
}

#[tokio::test]
async fn dropping_an_agent_ends_its_tree_with_a_suspended_guard() {
    let scene = Scene::new();
    let mut agent = scene.agent(TREE).spawn().await.unwrap();
    wait_for_line(&mut agent, "ready").await;
    let (guard, members) = (agent.guard().unwrap(), wait_for_tree(&scene));
    kill(guard.pid, Signal::STOP);
    drop(agent);
    wait_for("their end", || scene.find().is_empty() && !guard.is_alive());
    assert!(members.iter().all(is_gone));
}

#[test]
fn a_sweep_never_finds_itself_or_its_ancestors() {
    const TEST: &str = "lost::a_sweep_never_finds_itself_or_its_ancestors";
    let Ok(marker) = std::env::var(VARIABLE) else {
        let scene = Scene::new();
        let marker = format!("{}.1", scene.marker.scope);
        return passes(TEST, own_test(TEST).env(VARIABLE, marker));
    };
    // The parent is the first run of this test; it has the variable, so it has the marker as well.
    if alone(TEST) {
        let scope = marker.trim_end_matches(".1");
        let mut sibling = Command::new("sleep").arg("650").spawn().unwrap();
        let found = sweep::find(VARIABLE, scope);
        let pids: Vec<u32> = found.iter().map(|found| found.process.pid).collect();
        let report = sweep::end(found, DEADLINE);
        sibling.kill().unwrap();
        sibling.wait().unwrap();
        assert_eq!((pids, report.survivors), (vec![sibling.id()], vec![]));
    }
}

#[tokio::test]
async fn guard_that_can_start_no_process_reports_it() {
    if !alone("lost::guard_that_can_start_no_process_reports_it") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can give a guard another user");
    }
    let scene = Scene::new();
    // The limit counts the processes of the user. This user has no other process.
    let user = 2_000_000_000 + std::process::id();
    let start =
        format!("exec setpriv --reuid={user} --clear-groups prlimit --nproc=1 $guard \"$@\"");
    fake_guard(&scene, &start);
    let error = scene.agent("exit 0").spawn().await.unwrap_err();
    assert!(error.to_string().contains("too many processes"), "{error}");
}
