//! Control: a message reaches the agent, also if the agent or the tool restarts.

use std::time::{Duration, Instant};

use rlm_tests::Running;
use rlm_tests::agent::AgentStart;

use crate::scene::{Job, Scene, Waited, step};
use crate::{Cell, Lab};

/// The time limit for each part of a scene.
const LIMIT: Duration = Duration::from_secs(20);
/// The duration of a turn: long enough to send a message within it.
const TURN: u64 = 700;
const ITERATIONS: u32 = 6;
const MESSAGE: &str = "lab-message-7c1f";

/// The event between the message and the next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Nothing,
    /// The agent is killed.
    AgentRestarts,
    /// The tool is killed with all its processes, and started again.
    ToolRestarts,
}

impl Event {
    pub(crate) const ALL: [Self; 3] = [Self::Nothing, Self::AgentRestarts, Self::ToolRestarts];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "message arrives",
            Self::AgentRestarts => "agent restarts",
            Self::ToolRestarts => "tool restarts",
        }
    }
}

/// Sends a message to the agent's first turn, and looks for it in the following turns.
pub(crate) fn cell(lab: Lab<'_>, event: Event) -> Cell {
    let name = event.name();
    if lab.tool.message.is_none() && !lab.tool.start.contains("{prompt}") {
        return Cell::skipped(name, "the tool has neither a message command nor {prompt}");
    }
    let scene = Scene::new(lab, &Job::endless(step("", TURN), ITERATIONS));
    match played(&scene, event) {
        Ok(cell) => cell,
        Err(why) => Cell::not_shown(name, why),
    }
}

fn played(scene: &Scene<'_>, event: Event) -> Result<Cell, String> {
    let name = event.name();
    let mut tool = scene.start();
    let first = scene.wait(&mut tool, LIMIT, || scene.agents_alive().first().copied());
    let Waited::Found(first) = first else {
        return Err("the agent did not start".into());
    };
    if let Err(why) = scene.send(MESSAGE) {
        return Ok(Cell::judged(name, 1, false, why));
    }
    let sent = Instant::now();
    let turns_before = scene.starts().len();
    match event {
        Event::Nothing => {}
        Event::AgentRestarts if scene.kill_agent(first) => {}
        Event::AgentRestarts => return Err("the agent ended before the kill".into()),
        Event::ToolRestarts => {
            scene.kill(tool)?;
            scene.kill_all();
            tool = scene.restart();
        }
    }
    Ok(arrival(scene, name, tool, sent, turns_before))
}

/// Waits for the message in the text that the agent receives.
fn arrival(
    scene: &Scene<'_>,
    name: &str,
    mut tool: Running,
    sent: Instant,
    turns_before: usize,
) -> Cell {
    let has = |start: &AgentStart| scene.received(start).contains(MESSAGE);
    let found = scene.wait(&mut tool, LIMIT, || scene.starts().iter().position(has));
    let seconds = sent.elapsed().as_secs_f64();
    let Waited::Found(turn) = found else {
        let turns = scene.starts().len() - turns_before;
        return Cell::judged(
            name,
            1,
            false,
            format!("the message did not arrive in {turns} further turns"),
        );
    };
    let turns = u32::try_from((turn + 1).saturating_sub(turns_before)).unwrap_or(u32::MAX);
    let why = format!("after {seconds:.1} s, in turn {turns} after the message");
    Cell::judged(name, 1, true, why)
        .figure("seconds", (seconds * 1000.0).round() / 1000.0)
        .figure("turns_later", turns)
}
