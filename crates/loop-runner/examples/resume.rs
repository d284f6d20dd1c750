//! Stops a run after its first iteration, and resumes it with another [`Runner`], as another process would.
//!
//! `cargo run -p loop-runner --example resume` works in a temporary directory and ends by itself in a second or two. The agent is a shell script
//! that writes a line in each turn; the run is finished when there are three lines.
#![expect(clippy::print_stdout, reason = "the example shows what happens")]

use std::error::Error;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use loop_runner::agent_drivers::AgentConfig;
use loop_runner::agent_subprocess::guard;
use loop_runner::cancellable_sleep::SleepGate;
use loop_runner::loop_state::{RunUpdate, StopCause, StopRequest, StopTiming};
use loop_runner::rlm_store::{
    PhaseSettings, Project, PromptSource, RunId, Settings, WorkingTreeLock,
};
use loop_runner::{RunControl, RunEvent, RunEventReceiver, RunOutcome, Runner, RunnerOptions};
use tokio::sync::mpsc;

/// The agent: it reads its prompt, as every agent should, and writes a line.
const AGENT: &str = "cat >/dev/null; echo line >> notes; echo wrote a line";

fn main() -> Result<(), Box<dyn Error>> {
    guard::run_if_guard(); // first in `main`: the program also runs as the guard of its agents
    let runtime = tokio::runtime::Builder::new_current_thread();
    { runtime }.enable_all().build()?.block_on(run())
}

pub(crate) async fn run() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let project = Project::find(dir.path())?;
    let run: RunId = "first".parse()?;
    let options = RunnerOptions::new(SleepGate::new());

    let work_tree = WorkingTreeLock::take(&project, &run, &SleepGate::new()).await?;
    let settings = settings(project.directory());
    let (runner, events) = Runner::create(work_tree, settings, options.clone()).await?;
    let outcome = run_to_end(runner, events, true).await?;
    println!("-- {}; a resume needs only the run id --", outcome.reason);

    let work_tree = WorkingTreeLock::take(&project, &run, &SleepGate::new()).await?;
    let (runner, events) = Runner::open(work_tree, options).await?;
    let outcome = run_to_end(runner, events, false).await?;
    println!("-- {} --", outcome.reason);
    Ok(())
}

/// Executes the run and prints its events. On request, stops the run after its first iteration.
async fn run_to_end(
    runner: Runner,
    mut events: RunEventReceiver,
    stop: bool,
) -> Result<RunOutcome, loop_runner::Error> {
    let (control, requests) = mpsc::channel(8);
    let watch = async {
        while let Some((_, event)) = events.recv().await {
            let line = event.to_string(); // empty for events that people don't need
            if !line.is_empty() {
                println!("{line}");
            }
            // The step of each update is on disk.
            if stop && matches!(event, RunEvent::Update(RunUpdate::AttemptStarted { .. })) {
                let (by, when) = (StopCause::Person, StopTiming::AfterIteration);
                let stop = RunControl::Stop(StopRequest { by, when });
                control.send(stop).await.ok(); // fails if the run has ended
            }
        }
    };
    let (outcome, ()) = tokio::join!(runner.run(loop_runner::drivers(), requests), watch);
    outcome
}

fn settings(directory: &Path) -> Settings {
    let argv = ["sh", "-c", AGENT].map(OsString::from).into();
    let prompt = PromptSource::Text("Write three lines.".into());
    let mut phase = PhaseSettings::new("main", prompt, AgentConfig::command(argv));
    phase.required_checks = vec!["test -s notes".into()];
    phase.check = Some("test $(wc -l < notes) -ge 3".into()); // the loop runs this check, not the agent
    phase.limits.max_iterations = Some(10);
    let mut settings = Settings::new(directory, vec![phase]);
    settings.limits.max_duration = Some(Duration::from_secs(600));
    settings.limits.sleep = Duration::ZERO;
    settings
}
