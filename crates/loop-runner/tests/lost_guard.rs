//! A guard that dies before it reports its program has possibly started it, so the run can't prove its end. The guard is a setting of the whole process, so
//! the tests have a file of their own.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "an error is a failure of the test")]

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use loop_runner::agent_drivers::AgentConfig;
use loop_runner::agent_subprocess::guard;
use loop_runner::cancellable_sleep::SleepGate;
use loop_runner::rlm_store::{PhaseSettings, Project, PromptSource, Settings, WorkingTreeLock};
use loop_runner::{RunOutcome, Runner, RunnerOptions, drivers};
use tokio::sync::mpsc;

loop_runner::agent_subprocess::guard_before_main!();

/// Uses a guard that dies after it has accepted a program, as soon as the file `lost` exists in the directory. Before, it is an ordinary one.
fn use_mortal_guard(directory: &Path) {
    let frame = |text: &str| {
        let length = u32::try_from(text.len()).unwrap().to_le_bytes();
        [&length[..], text.as_bytes()].concat()
    };
    let hello = frame(r#"{"Hello":{"version":3,"start_time":0,"refused":null}}"#);
    let answers = [hello, frame(r#""Accepted""#)].concat();
    fs_err::write(directory.join("answers"), answers).unwrap();
    let (program, own) = (directory.join("guard"), std::env::current_exe().unwrap());
    let (place, own) = (directory.display(), own.display());
    let script = format!(
        "#!/bin/sh\nif test -e {place}/lost; then cat {place}/answers >&0; exit 0; fi\nexec {own} \"$@\"\n"
    );
    fs_err::write(&program, script).unwrap();
    let mode = std::fs::Permissions::from_mode(0o755);
    fs_err::set_permissions(&program, mode).unwrap();
    guard::guard_program(&program);
}

async fn run(directory: &Path, script: &str, check: Option<&str>) -> RunOutcome {
    let project = Project::find(directory).unwrap();
    let argv = ["sh", "-c", script].map(OsString::from).into();
    let prompt = PromptSource::Text("Write.".into());
    let mut phase = PhaseSettings::new("main", prompt, AgentConfig::command(argv));
    phase.limits.max_iterations = Some(1);
    phase.check = check.map(Into::into);
    let mut settings = Settings::new(project.directory(), vec![phase]);
    settings.limits.sleep = Duration::ZERO;
    settings.limits.max_failures = 1;
    let (run, gate) = ("r1".parse().unwrap(), SleepGate::new());
    let lock = WorkingTreeLock::take(&project, &run, &gate).await.unwrap();
    let made = Runner::create(lock, settings, RunnerOptions::new(gate)).await;
    let (runner, _events) = made.unwrap();
    let (_control, requests) = mpsc::channel(1);
    runner.run(drivers(), requests).await.unwrap()
}

#[tokio::test]
async fn run_with_a_lost_guard_is_not_proven() {
    let dir = tempfile::tempdir().unwrap();
    use_mortal_guard(dir.path());
    let outcome = run(dir.path(), "cat >/dev/null", Some("exit 1")).await;
    assert!(outcome.proven, "no guard was lost: {outcome:?}");

    // The guard of the check.
    let dir = tempfile::tempdir().unwrap();
    use_mortal_guard(dir.path());
    let lost = "cat >/dev/null; echo >lost";
    let outcome = run(dir.path(), lost, Some("exit 1")).await;
    assert!(!outcome.proven, "{outcome:?}");

    // The guard of the agent. No check follows.
    let dir = tempfile::tempdir().unwrap();
    use_mortal_guard(dir.path());
    fs_err::write(dir.path().join("lost"), "").unwrap();
    let outcome = run(dir.path(), "cat >/dev/null", None).await;
    assert!(!outcome.proven, "{outcome:?}");

    // The guard of a git that may start other programs.
    let dir = tempfile::tempdir().unwrap();
    let git = |arguments: &[&str]| {
        let git = std::process::Command::new("git")
            .args(arguments)
            .current_dir(dir.path())
            .status();
        assert!(git.unwrap().success());
    };
    git(&["init", "-q"]);
    fs_err::write(dir.path().join("file"), "").unwrap();
    git(&["add", "file"]);
    let user = ["-c", "user.name=t", "-c", "user.email=t@localhost"];
    git(&[&user[..], &["commit", "-qm", "first"]].concat());
    use_mortal_guard(dir.path());
    let outcome = run(dir.path(), "cat >/dev/null", None).await;
    assert!(outcome.proven, "no guard was lost: {outcome:?}");
    let _ended_run = fs_err::remove_dir_all(dir.path().join(".rlm"));
    let outcome = run(dir.path(), lost, None).await;
    assert!(!outcome.proven, "{outcome:?}");
}
