//! Benchmarks: compare our crates with peers and with the lowest possible cost. Run by `cargo xtask bench`; see `README.md`.
//!
//! This file lists the benches and calls them. The shared code is in `harness`; the file of a bench has its name.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for maintainers that prints its results"
)]

mod agent_lines;
mod b1;
mod b10;
mod b10_git;
mod b11;
mod b12;
mod b13;
mod b14;
mod b15;
mod b16;
mod b17;
mod b18;
mod b2;
mod b3;
mod b4;
mod b5;
mod b6;
mod b7;
mod b8;
mod b9;
mod harness;
mod keep;
mod peers;
mod programs;
mod scripted_agent;
mod sys;
mod transcript;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use crate::harness::{Bench, MEASURED, Machine, Outcome, Plan, Result, Scale};

#[global_allocator]
static ALLOCATOR: sys::CountingAllocator = sys::CountingAllocator;

/// The benches that run if the command line names none.
const BENCHES: [&Bench; 19] = [
    &b1::BENCH,
    &b2::BENCH,
    &b3::BENCH,
    &b4::BENCH,
    &b5::BENCH,
    &b6::BENCH,
    &b7::BENCH,
    &b8::BENCH,
    &b9::BENCH,
    &b10::BENCH,
    &b10_git::BENCH,
    &b11::BENCH,
    &b12::BENCH,
    &b13::BENCH,
    &b14::BENCH,
    &b15::BENCH,
    &b16::BENCH,
    &b17::BENCH,
    &b18::BENCH,
];
/// The benches that take so long that they run only by name.
const BY_NAME: [&Bench; 3] = [&b14::FIRST, &b14::SUITE, &b14::BUILD];

fn all() -> impl Iterator<Item = &'static Bench> {
    BENCHES.into_iter().chain(BY_NAME)
}

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask bench",
    about = "Compare our crates with peers and with the lowest possible cost"
)]
struct Arguments {
    /// Benches to run [default: b1 to b18]
    #[arg(value_name = "NAME", value_parser = known, ignore_case = true)]
    names: Vec<String>,
    /// Also write the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure less: the figures are a hint, and missed targets are no failure
    #[arg(long)]
    quick: bool,
    /// Measure almost nothing, to show that everything runs
    #[arg(long, hide = true)]
    tiny: bool,
    /// Also record the figures of b14, so that later runs can compare their figures with these
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Directory for the files of the benches during the run; it must be on a real disk [in a repository: /var/tmp]
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
}

fn known(name: &str) -> std::result::Result<String, String> {
    let known = all().find(|bench| bench.id.eq_ignore_ascii_case(name));
    known.map(|bench| bench.id.to_owned()).ok_or_else(|| {
        let ids: Vec<&str> = all().map(|bench| bench.id).collect();
        format!("the benches are {}", ids.join(", "))
    })
}

fn main() -> ExitCode {
    // This program is also the guard of the measured process trees; this call must come first.
    agent_subprocess::guard::run_if_guard();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = match arguments.as_slice() {
        [MEASURED, id, rest @ ..] => measured(id, rest).map(|()| ExitCode::SUCCESS),
        [scripted_agent::PLAYED, part @ ..] => {
            scripted_agent::play(part).map(|()| ExitCode::SUCCESS)
        }
        _ => run(&Arguments::parse()),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(2)
    })
}

fn measured(id: &str, rest: &[&str]) -> Result<()> {
    harness::end_with_parent();
    sys::reset_sigint();
    let bench = all()
        .find(|bench| bench.id == id)
        .ok_or("there is no such bench")?;
    let measured = bench.measured;
    measured.ok_or("this bench has no measured process")?(rest)
}

/// Returns `out`, or a directory on disk that is in no repository: in a repository, `rlm run` would call git, and keep its state at the top.
fn outside_of_repositories(out: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(out)?;
    let is_inside = absolute.ancestors().any(|it| it.join(".git").exists());
    Ok(match is_inside {
        true => "/var/tmp".into(),
        false => absolute,
    })
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let scale = match arguments {
        Arguments { tiny: true, .. } => Scale::Tiny,
        Arguments { quick: true, .. } => Scale::Quick,
        _ => Scale::Full,
    };
    fs_err::create_dir_all(&arguments.out)?;
    let out = outside_of_repositories(&arguments.out)?;
    let mut machine = Machine::before(&out);
    machine.peers = peers::versions();
    let scratch = tempfile::Builder::new()
        .prefix("rlm-bench-")
        .tempdir_in(&out)?;
    let plan = Plan {
        scale,
        scratch: scratch.path().to_owned(),
    };
    let mut outcomes = Vec::new();
    for (at, bench) in all().enumerate() {
        let is_meant = match arguments.names.as_slice() {
            [] => at < BENCHES.len(),
            names => names.iter().any(|name| name == bench.id),
        };
        if is_meant {
            let mut outcome = Outcome::new(bench.id, bench.title);
            (bench.run)(&plan, &mut outcome).map_err(|error| format!("{}: {error}", bench.id))?;
            outcomes.push(outcome);
        }
    }
    machine.after();
    harness::print(&machine, &outcomes);
    if let Some(path) = &arguments.json {
        harness::write_json(path, &machine, &outcomes)?;
    }
    if let Some(path) = &arguments.keep {
        b14::keep(path, &machine, &outcomes)?;
    }
    let missed = outcomes
        .iter()
        .flat_map(|outcome| &outcome.verdicts)
        .any(|verdict| !verdict.hit);
    Ok(if missed && scale == Scale::Full {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
