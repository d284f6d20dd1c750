//! A program with a name of its own. The name is one of the process, so this file has one test.

#![expect(clippy::unwrap_used, reason = "an error is a failure of the test")]

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use loop_runner::agent_drivers::AgentConfig;
use loop_runner::cancellable_sleep::SleepGate;
use loop_runner::loop_state::{Evidence, StopCause, StopReason, StopRequest, StopTiming};
use loop_runner::rlm_store::{PhaseSettings, Project, PromptSource, Settings, WorkingTreeLock};
use loop_runner::{RunControl, RunOutcome, Runner, RunnerOptions};
use tokio::sync::mpsc;

loop_runner::agent_subprocess::guard_before_main!();

/// The agent: writes its environment and a line.
const AGENT: &str = "cat >/dev/null; env > environment; echo line >> notes";

#[tokio::test]
async fn k7a_program_has_its_own_state_directory_and_variables() {
    loop_runner::set_program_name("acme", "1.2.0").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(["-C", dir.path().to_str().unwrap()])
            .args(["-c", "user.name=a", "-c", "user.email=a@localhost"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    git(&["init", "-q"]);
    for (name, value) in [("user.name", "a"), ("user.email", "a@localhost")] {
        git(&["config", name, value]);
    }
    git(&["commit", "-q", "--allow-empty", "-m", "begin"]);

    let first = run(dir.path(), true).await;
    assert_eq!(first.reason, StopReason::Stopped(StopCause::Person));
    let resumed = run(dir.path(), false).await;
    assert_eq!(resumed.reason, StopReason::Done(Evidence::Check));
    assert!(first.survivors.is_empty() && resumed.survivors.is_empty());

    assert!(dir.path().join(".acme/runs/r1").is_dir());
    assert!(!dir.path().join(".rlm").exists());
    let environment = fs_err::read_to_string(dir.path().join("environment")).unwrap();
    let own: Vec<&str> = environment
        .lines()
        .filter(|line| line.starts_with("ACME_"))
        .collect();
    for variable in [
        "ACME_RUN_ID=r1",
        "ACME_PHASE=main",
        "ACME_ITERATION=2",
        "ACME_ATTEMPT=1",
    ] {
        assert!(own.contains(&variable), "{variable} is missing: {own:?}");
    }
    assert!(own.iter().any(|it| it.starts_with("ACME_MARKER=")));
    let others = environment.lines().filter(|it| it.starts_with("RLM_"));
    assert_eq!(others.count(), 0, "{environment}");
    // The commits of the run have the work, and not the state.
    let files = git(&["ls-files"]);
    assert_eq!(files, "environment\nnotes\n");
    let subjects = git(&["log", "--format=%s"]);
    assert!(subjects.contains("acme: iteration 2 of r1"), "{subjects}");
}

/// Works on the run `r1` until it ends; if it is new, only for one iteration.
async fn run(directory: &Path, is_new: bool) -> RunOutcome {
    let project = Project::find(directory).unwrap();
    let gate = SleepGate::new();
    let run = "r1".parse().unwrap();
    let work_tree = WorkingTreeLock::take(&project, &run, &gate).await.unwrap();
    let options = RunnerOptions::new(gate);
    let (control, requests) = mpsc::channel(8);
    let (runner, _events) = match is_new {
        true => {
            let stop = StopRequest {
                by: StopCause::Person,
                when: StopTiming::AfterIteration,
            };
            control.send(RunControl::Stop(stop)).await.unwrap();
            Runner::create(work_tree, settings(project.directory()), options)
                .await
                .unwrap()
        }
        false => Runner::open(work_tree, options).await.unwrap(),
    };
    let outcome = runner.run(loop_runner::drivers(), requests).await;
    outcome.unwrap()
}

fn settings(directory: &Path) -> Settings {
    let argv = ["sh", "-c", AGENT].map(OsString::from).into();
    let prompt = PromptSource::Text("Write two lines.".into());
    let mut phase = PhaseSettings::new("main", prompt, AgentConfig::command(argv));
    phase.check = Some("test $(wc -l < notes) -ge 2".into());
    phase.limits.max_iterations = Some(5);
    let mut settings = Settings::new(directory, vec![phase]);
    settings.commit = true;
    settings.limits.sleep = Duration::ZERO;
    settings
}
