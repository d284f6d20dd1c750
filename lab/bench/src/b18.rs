//! B18: commands on large states: a run of many iterations, a long transcript, and many live runs.

mod live;
mod long;
mod place;

use crate::harness::{Bench, Outcome, Plan, Result};
use crate::programs::rlm_or_skip;
use place::Place;

pub(crate) const BENCH: Bench = Bench {
    id: "b18",
    title: "commands on large states",
    run,
    measured: Some(live::measured),
};

fn run(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let Some(rlm) = rlm_or_skip("rlm", outcome) else {
        return Ok(());
    };
    let place = |name: &str| Place::make(&rlm, plan.scratch.join("b18").join(name));
    for (count, label) in long::sizes(plan.scale) {
        long::iterations(&place(label)?, count, label, plan, outcome)?;
    }
    long::judge_iterations(outcome);
    long::transcript(&place("transcript")?, plan, outcome)?;
    live::ps(&place("live")?, plan, outcome)
}
