//! Runs the layers and prints one table.
#![expect(
    clippy::print_stdout,
    reason = "a program for maintainers that prints its results"
)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use rlm_crash::outcome::{Level, Outcome};
use rlm_crash::{
    blocklog, bytes, cases, child, counting, fault, fleet, fulldisk, machine, race, replica,
    sabotages, sim, storm, strace, writers,
};
use serde_json::json;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// One line of the table.
struct Layer {
    item: &'static str,
    name: &'static str,
    /// The method, for the table in `docs/proof.md`.
    what: &'static str,
    run: fn(Level) -> Outcome,
}

const LAYERS: [Layer; 13] = [
    Layer {
        item: "D0",
        name: "sim",
        what: "model of the save protocols: a power cut at every point, torn and reordered sectors, a second cut during recovery",
        run: sim::run,
    },
    Layer {
        item: "D0",
        name: "race",
        what: "model of two writers, one of which takes the store over",
        run: race::run,
    },
    Layer {
        item: "D0",
        name: "replica",
        what: "model of a writer with a replica, which refuses a save, loses a request or an answer, or dies; power cuts and faults of the disk",
        run: replica::run,
    },
    Layer {
        item: "D0",
        name: "fleet",
        what: "model of a fleet: lost, late and repeated messages, killed, frozen and cut off workers, paused machines, restarts of the server; each owner has a real store",
        run: fleet::run,
    },
    Layer {
        item: "D1",
        name: "fault",
        what: "an error at every file system call, and a second error during recovery",
        run: fault::run,
    },
    Layer {
        item: "D2",
        name: "machine",
        what: "random histories, compared with a list of the acknowledged saves",
        run: machine::run,
    },
    Layer {
        item: "D3",
        name: "strace",
        what: "real system calls fail, or kill the program: programs that save and, less often, `rlm`",
        run: strace::run,
    },
    Layer {
        item: "D4",
        name: "blocklog",
        what: "power cuts below real file systems: ext4, and XFS and btrfs if installed",
        run: blocklog::run,
    },
    Layer {
        item: "D5",
        name: "storm",
        what: "SIGKILL at random moments: programs that save and, less often, `rlm` in a loop",
        run: storm::run,
    },
    Layer {
        item: "D6",
        name: "writers",
        what: "processes that open one store at the same time; one is suspended while another takes it over",
        run: writers::run,
    },
    Layer {
        item: "D7",
        name: "fulldisk",
        what: "a disk without free blocks or inodes",
        run: fulldisk::run,
    },
    Layer {
        item: "D8",
        name: "bytes",
        what: "every flipped bit and every truncation of small files",
        run: bytes::run,
    },
    Layer {
        item: "D9",
        name: "sabotage",
        what: "deliberate mistakes in the store and in the workers of a fleet: a layer must detect each",
        run: sabotages::run,
    },
];

/// Shows that checkpoint-store loses no acknowledged save.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask crash-test")]
struct Arguments {
    /// Run all layers in half a minute (default)
    #[arg(long, conflicts_with_all = ["ci", "nightly"])]
    quick: bool,
    /// Run the cases that every change must pass
    #[arg(long, conflicts_with = "nightly")]
    ci: bool,
    /// Run many more cases, overnight
    #[arg(long)]
    nightly: bool,
    /// Run only this layer (repeatable)
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(LAYERS.iter().map(|layer| layer.name)))]
    layer: Vec<String>,
    /// Also write the table as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Run one printed case again
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
                println!("{case}: all promises are kept");
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
    let (mut notes, mut skipped, mut rows, mut lost) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let mut is_blind = false;
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
        rows.push(json!({
            "item": layer.item,
            "layer": layer.name,
            "what": layer.what,
            "tried": outcome.tried,
            "faults": outcome.faults,
            "acked": outcome.acked,
            "lost": outcome.lost,
            "skipped": outcome.skipped,
        }));
        let skips = outcome.skipped.iter();
        skipped.extend(skips.map(|skip| format!("skipped: {}: {skip}", layer.name)));
        if outcome.tried == 0 && outcome.skipped.is_empty() {
            notes.push(format!(
                "{}: no case was tried, although nothing was skipped",
                layer.name
            ));
            is_blind = true;
        }
        lost += outcome.lost;
        notes.extend(
            outcome
                .notes
                .into_iter()
                .map(|note| format!("{}: {note}", layer.name)),
        );
    }
    for line in notes.iter().chain(&skipped) {
        println!("{line}");
    }
    if let Some(path) = arguments.json {
        let table = json!({ "level": format!("{level:?}").to_lowercase(), "layers": rows });
        if let Err(error) = std::fs::write(&path, format!("{table:#}\n")) {
            println!("{}: {error}", path.display());
            return ExitCode::from(2);
        }
    }
    if lost > 0 || is_blind {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
