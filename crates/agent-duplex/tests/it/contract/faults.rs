//! Who breaks the contract, with one fault each.

use super::bent::{Bend, Bent};
use super::parts::{Actor, Moves as _, actor, all, asks, cant, copy, driver, flood, start, used};
use agent_duplex::contract::Scenario;
use agent_duplex::scripted::{Gate, Script, ScriptedDriver};
use agent_duplex::{
    Capabilities, Capability, EndReason, Error, Event, InputPolicy, InputState, ToolOutcome,
};
use uuid::Uuid;

/// Somebody who breaks the contract in one scenario.
pub(super) struct Part {
    pub(super) scenario: Scenario,
    pub(super) fault: &'static str,
    pub(super) stage: Actor,
}

/// Who breaks it: one fault each.
pub(super) fn breaking() -> Vec<Part> {
    let all = all();
    let plays = |script: Script| actor(driver(all).plays(script).repeats(start().parrot()));
    let plain = |script: Script| {
        actor(
            driver(Capabilities::none())
                .plays(script)
                .repeats(start().parrot()),
        )
    };
    let turn = || start().message().begin();
    let done = EndReason::Completed;
    let cut = EndReason::Interrupted;
    let seen = |outlives, stage: Actor| Actor {
        outlives: Some(outlives),
        ..stage
    };
    let on_kill = |act: &dyn Fn(Script, &Gate) -> Script, script: Script| {
        let killed = Gate::new();
        Actor {
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
            "says something else",
            plays(turn().say("plum").end(done)),
        ),
        (
            S::Turn,
            "is told as interrupted",
            plays(turn().echo().end(cut)),
        ),
        (
            S::Turn,
            "ends without a word of why",
            plays(turn().echo().over()),
        ),
        (
            S::Turn,
            "says in pieces what does not come whole",
            plays(turn().echo().delta().delta().delta().end(done)),
        ),
        (S::Turn, "is gone before it is told", plays(start().over())),
        (S::Turn, "does not start", plays(Script::new().fails(cant))),
        (
            S::Turn,
            "names no session and declares resume",
            plays(Script::new().parrot()),
        ),
        (
            S::Turn,
            "tells its history again",
            plays(start().say("old").parrot()),
        ),
        (
            S::Turn,
            "tells of what it was not sent",
            plays(turn().observe(lost_input()).echo().end(done)),
        ),
        (
            S::Turn,
            "begins with what it was not sent",
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
            "tells of tools and declares none",
            plain(turn().tool().tool_done().echo().end(done)),
        ),
        (
            S::Turn,
            "asks and declares no asking",
            plain(turn().ask("a").echo().end(done)),
        ),
        (
            S::Turn,
            "is pushed and declares no steer",
            actor(
                driver(Capabilities::none())
                    .takes(InputPolicy::Push)
                    .plays(start().parrot()),
            ),
        ),
        (
            S::Turn,
            "declares steer and is told after",
            actor(
                driver(all)
                    .takes(InputPolicy::AfterTurn)
                    .plays(start().parrot()),
            ),
        ),
        (
            S::Turn,
            "polls out of its policy",
            plays(turn().observe(Event::Polled).echo().end(done)),
        ),
        (
            S::Turn,
            "reports a stop twice",
            bent(driver(all).plays(start().parrot()), Bend::Fickle),
        ),
        (
            S::Turn,
            "leaves somebody",
            bent(driver(all).plays(start().parrot()), Bend::Leaks),
        ),
        (S::Tool, "tells of none", plays(start().parrot())),
        (
            S::Tool,
            "does not tell its end",
            plays(turn().tool().end(done)),
        ),
        (
            S::TwoMessages,
            "answers the first again",
            plays(start().parrot().message().begin().say("pear").end(done)),
        ),
        (
            S::TwoMessages,
            "tells the beginning of the first turn only",
            plays(start().parrot().message().echo().end(done)),
        ),
        (
            S::TwoMessages,
            "is deaf after the first",
            plays(start().parrot()),
        ),
        (
            S::Steer,
            "refuses what it declares",
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
            "forgets it",
            plays(turn().tool().message().end(done)),
        ),
        (
            S::Steer,
            "takes it and does not listen",
            plays(
                turn()
                    .tool()
                    .message()
                    .input(1, InputState::Taken)
                    .say("well")
                    .end(done),
            ),
        ),
        (
            S::Steer,
            "takes what it does not declare",
            plain(turn().delta()),
        ),
        (
            S::Steer,
            "refuses in other words",
            plain(turn().refuses(Some(full)).delta()),
        ),
        (S::InterruptText, "goes on", plays(turn().delta())),
        (
            S::InterruptText,
            "is told as done",
            plays(turn().delta().interrupted().half().end(done)),
        ),
        (
            S::InterruptText,
            "forgets what was half said",
            plays(turn().delta().interrupted().end(cut).parrot()),
        ),
        (
            S::InterruptText,
            "talks on",
            plays(turn().delta().interrupted().half().end(cut).delta()),
        ),
        (
            S::InterruptText,
            "ends with its turn",
            plays(turn().delta().interrupted().half().end(cut).over()),
        ),
        (
            S::InterruptText,
            "goes on and does not declare it",
            actor(
                driver(Capabilities::none().with(Capability::Model))
                    .plays(turn().delta().interrupted().half().end(cut).parrot()),
            ),
        ),
        (
            S::InterruptText,
            "refuses",
            bent(driver(all).plays(turn().delta()), Bend::DeafToInterrupts),
        ),
        (
            S::InterruptText,
            "can't, and declares it",
            bent(driver(all).plays(turn().delta()), Bend::CantBeInterrupted),
        ),
        (
            S::InterruptTool,
            "lets the tool run",
            seen(true, plays(turn().tool().interrupted().end(cut).parrot())),
        ),
        (S::InterruptTool, "starts no tool", plays(turn())),
        (
            S::Resume,
            "forgets",
            on_kill(
                &|script, killed| script.parrot().gate(killed).over(),
                start(),
            ),
        ),
        (
            S::Resume,
            "does not tell its death",
            on_kill(&|script, _| script.parrot(), start()),
        ),
        (
            S::Resume,
            "resumes and does not declare it",
            plain(start().parrot()),
        ),
        (
            S::Resume,
            "refuses in other words",
            plain(Script::new().fails(full)),
        ),
        (
            S::Retry,
            "gives up",
            plays(turn().end(EndReason::RateLimited)),
        ),
        (S::Retry, "forgets the answer", plays(turn().end(done))),
        (S::RateLimit, "is told as done", plays(turn().end(done))),
        (
            S::RateLimit,
            "is told as any failure",
            plays(turn().end(EndReason::Failed)),
        ),
        (
            S::Death,
            "is told as done",
            on_kill(
                &|script, killed| {
                    script
                        .message()
                        .begin()
                        .delta()
                        .gate(killed)
                        .half()
                        .end(done)
                        .over()
                },
                start(),
            ),
        ),
        (
            S::Death,
            "is told without the exit",
            on_kill(
                &|script, killed| script.message().begin().delta().gate(killed).over(),
                start(),
            ),
        ),
        (
            S::Death,
            "is not told",
            on_kill(&|script, _| script.message().begin().delta(), start()),
        ),
        (
            S::CutLine,
            "is told as done",
            plays(turn().delta().half().end(done).over()),
        ),
        (S::SlowReader, "loses a piece", plays(flood(63))),
        (
            S::Stop,
            "lets the tool run",
            seen(true, plays(turn().tool())),
        ),
        (
            S::Stop,
            "is told as done",
            plays(turn().tool().last_words(Event::TurnCompleted(done.into()))),
        ),
        (
            S::Ask,
            "does not ask",
            plays(turn().tool().tool_done().end(done)),
        ),
        (
            S::Ask,
            "does what was denied",
            plays(asks(&[ToolOutcome::Done, ToolOutcome::Done])),
        ),
        (
            S::Ask,
            "does not do what was allowed",
            plays(asks(&[ToolOutcome::Failed, ToolOutcome::Failed])),
        ),
        (
            S::Ask,
            "does not go on",
            plays(turn().tool().ask("a").answered()),
        ),
        (S::Ask, "takes answers and asks nothing", plain(start())),
        (S::Usage, "tells nothing of it", plays(start().parrot())),
        (
            S::Usage,
            "tells of it and does not declare it",
            plain(used(start().message().begin().echo()).end(done)),
        ),
        (S::Fork, "forgets", plays(start().parrot().parrot())),
        (
            S::Fork,
            "goes on with the first one",
            actor(
                driver(all)
                    .plays(start().parrot().parrot())
                    .plays(turn().say("pear").end(done)),
            ),
        ),
        (
            S::Fork,
            "ends the first one",
            actor(driver(all).plays(start().parrot()).plays(copy())),
        ),
        (S::Fork, "copies and does not declare it", plain(start())),
        (S::LostSession, "begins another", plays(start().parrot())),
        (
            S::LostSession,
            "does not start",
            plays(Script::new().fails(full)),
        ),
        (
            S::LostSession,
            "is told as any failure",
            plays(turn().end(EndReason::Failed).over()),
        ),
    ];
    let part = |(scenario, fault, stage)| Part {
        scenario,
        fault,
        stage,
    };
    parts.into_iter().map(part).collect()
}

fn bent(driver: ScriptedDriver, bend: Bend) -> Actor {
    Actor {
        driver: Bent(driver, bend),
        ..actor(ScriptedDriver::new(Capabilities::none()))
    }
}

fn full() -> Error {
    Error::full("it")
}

fn lost_input() -> Event {
    let (id, state) = (Uuid::nil(), InputState::Taken);
    Event::Input { id, state }
}
