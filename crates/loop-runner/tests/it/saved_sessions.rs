//! Sessions in the directory of the run: the run reads what the agent didn't report.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_drivers::{AgentConfig, AgentOptions};
use agent_duplex::scripted::{Latch, Script, ScriptedDriver};
use agent_duplex::{Capabilities, Capability, EndReason, Event, SessionChoice};
use cancellable_sleep::SleepGate;
use checkpoint_store::{Options, Writer};
use loop_runner::{DriverFactory, RunEvent, RunEventReceiver, Runner, RunnerOptions};
use loop_state::{Head, Request, SessionPolicy};
use rlm_store::{PhaseSettings, Project, RunHead, Settings, WorkingTreeLock};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// Saves a message in a session, as the agent does, and returns the position after it.
fn save(session: &Path, inputs: &[&str]) -> u64 {
    let opened = Writer::<u32, Value>::open(session, Options::default());
    let mut writer = opened.unwrap().0;
    let message = json!({"message": {"id": "m", "text": "Next.", "inputs": inputs}});
    writer.append(&0, &[message]).unwrap().get()
}

struct Scene {
    project: Project,
    _dir: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self {
            project: Project::find(dir.path()).unwrap(),
            _dir: dir,
        }
    }

    fn session(&self) -> PathBuf {
        let run_dir = self.project.run_dir(&"r1".parse().unwrap());
        run_dir.join("sessions/1-1")
    }

    fn head(&self) -> RunHead {
        self.project
            .run(&"r1".parse().unwrap())
            .unwrap()
            .head
            .unwrap()
    }

    /// Creates the run with two iterations in one session, or opens it.
    async fn runner(&self, is_new: bool) -> Runner {
        self.begin(is_new.then(settings)).await.0
    }

    /// Creates a run with these settings, or opens it.
    async fn begin(&self, settings: Option<Settings>) -> (Runner, RunEventReceiver) {
        let run = "r1".parse().unwrap();
        let work_tree = WorkingTreeLock::take(&self.project, &run, &SleepGate::new()).await;
        let options = RunnerOptions::new(SleepGate::new());
        match settings {
            Some(settings) => Runner::create(work_tree.unwrap(), settings, options).await,
            None => Runner::open(work_tree.unwrap(), options).await,
        }
        .unwrap()
    }

    /// Waits until the saved head of the run has this property.
    async fn saved(&self, is_saved: impl Fn(&Head) -> bool) {
        let run = "r1".parse().unwrap();
        let head = || self.project.run(&run).ok()?.head.ok();
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        let saved = async {
            while !head().is_some_and(|head| is_saved(&head.machine)) {
                ticks.tick().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), saved)
            .await
            .unwrap();
    }

    /// Returns a factory of this driver, whose agent saves a message in each attempt.
    fn factory(&self, driver: &ScriptedDriver) -> DriverFactory {
        let (driver, session) = (driver.clone(), self.session());
        Box::new(move |_: &PhaseSettings, _| {
            save(&session, &[]);
            Ok(Box::new(driver.clone()) as Box<dyn agent_duplex::Driver>)
        })
    }
}

fn settings() -> Settings {
    let agent = AgentConfig::new(AgentOptions::Api(Default::default()), Vec::new());
    let prompt = serde_json::from_value(json!({"Text": "Next."})).unwrap();
    let mut phase = PhaseSettings::new("main", prompt, agent);
    phase.limits.max_iterations = Some(2);
    phase.session = SessionPolicy::Continue;
    let mut settings = Settings::new("/", vec![phase]);
    settings.limits.sleep = Duration::ZERO;
    settings
}

fn script() -> Script {
    Script::new()
        .session("1-1")
        .message()
        .begin()
        .report_message("done")
}

#[tokio::test]
async fn position_that_the_agent_does_not_report_is_read_from_its_session() {
    let scene = Scene::new();
    let driver = ScriptedDriver::new(Capabilities::none());
    let driver = driver.with_repeating_script(script().end(EndReason::Completed));
    let runner = scene.runner(true).await;
    let (_control, requests) = mpsc::channel(1);
    let ran = runner.run(scene.factory(&driver), requests).await;
    ran.unwrap();

    let id = || "1-1".to_owned();
    let expected = [SessionChoice::Create(id()), SessionChoice::Resume(id())];
    assert_eq!(driver.sessions(), expected);
    let position = scene.head().machine.session_position;
    let after = save(&scene.session(), &[]);
    assert_eq!(position.map(|position| position + 1), Some(after));
}

/// Waits until an event comes.
async fn event(events: &mut RunEventReceiver, is_expected: impl Fn(&RunEvent) -> bool) {
    let found = async {
        while let Some((_, event)) = events.recv().await {
            if is_expected(&event) {
                return;
            }
        }
        panic!("the run ended without the event");
    };
    tokio::time::timeout(Duration::from_secs(60), found)
        .await
        .unwrap();
}

/// A steer begins a second turn of the attempt, which reports no position. The first turn reported one.
#[tokio::test]
async fn position_of_a_later_turn_is_read_from_the_session() {
    let scene = Scene::new();
    let (latch, session) = (Latch::new(), scene.session());
    let script = script()
        .wait_for_latch(&latch)
        .observe(Event::SessionSaved { position: 1 })
        .end(EndReason::Completed)
        .message()
        .begin()
        .make(move |_| {
            save(&session, &["steer-1"]);
            let (text, partial) = ("done again".to_owned(), false);
            Event::Message { text, partial }.into()
        })
        .end(EndReason::Completed);
    let able = Capabilities::none().with(Capability::Interrupt);
    let driver = ScriptedDriver::new(able).with_script(script);
    let mut settings = settings();
    settings.phases[0].limits.max_iterations = Some(1);
    let (runner, mut events) = scene.begin(Some(settings)).await;
    let (control, requests) = mpsc::channel(8);
    let running = tokio::spawn(runner.run(scene.factory(&driver), requests));
    scene.saved(|head| head.has_prompt).await;
    let (text, now) = ("mind the docs".to_owned(), false);
    let steer = Request::Steer { text, now };
    control.send(steer.into()).await.unwrap();
    event(&mut events, |event| {
        matches!(event, RunEvent::SteerNextTurn(1))
    })
    .await;
    latch.open();
    running.await.unwrap().unwrap();
    assert_eq!(driver.messages().len(), 2);
    let position = scene.head().machine.session_position;
    let after = save(&scene.session(), &[]);
    assert_eq!(position.map(|position| position + 1), Some(after));
}

/// The process dies after the agent has saved the steers, and before it reported them.
#[tokio::test]
async fn a6_steer_that_only_the_session_knows_is_not_sent_again() {
    let scene = Scene::new();
    let driver = ScriptedDriver::new(Capabilities::none())
        .with_script(script().wait_for_latch(&Latch::new()))
        .with_repeating_script(script().end(EndReason::Completed));
    let runner = scene.runner(true).await;
    let (control, requests) = mpsc::channel(8);
    let running = tokio::spawn(runner.run(scene.factory(&driver), requests));
    for text in ["mind the docs", "and the tests"] {
        let (text, now) = (text.to_owned(), false);
        control
            .send(Request::Steer { text, now }.into())
            .await
            .unwrap();
    }
    scene
        .saved(|head| head.has_prompt && head.steers.len() == 2)
        .await;
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    save(&scene.session(), &["steer-1"]);

    let runner = scene.runner(false).await;
    let (_control, requests) = mpsc::channel(1);
    runner.run(scene.factory(&driver), requests).await.unwrap();
    let resumed = &driver.messages()[1];
    assert!(
        !resumed.contains("mind the docs") && resumed.contains("and the tests"),
        "{resumed}"
    );
}
