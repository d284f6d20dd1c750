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
    let plan = Plan {
        agent_name: lab.tool.agent_name().into(),
        ..Plan::new(command, lab.agent.into())
    };
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rlm_survivors::{Run, RunResult, Survivor};

    use super::*;
    use crate::Verdict;

    fn of(results: Vec<RunResult>) -> (Verdict, u32, String) {
        let runs = results
            .into_iter()
            .enumerate()
            .map(|(number, verdict)| Run {
                way: StopMethod::Term,
                number,
                verdict,
            });
        let row = Row {
            way: StopMethod::Term,
            runs: runs.collect(),
        };
        let cell = cell(&row);
        (cell.verdict, cell.landed, cell.why)
    }

    fn ended(left: Vec<Survivor>) -> RunResult {
        RunResult::Ended {
            status: "0".into(),
            tool_gone: Duration::ZERO,
            all_gone: left.is_empty().then_some(Duration::ZERO),
            left,
        }
    }

    #[test]
    fn row_of_stops_becomes_a_cell() {
        let daemon = Survivor {
            role: Role::Daemon,
            pid: 7,
            name: "x".into(),
            zombie: false,
        };
        let why = || String::from("no agent");
        let (never, skipped) = (
            RunResult::NeverReady { why: why() },
            RunResult::Skipped { why: why() },
        );
        let clean = || ended(Vec::new());
        assert_eq!(of(vec![clean(), clean()]).0, Verdict::Kept);
        let broken = of(vec![clean(), ended(vec![daemon])]);
        assert_eq!(broken, (Verdict::Broken, 2, "alive: daemon".into()));
        let ignored = of(vec![RunResult::Ignored { left: Vec::new() }]);
        assert_eq!(ignored.0, Verdict::Broken);
        assert_eq!(of(vec![skipped]).0, Verdict::Skipped);
        assert_eq!(of(vec![never.clone()]).0, Verdict::NotShown);
        assert_eq!(of(vec![clean(), never]).0, Verdict::NotShown);
    }
}
