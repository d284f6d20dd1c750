//! `bash`: real commands, and the end of all their processes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::hung_guard::HungGuard;
use crate::scene::{DEADLINE, Scene, peak_memory, runs_in_own_process, wait_for};

/// Starts a daemon in a session of its own and a process that ignores SIGTERM, and then waits.
const STUBBORN: &str = r#"
setsid sleep 1000 &
bash -c 'trap "" TERM; while :; do sleep 1000; done' &
(setsid bash -c 'trap "" TERM HUP; touch ready; sleep 1000' &)
echo started
wait
"#;

#[tokio::test]
async fn a12_command_runs_in_the_working_directory_with_both_outputs_in_order() {
    let scene = Scene::new();
    let text = scene
        .ok(
            "bash",
            json!({"command": "pwd; echo ü >&2; echo three; cat; exit 0"}),
        )
        .await;
    let directory = scene.context.directory.path().display();
    assert_eq!(
        text,
        format!("{directory}\nü\nthree\n"),
        "standard input is empty"
    );
    let order = "for n in $(seq 200); do echo o$n; echo e$n >&2; done";
    let text = scene.ok("bash", json!({"command": order})).await;
    let expected: String = (1..=200).map(|n| format!("o{n}\ne{n}\n")).collect();
    assert_eq!(text, expected);
    assert_eq!(
        scene.ok("bash", json!({"command": "true"})).await,
        "(no output)\n"
    );
    let failed = scene
        .failed("bash", json!({"command": "printf half; exit 3"}))
        .await;
    assert_eq!(failed, "half\n[exit status 3]");
    let failed = scene.failed("bash", json!({"command": "kill -9 $$"})).await;
    assert_eq!(failed, "(no output)\n[killed by SIGKILL]");
    let failed = scene.failed("bash", json!({"command": "if"})).await;
    assert!(failed.contains("syntax error"), "{failed}");
    let failed = scene
        .failed("bash", json!({"command": "x".repeat(3 << 20)}))
        .await;
    assert!(failed.contains("write it to a file"), "{}", failed.len());
    assert!(
        scene
            .failed("bash", json!({"command": "a\0b"}))
            .await
            .contains("NUL")
    );
    scene.assert_no_process_left();
}

#[test]
fn a12_long_output_keeps_its_start_and_end_in_bounded_memory() {
    let test = "bash::a12_long_output_keeps_its_start_and_end_in_bounded_memory";
    if runs_in_own_process(test, &[]) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let scene = Scene::new();
        scene.ok("bash", json!({"command": "echo warm"})).await;
        let before = peak_memory();
        let command = "echo first; yes 'a line of the middle' | head -c 200000000; echo last";
        let text = scene.ok("bash", json!({"command": command})).await;
        assert!(text.starts_with("first\na line") && text.ends_with("last\n"));
        assert!(text.len() <= 50 << 10 && text.lines().count() <= 2_000);
        assert!(text.contains(" lines (19995"), "the rest is counted");
        assert!(text.contains("are omitted here; use `head`"));
        let used = peak_memory() - before;
        assert!(used < 20 << 20, "{used} bytes");
    });
}

#[tokio::test]
async fn a12_time_limit_keeps_the_output_and_ends_all_processes() {
    let scene = Scene::new();
    let call = json!({"command": STUBBORN, "timeout_seconds": "1"});
    let text = scene.failed("bash", call).await;
    assert!(
        text.starts_with(
            "started\n[the command was ended at its time limit of 1 s; set `timeout_seconds`"
        ),
        "{text}"
    );
    scene.assert_no_process_left();
    // Output without a pause doesn't hide the limit.
    let flood = scene
        .failed("bash", json!({"command": "yes", "timeout_seconds": 1}))
        .await;
    assert!(flood.contains("time limit of 1 s"), "{}", flood.len());
    scene.assert_no_process_left();
}

#[tokio::test]
async fn a12_processes_in_the_background_end_with_the_call() {
    let scene = Scene::new();
    let command = "sleep 1000 & setsid sleep 1000 & echo started";
    let text = scene.ok("bash", json!({"command": command})).await;
    assert!(
        text.starts_with("started\n[2 processes that the command left behind were ended: "),
        "{text}"
    );
    assert!(text.ends_with(" sleep]"), "{text}");
    scene.assert_no_process_left();
}

#[tokio::test]
async fn a4_cancel_ends_the_whole_tree() {
    let scene = Arc::new(Scene::new());
    let (task, context) = (scene.clone(), scene.context.clone());
    let call = tokio::spawn(async move { task.run("bash", json!({"command": STUBBORN})).await });
    wait_for("the command", || scene.path("ready").exists()).await;
    assert!(scene.processes().len() >= 6, "{:?}", scene.processes());
    context.cancel.cancel();
    let output = tokio::time::timeout(DEADLINE, call).await.unwrap().unwrap();
    scene.assert_no_process_left();
    assert!(output.is_error);
    assert_eq!(output.text, "started\n[the command was interrupted]");
}

#[tokio::test]
async fn a4_cancelled_command_can_clean_up() {
    let scene = Arc::new(Scene::new());
    let (task, context) = (scene.clone(), scene.context.clone());
    let command = "trap 'echo cleaned; exit 0' TERM; touch ready; sleep 1000 & wait";
    let call = tokio::spawn(async move { task.run("bash", json!({"command": command})).await });
    wait_for("the command", || scene.path("ready").exists()).await;
    context.cancel.cancel();
    let output = tokio::time::timeout(DEADLINE, call).await.unwrap().unwrap();
    assert_eq!(output.text, "cleaned\n[the command was interrupted]");
    scene.assert_no_process_left();
}

#[tokio::test]
async fn a4_dropped_call_ends_the_whole_tree() {
    let scene = Arc::new(Scene::new());
    let task = scene.clone();
    let call = tokio::spawn(async move { task.run("bash", json!({"command": STUBBORN})).await });
    wait_for("the command", || scene.path("ready").exists()).await;
    call.abort();
    wait_for("the end of all processes", || scene.processes().is_empty()).await;
}

#[tokio::test]
async fn a12_frozen_command_is_suspended_and_its_time_does_not_count() {
    let scene = Arc::new(Scene::new());
    let (freeze, frozen) = tokio::sync::watch::channel(true);
    let mut context = scene.context.clone();
    context.frozen = frozen;
    let task = scene.clone();
    let command = "touch ready; until [ -e go ]; do sleep 0.01; done; echo done";
    let call = tokio::spawn(async move {
        let arguments = json!({"command": command, "timeout_seconds": 2});
        task.run_in(&context, "bash", arguments).await
    });
    let is_suspended = || {
        let processes = scene.processes();
        let mut members = processes.iter().filter(|found| !found.is_guard).peekable();
        members.peek().is_some() && members.all(|found| found.process.is_suspended())
    };
    wait_for("the suspended command", is_suspended).await;
    let start = Instant::now();
    wait_for("more time than the limit", || {
        start.elapsed() > Duration::from_secs(3)
    })
    .await;
    assert!(!call.is_finished());
    freeze.send(false).unwrap();
    wait_for("the command", || scene.path("ready").exists()).await;
    freeze.send(true).unwrap();
    wait_for("the suspended command", is_suspended).await;
    scene.write("go", "");
    freeze.send(false).unwrap();
    let output = tokio::time::timeout(DEADLINE, call).await.unwrap().unwrap();
    assert_eq!((output.text.as_str(), output.is_error), ("done\n", false));
}

#[tokio::test]
async fn a4_cancel_ends_a_frozen_command() {
    let scene = Arc::new(Scene::new());
    let (freeze, frozen) = tokio::sync::watch::channel(false);
    let mut context = scene.context.clone();
    context.frozen = frozen;
    let task = scene.clone();
    let call = tokio::spawn(async move {
        task.run_in(&context, "bash", json!({"command": STUBBORN}))
            .await
    });
    wait_for("the command", || scene.path("ready").exists()).await;
    freeze.send(true).unwrap();
    scene.context.cancel.cancel();
    let output = tokio::time::timeout(DEADLINE, call).await.unwrap().unwrap();
    assert!(output.is_error);
    scene.assert_no_process_left();
}

#[test]
fn a14_secrets_are_not_in_the_environment_of_a_command() {
    let test = "bash::a14_secrets_are_not_in_the_environment_of_a_command";
    let env = [
        ("OPENAI_API_KEY", "hidden-1"),
        ("db_password", "hidden-2"),
        ("PLAIN_NAME", "hidden-3"),
        ("SORT_KEY", "kept-1"),
        ("KEYBOARD", "kept-2"),
    ];
    if runs_in_own_process(test, &env) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let set_up =
            |bash: agent_api::Bash| bash.hide_variable("PLAIN_NAME").keep_variable("SORT_KEY");
        let own = [("GITHUB_TOKEN", "hidden-4"), ("OWN", "kept-3")];
        let scene = Scene::with(set_up, &own);
        let text = scene
            .ok(
                "bash",
                json!({"command": "env; bash -c env; cat /proc/self/environ"}),
            )
            .await;
        assert!(!text.contains("hidden-"), "{text}");
        for kept in ["SORT_KEY=kept-1", "KEYBOARD=kept-2", "OWN=kept-3", "PATH="] {
            assert!(text.contains(kept), "{kept}: {text}");
        }
    });
}

#[test]
fn a4_start_that_hangs_ends_at_once_and_at_its_time_limit() {
    let test = "bash::a4_start_that_hangs_ends_at_once_and_at_its_time_limit";
    if runs_in_own_process(test, &[]) {
        return;
    }
    let scene = Scene::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let guard = HungGuard::install(scene.context.directory.path());
        let command = json!({"command": "true", "timeout_seconds": 1});
        let late = scene.failed("bash", command).await;
        assert_eq!(
            late,
            "the command did not start within 1 s and was ended; it may have run for a moment"
        );
        guard.end();
        let guard = HungGuard::install(scene.context.directory.path());
        let cancel = async {
            wait_for("the start", || guard.hangs()).await;
            scene.context.cancel.cancel();
        };
        let call = scene.failed("bash", json!({"command": "true"}));
        let (interrupted, ()) = tokio::join!(call, cancel);
        assert_eq!(interrupted, "the call was interrupted");
        guard.end();
    });
}
