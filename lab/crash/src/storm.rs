//! D5: real programs that are killed at random moments.
//!
//! A program that saves reports its saves and their acknowledgements on a pipe. After a kill, a load must return the last acknowledged save, or the
//! one that was begun after it. For the shipped `rlm`, the agents report: no iteration begins before the previous one is saved. So over any number of
//! kills the agents see each number, in order.

use std::path::Path;
use std::time::Duration;

use crate::agents::Project;
use crate::child;
use crate::ledger::Ledger;
use crate::outcome::{Level, Outcome};
use crate::parallel;
use crate::program;
use crate::reference::CheckResult;
use crate::rng::Rng;
use crate::saver::{self, SaverKind};

/// Number of kills of programs for one store.
const KILLS: u64 = 25;
/// Number of saves after which a saver ends if it is not killed.
pub(crate) const STEPS: u32 = 9_000;
/// Smallest difference between the numbers of two programs.
pub(crate) const APART: u32 = 100_000;

/// Kills saving programs and the shipped program.
pub fn run(level: Level) -> Outcome {
    savers(level.of([25, 100, 1_000, 50_000]), SaverKind::Mixed)
        + loops(level.of([0, 4, 50, 1_000]))
}

/// Kills programs that save.
pub fn savers(kills: u64, kind: SaverKind) -> Outcome {
    if let Err(why) = program::own() {
        return Outcome::skip(format!("kills of savers: {why}"));
    }
    let stores: Vec<u64> = (0..kills.div_ceil(KILLS)).collect();
    parallel::map(&stores, |&seed| store(seed, kind), |_| false)
        .into_iter()
        .sum()
}

/// Kills several programs, one after the other, on one store.
fn store(seed: u64, kind: SaverKind) -> Outcome {
    let place = match tempfile::tempdir() {
        Ok(place) => place,
        Err(err) => return Outcome::skip(format!("kills of savers: no directory: {err}")),
    };
    let dir = place.path().join("store");
    let (mut ledger, mut rng) = (Ledger::default(), Rng::new(seed));
    let mut outcome = Outcome::default();
    for number in 1..=KILLS as u32 {
        let first = number * 1_000 * APART + rng.below(900) as u32 * APART;
        let kept = kill(&dir, (first, kind), &mut ledger, &mut rng);
        outcome.judge(format_args!("store {seed}, kill {number}"), kept);
        outcome.faults += 1;
        if outcome.lost > 0 {
            break;
        }
    }
    outcome.acked = ledger.numbers.len() as u64;
    outcome
}

fn kill(
    dir: &Path,
    (first, kind): (u32, SaverKind),
    ledger: &mut Ledger,
    rng: &mut Rng,
) -> CheckResult {
    let running = child::start_saver(dir, first, STEPS, kind).expect("the program was found");
    // The kill comes during the opening or during one of the first saves.
    if rng.below(3) > 0 {
        let notes = rng.below(40);
        running.notes(ledger, notes)?;
    }
    program::pause(Duration::from_micros(rng.below(3_000) as u64));
    running.end(ledger)?;
    saver::check_load(dir, ledger).map(drop)
}

/// Kills the shipped program, which resumes each time.
pub fn loops(kills: u64) -> Outcome {
    if kills == 0 {
        return Outcome::default();
    }
    let mut project = match Project::new() {
        Ok(project) => project,
        Err(why) => return Outcome::skip(format!("kills of rlm: {why}")),
    };
    let (mut outcome, mut rng) = (Outcome::default(), Rng::new(kills));
    for number in 1..=kills {
        let kept = project.interrupt(&mut rng);
        outcome.judge(format_args!("rlm, kill {number}"), kept);
        outcome.faults += 1;
        if outcome.lost > 0 {
            break;
        }
    }
    outcome.acked = project.seen();
    outcome
}
