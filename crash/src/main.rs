//! Runs the layers and prints one table.
#![expect(
    clippy::print_stdout,
    reason = "a program for maintainers, whose output is its purpose"
)]

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use rlm_crash::outcome::{Level, Outcome};
use rlm_crash::{
    blocklog, bytes, cases, child, counting, fault, fulldisk, machine, race, sabotages, sim, storm,
    strace, writers,
};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// One line of the table.
struct Layer {
    item: &'static str,
    name: &'static str,
    run: fn(Level) -> Outcome,
}

const LAYERS: [Layer; 11] = [
    Layer {
        item: "D0",
        name: "sim",
        run: sim::run,
    },
    Layer {
        item: "D0",
        name: "race",
        run: race::run,
    },
    Layer {
        item: "D1",
        name: "fault",
        run: fault::run,
    },
    Layer {
        item: "D2",
        name: "machine",
        run: machine::run,
    },
    Layer {
        item: "D3",
        name: "strace",
        run: strace::run,
    },
    Layer {
        item: "D4",
        name: "blocklog",
        run: blocklog::run,
    },
    Layer {
        item: "D5",
        name: "storm",
        run: storm::run,
    },
    Layer {
        item: "D6",
        name: "writers",
        run: writers::run,
    },
    Layer {
        item: "D7",
        name: "fulldisk",
        run: fulldisk::run,
    },
    Layer {
        item: "D8",
        name: "bytes",
        run: bytes::run,
    },
    Layer {
        item: "D9",
        name: "sabotage",
        run: sabotages::run,
    },
];

/// Shows that checkpoint-store loses nothing that it acknowledged.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask crash-test")]
struct Arguments {
    /// All layers in half a minute. This is the default.
    #[arg(long, conflicts_with_all = ["ci", "nightly"])]
    quick: bool,
    /// What every change goes through.
    #[arg(long, conflicts_with = "nightly")]
    ci: bool,
    /// What runs while nobody waits.
    #[arg(long)]
    nightly: bool,
    /// Only this layer; can be given several times.
    #[arg(long, value_name = "NAME")]
    layer: Vec<String>,
    /// Runs one case again, as a note printed it.
    #[arg(long, value_name = "LAYER=CASE")]
    case: Option<String>,
}

fn main() -> ExitCode {
    if let Some(code) = child::run() {
        return code;
    }
    let arguments = Arguments::parse();
    if let Some(case) = arguments.case {
        return match cases::replay(&case) {
            Ok(()) => {
                println!("{case}: every promise is kept");
                ExitCode::SUCCESS
            }
            Err(what) => {
                println!("{what}");
                ExitCode::FAILURE
            }
        };
    }
    let level = match (arguments.ci, arguments.nightly) {
        (true, _) => Level::Ci,
        (_, true) => Level::Nightly,
        _ => Level::Quick,
    };
    let wanted = |layer: &&Layer| {
        arguments.layer.is_empty() || arguments.layer.iter().any(|name| name == layer.name)
    };
    println!(
        "{:<4}{:<10}{:>12}{:>12}{:>10}{:>12}{:>6}{:>9}",
        "", "layer", "tried", "different", "faults", "acked", "lost", "seconds"
    );
    let (mut notes, mut skipped, mut lost) = (Vec::new(), Vec::new(), 0);
    for layer in LAYERS.iter().filter(wanted) {
        let start = Instant::now();
        let outcome = (layer.run)(level);
        println!(
            "{:<4}{:<10}{:>12}{:>12}{:>10}{:>12}{:>6}{:>9.1}",
            layer.item,
            layer.name,
            outcome.tried,
            outcome
                .distinct
                .map_or_else(|| "-".into(), |distinct| distinct.to_string()),
            outcome.faults,
            outcome.acked,
            outcome.lost,
            start.elapsed().as_secs_f32(),
        );
        let skips = outcome.skipped.iter();
        skipped.extend(skips.map(|skip| format!("skipped: {}: {skip}", layer.name)));
        notes.extend(
            outcome
                .notes
                .into_iter()
                .map(|note| format!("{}: {note}", layer.name)),
        );
        lost += outcome.lost;
    }
    for line in notes.iter().chain(&skipped) {
        println!("{line}");
    }
    if lost == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
