//! The output: tables on the terminal, and all figures as JSON.

use std::fmt::Write;
use std::path::Path;

use super::outcome::{Contender, Outcome, Role, Series, Verdict};
use super::stats::{figure, paired_ratio};
use super::{Machine, Result};

/// The columns of a series.
const HEAD: &[&str] = &[
    "", "n", "min", "p10", "median", "p99", "max", "× base", "lost",
];
/// The columns of a series with one figure for each contender.
const SHORT: &[&str] = &["", "figure", "× base"];
/// The columns of the table of all targets.
const TARGETS: [&str; 7] = ["bench", "what", "ours", "measured", "target", "", "growth"];

/// Prints a table for each series, the targets of each bench, and a table of all targets.
pub(crate) fn print(machine: &Machine, outcomes: &[Outcome]) {
    machine.lines().iter().for_each(|line| println!("{line}"));
    for outcome in outcomes {
        println!("\n== {} {}", outcome.id, outcome.title);
        for series in &outcome.series {
            println!("\n{}, {}", series.title(), series.unit);
            print!("{}", aligned(&rows(series), 1));
        }
        println!();
        lines(outcome).iter().for_each(|line| println!("{line}"));
    }
    println!("\n== all targets\n\n{}", aligned(&targets(outcomes), 2));
    println!("{}", score(outcomes));
}

/// Writes all figures to `path` as JSON.
///
/// # Errors
///
/// Fails when the file can't be written.
pub(crate) fn write_json(path: &Path, machine: &Machine, outcomes: &[Outcome]) -> Result<()> {
    let all = serde_json::json!({ "machine": machine, "benches": outcomes });
    fs_err::write(path, format!("{all:#}\n"))?;
    println!("figures: {}", path.display());
    Ok(())
}

fn lines(outcome: &Outcome) -> Vec<String> {
    let verdicts = outcome.verdicts.iter().map(ToString::to_string);
    let skipped = outcome
        .skipped
        .iter()
        .map(|skip| format!("skipped: {skip}"));
    verdicts
        .chain(growth_lines(outcome))
        .chain(skipped)
        .chain(outcome.notes.iter().cloned())
        .collect()
}

fn rows(series: &Series) -> Vec<Vec<String>> {
    let base = series.floor().or(series.contenders.first());
    let short = series
        .contenders
        .iter()
        .all(|contender| contender.samples.len() + contender.lost <= 1);
    let head = if short { SHORT } else { HEAD };
    let row = |contender: &Contender| {
        let summary = contender.summary();
        let tell = |figures: Option<f64>| figures.map_or_else(|| "–".into(), figure);
        let role = match contender.role {
            Role::Ours => "ours",
            Role::Peer => "peer",
            Role::Floor => "floor",
        };
        let cell = |column: &&str| match *column {
            "" => format!("{role}: {}", contender.name),
            "n" => contender.samples.len().to_string(),
            "min" => tell(summary.map(|summary| summary.min)),
            "p10" => tell(summary.map(|summary| summary.p10)),
            "p99" => tell(summary.map(|summary| summary.p99)),
            "max" => tell(summary.map(|summary| summary.max)),
            "lost" => contender.lost.to_string(),
            "× base" => {
                tell(base.and_then(|base| paired_ratio(&contender.samples, &base.samples)))
            }
            _ => tell(summary.map(|summary| summary.median)),
        };
        head.iter().map(cell).collect()
    };
    std::iter::once(head.iter().map(|&name| name.to_owned()).collect())
        .chain(series.contenders.iter().map(row))
        .collect()
}

/// Aligns the cells of each column: the first `texts` columns to the left, the others to the right.
fn aligned(rows: &[Vec<String>], texts: usize) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Writing to a string can't fail.
            _ = if column < texts {
                write!(line, "  {cell:<width$}")
            } else {
                write!(line, "  {cell:>width$}")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Lists the exponents of each quantity that was measured at several sizes.
fn growth_lines(outcome: &Outcome) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, series) in outcome.series.iter().enumerate() {
        let quantity = series.quantity;
        let same = || outcome.series.iter().filter(|it| it.quantity == quantity);
        if outcome.series[..at]
            .iter()
            .any(|it| it.quantity == quantity)
        {
            continue;
        }
        let mut names: Vec<&str> = Vec::new();
        for contender in same().flat_map(|series| &series.contenders) {
            if !names.contains(&contender.name) {
                names.push(contender.name);
            }
        }
        let fits = names.into_iter().filter_map(|name| {
            let exponent = outcome.growth(quantity, name)?;
            Some(format!("{name} {}", power(exponent)))
        });
        let fits: Vec<String> = fits.collect();
        if !fits.is_empty() {
            lines.push(format!("growth of {quantity}: {}", fits.join(", ")));
        }
    }
    lines
}

/// Formats an exponent. Zero has no sign.
fn power(exponent: f64) -> String {
    format!("n^{:.2}", (exponent * 100.0).round() / 100.0 + 0.0)
}

/// Makes a row for each target, and for each series of a bench without targets.
fn targets(outcomes: &[Outcome]) -> Vec<Vec<String>> {
    let mut rows = vec![TARGETS.map(str::to_owned).to_vec()];
    for outcome in outcomes {
        let verdicts = outcome.verdicts.iter();
        rows.extend(verdicts.map(|verdict| judged(outcome, verdict)));
        if outcome.verdicts.is_empty() {
            rows.extend(outcome.series.iter().map(|series| watched(outcome, series)));
        }
    }
    rows
}

/// Returns how many targets were hit.
fn score(outcomes: &[Outcome]) -> String {
    let verdicts = || outcomes.iter().flat_map(|outcome| &outcome.verdicts);
    let hit = verdicts().filter(|verdict| verdict.hit).count();
    format!("{hit} of {} targets hit", verdicts().count())
}

fn judged(outcome: &Outcome, verdict: &Verdict) -> Vec<String> {
    let about = verdict.about.as_ref();
    let series = about.and_then(|about| {
        let mut series = outcome.series.iter();
        series.find(|series| series.title() == about.series)
    });
    let name = about.map_or("", |about| about.contender);
    vec![
        outcome.id.to_owned(),
        verdict.what.clone(),
        series.map_or_else(String::new, |series| median(series, name)),
        verdict.measured(),
        verdict.limit(),
        verdict.told().to_owned(),
        series.map_or_else(String::new, |series| growth(outcome, series.quantity, name)),
    ]
}

fn watched(outcome: &Outcome, series: &Series) -> Vec<String> {
    let name = series.contenders.first().map_or("", |first| first.name);
    let base = series.floor().map_or("", |floor| floor.name);
    let over = series.ratio(name, base, |summary| summary.median);
    vec![
        outcome.id.to_owned(),
        series.title(),
        median(series, name),
        over.map_or_else(String::new, |over| format!("{} ×", figure(over))),
        String::new(),
        "no target".to_owned(),
        growth(outcome, series.quantity, name),
    ]
}

fn median(series: &Series, name: &str) -> String {
    let median = series.median(name);
    median.map_or_else(String::new, |median| {
        format!("{} {}", figure(median), series.unit)
    })
}

fn growth(outcome: &Outcome, quantity: &str, name: &str) -> String {
    let exponent = outcome.growth(quantity, name);
    exponent.map_or_else(String::new, power)
}

#[cfg(test)]
mod tests {
    use super::super::stats::Sample;
    use super::*;

    fn outcome() -> Outcome {
        let row = |name, role, factor: f64, size: f64| {
            let samples = (0..3).map(|round| Sample {
                round,
                value: factor * size * (1.0 + round as f64),
            });
            Contender::of(name, role, samples.collect())
        };
        let series = |size, label| {
            let contenders = vec![
                row("gate", Role::Ours, 2.0, size),
                row("raw", Role::Floor, 1.0, size),
            ];
            Series::new("all awake", "ms", contenders).sized(size, label)
        };
        let mut outcome = Outcome::new("b0", "sleepers");
        outcome.series = vec![series(10.0, "10"), series(1000.0, "1,000")];
        outcome
            .at_most("median", Some(2.0), 1.1, "× floor")
            .about("all awake, 1,000", "gate");
        outcome.skipped.push("a peer: not installed".into());
        outcome
    }

    #[test]
    fn terminal_and_json_show_the_same_figures() {
        let outcome = outcome();
        let [first, second] = [0, 1].map(|at| aligned(&rows(&outcome.series[at]), 1));
        assert!(first.contains("ours: gate"), "{first}");
        let cells = |row: &str| {
            row.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            cells(first.lines().nth(1).unwrap())[2..],
            ["3", "20.0", "24.0", "40.0", "59.6", "60.0", "2.00", "0"]
        );
        assert!(second.contains("4000"), "{second}");
        assert_eq!(
            lines(&outcome),
            [
                "MISSED: median: 2 × floor (target ≤ 1.1 × floor)",
                "growth of all awake: gate n^1.00, raw n^1.00",
                "skipped: a peer: not installed",
            ]
        );
        let all = [outcome];
        assert_eq!(score(&all), "0 of 1 targets hit");
        assert_eq!(
            targets(&all)[1],
            [
                "b0",
                "median",
                "4000 ms",
                "2 × floor",
                "≤ 1.1",
                "MISSED",
                "n^1.00",
            ]
        );

        let directory = tempfile::tempdir().unwrap();
        let json = directory.path().join("figures.json");
        write_json(&json, &Machine::before(directory.path()), &all).unwrap();
        let figures: serde_json::Value =
            serde_json::from_str(&fs_err::read_to_string(json).unwrap()).unwrap();
        let first = &figures["benches"][0];
        assert_eq!(first["verdicts"][0]["hit"], false);
        assert_eq!(
            first["series"][0]["contenders"][0]["samples"]["median"],
            40.0
        );
    }

    #[test]
    fn each_column_has_one_width() {
        let text = aligned(&rows(&outcome().series[0]), 1);
        let widths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
    }
}
