//! `fleet-storm`: a storm of faults on fleets. Run by `cargo xtask fleet-storm`; see `README.md`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for maintainers that prints its results"
)]

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;
use rlm_storm::{Plan, Score};

/// Kill workers and servers of a fleet, and judge what git has afterwards
#[derive(Debug, Parser)]
#[command(name = "cargo xtask fleet-storm")]
struct Arguments {
    /// Number of kills of workers that must land, over all fleets; the other faults come in proportion
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    kills: u32,
    /// Number of servers of a fleet, 1 or 3; can be repeated [default: both, each with half of the kills]
    #[arg(long, value_name = "N", value_parser = servers)]
    servers: Vec<usize>,
    /// Seed of all choices
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Lease of the workers in milliseconds, at least 2000
    #[arg(long, value_name = "MS", default_value_t = 3000, value_parser = clap::value_parser!(u64).range(2000..=60_000))]
    lease: u64,
    /// Number of runs at a time, and of workers
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(2..=64))]
    runs: u8,
    /// The rlm to judge, built with the feature fleet [default: the one of this source]
    #[arg(long, value_name = "FILE")]
    rlm: Option<PathBuf>,
    /// Mistakes to switch on in the rlm of this source, separated by commas
    #[arg(long, value_name = "NAMES", default_value = "", conflicts_with = "rlm")]
    mistakes: String,
    /// Also write the score as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn servers(text: &str) -> Result<usize, String> {
    match text {
        "1" => Ok(1),
        "3" => Ok(3),
        _ => Err("expected 1 or 3".into()),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let fleets = match arguments.servers.is_empty() {
        true => vec![1, 3],
        false => arguments.servers.clone(),
    };
    let score = match storms(&arguments, &fleets) {
        Ok(score) => score,
        Err(why) => {
            eprintln!("error: {why}");
            return ExitCode::from(2);
        }
    };
    println!("{}", score.table());
    if let Some(path) = &arguments.json
        && let Err(error) = fs_err::write(path, format!("{:#}\n", score.json()))
    {
        eprintln!("error: {error}");
        return ExitCode::from(2);
    }
    let is_interrupted = score.storms.iter().any(|storm| storm.is_interrupted);
    match (score.is_clean(), is_interrupted) {
        (true, _) => ExitCode::SUCCESS,
        (false, true) => ExitCode::from(130),
        (false, false) => ExitCode::FAILURE,
    }
}

fn storms(arguments: &Arguments, fleets: &[usize]) -> Result<Score, String> {
    let rlm = match &arguments.rlm {
        Some(given) => std::path::absolute(given).map_err(|e| e.to_string())?,
        None => beside("storm-subject")?,
    };
    let nats_server = rlm_tests::nats::server_program()
        .ok_or("there is no NATS server: cargo xtask tools --install")?;
    // The storm sees this flag and kills the processes that it started.
    let given_up = Arc::new(AtomicBool::new(false));
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ] {
        let registered = signal_hook::flag::register(signal, Arc::clone(&given_up));
        registered.map_err(|e| format!("can't handle signals: {e}"))?;
    }
    println!(
        "{} kills of workers, seed {}, lease {} ms, {} runs at a time; the lines below count the faults that were seen to land\n",
        arguments.kills, arguments.seed, arguments.lease, arguments.runs
    );
    let lease = Duration::from_millis(arguments.lease);
    let mut score = Score {
        seed: arguments.seed,
        lease_ms: arguments.lease,
        storms: Vec::new(),
    };
    let kills = usize::try_from(arguments.kills).unwrap_or(usize::MAX);
    for (number, servers) in fleets.iter().enumerate() {
        let share = kills / fleets.len() + usize::from(number < kills % fleets.len());
        let plan = Plan {
            rlm: rlm.clone(),
            agent: beside("storm-agent")?,
            nats_server: nats_server.clone(),
            mistakes: arguments.mistakes.clone(),
            ends_at: |_| true,
            servers: *servers,
            faults: Plan::faults(share.max(1)),
            lease,
            runs: arguments.runs.into(),
            iterations: 5,
            agent_works: (Duration::from_millis(50), Duration::from_millis(600)),
            seed: arguments.seed + number as u64,
            patience: Duration::from_secs(180) + lease * 10,
        };
        let all: usize = plan.faults.iter().map(|(_, count)| count).sum();
        let is_live = std::io::stderr().is_terminal();
        let result = rlm_storm::run(&plan, &given_up, |landed| {
            if is_live {
                eprint!("\r\x1b[K{servers} servers: {landed} of {all} faults landed");
                drop(std::io::stderr().flush()); // this line is not important
            }
        });
        if is_live {
            eprint!("\r\x1b[K");
        }
        score.storms.push(result);
        if given_up.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(score)
}

/// Returns the path of a program that was built beside this one.
fn beside(name: &str) -> Result<PathBuf, String> {
    let me = std::env::current_exe().map_err(|error| error.to_string())?;
    let path = me.with_file_name(name);
    match path.exists() {
        true => Ok(path),
        false => Err(format!(
            "{} does not exist: build it, or run `cargo xtask fleet-storm`",
            path.display()
        )),
    }
}
