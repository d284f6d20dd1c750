//! Runs of several phases: their names, and the prompts that a resume takes from the saved run.

use std::path::Path;
use std::time::Duration;

use agent_drivers::AgentConfig;
use agent_duplex::scripted::{Script, ScriptedDriver};
use agent_duplex::{Capabilities, EndReason};
use cancellable_sleep::SleepGate;
use loop_runner::{DriverFactory, RunControl, RunEvent, RunOutcome, Runner, RunnerOptions};
use loop_state::{Evidence, Request, ReviewDecision, RunUpdate, StopReason};
use rlm_store::{PhaseSettings, Project, RunHead, Settings, WorkingTreeLock};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// The agents of a pipeline's phases; each one reports a result.
#[derive(Clone)]
pub(crate) struct Agents(Vec<(&'static str, ScriptedDriver)>);

impl Agents {
    pub(crate) fn new() -> Self {
        let agent = |name| {
            let says = format!("{name} came to 42\n");
            let script = Script::new().message().begin().report_message(&says);
            let script = script.end(EndReason::Completed);
            (
                name,
                ScriptedDriver::new(Capabilities::none()).with_repeating_script(script),
            )
        };
        Self(["plan", "build", "check"].map(agent).into())
    }

    /// Returns the factory of these agents' drivers.
    pub(crate) fn factory(&self) -> DriverFactory {
        let agents = self.0.clone();
        Box::new(move |phase, _| {
            let mut agents = agents.iter();
            let (_, driver) = agents.find(|(name, _)| *name == phase.name).unwrap();
            Ok(Box::new(driver.clone()) as Box<dyn agent_duplex::Driver>)
        })
    }

    /// Returns the prompts that the agent of a phase received.
    pub(crate) fn told(&self, phase: &str) -> Vec<String> {
        let mut agents = self.0.iter();
        agents
            .find(|(name, _)| *name == phase)
            .unwrap()
            .1
            .messages()
    }
}

fn settings(prompt: impl Fn(&str) -> Value) -> Settings {
    let phase = |name: &str, limit: u32| {
        let prompt = serde_json::from_value(prompt(name)).unwrap();
        let mut phase =
            PhaseSettings::new(name, prompt, AgentConfig::command(vec!["never".into()]));
        phase.limits.max_iterations = Some(limit);
        phase
    };
    let phases = vec![phase("plan", 1), phase("build", 2), phase("check", 1)];
    let mut settings = Settings::new("/", phases);
    settings.limits.sleep = Duration::ZERO;
    settings
}

pub(crate) fn texts() -> Settings {
    settings(|name| json!({"Text": format!("Do the {name}.")}))
}

/// Executes a run to its end, and answers each review.
pub(crate) async fn run_to_end(
    dir: &Path,
    settings: Option<Settings>,
    interactive: bool,
    agents: &Agents,
    mut answers: Vec<RunControl>,
) -> (RunOutcome, RunHead) {
    let project = Project::find(dir).unwrap();
    let run = "r1".parse().unwrap();
    let work_tree = WorkingTreeLock::take(&project, &run, &SleepGate::new())
        .await
        .unwrap();
    let options = RunnerOptions {
        interactive,
        ..RunnerOptions::new(SleepGate::new())
    };
    let (runner, mut news) = match settings {
        Some(settings) => Runner::create(work_tree, settings, options).await.unwrap(),
        None => Runner::open(work_tree, options).await.unwrap(),
    };
    let (control, wishes) = mpsc::channel(8);
    // The future of a run is `Send`, so a run can be a task of its own.
    let running = tokio::spawn(runner.run(agents.factory(), wishes));
    answers.reverse();
    while let Some((_, news)) = news.recv().await {
        if let RunEvent::Update(RunUpdate::Review(_)) = news {
            let answer = answers.pop().expect("an answer");
            control.send(answer).await.unwrap();
        }
    }
    let outcome = running.await.unwrap();
    assert!(answers.is_empty(), "{answers:?}");
    let head = project.run(&run).unwrap().head.unwrap();
    (outcome.unwrap(), head)
}

#[tokio::test]
async fn x119c_resume_continues_its_phase_with_the_saved_text() {
    let (dir, agents) = (tempfile::tempdir().unwrap(), Agents::new());
    let file = |name: &str| dir.path().join(format!("{name}.md"));
    for name in ["plan", "build", "check"] {
        fs_err::write(file(name), format!("Do the {name}.")).unwrap();
    }
    let settings = settings(|name| json!({"File": file(name)}));
    let exit = vec![Request::Review(ReviewDecision::Exit).into()];
    run_to_end(dir.path(), Some(settings), true, &agents, exit).await;
    fs_err::remove_file(file("check")).unwrap();
    fs_err::write(file("build"), "Do the build well.").unwrap();
    let (outcome, head) = run_to_end(dir.path(), None, false, &agents, vec![]).await;
    assert_eq!(outcome.reason, StopReason::AllIterationsRan);
    assert_eq!(agents.told("plan").len(), 1);
    assert!(agents.told("build")[0].ends_with("\n\nDo the build well."));
    assert!(agents.told("check")[0].ends_with("\n\nDo the check."));
    assert_eq!(head.machine.finished_phases[0].evidence, None::<Evidence>);
}

#[tokio::test]
async fn x117c_invalid_phase_names_are_refused() {
    for name in ["build", "../plan", ""] {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::find(dir.path()).unwrap();
        let mut settings = texts();
        settings.phases[0].name = name.into();
        let refused = settings.validate().unwrap_err();
        assert!(refused.is_usage(), "{refused}");
        let work_tree =
            WorkingTreeLock::take(&project, &"r1".parse().unwrap(), &SleepGate::new()).await;
        let made = Runner::create(
            work_tree.unwrap(),
            settings,
            RunnerOptions::new(SleepGate::new()),
        )
        .await;
        assert_eq!(made.unwrap_err().to_string(), refused.to_string());
    }
}
