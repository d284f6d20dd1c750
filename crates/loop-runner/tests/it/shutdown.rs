//! A shutdown of the program's sleep gate wakes a waiting run, and stops the run before any work begins.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use agent_drivers::AgentConfig;
use agent_duplex::scripted::{Script, ScriptedDriver};
use agent_duplex::{Capabilities, Capability, EndReason};
use cancellable_sleep::SleepGate;
use loop_runner::{
    RunControl, RunEvent, RunEventReceiver, RunOutcome, Runner, RunnerOptions, View,
};
use loop_state::{
    IterationStep, PauseAfter, Request, StopCause, StopReason, StopRequest, StopTiming, WaitCause,
    times,
};
use rlm_store::{PhaseSettings, Project, PromptSource, RunId, RunState, Settings, WorkingTreeLock};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

const HOUR: Duration = Duration::from_secs(3600);

fn settings() -> Settings {
    let agent = AgentConfig::command(vec!["never".into()]);
    let mut phase = PhaseSettings::new("main", PromptSource::Text("Do it.".into()), agent);
    phase.limits.max_iterations = Some(5);
    let mut settings = Settings::new("/", vec![phase]);
    settings.limits.sleep = HOUR;
    settings
}

/// A run whose waits all use one sleep gate.
struct WaitingRun {
    dir: tempfile::TempDir,
    root: SleepGate,
    driver: ScriptedDriver,
    control: mpsc::Sender<RunControl>,
    view: watch::Receiver<Arc<View>>,
    running: JoinHandle<Result<RunOutcome, loop_runner::Error>>,
    began: Instant,
    events: RunEventReceiver,
}

fn run() -> RunId {
    "r1".parse().unwrap()
}

impl WaitingRun {
    /// Starts a run whose agent ends each turn for the reason `turn`.
    async fn begin(turn: EndReason, request: Option<Request>) -> Self {
        let script = Script::new()
            .message()
            .begin()
            .report_message("so far")
            .end(turn);
        Self::play(Capabilities::none(), script, request).await
    }

    async fn play(capabilities: Capabilities, script: Script, request: Option<Request>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::find(dir.path()).unwrap();
        let root = SleepGate::new();
        let work_tree = { WorkingTreeLock::take(&project, &run(), &root.child()).await }.unwrap();
        let options = RunnerOptions::new(root.child());
        let made = Runner::create(work_tree, settings(), options).await;
        let (runner, events) = made.unwrap();
        let began = Instant::now();
        let wall = SystemTime::now();
        let runner = runner.with_wall_clock(move || wall + began.elapsed());
        let driver = ScriptedDriver::new(capabilities).with_repeating_script(script);
        let drivers = driver.clone();
        let factory =
            Box::new(
                move |_: &_, _| Ok(Box::new(drivers.clone()) as Box<dyn agent_duplex::Driver>),
            );
        let (control, requests) = mpsc::channel(8);
        if let Some(request) = request {
            control.send(request.into()).await.unwrap();
        }
        Self {
            dir,
            root,
            driver,
            control,
            view: runner.watch(),
            running: tokio::spawn(runner.run(factory, requests)),
            began,
            events,
        }
    }

    /// Waits for this step of the run, and returns the time since the beginning.
    async fn until(&mut self, step: impl Fn(&IterationStep) -> bool) -> Duration {
        let found = self.view.wait_for(|view| step(&view.head.step)).await;
        let is_found = found.map(drop);
        if is_found.is_err() {
            panic!(
                "the run ended instead of waiting: {:?}",
                (&mut self.running).await
            );
        }
        self.began.elapsed()
    }

    /// Waits for the end of the run. Returns the stop reason, the saved state of the run, and the number of the agent's turns.
    async fn ended(self) -> (StopReason, RunState, usize) {
        let outcome = self.running.await.unwrap().unwrap();
        assert!(
            self.began.elapsed() < HOUR / 2,
            "the run waited instead of ending"
        );
        let entry = Project::find(self.dir.path()).unwrap().run(&run()).unwrap();
        let end = entry.head.unwrap().machine.end;
        // A run that never began has no end, but is stopped.
        let saved = end.map_or(outcome.reason.clone(), |end| end.reason);
        assert_eq!(saved, outcome.reason);
        (outcome.reason, entry.state, self.driver.messages().len())
    }
}

fn sleeps(step: &IterationStep) -> bool {
    matches!(step, IterationStep::Sleeping { .. })
}

fn waits_for(what: WaitCause) -> impl Fn(&IterationStep) -> bool {
    move |step| matches!(step, IterationStep::Waiting { why, .. } if *why == what)
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_each_wait_and_the_run_before_a_stop_arrives() {
    let pause = Request::Pause {
        reason: None,
        after: PauseAfter::Iteration,
    };
    let paused = |step: &IterationStep| matches!(step, IterationStep::Paused { .. });
    type IsIt = Box<dyn Fn(&IterationStep) -> bool>;
    let cases: [(EndReason, Option<Request>, IsIt); 4] = [
        (EndReason::Completed, None, Box::new(sleeps)),
        (EndReason::Completed, Some(pause), Box::new(paused)),
        (
            EndReason::RateLimited,
            None,
            Box::new(waits_for(WaitCause::RateLimit)),
        ),
        (
            EndReason::ServiceFailed,
            None,
            Box::new(waits_for(WaitCause::Retry)),
        ),
    ];
    for (turn, request, is_it) in cases {
        let mut waiting = WaitingRun::begin(turn, request).await;
        let at = waiting.until(is_it).await;
        waiting.root.shutdown();
        let began = waiting.began;
        let (reason, state, turns) = waiting.ended().await;
        assert_eq!(reason, StopReason::Stopped(StopCause::Terminated));
        assert_eq!((state, turns), (RunState::Stopped, 1), "{turn:?}");
        let took = began.elapsed() - at;
        assert!(took < Duration::from_secs(3), "{turn:?}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_has_the_reason_of_the_following_stop() {
    let mut waiting = WaitingRun::begin(EndReason::Completed, None).await;
    waiting.until(sleeps).await;
    waiting.root.shutdown();
    tokio::time::advance(Duration::from_millis(500)).await;
    let (by, when) = (StopCause::HungUp, StopTiming::Now);
    let stop = RunControl::Stop(StopRequest { by, when });
    waiting.control.send(stop).await.unwrap();
    let (reason, ..) = waiting.ended().await;
    assert_eq!(reason, StopReason::Stopped(StopCause::HungUp));
}

/// The next iteration is due only a moment after the shutdown.
#[tokio::test(start_paused = true)]
async fn no_iteration_begins_during_shutdown() {
    let mut waiting = WaitingRun::begin(EndReason::Completed, None).await;
    waiting.until(sleeps).await;
    waiting.root.shutdown();
    tokio::time::advance(2 * HOUR).await;
    waiting.began += 2 * HOUR;
    let (reason, state, turns) = waiting.ended().await;
    assert_eq!(reason, StopReason::Stopped(StopCause::Terminated));
    assert_eq!((state, turns), (RunState::Stopped, 1));
}

#[tokio::test(start_paused = true)]
async fn run_does_not_begin_after_shutdown() {
    let waiting = WaitingRun::begin(EndReason::Completed, None).await;
    waiting.root.shutdown();
    let (reason, state, turns) = waiting.ended().await;
    assert_eq!(reason, StopReason::Stopped(StopCause::Terminated));
    assert_eq!((state, turns), (RunState::Stopped, 0));
}

/// The turn was interrupted, so its iteration is never complete.
#[tokio::test(start_paused = true)]
async fn stop_after_iteration_ends_an_interrupted_turn_at_once() {
    let capabilities = Capabilities::none().with(Capability::Interrupt);
    let script = Script::new()
        .message()
        .begin()
        .report_message("so far")
        .interrupted();
    let script = script.end(EndReason::Interrupted);
    let mut waiting = WaitingRun::play(capabilities, script, None).await;
    let works = |view: &Arc<View>| view.agent.alive;
    waiting.view.wait_for(works).await.unwrap();
    waiting
        .control
        .send(Request::Interrupt.into())
        .await
        .unwrap();
    let is_interrupted = |step: &IterationStep| matches!(step, IterationStep::Interrupted { .. });
    waiting.until(is_interrupted).await;
    let after = StopTiming::AfterIteration;
    let stop = Request::Stop { when: after };
    waiting.control.send(stop.into()).await.unwrap();
    let outcome = (&mut waiting.running).await.unwrap().unwrap();
    assert_eq!(outcome.reason, StopReason::Stopped(StopCause::Person));
    let mut budgets = Vec::new();
    while let Some((_, event)) = waiting.events.recv().await {
        match event {
            RunEvent::Stopping { budget, .. } => budgets.push(budget),
            RunEvent::EndingTurn { why, .. } => panic!("a stop has its own event: {why}"),
            _ => {}
        }
    }
    let [budget] = budgets[..] else {
        panic!("one stop: {budgets:?}");
    };
    let allowed = times::STOP_BUDGET;
    assert!(budget <= allowed && budget > allowed / 2, "{budget:?}");
    let shutdown = waiting.view.borrow().shutdown.unwrap();
    let within = shutdown.until.since(shutdown.since);
    assert!(within <= allowed, "{within:?}");
}
