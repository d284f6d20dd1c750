//! The driver contract with the real CLIs.

use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use agent_duplex::contract::{self, Scenario, ScenarioResult, TestAction, TestAgent, play};
use agent_duplex::{Driver, Permissions};
use agent_subprocess::ProcessContext;
use rustix::process::{Pid, Signal, kill_process};

use super::command_line::asked;
use super::real::{RealAgent, of_every_agent};
use super::scene::{Check, Elapsed, LiveScene, claude_saved};
use crate::poll_until;

/// The checks by the program of the agent, and by name.
pub(super) const CHECKS: [(&str, &str, Check); 6] = of_every_agent!(
    "the driver contract: ", "", column,
    Claude "claude", Codex "codex", Gemini "gemini", Opencode "opencode", ClaudeAcp "claude-agent-acp", Api "api"
);

/// The limit of a turn of a slow CLI on a loaded machine, including the pauses of its retries.
const TURN_LIMIT: Duration = Duration::from_secs(60);

type ReportColumn = (&'static str, Vec<(Scenario, ScenarioResult)>);

/// The results so far.
static PLAYED: Mutex<Vec<ReportColumn>> = Mutex::new(Vec::new());

/// Returns the table of all results, if there are any.
pub(super) fn table() -> Option<String> {
    let played = PLAYED.lock().unwrap_or_else(PoisonError::into_inner);
    (!played.is_empty()).then(|| contract::table(&played))
}

/// The scenarios by default of an agent whose start takes seconds.
const SHORT: [Scenario; 8] = [
    Scenario::Tool,
    Scenario::Steer,
    Scenario::InterruptText,
    Scenario::InterruptTool,
    Scenario::Resume,
    Scenario::Retry,
    Scenario::PermissionRequest,
    Scenario::Stop,
];

/// Returns all scenarios if words select the checks. Otherwise returns fewer for slow agents, so that a run of all checks takes only minutes.
fn scenarios(real: RealAgent) -> &'static [Scenario] {
    match real {
        RealAgent::Gemini | RealAgent::Opencode | RealAgent::ClaudeAcp if asked().0.is_empty() => {
            &SHORT
        }
        _ => &Scenario::ALL,
    }
}

/// Runs the scenarios with one agent, each in its own sandbox.
fn column(real: RealAgent, rlm: &Path, agent: &Path) -> String {
    let (mut cells, mut longest) = (Vec::new(), (Duration::ZERO, Scenario::Turn));
    for scenario in scenarios(real).iter().copied() {
        let scene = LiveScene::of(real, rlm, agent, "");
        let stage = Live { scene, scenario };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let begun = Instant::now();
        let cell = runtime.block_on(play(&stage, scenario));
        longest = longest.max((begun.elapsed(), scenario));
        stage.scene.expect_nothing_alive();
        cells.push((scenario, cell));
    }
    let broken = cells.iter().filter(|(_, cell)| cell.is_broken());
    let broken = broken.fold(String::new(), |mut all, (scenario, cell)| {
        let _written = write!(all, "\n{scenario}: {cell}");
        all
    });
    let count = match cells.len() {
        count if count < Scenario::ALL.len() => format!("{count} scenarios (all: `live contract`)"),
        count => format!("{count} scenarios"),
    };
    let mut played = PLAYED.lock().unwrap_or_else(PoisonError::into_inner);
    played.push((real.program(), cells));
    drop(played);
    assert!(broken.is_empty(), "{broken}");
    let (time, scenario) = longest;
    format!("{count}, the longest {scenario}: {}", Elapsed(time))
}

/// A real CLI, driven without `rlm`.
struct Live<'a> {
    scene: LiveScene<'a>,
    scenario: Scenario,
}

impl TestAgent for Live<'_> {
    fn driver(&self) -> Box<dyn Driver> {
        let LiveScene { real, sandbox, .. } = &self.scene;
        let mut context = ProcessContext::new(sandbox.repo(), sandbox.path().join("scratch"));
        let variables = self.scene.environment().into_iter();
        context.env = variables
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let permissions = match self.scenario {
            Scenario::PermissionRequest => Permissions::Ask,
            _ => Permissions::All,
        };
        real.driver(self.scene.agent, context, permissions, &self.scene.model)
    }

    fn prompt_for(&self, deed: &TestAction) -> Result<String, String> {
        Ok(match deed {
            TestAction::Say(word) => format!("Speak. [[text {word}]]"),
            TestAction::Recall => "Recall. [[recall]]".to_owned(),
            TestAction::CallTool => "Work. [[sh true]] [[text It is done.]]".to_owned(),
            TestAction::CallToolWithPermission => {
                "Work. [[sh touch asked]] [[text It is done.]]".to_owned()
            }
            TestAction::RunToolFor { name, time } => {
                // A program that runs through a link has the name of the link.
                let tool = self.scene.sandbox.path().join("tmp").join(name);
                if !tool.is_symlink() {
                    symlink("/bin/sleep", &tool).map_err(|error| error.to_string())?;
                }
                let seconds = time.as_secs();
                format!("Work. [[sh {} {seconds}]] [[steered]]", tool.display())
            }
            TestAction::TalkFor(time) => format!("Write. [[slow 50 {}]]", time.as_secs()),
            TestAction::RateLimitOnce(word) => format!("Try. [[status 429 1 1]] [[text {word}]]"),
            TestAction::RateLimit => format!("Try. {} [[text never]]", self.scene.real.limit()?),
            TestAction::Flood(bytes) => format!("Write. [[big {bytes}]]"),
            TestAction::EndMidLine => Err("it writes whole lines for any model output")?,
            deed => Err(format!("no implementation of {deed:?}"))?,
        })
    }

    fn kill(&self, pid: u32) -> Result<(), String> {
        let LiveScene { real, sandbox, .. } = &self.scene;
        // Claude saves its messages a moment after it began to answer. Without that, the session can't be resumed.
        if *real == RealAgent::Claude {
            poll_until(TURN_LIMIT, || {
                claude_saved(sandbox, r#""type":"user""#).then_some(())
            })
            .ok_or("it saves no session")?;
        }
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or("no such number")?;
        kill_process(pid, Signal::KILL).map_err(|error| error.to_string())
    }

    fn has_process(&self) -> bool {
        self.scene.real.processes() > 0
    }

    fn alive(&self, tool: &str) -> Option<bool> {
        Some(!self.scene.named(tool).is_empty())
    }

    fn timeout(&self) -> Duration {
        TURN_LIMIT
    }
}
