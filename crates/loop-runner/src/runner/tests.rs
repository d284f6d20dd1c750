//! Tests of runs that are stopped before they begin, and of the marker of a run's processes.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use cancellable_sleep::SleepGate;
use loop_state::{
    MachineInput, ProcessTreeOutcome, Request, ResumeOptions, StopCause, StopReason, StopRequest,
    StopTiming, TimedInput, TurnOutcome,
};
use rlm_store::{PhaseSettings, Project, PromptSource, RunId, RunState, Settings, WorkingTreeLock};
use tokio::sync::mpsc;

use super::{DriverFactory, Runner};
use crate::check::RunningCheck;
use crate::control::{self, ControlQuery, Response};
use crate::{Error, RunControl, RunEvent, RunOutcome, RunnerOptions};
use agent_drivers::AgentConfig;

fn settings() -> Settings {
    let agent = AgentConfig::command(vec!["never".into()]);
    let mut phase = PhaseSettings::new("main", PromptSource::Text("x".into()), agent);
    phase.limits.max_iterations = Some(5);
    let mut settings = Settings::new("/", vec![phase]);
    settings.limits.sleep = Duration::ZERO;
    settings
}

/// Executes a run that has these messages before it begins. The run must start no agent.
async fn run_with(runner: Runner, messages: Vec<RunControl>) -> RunOutcome {
    let (control, requests) = mpsc::channel(8);
    for what in messages {
        control.send(what).await.unwrap();
    }
    let drivers = Box::new(|_: &_, _| panic!("an agent was started"));
    runner.run(drivers, requests).await.unwrap()
}

fn stop(by: StopCause) -> RunControl {
    let when = StopTiming::Now;
    RunControl::Stop(StopRequest { by, when })
}

#[tokio::test]
async fn x110b_stop_before_start_names_its_cause() {
    let dir = tempfile::tempdir().unwrap();
    let project = Project::find(dir.path()).unwrap();
    let run: RunId = "r1".parse().unwrap();
    let steer = Request::Steer {
        text: "use tabs".into(),
        now: false,
    };
    let gate = SleepGate::new();
    let work_tree = WorkingTreeLock::take(&project, &run, &gate).await.unwrap();
    let made = Runner::create(work_tree, settings(), RunnerOptions::new(SleepGate::new()));
    let (runner, _news) = made.await.unwrap();
    // A stop by the program is not a stop by a person.
    let outcome = run_with(runner, vec![steer.into(), stop(StopCause::Terminated)]).await;
    assert_eq!(outcome.reason, StopReason::Stopped(StopCause::Terminated));
    let entry = project.run(&run).unwrap();
    assert_eq!(entry.state, RunState::Stopped);
    assert!(!entry.is_stopped_by_person());

    let work_tree = WorkingTreeLock::take(&project, &run, &gate).await.unwrap();
    let (runner, _news) =
        { Runner::open(work_tree, RunnerOptions::new(SleepGate::new())).await }.unwrap();
    run_with(runner, vec![stop(StopCause::Person)]).await;
    let entry = project.run(&run).unwrap();
    assert_eq!(entry.state, RunState::Stopped);
    assert!(entry.is_stopped_by_person());
    let head = entry.head.unwrap().machine;
    let point = head.resume_point();
    assert_eq!((head.counts.attempts, point.iteration), (0, 1));
    assert!(!point.is_unfinished);
}

#[tokio::test]
async fn stop_before_resume_reports_the_existing_end_of_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let project = Project::find(dir.path()).unwrap();
    let run: RunId = "r1".parse().unwrap();
    let work_tree = WorkingTreeLock::take(&project, &run, &SleepGate::new()).await;
    let options = RunnerOptions::new(SleepGate::new());
    let made = Runner::create(work_tree.unwrap(), settings(), options).await;
    let (mut runner, _news) = made.unwrap();
    let mut happens = |what| {
        let at = runner.clock.now();
        drop(runner.machine.step(TimedInput { at, what }));
    };
    happens(MachineInput::Started);
    for _ in 0..5 {
        happens(MachineInput::TurnEnded(TurnOutcome::Completed));
        happens(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    }
    runner.first = MachineInput::Resumed(ResumeOptions::default());
    let outcome = run_with(runner, vec![stop(StopCause::Person)]).await;
    assert_eq!(outcome.reason, StopReason::AllIterationsRan);
    let saved = project.run(&run).unwrap().head.unwrap().machine;
    assert_eq!(saved.stop_reason(), Some(outcome.reason));
}

/// If `open` suggests `create`, then `create` must not suggest `open` for the same run.
#[tokio::test]
async fn run_without_state_is_neither_resumed_nor_restarted() {
    let dir = tempfile::tempdir().unwrap();
    let project = Project::find(dir.path()).unwrap();
    let run: RunId = "r1".parse().unwrap();
    let work_tree = WorkingTreeLock::take(&project, &run, &SleepGate::new())
        .await
        .unwrap();
    let open = || Runner::open(work_tree.clone(), RunnerOptions::new(SleepGate::new()));
    let create = || {
        Runner::create(
            work_tree.clone(),
            settings(),
            RunnerOptions::new(SleepGate::new()),
        )
    };
    assert!(open().await.unwrap_err().is_not_found());
    drop(create().await.unwrap());
    let run_dir = project.run_dir(&run);
    for file in fs_err::read_dir(&run_dir).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|it| it == "ckj") {
            fs_err::remove_file(path).unwrap();
        }
    }
    assert_eq!(project.run(&run).unwrap().state, RunState::Empty);
    assert!(open().await.unwrap_err().is_not_found());
    // If there is a transcript, a new run must not mix with the old one.
    fs_err::create_dir(run_dir.join("transcripts")).unwrap();
    assert_eq!(project.run(&run).unwrap().state, RunState::Damaged);
    for error in [
        open().await.unwrap_err(),
        project.timeline(&run).unwrap_err().into(),
    ] {
        assert!(!error.is_not_found() && error.to_string().contains("another name"));
    }
    assert!(create().await.unwrap_err().is_usage());
}

/// Without a guard, the marker shows which command started a process.
#[tokio::test]
async fn x127d_end_of_a_check_is_not_reported_as_end_of_the_agent() {
    let dir = tempfile::tempdir().unwrap();
    let project = Project::find(dir.path()).unwrap();
    let gate = SleepGate::new();
    let work_tree = WorkingTreeLock::take(&project, &"r1".parse().unwrap(), &gate).await;
    let made = Runner::create(
        work_tree.unwrap(),
        settings(),
        RunnerOptions::new(SleepGate::new()),
    );
    let (runner, _news) = made.await.unwrap();
    let (agent, check) = (runner.context(""), runner.context("-check"));
    let marker = agent.marker.unwrap();
    let mut agent = Command::new("sleep")
        .arg("600")
        .env(
            &marker.variable,
            format!("{}.{}", marker.scope, marker.member),
        )
        .spawn()
        .unwrap();
    let up = dir.path().join("up");
    let text = format!("sleep 600 & sleep 600 & echo >{}; wait", up.display());
    let mut check = RunningCheck::start(loop_state::LoopCommand::Check, text, check);
    let up = async {
        while !up.exists() {
            tokio::task::yield_now().await;
        }
    };
    let up = tokio::time::timeout(Duration::from_secs(20), up).await;
    up.expect("the command runs");
    check.time_out(Duration::from_secs(7));
    let end = check.ended().await;
    let why = loop_state::CheckResult::Failed("(it took longer than 7s)".into());
    assert_eq!(end.result, why);
    assert_eq!(
        end.ended.len(),
        3,
        "the command and its two processes: {end:?}"
    );
    assert!(
        agent.try_wait().unwrap().is_none(),
        "the check must not end the agent"
    );
    agent.kill().unwrap();
    agent.wait().unwrap();
}

/// Returns the time since the last pass of the loop, as the run reports it.
fn last_tick_ms(run_dir: &Path) -> Option<u64> {
    let mut responses = control::send(run_dir, ControlQuery::Status).ok()?;
    match responses.next(Duration::from_secs(2)).ok()?? {
        Response::Status(status) => Some(status.last_tick_ms),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x113d_hanging_loop_is_detected_although_its_process_answers() {
    let dir = tempfile::tempdir().unwrap();
    let project = Project::find(dir.path()).unwrap();
    let run: RunId = "r1".parse().unwrap();
    let work_tree = WorkingTreeLock::take(&project, &run, &SleepGate::new()).await;
    let made = Runner::create(
        work_tree.unwrap(),
        settings(),
        RunnerOptions::new(SleepGate::new()),
    );
    let (runner, _news) = made.await.unwrap();
    let beat = dir.path().join("beat");
    let runner = runner.with_heartbeat(beat.clone(), |beat| {
        format!("{:?} {:?}", beat.head.step, beat.ended)
    });
    let (release, hangs) = std::sync::mpsc::channel::<()>();
    let hangs = std::sync::Mutex::new(hangs);
    let drivers: DriverFactory = Box::new(move |_, _| {
        let _over = hangs.lock().expect("no thread panics with the lock").recv();
        Err(Error::feedback(loop_state::FeedbackRefusal::Empty))
    });
    let run_dir = project.run_dir(&run);
    let file = beat.clone();
    let seen = tokio::task::spawn_blocking(move || {
        let by = Instant::now() + Duration::from_secs(20);
        // Another thread of the process responds all the time.
        let hangs = || last_tick_ms(&run_dir).is_some_and(|ms| ms > 1000);
        while !hangs() && Instant::now() < by {
            std::thread::park_timeout(Duration::from_millis(20));
        }
        let seen = (hangs(), fs_err::read_to_string(file).ok());
        drop(release);
        seen
    });
    let (_control, requests) = mpsc::channel(8);
    let outcome = runner.run(drivers, requests).await.unwrap();
    assert!(
        matches!(outcome.reason, StopReason::Failed(_)),
        "{outcome:?}"
    );
    let (hung, before) = seen.await.unwrap();
    assert!(hung, "the run never reports that its loop hangs");
    assert_ne!(fs_err::read_to_string(beat).ok(), before);
}

#[tokio::test]
async fn unreadable_guard_report_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let project = Project::find(dir.path()).unwrap();
    let run: RunId = "r1".parse().unwrap();
    let work_tree = WorkingTreeLock::take(&project, &run, &SleepGate::new()).await;
    let made = Runner::create(
        work_tree.unwrap(),
        settings(),
        RunnerOptions::new(SleepGate::new()),
    );
    let (mut runner, mut events) = made.await.unwrap();
    fs_err::create_dir(project.run_dir(&run).join(rlm_store::sweep::REPORT)).unwrap();
    runner.sweep_earlier_processes().await;
    drop(runner);
    let mut warnings = Vec::new();
    while let Some((_, event)) = events.recv().await {
        if let RunEvent::Warning(what) = event {
            warnings.push(what);
        }
    }
    let [warning] = &warnings[..] else {
        panic!("one warning: {warnings:?}");
    };
    let begins =
        "can't read which processes the guard ended after the last process of run r1 died: ";
    assert!(warning.starts_with(begins), "{warning}");
}
