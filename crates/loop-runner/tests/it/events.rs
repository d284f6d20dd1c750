//! The events of a whole run, with a real agent and real checks: as lines for a log, and as JSON.

use std::ffi::OsString;
use std::time::Duration;

use agent_drivers::AgentConfig;
use cancellable_sleep::SleepGate;
use loop_runner::{RunEvent, Runner, RunnerOptions};
use rlm_store::{PhaseSettings, Project, PromptSource, Settings, WorkingTreeLock};
use tokio::sync::mpsc;

/// The agent: writes a line, and fails in its second turn.
const AGENT: &str =
    "cat >/dev/null; echo line >> notes; echo wrote a line; test $(wc -l < notes) -ne 2";

/// Executes a run of three iterations, and returns its events.
async fn events() -> Vec<RunEvent> {
    let dir = tempfile::tempdir().unwrap();
    let project = Project::find(dir.path()).unwrap();
    let (run, gate) = ("r1".parse().unwrap(), SleepGate::new());
    let work_tree = WorkingTreeLock::take(&project, &run, &gate).await.unwrap();
    let argv = ["sh", "-c", AGENT].map(OsString::from).into();
    let prompt = PromptSource::Text("Write three lines.".into());
    let mut phase = PhaseSettings::new("main", prompt, AgentConfig::command(argv));
    phase.required_checks = vec!["test -s notes".into()];
    phase.check = Some("test $(wc -l < notes) -ge 3".into());
    phase.limits.max_iterations = Some(5);
    let mut settings = Settings::new(project.directory(), vec![phase]);
    settings.limits.sleep = Duration::ZERO;
    let options = RunnerOptions::new(gate);
    let (runner, mut events) = Runner::create(work_tree, settings, options).await.unwrap();
    let (_control, requests) = mpsc::channel(1);
    let collect = async {
        let mut all = Vec::new();
        while let Some((_, event)) = events.recv().await {
            all.push(event);
        }
        all
    };
    let (outcome, all) = tokio::join!(runner.run(loop_runner::drivers(), requests), collect);
    outcome.unwrap();
    all
}

#[tokio::test]
async fn k7b_run_reports_these_events() {
    let events = events().await;
    let lines: Vec<String> = events.iter().map(ToString::to_string).collect();
    let json: Vec<String> = events
        .iter()
        .map(|event| serde_json::to_string(event).unwrap())
        .collect();
    insta::with_settings!({filters => vec![
        (r"pid \d+", "pid [PID]"),
        (r#""pid":\d+"#, r#""pid":[PID]"#),
        (r"after \d+\.\ds", "after [TIME]"),
        (r#""(secs|nanos)":\d+"#, r#""$1":[N]"#),
    ]}, {
        insta::assert_snapshot!("lines", lines.join("\n"));
        insta::assert_snapshot!("json", json.join("\n"));
    });
    // The form is complete: reading gives the same event.
    for (event, json) in events.iter().zip(&json) {
        let read: RunEvent = serde_json::from_str(json).unwrap();
        assert_eq!(format!("{read:?}"), format!("{event:?}"));
    }
}
