//! Sessions in the directory of the run: the run reads their position if the agent doesn't report it.

use std::path::Path;
use std::time::Duration;

use agent_drivers::{AgentConfig, AgentOptions};
use agent_duplex::scripted::{Script, ScriptedDriver};
use agent_duplex::{Capabilities, EndReason, SessionChoice};
use cancellable_sleep::SleepGate;
use checkpoint_store::{Options, Writer};
use loop_runner::{Runner, RunnerOptions};
use loop_state::SessionPolicy;
use rlm_store::{PhaseSettings, Project, Settings, WorkingTreeLock};
use serde_json::json;
use tokio::sync::mpsc;

/// Saves a message in a session of the run, as the agent does, and returns the position after it.
fn save(session: &Path, text: &str) -> u64 {
    let opened = Writer::<u32, String>::open(session, Options::default());
    let mut writer = opened.unwrap().0;
    writer.append(&0, &[text.to_owned()]).unwrap().get()
}

/// Executes two iterations in one session. The agent saves its session and never reports the position.
#[tokio::test]
async fn position_that_the_agent_does_not_report_is_read_from_its_session() {
    let dir = tempfile::tempdir().unwrap();
    let project = Project::find(dir.path()).unwrap();
    let run = "r1".parse().unwrap();
    let agent = AgentConfig::new(AgentOptions::Api(Default::default()), Vec::new());
    let prompt = serde_json::from_value(json!({"Text": "Next."})).unwrap();
    let mut phase = PhaseSettings::new("main", prompt, agent);
    phase.limits.max_iterations = Some(2);
    phase.session = SessionPolicy::Continue;
    let mut settings = Settings::new("/", vec![phase]);
    settings.limits.sleep = Duration::ZERO;

    let script = Script::new().session("1-1").message().begin();
    let script = script.report_message("done").end(EndReason::Completed);
    let driver = ScriptedDriver::new(Capabilities::none()).with_repeating_script(script);
    let session = project.run_dir(&run).join("sessions/1-1");
    let (agents, saved) = (driver.clone(), session.clone());
    let factory = Box::new(move |_: &PhaseSettings, _| {
        save(&saved, "Next.");
        Ok(Box::new(agents.clone()) as Box<dyn agent_duplex::Driver>)
    });
    let work_tree = WorkingTreeLock::take(&project, &run, &SleepGate::new()).await;
    let options = RunnerOptions::new(SleepGate::new());
    let made = Runner::create(work_tree.unwrap(), settings, options).await;
    let (runner, _news) = made.unwrap();
    let (_control, requests) = mpsc::channel(1);
    runner.run(factory, requests).await.unwrap();

    let id = || "1-1".to_owned();
    let expected = [SessionChoice::Create(id()), SessionChoice::Resume(id())];
    assert_eq!(driver.sessions(), expected);
    let head = project.run(&run).unwrap().head.unwrap().machine;
    let after = save(&session, "later");
    assert_eq!(
        head.session_position.map(|position| position + 1),
        Some(after)
    );
}
