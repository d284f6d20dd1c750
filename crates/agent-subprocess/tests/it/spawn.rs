//! The start of an agent, its input and output, and its end.

use crate::scene::{DEADLINE, Scene, alone, own_test, passes, stdout};
use agent_subprocess::{Containment, StdinMode, StopPolicy, StopStage, TreeCommand};
use std::os::fd::AsRawFd as _;
use tokio::io::AsyncWriteExt as _;

const BOTH: [Containment; 2] = [Containment::Guard, Containment::Group];

#[tokio::test]
async fn p43a_exit_codes_and_signals_are_reported() {
    for containment in BOTH {
        let scene = Scene::new();
        for (script, expected) in [
            ("exit 0", "exit status 0"),
            ("exit 7", "exit status 7"),
            ("kill -9 $$", "killed by SIGKILL"),
        ] {
            let mut agent = scene
                .agent(script)
                .containment(containment)
                .spawn()
                .await
                .unwrap();
            assert_eq!(agent.wait().await.to_string(), expected);
            assert_eq!(
                agent.wait().await.to_string(),
                expected,
                "the exit stays the same"
            );
            let report = agent.stop(&StopPolicy::default()).await;
            assert_eq!(
                (report.stage, report.outputs_ended),
                (StopStage::AlreadyEnded, true),
                "{report}"
            );
        }
        scene.assert_no_process_is_left();
    }
}

#[tokio::test]
async fn both_streams_arrive_as_lines_with_any_bytes() {
    let scene = Scene::new();
    let mut agent = scene
        .agent(r"printf 'a\n\377\n\nlast'; echo oops >&2")
        .spawn()
        .await
        .unwrap();
    let lines = stdout(&mut agent).await;
    assert_eq!(lines, ["a", "\u{fffd}", "", "last"]);
    assert_eq!(agent.stderr_tail(), "oops\n");
    assert!(agent.wait().await.success());
}

#[tokio::test]
async fn l96d_line_of_ten_megabytes_passes_in_both_directions() {
    let scene = Scene::new();
    let mut input = vec![b'x'; 10 << 20];
    input.push(b'\n');
    let mut agent = scene
        .agent("cat")
        .stdin(StdinMode::Bytes(input))
        .spawn()
        .await
        .unwrap();
    let line = agent.next_output().await.unwrap().line;
    assert_eq!(
        (line.bytes.len(), line.truncated, line.terminated),
        (10 << 20, None, true)
    );
    assert!(agent.wait().await.success());
}

#[tokio::test]
async fn stdin_is_written_closed_and_closed_from_the_other_side() {
    let scene = Scene::new();
    let mut agent = scene
        .agent("cat; echo done")
        .stdin(StdinMode::Piped)
        .spawn()
        .await
        .unwrap();
    let mut stdin = agent.take_stdin().unwrap();
    assert!(agent.take_stdin().is_none());
    stdin.write_all(b"hello\n").await.unwrap();
    drop(stdin);
    assert_eq!(stdout(&mut agent).await, ["hello", "done"]);

    // The agent does not read: the writer waits for room until the other side closes.
    let mut agent = scene
        .agent("exec 3<&0 </dev/null; wait; sleep 600")
        .stdin(StdinMode::Piped)
        .spawn()
        .await
        .unwrap();
    let mut stdin = agent.take_stdin().unwrap();
    let (begun, mut has_begun) = tokio::sync::watch::channel(false);
    let writer = tokio::spawn(async move {
        stdin.write_all(b"fits").await?;
        begun.send_replace(true);
        stdin.write_all(&vec![0; 4 << 20]).await
    });
    // One thread runs both tasks: when this task continues, the writer waits in its second write.
    has_begun.changed().await.unwrap();
    agent.close_stdin();
    let error = tokio::time::timeout(DEADLINE, writer)
        .await
        .unwrap()
        .unwrap()
        .unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    agent.stop(&StopPolicy::kill()).await;
    scene.assert_no_process_is_left();
}

#[tokio::test]
async fn large_unread_prompt_blocks_nothing() {
    let scene = Scene::new();
    let mut agent = scene
        .agent("echo hi; exit 3")
        .stdin(StdinMode::Bytes(vec![b'p'; 8 << 20]))
        .spawn()
        .await
        .unwrap();
    assert_eq!(agent.wait().await.code, Some(3));
    assert_eq!(stdout(&mut agent).await, ["hi"]);
}

#[tokio::test]
async fn x123d_arguments_environment_and_directory_arrive_whole() {
    let scene = Scene::new();
    let big = "v".repeat(100 << 10);
    let script =
        r#"echo "$#" "${#1}" "${#BIG}" "${GONE-unset}" "$(pwd)"; printf '%s\n' "$2" | od -An -tx1"#;
    let odd = std::os::unix::ffi::OsStringExt::from_vec(vec![0xff, b' ', b'"', b'\n']);
    let odd: std::ffi::OsString = odd;
    let mut command = scene
        .agent(script)
        .arg("sh")
        .arg(&big)
        .arg(odd)
        .env("BIG", &big)
        .env("GONE", "x")
        .env_remove("GONE");
    // About 1.5 MiB of environment: more than any socket buffer accepts at once.
    for n in 0..15 {
        command = command.env(format!("FILL_{n}"), &big);
    }
    let mut agent = command.spawn().await.unwrap();
    let folder = scene.directory.path().canonicalize().unwrap();
    let lines = stdout(&mut agent).await;
    assert_eq!(
        lines[0],
        format!("2 {0} {0} unset {1}", big.len(), folder.display()),
        "{}",
        agent.stderr_tail()
    );
    assert_eq!(lines[1].trim(), "ff 20 22 0a 0a");

    let mut agent = TreeCommand::new("/usr/bin/env")
        .env("LOST", "1")
        .env_clear()
        .env("ONLY", "this")
        .spawn()
        .await
        .unwrap();
    let mut lines = stdout(&mut agent).await;
    lines.sort();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[0], "ONLY=this");
    assert!(lines[1].starts_with("PROCESS_TREE="), "{lines:?}");
}

#[tokio::test]
async fn j46_agent_has_its_own_session_and_default_signal_dispositions() {
    const TEST: &str = "spawn::j46_agent_has_its_own_session_and_default_signal_dispositions";
    const IGNORING: &str = "AGENT_SUBPROCESS_TEST_IGNORING";
    if std::env::var_os(IGNORING).is_none() {
        // As under nohup, or in the background of a script: the host itself was started with signals ignored.
        let test = own_test(TEST);
        let mut host = std::process::Command::new("sh");
        host.args(["-c", r#"trap "" HUP INT QUIT USR1; exec "$@""#, "sh"])
            .arg(test.get_program());
        return passes(TEST, host.args(test.get_args()).env(IGNORING, "1"));
    }
    let scene = Scene::new();
    for containment in BOTH {
        let command = |program: &str| TreeCommand::new(program).containment(containment);
        let mut agent = command("grep")
            .args(["-E", "^Sig(Blk|Ign)", "/proc/self/status"])
            .spawn()
            .await
            .unwrap();
        let signals = stdout(&mut agent).await;
        let mut agent = command("cut")
            .args(["-d ", "-f5,6", "/proc/self/stat"])
            .marker(scene.marker.clone())
            .spawn()
            .await
            .unwrap();
        let (pid, ids) = (agent.pid(), stdout(&mut agent).await);
        let clean = ["SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000"];
        if containment == Containment::Guard {
            assert_eq!(
                (&*signals, ids),
                (&clean.map(str::to_owned)[..], vec![format!("{pid} {pid}")])
            );
        } else {
            // The control experiment: without a guard, the agent inherits both, and its session is that of the host.
            assert!(
                signals[1] != clean[1] && ids[0] != format!("{pid} {pid}"),
                "{signals:?} {ids:?}"
            );
        }
    }
}

#[tokio::test]
async fn agent_inherits_no_descriptors_of_the_host() {
    // Every child of this process would inherit the descriptor that is leaked on purpose.
    if !alone("spawn::agent_inherits_no_descriptors_of_the_host") {
        return;
    }
    let scene = Scene::new();
    let lock = std::fs::File::create(scene.path("lock")).unwrap();
    lock.lock().unwrap();
    let leaked = rustix::io::fcntl_dupfd_cloexec(&lock, 200).unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    let mut agent = scene
        .agent("ls /proc/$$/fd; sleep 600 & wait")
        .hold(lock.try_clone().unwrap().into())
        .spawn()
        .await
        .unwrap();
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.push(agent.next_output().await.unwrap().line.text().into_owned());
    }
    assert_eq!(seen, ["0", "1", "2"], "and not {}", leaked.as_raw_fd());
    scene.wait_for_program("sleep", "600");
    assert_eq!(agent.leftovers().await.len(), 1);

    // The guard holds the lock until the process tree is gone, and no longer.
    drop((leaked, lock));
    let other = std::fs::File::open(scene.path("lock")).unwrap();
    assert!(other.try_lock().is_err());
    agent.stop(&StopPolicy::kill()).await;
    other.try_lock().unwrap();
}

#[test]
fn handles_can_be_sent_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<agent_subprocess::ProcessTree>();
    check::<agent_subprocess::Error>();
    check::<agent_subprocess::Stdin>();
    check::<TreeCommand>();
}
