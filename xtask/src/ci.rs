//! Runs all stages. The tests run in parallel with the stages that compile, since many tests wait. A failed stage doesn't prevent the others from
//! running.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fmt, thread};

use crate::command::{self, Show};
use crate::tally::Tally;
use crate::workspace::Workspace;
use crate::{acceptance, docs, features, lint, live, release, snapshots, test};

pub(crate) type Stage = fn(&Workspace) -> Tally;

const STAGES: [(&str, Stage); 10] = [
    ("build", test::build),
    ("lint", |workspace| {
        lint::run(workspace, &lint::Arguments::of_built_tests())
    }),
    ("docs", docs::check_texts),
    ("doctests", test::doctests_built),
    ("snapshots", snapshots::stage),
    ("features", |_| features::usual()),
    ("package", release::package),
    ("test", test::run_built),
    ("live", live::quick),
    ("acceptance", acceptance::stage),
];

/// Stages that run one after another.
type Lane = &'static [&'static str];

/// Groups of lanes. The lanes of a group run in parallel, and a group starts after the previous one ended: only one stage at a time can wait for
/// cargo's lock of the target directory.
const GROUPS: [&[Lane]; 3] = [
    &[&["build"]],
    // The real agents come first, when only the lane that yields runs beside them: an agent that doesn't end its turn 6 s after an interrupt is ended.
    &[&["live", "test"], COMPILES],
    &[&["acceptance"]],
];

/// This lane yields the processors to the tests, which have deadlines.
const COMPILES: Lane = &[
    "lint",
    "docs",
    "doctests",
    "snapshots",
    "features",
    "package",
];

/// The result of a stage.
struct Row<'a> {
    stage: &'a str,
    tally: Tally,
    took: Duration,
    ended: Instant,
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            stage, tally, took, ..
        } = self;
        let verdict = if tally.is_red() { "FAILED" } else { "ok" };
        let took = took.as_secs_f64();
        write!(f, "{stage:<10} {verdict:<6} {took:>5.0} s  {tally}")
    }
}

/// Returns the description in the help.
pub(crate) fn about() -> String {
    let names: Vec<&str> = STAGES.iter().map(|(name, _)| *name).collect();
    format!("Run all stages: {}", names.join(", "))
}

pub(crate) fn run(strict: bool) -> Tally {
    let this = match env::current_exe() {
        Ok(this) => this,
        Err(error) => return Tally::failed(format!("ci: can't find this program: {error}")),
    };
    let mut rows = Vec::new();
    for lanes in GROUPS {
        thread::scope(|scope| {
            let lanes = lanes
                .iter()
                .map(|lane| scope.spawn(|| follow(&this, lane, strict)));
            // All lanes start before the loop awaits the first.
            for lane in lanes.collect::<Vec<_>>() {
                rows.extend(lane.join().expect("a lane does not panic"));
            }
        });
    }
    rows.sort_by_key(|row| STAGES.iter().position(|(name, _)| *name == row.stage));
    summed_up(rows)
}

/// Runs the stages of a lane, each in its own process, and prints the output of each stage when it has ended.
fn follow(this: &Path, lane: Lane, strict: bool) -> Vec<Row<'static>> {
    let rows = lane.iter().map(|stage| {
        println!("-- {stage} begins");
        let begun = Instant::now();
        let level = if lane == COMPILES { "10" } else { "0" };
        let mut process = Command::new("nice");
        process.args(["-n", level]).arg(this).args(["stage", stage]);
        let ended = command::finish(&mut process, Show::Never);
        let (output, tally) = match Tally::of_stage(&ended.output) {
            Some((output, tally)) => (output, tally),
            None => {
                let failed = Tally::failed(format!("{stage}: exited before it printed its counts"));
                (ended.output.as_str(), failed)
            }
        };
        let row = Row {
            stage,
            tally: tally.judged(strict),
            took: begun.elapsed(),
            ended: Instant::now(),
        };
        // One call, so that no other lane prints in between.
        println!("== {row}\n{}", output.trim_end());
        row
    });
    rows.collect()
}

/// Runs one stage in this process, for [`run`].
pub(crate) fn run_stage(workspace: &Workspace, name: &str) -> Tally {
    match STAGES.iter().find(|(stage, _)| *stage == name) {
        Some((_, stage)) => stage(workspace),
        None => Tally::failed(format!("ci: no such stage: {name}")),
    }
}

/// Runs stages one after another, and prints a line for each at the end.
pub(crate) fn run_stages<'a>(
    names: impl Iterator<Item = &'a str>,
    strict: bool,
    run: impl Fn(&str) -> Tally,
) -> Tally {
    let rows = names.map(|stage| {
        println!("== {stage}");
        let begun = Instant::now();
        Row {
            stage,
            tally: run(stage).judged(strict),
            took: begun.elapsed(),
            ended: Instant::now(),
        }
    });
    summed_up(rows.collect())
}

fn summed_up(rows: Vec<Row<'_>>) -> Tally {
    println!("==");
    rows.iter().for_each(|row| println!("{row}"));
    let red = rows.iter().filter(|row| row.tally.is_red());
    if let Some(first) = red.min_by_key(|row| row.ended) {
        println!("the first failed stage: {}", first.stage);
    }
    rows.into_iter().fold(Tally::default(), |mut total, row| {
        total += row.tally;
        total
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_is_in_exactly_one_lane() {
        let mut planned: Vec<&str> = GROUPS.concat().concat();
        let mut stages = STAGES.map(|(name, _)| name);
        planned.sort_unstable();
        stages.sort_unstable();
        assert_eq!(planned, stages);
    }
}
