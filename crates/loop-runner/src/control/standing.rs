//! How a run stands, for one who asks. Pure.

use std::time::Duration;

use agent_subprocess::ProcessId;
use loop_state::Step;
use rlm_store::{RunId, RunState};

use crate::View;
use crate::control::{Doing, Standing};

/// How many tools and questions are told of, and how many characters of each.
const NAMED: usize = 16;
const SHORTENED: usize = 200;

/// Says how a run stands whose loop turned last this long ago.
pub(super) fn standing(run: &RunId, process: ProcessId, view: &View, turned: Duration) -> Standing {
    let (head, agent) = (&view.head, &view.agent);
    let short = |text: &String| text.chars().take(SHORTENED).collect();
    Standing {
        run: run.clone(),
        state: match head.is_waiting() {
            true => RunState::Paused,
            false => RunState::Running,
        },
        process,
        phase: short(&head.phase_rules().name),
        phase_number: head.phase + 1,
        phases: u32::try_from(head.rules.phases.len()).unwrap_or(u32::MAX),
        review: match head.step {
            Step::Review { of, .. } => Some(of.to_string()),
            _ => None,
        },
        iteration: head.iteration,
        attempt: head.attempt,
        iterations_complete: head.iterations_complete(),
        pausing: head.pausing,
        stopping: head.stopping.is_some(),
        steers_waiting: head.unseen_steers().count(),
        session: head.session.as_ref().map(short),
        turned_ms: Some(u64::try_from(turned.as_millis()).unwrap_or(u64::MAX)),
        doing: Doing::of(head),
        shutdown: view.shutdown,
        agent_alive: agent.alive,
        held_for: agent.held_for,
        tools: agent.tools.iter().take(NAMED).map(short).collect(),
        asks: agent
            .asks
            .iter()
            .take(NAMED)
            .map(|ask| short(&format!("{}: {}", ask.tool, ask.summary)))
            .collect(),
    }
}
