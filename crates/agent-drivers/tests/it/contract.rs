//! The contract of `agent-duplex` for drivers. Each driver plays the scenarios with a stand-in for its agent: real processes that speak the protocol
//! of the agent.

use crate::scene::{DEADLINE, Scene};
use agent_drivers::acp::AcpDriver;
use agent_drivers::claude::ClaudeDriver;
use agent_drivers::codex::CodexDriver;
use agent_drivers::command::CommandDriver;
use agent_duplex::contract::{Scenario, ScenarioResult, TestAction, TestAgent, play, table};
use agent_duplex::{Driver, Permissions};
use agent_subprocess::ProcessContext;
use std::ffi::OsString;
use std::time::Duration;
use tokio::task::JoinSet;

const ASKS: Permissions = Permissions::Ask;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agent {
    Claude,
    Codex,
    Acp,
    Command,
}

impl Agent {
    const ALL: [(&str, Self); 4] = [
        ("claude", Self::Claude),
        ("codex", Self::Codex),
        ("acp", Self::Acp),
        ("command", Self::Command),
    ];

    fn script(self) -> String {
        let protocol = match self {
            Self::Claude => include_str!("contract/claude.sh"),
            Self::Codex => include_str!("contract/codex.sh"),
            Self::Acp => include_str!("contract/acp.sh"),
            Self::Command => include_str!("contract/command.sh"),
        };
        include_str!("contract/deeds.sh").to_owned() + protocol
    }
}

struct StandIn {
    agent: Agent,
    script: String,
    scene: Scene,
}

impl StandIn {
    fn new(agent: Agent) -> Self {
        Self {
            agent,
            script: agent.script(),
            scene: Scene::new(),
        }
    }
}

impl TestAgent for StandIn {
    fn driver(&self) -> Box<dyn Driver> {
        let context = ProcessContext {
            marker: Some(self.scene.marker.clone()),
            ..ProcessContext::new(self.scene.directory.path(), self.scene.path("scratch"))
        };
        let program: Vec<OsString> = ["sh", "-c", &self.script, "sh"].map(Into::into).into();
        match self.agent {
            Agent::Claude => Box::new(ClaudeDriver::new(program, context).permissions(ASKS)),
            Agent::Codex => Box::new(CodexDriver::new(program, context).permissions(ASKS)),
            Agent::Acp => Box::new(AcpDriver::new(program, context).permissions(ASKS)),
            Agent::Command => Box::new(CommandDriver::new(program, context)),
        }
    }

    fn prompt_for(&self, action: &TestAction) -> Result<String, String> {
        let no = |why: &str| Err(why.to_owned());
        let word = match action {
            TestAction::RateLimitOnce(_) | TestAction::RateLimit
                if self.agent == Agent::Command =>
            {
                return no("the driver of a program knows no service");
            }
            TestAction::EndMidLine if self.agent == Agent::Command => {
                return no("only the exit status shows how the program ended");
            }
            TestAction::Say(word) => format!("say {word}"),
            TestAction::Recall => "recall".to_owned(),
            TestAction::CallTool => "tool".to_owned(),
            TestAction::CallToolWithPermission => "ask".to_owned(),
            TestAction::RunToolFor { name, time } => format!("hold {name} {}", time.as_secs()),
            TestAction::TalkFor(time) => format!("talk {}", time.as_secs()),
            TestAction::RateLimitOnce(word) => format!("limit-once {word}"),
            TestAction::RateLimit => "limit".to_owned(),
            TestAction::EndMidLine => "cut".to_owned(),
            TestAction::Flood(bytes) => format!("flood {bytes}"),
            action => return Err(format!("the stand-in can't do {action:?}")),
        };
        Ok(format!("please <{word}>"))
    }

    fn kill(&self, pid: u32) -> Result<(), String> {
        crate::scene::kill(pid, rustix::process::Signal::KILL);
        Ok(())
    }

    fn alive(&self, tool: &str) -> Option<bool> {
        let pid = std::fs::read_to_string(self.scene.path(&format!("{tool}.pid")));
        let pid: u32 = pid.ok().map_or(0, |pid| pid.trim().parse().unwrap());
        let mut members = self.scene.members().into_iter();
        Some(members.any(|member| member.pid == pid))
    }

    fn timeout(&self) -> Duration {
        DEADLINE
    }
}

async fn column(agent: Agent) -> Vec<(Scenario, ScenarioResult)> {
    let mut plays = JoinSet::new();
    for scenario in Scenario::ALL {
        plays.spawn(async move {
            let stage = StandIn::new(agent);
            let cell = play(&stage, scenario).await;
            stage.scene.assert_no_process_left();
            (scenario, cell)
        });
    }
    let mut cells = plays.join_all().await;
    cells.sort_by_key(|(scenario, _)| *scenario);
    cells
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l84a_l89a_l89b_l91a_l92b_every_driver_passes_or_declares_missing_abilities() {
    let mut columns = Vec::new();
    for (name, agent) in Agent::ALL {
        columns.push((name, column(agent).await));
    }
    insta::assert_snapshot!(table(&columns));
}
