//! Tests of runs that are stopped before they begin, and of the marker of a run's processes.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use cancellable_sleep::SleepGate;
use loop_state::{
    Event, Happening, Request, Resume, StopCause, StopReason, StopRequest, Tree, TurnOutcome, When,
};
use rlm_store::{PhaseSettings, Project, PromptSource, RunId, RunState, Settings, WorkTree};
use tokio::sync::mpsc;

use super::{DriverFactory, Runner};
use crate::check::RunningCheck;
use crate::control::{self, Answer, Query};
use crate::{Control, Error, News, Options, Outcome};
use agent_drivers::AgentConfig;

fn settings() -> Settings {
    let agent = AgentConfig::command(vec!["never".into()]);
    let mut phase = PhaseSettings::new("main", PromptSource::Text("x".into()), agent);
    phase.limits.max_iterations = Some(5);
    let mut settings = Settings::new("/", vec![phase]);
    settings.limits.sleep = Duration::ZERO;
    settings
}

/// Runs with these messages, which arrive before the run begins. No agent is ever started.
async fn carry_out(runner: Runner, told: Vec<Control>) -> Outcome {
    let (control, wishes) = mpsc::channel(8);
    for what in told {
        control.send(what).await.unwrap();
    }
    let drivers = Box::new(|_: &_, _| panic!("an agent was started"));
    runner.run(drivers, wishes).await.unwrap()
}

fn stop(by: StopCause) -> Control {
    let when = When::Now;
    Control::Stop(StopRequest { by, when })
}

#[tokio::test]
async fn x110b_a_stop_before_the_run_begins_is_known_by_who_said_it() {
    let dir = tempfile::tempdir().unwrap();
    let project = Project::find(dir.path()).unwrap();
    let run: RunId = "r1".parse().unwrap();
    let steer = Request::Steer {
        text: "use tabs".into(),
        now: false,
    };
    let gate = SleepGate::new();
    let work_tree = WorkTree::take(&project, &run, &gate).await.unwrap();
    let made = Runner::create(work_tree, settings(), Options::new(SleepGate::new()));
    let (runner, _news) = made.await.unwrap();
    // A stop by the program is not a stop by a person.
    let outcome = carry_out(runner, vec![steer.into(), stop(StopCause::Terminated)]).await;
    assert_eq!(outcome.reason, StopReason::Stopped(StopCause::Terminated));
    let entry = project.run(&run).unwrap();
    assert_eq!(entry.state, RunState::Stopped);
    assert!(!entry.was_stopped_by_a_person());

    let work_tree = WorkTree::take(&project, &run, &gate).await.unwrap();
    let (runner, _news) =
        { Runner::open(work_tree, None, None, Options::new(SleepGate::new())).await }.unwrap();
    carry_out(runner, vec![stop(StopCause::Person)]).await;
    let entry = project.run(&run).unwrap();
    assert_eq!(entry.state, RunState::Stopped);
    assert!(entry.was_stopped_by_a_person());
    let head = entry.head.unwrap().machine;
    assert_eq!((head.counts.attempts, head.resumes_at()), (0, (1, false)));
}

#[tokio::test]
async fn a_stop_before_a_run_is_taken_up_reports_the_end_that_the_run_has() {
    let dir = tempfile::tempdir().unwrap();
    let project = Project::find(dir.path()).unwrap();
    let run: RunId = "r1".parse().unwrap();
    let work_tree = WorkTree::take(&project, &run, &SleepGate::new()).await;
    let options = Options::new(SleepGate::new());
    let made = Runner::create(work_tree.unwrap(), settings(), options).await;
    let (mut runner, _news) = made.unwrap();
    let mut happens = |what| {
        let at = runner.clock.now();
        drop(runner.machine.step(Event { at, what }));
    };
    happens(Happening::Started);
    for _ in 0..5 {
        happens(Happening::TurnEnded(TurnOutcome::Completed));
        happens(Happening::Settled(Tree::default()));
    }
    runner.first = Happening::Resumed(Resume::default());
    let outcome = carry_out(runner, vec![stop(StopCause::Person)]).await;
    assert_eq!(outcome.reason, StopReason::Planned);
    let saved = project.run(&run).unwrap().head.unwrap().machine;
    assert_eq!(saved.stop_reason(), Some(outcome.reason));
}

/// The errors of `open` and `create` must not each suggest the other.
#[tokio::test]
async fn a_run_whose_state_is_gone_is_neither_gone_on_with_nor_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let project = Project::find(dir.path()).unwrap();
    let run: RunId = "r1".parse().unwrap();
    let work_tree = WorkTree::take(&project, &run, &SleepGate::new())
        .await
        .unwrap();
    let open = || {
        Runner::open(
            work_tree.clone(),
            None,
            None,
            Options::new(SleepGate::new()),
        )
    };
    let create = || {
        Runner::create(
            work_tree.clone(),
            settings(),
            Options::new(SleepGate::new()),
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
async fn x127d_the_end_of_a_check_is_none_of_the_agents() {
    let dir = tempfile::tempdir().unwrap();
    let project = Project::find(dir.path()).unwrap();
    let gate = SleepGate::new();
    let work_tree = WorkTree::take(&project, &"r1".parse().unwrap(), &gate).await;
    let made = Runner::create(
        work_tree.unwrap(),
        settings(),
        Options::new(SleepGate::new()),
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
    let mut check = RunningCheck::start(loop_state::Command::Check, text, check);
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
    assert!(agent.try_wait().unwrap().is_none(), "the agent lives");
    agent.kill().unwrap();
    agent.wait().unwrap();
}

/// Returns the time since the last turn of the loop, as the run reports it.
fn turned(run_dir: &Path) -> Option<u64> {
    let mut answers = control::ask(run_dir, Query::Status).ok()?;
    match answers.next(Duration::from_secs(2)).ok()?? {
        Answer::Status(standing) => Some(standing.turned_ms),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x113d_a_loop_that_hangs_is_seen_though_its_process_answers() {
    let dir = tempfile::tempdir().unwrap();
    let project = Project::find(dir.path()).unwrap();
    let run: RunId = "r1".parse().unwrap();
    let work_tree = WorkTree::take(&project, &run, &SleepGate::new()).await;
    let made = Runner::create(
        work_tree.unwrap(),
        settings(),
        Options::new(SleepGate::new()),
    );
    let (runner, _news) = made.await.unwrap();
    let beat = dir.path().join("beat");
    let runner = runner.with_heartbeat(beat.clone(), |beat| {
        format!("{:?} {:?}", beat.head.step, beat.ended)
    });
    let (go_on, hangs) = std::sync::mpsc::channel::<()>();
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
        let hangs = || turned(&run_dir).is_some_and(|ms| ms > 1000);
        while !hangs() && Instant::now() < by {
            std::thread::park_timeout(Duration::from_millis(20));
        }
        let seen = (hangs(), fs_err::read_to_string(file).ok());
        drop(go_on);
        seen
    });
    let (_control, wishes) = mpsc::channel(8);
    let outcome = runner.run(drivers, wishes).await.unwrap();
    assert!(
        matches!(outcome.reason, StopReason::Failed(_)),
        "{outcome:?}"
    );
    let (hung, before) = seen.await.unwrap();
    assert!(hung, "the run never reports that its loop hangs");
    assert_ne!(fs_err::read_to_string(beat).ok(), before);
}

#[tokio::test]
async fn what_a_guard_wrote_and_nobody_can_read_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let project = Project::find(dir.path()).unwrap();
    let run: RunId = "r1".parse().unwrap();
    let work_tree = WorkTree::take(&project, &run, &SleepGate::new()).await;
    let made = Runner::create(
        work_tree.unwrap(),
        settings(),
        Options::new(SleepGate::new()),
    );
    let (mut runner, mut news) = made.await.unwrap();
    fs_err::create_dir(project.run_dir(&run).join(rlm_store::survivors::REPORT)).unwrap();
    runner.sweep_before().await;
    drop(runner);
    let mut warnings = Vec::new();
    while let Some((_, news)) = news.recv().await {
        if let News::Warning(what) = news {
            warnings.push(what);
        }
    }
    let [warning] = &warnings[..] else {
        panic!("one warning: {warnings:?}");
    };
    let told = "can't read which processes the guard ended after the last process of run r1 died: ";
    assert!(warning.starts_with(told), "{warning}");
}
