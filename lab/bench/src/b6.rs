//! B6: the time that a resume takes to load the whole transcript and to decode it into its types.

use std::time::{Duration, Instant};

use crate::harness::{Bench, Outcome, Plan, Progress, Result, Series, Turn, in_turn};
use crate::keep::{OURS, Ours, ROWS, load_rows};
use crate::transcript::{DELTA, Transcript};

pub(crate) const BENCH: Bench = Bench {
    id: "b6",
    title: "load of a whole transcript",
    run,
    measured: None,
};

/// Bytes, label, and deltas for each save; 25,000 synced saves would take minutes on some disks.
const SIZES: [(usize, &str, usize); 3] = [
    (10_000, "10 KB", 1),
    (10_000_000, "10 MB", 1),
    (100_000_000, "100 MB", 10),
];

fn run(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let sizes = plan.scale.pick(&SIZES[1..], &SIZES[1..2], &SIZES[..1]);
    let rounds = plan.scale.pick(15, 5, 2);
    for (size, label, batch) in sizes {
        let progress = Progress::of(format!("b6 {label}"));
        progress.show(|| "writing".into());
        let dir = tempfile::tempdir_in(&plan.scratch)?;
        let dir = dir.path();
        let base = Transcript::pinned().deltas(*size, DELTA);
        let events = base.iter().map(|delta| delta.events.len()).sum();
        drop(Ours::begin_in_batches(dir, &base, *batch)?);
        let mut turns = vec![Turn::new(OURS.name, OURS.role, |_| {
            timed(events, || Ours::load(dir))
        })];
        match (ROWS.begin)(dir, &base) {
            Ok(_) => turns.push(Turn::new(ROWS.name, ROWS.role, |_| {
                timed(events, || load_rows(dir))
            })),
            Err(error) => outcome.skip(ROWS.name, &error),
        }
        drop(base);
        let turns = turns
            .into_iter()
            .map(|turn| turn.within(Duration::from_secs(30)));
        let times = in_turn(0..rounds, turns.collect(), &progress)?;
        let series = Series::new("load", "ms", times).sized(*size as f64, label);
        let over = series.paired(OURS.name, ROWS.name);
        outcome
            .at_most(&format!("load, {label}"), over, 1.2, "× SQLite's rows")
            .about(series.title(), OURS.name);
        outcome.series.push(series);
    }
    outcome.notes.push(
        "the system's cache holds the files; each save in the store has 4 KB, but 40 KB at the size of 100 MB"
            .into(),
    );
    Ok(())
}

/// Times a load, and checks that it found all events.
fn timed(expected: usize, load: impl FnOnce() -> Result<usize>) -> Result<Option<f64>> {
    let begun = Instant::now();
    let found = load()?;
    let took = begun.elapsed();
    if found == expected {
        Ok(Some(took.as_secs_f64() * 1e3))
    } else {
        Err(format!("{found} of {expected} events were loaded").into())
    }
}
