//! Compares budgets: how many of a thousand simulated runs finish their work?
//!
//! `cargo run -p loop-state --example what_if` prints the same figures each time. A turn of the simulated agent costs 20 cents to a dollar; one turn
//! in ten completes the work.
#![expect(clippy::print_stdout, reason = "the example shows what happens")]

use std::time::Duration;

use loop_state::simulate::{SeededRandom, SimulatedTurn, Simulation};
use loop_state::{PhaseRules, PromptContext, Rules, RulesError, RunLimits};

pub(crate) const BUDGETS: [u64; 3] = [2, 5, 10];
pub(crate) const RUNS: u64 = 1000;

pub(crate) fn main() -> Result<(), RulesError> {
    for dollars in BUDGETS {
        let percent = finished(dollars)? * 100 / RUNS;
        println!("${dollars:<3} {percent:>3} % done");
    }
    Ok(())
}

/// Returns how many of the runs with this budget finish.
pub(crate) fn finished(dollars: u64) -> Result<u64, RulesError> {
    let phase = PhaseRules {
        name: "main".into(),
        has_check: true,    // a check decides when the work is complete
        reports_cost: true, // so a budget is possible
        ..PhaseRules::default()
    };
    let limits = RunLimits {
        max_cost_microusd: Some(dollars * 1_000_000),
        ..RunLimits::default()
    };
    let rules = Rules {
        phases: vec![phase],
        limits,
        ..Rules::default()
    };
    let simulation = Simulation::new(rules)?;
    let is_done = |seed: &u64| simulation.run(*seed, turn).is_done();
    Ok((0..RUNS).filter(is_done).count() as u64)
}

fn turn(_prompt: &PromptContext, random: &mut SeededRandom) -> SimulatedTurn {
    let turn = SimulatedTurn::completed()
        .takes(Duration::from_secs(random.between(60, 900)))
        .costs_microusd(random.between(200_000, 1_000_000));
    if random.chance(0.1) {
        turn.passes_check()
    } else {
        turn
    }
}
