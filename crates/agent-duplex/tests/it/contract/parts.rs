//! The scripts of agents that keep the contract, and of others.

use std::time::Duration;

use super::faulty_driver::{DriverFault, FaultyDriver};
use agent_duplex::contract::{Scenario, TestAction, TestAgent};
use agent_duplex::scripted::{Latch, Script, ScriptedCall, ScriptedDriver};
use agent_duplex::{
    Capabilities, Capability, Driver, EndReason, Error, Event, ExitStatus, InputState,
    PermissionRequest, ToolOutcome, TurnEnd, Usage,
};

/// Returns all capabilities that the scenarios need.
pub(super) fn all() -> Capabilities {
    use Capability::{Fork, Interrupt, Permissions, Resume, Steer, Tools, Usage};
    [Interrupt, Steer, Resume, Tools, Usage, Permissions, Fork]
        .into_iter()
        .fold(Capabilities::none(), Capabilities::with)
}

/// An agent under test that follows scripts.
pub(super) struct ScriptedTestAgent {
    pub(super) driver: FaultyDriver,
    pub(super) killed: Latch,
    /// Whether the tool outlives an interrupt or a stop; `None` if it can't be observed.
    pub(super) outlives: Option<bool>,
    pub(super) mute: bool,
}

impl ScriptedTestAgent {
    pub(super) fn starts(&self) -> usize {
        self.driver.0.sessions().len()
    }
}

impl TestAgent for ScriptedTestAgent {
    fn driver(&self) -> Box<dyn Driver> {
        Box::new(self.driver.clone())
    }

    fn prompt_for(&self, action: &TestAction) -> Result<String, String> {
        match action {
            _ if self.mute => Err("it does nothing".to_owned()),
            TestAction::Say(word) | TestAction::RateLimitOnce(word) => Ok(word.clone()),
            action => Ok(format!("{action:?}")),
        }
    }

    fn kill(&self, _pid: u32) -> Result<(), String> {
        self.killed.open();
        Ok(())
    }

    fn alive(&self, _tool: &str) -> Option<bool> {
        let ends = |call: &ScriptedCall| {
            matches!(call, ScriptedCall::Interrupted(_) | ScriptedCall::Stopped)
        };
        let ended = self.driver.0.calls().iter().any(ends);
        self.outlives.map(|outlives| outlives || !ended)
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(60)
    }
}

pub(super) fn actor(driver: ScriptedDriver) -> ScriptedTestAgent {
    ScriptedTestAgent {
        driver: FaultyDriver(driver, DriverFault::No),
        killed: Latch::new(),
        outlives: None,
        mute: false,
    }
}

pub(super) fn mute() -> ScriptedTestAgent {
    ScriptedTestAgent {
        mute: true,
        ..actor(ScriptedDriver::new(all()))
    }
}

/// Returns an agent whose tools can't be observed, neither as processes nor by reports of its driver.
pub(super) fn unseen() -> ScriptedTestAgent {
    let turn = start().message().begin().delta();
    actor(ScriptedDriver::new(Capabilities::none()).with_script(turn))
}

pub(super) fn start() -> Script {
    let started = Event::Started { pid: 1 };
    Script::new().observe(started).session("s")
}

/// Short forms for the steps of a script.
pub(super) trait ScriptSteps: Sized {
    fn echo(self) -> Self;
    /// A turn in which the agent repeats its message.
    fn parrot(self) -> Self;
    fn tool(self) -> Self;
    fn tool_done(self) -> Self;
    fn delta(self) -> Self;
    fn half(self) -> Self;
    fn ask(self, id: &str) -> Self;
    fn dies(self) -> Self;
}

impl ScriptSteps for Script {
    fn echo(self) -> Self {
        self.make(|messages| {
            let text = messages[messages.len() - 1].text.clone();
            let partial = false;
            Event::Message { text, partial }.into()
        })
    }

    fn parrot(self) -> Self {
        self.message().begin().echo().end(EndReason::Completed)
    }

    fn tool(self) -> Self {
        self.observe(Event::ToolStarted {
            id: "t".to_owned(),
            name: "make".to_owned(),
            summary: String::new(),
        })
    }

    fn tool_done(self) -> Self {
        self.observe(Event::ToolFinished {
            id: "t".to_owned(),
            outcome: ToolOutcome::Succeeded,
            text: String::new(),
        })
    }

    fn delta(self) -> Self {
        self.observe(Event::TextDelta("la".to_owned()))
    }

    fn half(self) -> Self {
        let text = "la".to_owned();
        self.observe(Event::Message {
            text,
            partial: true,
        })
    }

    fn ask(self, id: &str) -> Self {
        self.observe(Event::PermissionRequested(PermissionRequest {
            id: id.to_owned(),
            tool: "make".to_owned(),
            summary: String::new(),
            reason: String::new(),
        }))
    }

    fn dies(self) -> Self {
        let end = TurnEnd {
            exit: Some(ExitStatus::Signal(9)),
            ..EndReason::Died.into()
        };
        self.observe(Event::TurnCompleted(end)).ends()
    }
}

pub(super) fn cant() -> Error {
    Error::unsupported("scripted", "do that", "do something else")
}

pub(super) fn driver(capabilities: Capabilities) -> ScriptedDriver {
    ScriptedDriver::new(capabilities)
}

/// Returns an agent that keeps the contract and has only the declared capabilities.
pub(super) fn keeping(scenario: Scenario, capabilities: Capabilities) -> ScriptedTestAgent {
    let has = |capability| capabilities.has(capability);
    let driver = driver(capabilities).with_repeating_script(start().parrot());
    let killed = Latch::new();
    let with = |script: Script| driver.clone().with_script(script);
    let tool = |script: Script| match has(Capability::Tools) {
        true => script.message().begin().tool(),
        false => script.message().begin().delta(),
    };
    let cut = |script: Script| {
        let script = script.half().end(EndReason::Interrupted);
        match has(Capability::Interrupt) {
            true => script.parrot(),
            false => script.ends(),
        }
    };
    let plays = match scenario {
        Scenario::Tool => with(match has(Capability::Tools) {
            true => tool(start()).tool_done().end(EndReason::Completed),
            false => start().parrot(),
        }),
        Scenario::TwoMessages => with(start().parrot().parrot()),
        Scenario::Steer if has(Capability::Steer) => {
            let script = tool(start()).message().input(1, InputState::InTurn);
            with(script.echo().end(EndReason::Completed))
        }
        Scenario::Steer => {
            let busy = start().message().begin().refuses(Some(cant)).delta();
            with(busy).with_script(
                start()
                    .message()
                    .begin()
                    .delta()
                    .half()
                    .end(EndReason::Completed)
                    .parrot(),
            )
        }
        Scenario::InterruptText => with(cut(start().message().begin().delta().interrupted())),
        Scenario::InterruptTool => with(cut(tool(start()).interrupted())),
        Scenario::Resume if has(Capability::Resume) => {
            let dies = start().parrot().wait_for_latch(&killed).ends();
            with(dies).with_script(
                start()
                    .message()
                    .begin()
                    .report_message("first: pear")
                    .end(EndReason::Completed),
            )
        }
        Scenario::Resume => with(Script::new().fails(cant))
            .with_script(start().parrot().wait_for_latch(&killed).ends()),
        Scenario::RateLimit => {
            let limited = start().message().begin().end(EndReason::RateLimited);
            with(limited.parrot())
        }
        Scenario::Death => with(
            start()
                .message()
                .begin()
                .delta()
                .wait_for_latch(&killed)
                .half()
                .dies(),
        ),
        Scenario::TruncatedLine => with(start().message().begin().delta().half().dies()),
        Scenario::SlowReader => with(flood(64)),
        Scenario::Stop => with(tool(start())),
        Scenario::PermissionRequest if has(Capability::Permissions) => {
            let script = asks(&[ToolOutcome::Denied, ToolOutcome::Succeeded]);
            with(
                script
                    .message()
                    .begin()
                    .tool()
                    .ask("last")
                    .interrupted()
                    .end(EndReason::Interrupted),
            )
        }
        Scenario::PermissionRequest => with(start()),
        Scenario::Usage if has(Capability::Usage) => {
            with(used(start().message().begin().echo()).end(EndReason::Completed))
        }
        Scenario::Fork if has(Capability::Fork) => {
            with(start().parrot().parrot()).with_script(copy())
        }
        Scenario::Fork => with(Script::new().fails(cant)),
        Scenario::LostSession if has(Capability::Resume) => with(
            start()
                .message()
                .begin()
                .end(EndReason::SessionNotFound)
                .ends(),
        ),
        Scenario::LostSession => with(Script::new().fails(cant)),
        _ => driver,
    };
    let bend = match has(Capability::Permissions) {
        true => DriverFault::No,
        false => DriverFault::CantBeAnswered,
    };
    ScriptedTestAgent {
        driver: FaultyDriver(plays, bend),
        killed,
        outlives: (has(Capability::Tools) || scenario != Scenario::Steer).then_some(false),
        mute: false,
    }
}

/// Requests a permission in two turns, and ends the tools with these outcomes.
pub(super) fn asks(outcomes: &[ToolOutcome; 2]) -> Script {
    let turn = |script: Script, outcome: &ToolOutcome| {
        let ended = Event::ToolFinished {
            id: "t".to_owned(),
            outcome: *outcome,
            text: String::new(),
        };
        let asked = script.message().begin().tool().ask("a").answered();
        asked.observe(ended).end(EndReason::Completed)
    };
    outcomes.iter().fold(start(), turn)
}

pub(super) fn used(script: Script) -> Script {
    script.observe(Event::UsageReported(Usage::tokens(0, 1)))
}

/// The script of a forked session.
pub(super) fn copy() -> Script {
    let script = Script::new().session("copy").message().begin();
    script
        .report_message("first: pear")
        .end(EndReason::Completed)
}

pub(super) fn flood(pieces: usize) -> Script {
    let piece = "x".repeat(64 << 10);
    let script = start().message().begin();
    let script = (0..pieces).fold(script, |script, _| script.report_message(&piece));
    script.end(EndReason::Completed)
}
