//! All stages one after the other; a red one does not keep the next from running.

use std::time::Instant;

use crate::command::Show;
use crate::features::Choice;
use crate::tally::Tally;
use crate::workspace::Workspace;
use crate::{acceptance, docs, features, lint, live, release, snapshots, test};

pub(crate) type Stage = fn(&Workspace) -> Tally;

const STAGES: [(&str, Stage); 8] = [
    ("lint", |workspace| {
        lint::run(workspace, &lint::Arguments::default())
    }),
    ("docs", docs::run),
    ("snapshots", snapshots::stage),
    ("features", |workspace| {
        features::run(workspace, Choice::Usual)
    }),
    ("test", |workspace| test::run(workspace, Show::OnFailure)),
    ("acceptance", acceptance::stage),
    ("package", release::package),
    ("live", |_| live::quick()),
];

/// What the help says of the whole.
pub(crate) fn about() -> String {
    let names: Vec<&str> = STAGES.iter().map(|(name, _)| *name).collect();
    format!("Runs all stages: {}", names.join(", "))
}

pub(crate) fn run(workspace: &Workspace, strict: bool) -> Tally {
    let names = STAGES.iter().map(|(name, _)| *name);
    run_stages(names, strict, |name| {
        let stage = STAGES.iter().find(|(stage, _)| *stage == name);
        match stage {
            Some((_, stage)) => stage(workspace),
            None => Tally::failed(format!("ci: {name} is no stage")),
        }
    })
}

/// Runs stages one after the other, and prints a line for each at the end.
pub(crate) fn run_stages<'a>(
    names: impl Iterator<Item = &'a str>,
    strict: bool,
    stage: impl Fn(&str) -> Tally,
) -> Tally {
    let mut total = Tally::default();
    let mut lines = Vec::new();
    for name in names {
        let begun = Instant::now();
        println!("== {name}");
        let tally = stage(name).judged(strict);
        let verdict = if tally.is_red() { "FAILED" } else { "ok" };
        lines.push(format!(
            "{name:<10} {verdict:<6} {:>5.0} s  {tally}",
            begun.elapsed().as_secs_f64()
        ));
        total += tally;
    }
    println!("==");
    lines.iter().for_each(|line| println!("{line}"));
    total
}
