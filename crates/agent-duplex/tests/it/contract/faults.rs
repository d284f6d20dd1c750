//! Agents that break the contract, each with one fault.

use super::faulty_driver::{DriverFault, FaultyDriver};
use super::parts::{
    ScriptSteps as _, ScriptedTestAgent, actor, all, asks, cant, copy, driver, flood, start, used,
};
use agent_duplex::contract::Scenario;
use agent_duplex::scripted::{Latch, Script, ScriptedDriver};
use agent_duplex::{
    Capabilities, Capability, EndReason, Error, Event, InputPolicy, InputState, ToolOutcome,
};
use uuid::Uuid;

/// An agent that breaks the contract in one scenario.
pub(super) struct Part {
    pub(super) scenario: Scenario,
    pub(super) fault: &'static str,
    pub(super) stage: ScriptedTestAgent,
}

/// Returns the agents that break the contract, each with one fault.
pub(super) fn breaking() -> Vec<Part> {
    let all = all();
    let plays = |script: Script| {
        actor(
            driver(all)
                .with_script(script)
                .with_repeating_script(start().parrot()),
        )
    };
    let plain = |script: Script| {
        actor(
            driver(Capabilities::none())
                .with_script(script)
                .with_repeating_script(start().parrot()),
        )
    };
    let turn = || start().message().begin();
    let done = EndReason::Completed;
    let cut = EndReason::Interrupted;
    let seen = |outlives, stage: ScriptedTestAgent| ScriptedTestAgent {
        outlives: Some(outlives),
        ..stage
    };
    let on_kill = |act: &dyn Fn(Script, &Latch) -> Script, script: Script| {
        let killed = Latch::new();
        ScriptedTestAgent {
            killed: killed.clone(),
            ..plays(act(script, &killed))
        }
    };
    use Scenario as S;
    let parts = vec![
        (S::Turn, "never ends", plays(turn().echo())),
        (
            S::Turn,
            "ends twice",
            plays(turn().echo().end(done).end(done)),
        ),
        (
            S::Turn,
            "answers with another word",
            plays(turn().report_message("plum").end(done)),
        ),
        (
            S::Turn,
            "reports an interrupt instead of a completion",
            plays(turn().echo().end(cut)),
        ),
        (
            S::Turn,
            "ends without a reason",
            plays(turn().echo().ends()),
        ),
        (
            S::Turn,
            "writes deltas without the whole text",
            plays(turn().echo().delta().delta().delta().end(done)),
        ),
        (
            S::Turn,
            "is gone before its first message",
            plays(start().ends()),
        ),
        (S::Turn, "does not start", plays(Script::new().fails(cant))),
        (
            S::Turn,
            "declares resume without naming a session",
            plays(Script::new().parrot()),
        ),
        (
            S::Turn,
            "reports its history again",
            plays(start().report_message("old").parrot()),
        ),
        (
            S::Turn,
            "reports a message that it never got",
            plays(turn().observe(lost_input()).echo().end(done)),
        ),
        (
            S::Turn,
            "starts with a message that it never got",
            plays(
                start()
                    .message()
                    .observe(Event::TurnStarted {
                        inputs: vec![Uuid::nil()],
                    })
                    .echo()
                    .end(done),
            ),
        ),
        (
            S::Turn,
            "reports undeclared tools",
            plain(turn().tool().tool_done().echo().end(done)),
        ),
        (
            S::Turn,
            "reports undeclared permission requests",
            plain(turn().ask("a").echo().end(done)),
        ),
        (
            S::Turn,
            "has the push policy without declaring steer",
            actor(
                driver(Capabilities::none())
                    .with_input_policy(InputPolicy::Push)
                    .with_script(start().parrot()),
            ),
        ),
        (
            S::Turn,
            "declares steer with the after-turn policy",
            actor(
                driver(all)
                    .with_input_policy(InputPolicy::AfterTurn)
                    .with_script(start().parrot()),
            ),
        ),
        (
            S::Turn,
            "polls although its policy is another",
            plays(turn().observe(Event::AcceptsMessages).echo().end(done)),
        ),
        (
            S::Turn,
            "reports two different stops",
            bent(
                driver(all).with_script(start().parrot()),
                DriverFault::ChangesStopReport,
            ),
        ),
        (
            S::Turn,
            "leaves a process",
            bent(
                driver(all).with_script(start().parrot()),
                DriverFault::Leaks,
            ),
        ),
        (S::Tool, "reports no tool", plays(start().parrot())),
        (
            S::Tool,
            "does not report the end of the tool",
            plays(turn().tool().end(done)),
        ),
        (
            S::TwoMessages,
            "answers the first again",
            plays(
                start()
                    .parrot()
                    .message()
                    .begin()
                    .report_message("pear")
                    .end(done),
            ),
        ),
        (
            S::TwoMessages,
            "reports only the start of the first turn",
            plays(start().parrot().message().echo().end(done)),
        ),
        (
            S::TwoMessages,
            "ignores the second message",
            plays(start().parrot()),
        ),
        (
            S::Steer,
            "rejects a message although it declares steer",
            plays(
                turn()
                    .refuses(Some(cant))
                    .tool()
                    .end(done)
                    .refuses(None)
                    .parrot(),
            ),
        ),
        (
            S::Steer,
            "loses the message",
            plays(turn().tool().message().end(done)),
        ),
        (
            S::Steer,
            "accepts the message and ignores it",
            plays(
                turn()
                    .tool()
                    .message()
                    .input(1, InputState::InTurn)
                    .report_message("well")
                    .end(done),
            ),
        ),
        (
            S::Steer,
            "accepts a message without declaring steer",
            plain(turn().delta()),
        ),
        (
            S::Steer,
            "rejects with a wrong error",
            plain(turn().refuses(Some(full)).delta()),
        ),
        (
            S::InterruptText,
            "ignores the interrupt",
            plays(turn().delta()),
        ),
        (
            S::InterruptText,
            "reports completion",
            plays(turn().delta().interrupted().half().end(done)),
        ),
        (
            S::InterruptText,
            "loses the partial text",
            plays(turn().delta().interrupted().end(cut).parrot()),
        ),
        (
            S::InterruptText,
            "continues to write",
            plays(turn().delta().interrupted().half().end(cut).delta()),
        ),
        (
            S::InterruptText,
            "ends with its turn",
            plays(turn().delta().interrupted().half().end(cut).ends()),
        ),
        (
            S::InterruptText,
            "continues without declaring interrupt",
            actor(
                driver(Capabilities::none().with(Capability::Model))
                    .with_script(turn().delta().interrupted().half().end(cut).parrot()),
            ),
        ),
        (
            S::InterruptText,
            "rejects the interrupt",
            bent(
                driver(all).with_script(turn().delta()),
                DriverFault::FailsInterrupt,
            ),
        ),
        (
            S::InterruptText,
            "can't be interrupted, but declares it",
            bent(
                driver(all).with_script(turn().delta()),
                DriverFault::CantBeInterrupted,
            ),
        ),
        (
            S::InterruptTool,
            "lets the tool run",
            seen(true, plays(turn().tool().interrupted().end(cut).parrot())),
        ),
        (S::InterruptTool, "starts no tool", plays(turn())),
        (
            S::Resume,
            "forgets the earlier message",
            on_kill(
                &|script, killed| script.parrot().wait_for_latch(killed).ends(),
                start(),
            ),
        ),
        (
            S::Resume,
            "does not report its death",
            on_kill(&|script, _| script.parrot(), start()),
        ),
        (
            S::Resume,
            "resumes without declaring it",
            plain(start().parrot()),
        ),
        (
            S::Resume,
            "rejects with a wrong error",
            plain(Script::new().fails(full)),
        ),
        (
            S::Retry,
            "gives up",
            plays(turn().end(EndReason::RateLimited)),
        ),
        (S::Retry, "does not answer", plays(turn().end(done))),
        (S::RateLimit, "reports completion", plays(turn().end(done))),
        (
            S::RateLimit,
            "reports an ordinary failure",
            plays(turn().end(EndReason::Failed)),
        ),
        (
            S::Death,
            "reports completion",
            on_kill(
                &|script, killed| {
                    script
                        .message()
                        .begin()
                        .delta()
                        .wait_for_latch(killed)
                        .half()
                        .end(done)
                        .ends()
                },
                start(),
            ),
        ),
        (
            S::Death,
            "reports no exit status",
            on_kill(
                &|script, killed| {
                    script
                        .message()
                        .begin()
                        .delta()
                        .wait_for_latch(killed)
                        .ends()
                },
                start(),
            ),
        ),
        (
            S::Death,
            "is not reported",
            on_kill(&|script, _| script.message().begin().delta(), start()),
        ),
        (
            S::TruncatedLine,
            "reports completion",
            plays(turn().delta().half().end(done).ends()),
        ),
        (S::SlowReader, "loses a part", plays(flood(63))),
        (
            S::Stop,
            "lets the tool run",
            seen(true, plays(turn().tool())),
        ),
        (
            S::Stop,
            "reports completion",
            plays(
                turn()
                    .tool()
                    .report_after_stop(Event::TurnCompleted(done.into())),
            ),
        ),
        (
            S::PermissionRequest,
            "requests no permission",
            plays(turn().tool().tool_done().end(done)),
        ),
        (
            S::PermissionRequest,
            "runs a denied tool",
            plays(asks(&[ToolOutcome::Succeeded, ToolOutcome::Succeeded])),
        ),
        (
            S::PermissionRequest,
            "does not run an allowed tool",
            plays(asks(&[ToolOutcome::Failed, ToolOutcome::Failed])),
        ),
        (
            S::PermissionRequest,
            "does not continue",
            plays(turn().tool().ask("a").answered()),
        ),
        (
            S::PermissionRequest,
            "accepts answers without requests",
            plain(start()),
        ),
        (S::Usage, "reports no usage", plays(start().parrot())),
        (
            S::Usage,
            "reports undeclared usage",
            plain(used(start().message().begin().echo()).end(done)),
        ),
        (
            S::Fork,
            "forgets the earlier message",
            plays(start().parrot().parrot()),
        ),
        (
            S::Fork,
            "continues the original session",
            actor(
                driver(all)
                    .with_script(start().parrot().parrot())
                    .with_script(turn().report_message("pear").end(done)),
            ),
        ),
        (
            S::Fork,
            "ends the original session",
            actor(
                driver(all)
                    .with_script(start().parrot())
                    .with_script(copy()),
            ),
        ),
        (S::Fork, "forks without declaring it", plain(start())),
        (
            S::LostSession,
            "starts another session",
            plays(start().parrot()),
        ),
        (
            S::LostSession,
            "does not start",
            plays(Script::new().fails(full)),
        ),
        (
            S::LostSession,
            "reports an ordinary failure",
            plays(turn().end(EndReason::Failed).ends()),
        ),
    ];
    let part = |(scenario, fault, stage)| Part {
        scenario,
        fault,
        stage,
    };
    parts.into_iter().map(part).collect()
}

fn bent(driver: ScriptedDriver, bend: DriverFault) -> ScriptedTestAgent {
    ScriptedTestAgent {
        driver: FaultyDriver(driver, bend),
        ..actor(ScriptedDriver::new(Capabilities::none()))
    }
}

fn full() -> Error {
    Error::full("it")
}

fn lost_input() -> Event {
    let (id, state) = (Uuid::nil(), InputState::InTurn);
    Event::Input { id, state }
}
