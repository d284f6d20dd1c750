//! Simulates fleets of 100, 1,000 and 10,000 runs, and prints one table.
#![expect(
    clippy::print_stdout,
    reason = "a program for maintainers that prints its results"
)]

use std::process::ExitCode;

use clap::Parser;
use rlm_crash::fleet::simulation::{simulate, table};

/// Simulates large fleets with the decisions of `rlm-fleet`.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask fleet-simulation")]
struct Arguments {
    /// The numbers of runs; there is one worker for ten runs
    #[arg(default_values_t = [100, 1_000, 10_000])]
    runs: Vec<usize>,
    /// Repeat a simulation
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut all = Vec::new();
    for runs in arguments.runs {
        let simulated = simulate(runs, arguments.seed);
        println!(
            "{runs} runs: {} events in {:.1} s",
            simulated.measured.events,
            simulated.took.as_secs_f32()
        );
        all.push(simulated);
    }
    println!("\n{}", table(&all));
    let mut code = ExitCode::SUCCESS;
    for simulated in &all {
        if let Some(broken) = &simulated.broken {
            println!("{} runs: {broken}", simulated.runs);
            code = ExitCode::FAILURE;
        }
    }
    code
}
