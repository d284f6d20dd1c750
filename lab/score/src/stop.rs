//! Stop: no process outlives a stop. The crate `rlm-survivors` makes the stops; this module turns its rows into cells.

use rlm_survivors::{Plan, Role, Row, StopMethod};

use crate::scene::Effort;
use crate::{Cell, Lab};

/// The number of stops in each way.
const FULL: usize = 5;

/// Stops the tool in eight ways, at most `jobs` at the same time.
pub(crate) fn cells(
    lab: Lab<'_>,
    jobs: usize,
    progress: impl Fn(usize, usize) + Sync,
) -> Vec<Cell> {
    // The agent works for ten minutes, so the values of these places matter only for the start of the tool.
    let command = { lab.tool.start.replace("{prompt}", "README.md") }
        .replace("{check}", "false")
        .replace("{iterations}", "100");
    let plan = Plan::new(command, lab.agent.into());
    let plan = match lab.effort {
        Effort::Quick => plan.quick(),
        Effort::Full => Plan { runs: FULL, ..plan },
    };
    let all = plan.all().len();
    let runs = plan.run_all(jobs, lab.given_up, |done| progress(done.len(), all));
    let score = rlm_survivors::Score::of(&StopMethod::ALL, runs);
    score.rows.iter().map(cell).collect()
}

fn cell(row: &Row) -> Cell {
    let name = row.way.name();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let judged = count(row.judged() + row.ignored());
    let skipped = row.runs.len() == row.skipped() && row.skipped() > 0;
    if skipped {
        return Cell::skipped(name, "this tool or this machine doesn't allow it");
    }
    if judged == 0 {
        return Cell::not_shown(name, "the agent did not begin to work");
    }
    let left = Role::ALL.into_iter().filter(|role| row.survived(*role) > 0);
    let left: Vec<&str> = left.map(Role::name).collect();
    let why = match (left.is_empty(), row.ignored()) {
        (true, 0) => String::new(),
        (true, _) => "the tool ignored the stop".into(),
        (false, 0) => format!("alive: {}", left.join(", ")),
        (false, _) => format!("alive: {}; the tool ignored some stops", left.join(", ")),
    };
    if row.is_clean() || !why.is_empty() {
        return Cell::judged(name, judged, row.is_clean(), why)
            .figure("ignored", count(row.ignored()))
            .figure("named", count(row.named()));
    }
    Cell::not_shown(name, "the agent did not begin to work in some stops")
}
