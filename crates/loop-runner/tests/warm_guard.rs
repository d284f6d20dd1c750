//! The guard of the next agent or command starts during the save before it. This program is its own guard, so the tests have a file of their own.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "an error is a failure of the test")]

use std::ffi::OsString;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use loop_runner::agent_drivers::AgentConfig;
use loop_runner::agent_subprocess::WarmGuard;
use loop_runner::cancellable_sleep::SleepGate;
use loop_runner::loop_state::StopReason;
use loop_runner::rlm_store::{PhaseSettings, Project, PromptSource, Settings, WorkingTreeLock};
use loop_runner::{
    DriverFactory, Hook, HookEventKind, HookInput, HookTarget, RunControl, Runner, RunnerOptions,
};
use tokio::sync::mpsc;

loop_runner::agent_subprocess::guard_before_main!();

/// The warm guards that each attempt found: the place, and the pid of the guard that waits there.
type Seen = Arc<Mutex<Vec<(WarmGuard, Option<u32>)>>>;

/// Returns a factory of the usual drivers that records the warm guard at the start of each agent.
fn observing(seen: &Seen) -> DriverFactory {
    let (seen, drivers) = (seen.clone(), loop_runner::drivers());
    Box::new(move |phase, context| {
        let warm = context.warm_guard.clone().unwrap();
        // The guard starts in a thread of its own, possibly after a short save.
        let start = Instant::now();
        while warm.pid().is_none() && start.elapsed() < Duration::from_secs(5) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        let pid = warm.pid();
        seen.lock().unwrap().push((warm, pid));
        drivers(phase, context)
    })
}

fn settings(directory: &Path, script: &str) -> Settings {
    let argv = ["sh", "-c", script].map(OsString::from).into();
    let prompt = PromptSource::Text("Write.".into());
    let mut phase = PhaseSettings::new("main", prompt, AgentConfig::command(argv));
    phase.limits.max_iterations = Some(3);
    let mut settings = Settings::new(directory, vec![phase]);
    settings.limits.sleep = Duration::ZERO;
    settings
}

async fn lock(project: &Project) -> WorkingTreeLock {
    let (run, gate) = ("r1".parse().unwrap(), SleepGate::new());
    WorkingTreeLock::take(project, &run, &gate).await.unwrap()
}

/// Returns the parent of each agent, as the agents wrote them.
fn parents(directory: &Path) -> Vec<u32> {
    let text = fs_err::read_to_string(directory.join("parents")).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

fn children() -> String {
    let threads = fs_err::read_dir("/proc/self/task").unwrap();
    let of = |thread: std::io::Result<fs_err::DirEntry>| {
        fs_err::read_to_string(thread.unwrap().path().join("children")).unwrap_or_default()
    };
    threads.map(of).collect()
}

#[tokio::test]
async fn x102i_each_agent_runs_under_the_guard_that_started_during_the_save() {
    let dir = tempfile::tempdir().unwrap();
    let project = Project::find(dir.path()).unwrap();
    let seen = Seen::default();
    let script = "cat >/dev/null; echo $PPID >>parents";
    let settings = settings(project.directory(), script);
    let options = RunnerOptions::new(SleepGate::new());
    let made = Runner::create(lock(&project).await, settings, options).await;
    let (runner, _events) = made.unwrap();
    // A notification has a guard too, but not the one that waits for the agent.
    let notify = HookTarget::Command("cat >/dev/null; echo >>notified".into());
    let hook = Hook::new("test", notify, |event| {
        let is_start = matches!(event.kind, HookEventKind::Started { .. });
        is_start.then(HookInput::default)
    });
    let runner = runner.with_hook(hook);
    let (_control, requests) = mpsc::channel(1);
    let outcome = runner.run(observing(&seen), requests).await.unwrap();
    assert!(dir.path().join("notified").exists());
    assert_eq!(outcome.reason, StopReason::AllIterationsRan);
    assert!(
        outcome.proven && outcome.survivors.is_empty(),
        "{outcome:?}"
    );
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    let warm: Vec<u32> = seen.iter().filter_map(|(_, pid)| *pid).collect();
    assert_eq!(parents(dir.path()), warm);
    assert_eq!(warm.len(), 3);
    // The run has ended and reaped each guard, and starts no other.
    assert_eq!(children(), "");
    let (place, _) = &seen[0];
    place.want();
    let starts = async {
        while place.pid().is_none() {
            tokio::task::yield_now().await;
        }
    };
    let started = tokio::time::timeout(Duration::from_millis(300), starts).await;
    assert!(started.is_err(), "a guard starts after the end of the run");
}

/// The second agent can't start. The run sleeps before the third one, and the guard must not wait with it.
#[tokio::test]
async fn x126d_no_guard_waits_while_the_run_waits() {
    let dir = tempfile::tempdir().unwrap();
    let project = Project::find(dir.path()).unwrap();
    let mut settings = settings(project.directory(), "cat >/dev/null");
    settings.limits.sleep = Duration::from_secs(3);
    let options = RunnerOptions::new(SleepGate::new());
    let made = Runner::create(lock(&project).await, settings, options).await;
    let (runner, _events) = made.unwrap();
    let seen = Seen::default();
    let observing = observing(&seen);
    let attempts = seen.clone();
    let failing: DriverFactory = Box::new(move |phase, context| {
        let driver = observing(phase, context);
        if attempts.lock().unwrap().len() == 1 {
            return driver;
        }
        let no_run = project.run(&"none".parse().unwrap());
        Err(no_run.unwrap_err().into())
    });
    let (control, requests) = mpsc::channel::<RunControl>(1);
    let mut run = pin!(runner.run(failing, requests));
    let wait = async {
        while seen.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        let (place, pid) = seen.lock().unwrap()[1].clone();
        assert!(pid.is_some(), "a guard waited for the agent");
        while place.pid().is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        outcome = &mut run => panic!("the run ended: {outcome:?}"),
        waited = tokio::time::timeout(Duration::from_secs(20), wait) => waited.expect("the guard is ended"),
    }
    let ended = tokio::time::timeout(Duration::from_millis(300), run).await;
    assert!(ended.is_err(), "the run waits: {ended:?}");
    drop(control);
}
