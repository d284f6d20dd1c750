//! The crate as somebody uses it for the first time, with its defaults. This test binary is its own guard: that is also the recipe for the tests of
//! your program.
#![cfg(target_os = "linux")]

use std::process::Command;
use std::time::Duration;

use agent_subprocess::{Containment, OutputMode, Signal, StopPolicy, TreeCommand, sweep};
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

agent_subprocess::guard_before_main!();

/// Ten times the expected time of any step.
const DEADLINE: Duration = Duration::from_secs(20);

fn shell(script: &str) -> TreeCommand {
    TreeCommand::new("sh").args(["-c", script])
}

#[tokio::test]
async fn k1b_test_binary_is_its_own_guard() {
    let mut tree = shell("setsid sleep 651 & echo ready; sleep 652")
        .spawn()
        .await
        .unwrap();
    assert_eq!(tree.containment(), Containment::Guard);
    assert_eq!(tree.next_output().await.unwrap().line.text(), "ready");
    let report = tree.stop(&StopPolicy::default()).await;
    assert!(report.is_proven(), "{report:?}");
}

#[tokio::test]
async fn k1c_process_tree_has_a_random_marker_by_default() {
    let mut trees = Vec::new();
    for _ in 0..2 {
        let mut tree = shell("echo ready; sleep 653").spawn().await.unwrap();
        assert_eq!(tree.next_output().await.unwrap().line.text(), "ready");
        trees.push(tree);
    }
    let scopes: Vec<_> = trees
        .iter()
        .map(|tree| tree.marker().scope.clone())
        .collect();
    assert_ne!(scopes[0], scopes[1]);
    for tree in &mut trees {
        let marker = tree.marker().clone();
        let found = sweep::find(&marker.variable, &marker.scope);
        let main = found
            .iter()
            .filter(|it| it.process.pid == tree.pid())
            .count();
        assert_eq!(main, 1, "{found:?}");
        assert!(found.iter().any(|it| it.is_guard), "{found:?}");
        tree.stop(&StopPolicy::kill()).await;
    }
}

#[tokio::test]
async fn k1d_lines_and_the_end_are_awaited_in_one_select() {
    let mut tree = shell("echo one; echo two >&2; read x; exit 3")
        .stdin(agent_subprocess::StdinMode::Piped)
        .spawn()
        .await
        .unwrap();
    let mut output = tree.take_output().unwrap();
    assert!(tree.take_output().is_none());
    assert!(tree.next_output().await.is_none());
    let (mut lines, mut exit) = (Vec::new(), None);
    while exit.is_none() || lines.len() < 2 {
        let step = async {
            tokio::select! {
                Some(output) = output.next() => lines.push(output.line.text().into_owned()),
                ended = tree.wait(), if exit.is_none() => exit = Some(ended),
            }
        };
        timeout(DEADLINE, step).await.unwrap();
        if lines.len() == 2 {
            tree.close_stdin();
        }
    }
    lines.sort();
    assert_eq!(lines, ["one", "two"]);
    assert_eq!(exit.unwrap().code, Some(3));
    assert!(tree.stop(&StopPolicy::default()).await.outputs_ended);
}

#[tokio::test]
async fn k1e_output_is_complete_byte_by_byte_and_leftovers_are_ended() {
    let script = "printf 'a\\0b\\r\\n\\nend'; yes 0123456789abcde | head -c 5242880 >&2; setsid sleep 654 >/dev/null 2>&1 & exit 4";
    // Nothing else reads these bytes, so the program would wait for ever.
    let program = shell(script).stderr(OutputMode::Bytes);
    let done = timeout(DEADLINE, program.output());
    let done = done.await.unwrap().unwrap();
    assert_eq!(done.exit.code, Some(4));
    assert_eq!(done.stdout, b"a\0b\r\n\nend");
    assert_eq!(done.stderr.len(), 5 << 20);
    assert_eq!(done.dropped, 0);
    assert!(done.report.is_proven(), "{:?}", done.report);
    assert_eq!(done.report.ended.len(), 1, "{:?}", done.report);
}

/// More standard error than is read ahead: the program waits for a caller that is late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_caller_gets_the_complete_output() {
    let output = shell("yes 0123456789abcde | head -c 16777216 >&2").output();
    let mut output = Box::pin(output);
    let late = std::future::poll_fn(|cx| {
        std::thread::park_timeout(Duration::from_millis(100));
        output.as_mut().poll(cx)
    });
    let done = timeout(DEADLINE, late).await.unwrap().unwrap();
    assert_eq!((done.stderr.len(), done.dropped), (16 << 20, 0));
}

#[tokio::test]
async fn k1f_any_signal_can_be_sent() {
    for containment in [Containment::Guard, Containment::Group] {
        let script = "trap 'exit 9' USR1; echo ready; while :; do sleep 0.1; done";
        let mut tree = shell(script)
            .containment(containment)
            .spawn()
            .await
            .unwrap();
        assert_eq!(tree.next_output().await.unwrap().line.text(), "ready");
        let none = tree.signal(Signal::Number(77)).unwrap_err();
        assert_eq!(
            none.to_string(),
            "there is no signal 77: choose one between 1 and 31"
        );
        tree.signal(Signal::Number(10)).unwrap();
        let exit = timeout(DEADLINE, tree.wait()).await.unwrap();
        assert_eq!(exit.code, Some(9), "{containment:?}");
        tree.stop(&StopPolicy::default()).await;
    }
}

#[tokio::test]
async fn k1g_outputs_can_be_raw_or_dropped() {
    let script = "printf 'a\\0\\nb'; echo lost >&2; echo kept >&2";
    let tree = shell(script)
        .stdout(OutputMode::Bytes)
        .stderr(OutputMode::Null);
    let mut tree = tree.spawn().await.unwrap();
    assert!(tree.take_stderr().is_none());
    let mut bytes = Vec::new();
    let mut stdout = tree.take_stdout().unwrap();
    timeout(DEADLINE, stdout.read_to_end(&mut bytes))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(bytes, b"a\0\nb");
    assert!(tree.next_output().await.is_none());
    assert!(tree.wait().await.success());
    let report = tree.stop(&StopPolicy::default()).await;
    assert!(report.outputs_ended, "{report:?}");
    assert_eq!(tree.stderr_tail(), "");
}

#[tokio::test]
async fn dropped_lines_close_the_output_of_the_program() {
    let script = "trap '' PIPE; while echo more; do :; done 2>/dev/null; exit 7";
    let mut tree = shell(script).spawn().await.unwrap();
    let mut output = tree.take_output().unwrap();
    assert_eq!(output.next().await.unwrap().line.text(), "more");
    drop(output);
    let exit = timeout(DEADLINE, tree.wait()).await.unwrap();
    assert_eq!(exit.code, Some(7), "a write of the program failed");
    tree.stop(&StopPolicy::default()).await;
}

/// Runs itself, because the output of a test belongs to its runner.
#[tokio::test]
async fn outputs_can_be_those_of_the_host() {
    const INNER: &str = "AGENT_SUBPROCESS_INHERITS";
    if std::env::var_os(INNER).is_some() {
        let tree = shell("echo out; echo err >&2");
        let tree = tree.stdout(OutputMode::Inherit).stderr(OutputMode::Inherit);
        let mut tree = tree.spawn().await.unwrap();
        assert!(tree.next_output().await.is_none());
        assert!(tree.wait().await.success());
        tree.stop(&StopPolicy::default()).await;
        return;
    }
    let this = std::env::current_exe().unwrap();
    let test = ["--exact", "outputs_can_be_those_of_the_host", "--nocapture"];
    let inner = TreeCommand::new(this).args(test).env(INNER, "1");
    let inner = inner.output().await.unwrap();
    assert!(inner.exit.success(), "{inner:?}");
    assert!(String::from_utf8_lossy(&inner.stdout).contains("out\n"));
    assert_eq!(String::from_utf8_lossy(&inner.stderr), "err\n");
}

#[tokio::test]
async fn k1h_command_of_the_standard_library_is_taken_over() {
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", "pwd -P; echo $SET ${HOME-unset} $0", "name"])
        .env("SET", "1")
        .env_remove("HOME")
        .current_dir(place.path());
    let tree = TreeCommand::from(command);
    let done = tree.output().await.unwrap();
    let there = place.path().canonicalize().unwrap();
    let expected = format!("{}\n1 unset name\n", there.display());
    assert_eq!(String::from_utf8_lossy(&done.stdout), expected);
}

#[tokio::test]
async fn k1i_program_of_another_user_is_ended_too() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can start a program as another user");
    }
    for containment in [Containment::Guard, Containment::Group] {
        let script = "id -u; id -g; id -G; setsid sleep 655 & exec sleep 656";
        let tree = shell(script).uid(65534).gid(65533).current_dir("/");
        let mut tree = tree.containment(containment).spawn().await.unwrap();
        for expected in ["65534", "65533", "65533"] {
            assert_eq!(tree.next_output().await.unwrap().line.text(), expected);
        }
        let report = tree.stop(&StopPolicy::default()).await;
        assert!(report.survivors.is_empty(), "{report:?}");
        assert_eq!(report.is_proven(), containment == Containment::Guard);
    }
}
