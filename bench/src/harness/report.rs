//! The report: a table on the terminal, Markdown with plots, JSON.

use std::fmt::Write;
use std::path::Path;

use super::outcome::{Contender, Outcome, Role, Series};
use super::plot::{self, Curve};
use super::stats::{self, paired_ratio};
use super::{Machine, Result};

/// The heads of the columns, and those where every contender has one figure.
const HEAD: &[&str] = &[
    "", "n", "min", "p10", "median", "p99", "max", "× base", "lost",
];
const SHORT: &[&str] = &["", "figure", "× base"];

/// Prints what was found.
pub(crate) fn print(machine: &Machine, outcomes: &[Outcome]) {
    machine.lines().iter().for_each(|line| println!("{line}"));
    for outcome in outcomes {
        println!("\n== {} {}", outcome.id, outcome.title);
        for series in &outcome.series {
            println!("\n{}, {}", series.title(), series.unit);
            print!("{}", aligned(&rows(series)));
        }
        println!();
        lines(outcome).iter().for_each(|line| println!("{line}"));
    }
}

/// Writes `report.md` and the plots to `directory`, and all figures to `json`.
pub(crate) fn write(
    directory: &Path,
    json: Option<&Path>,
    machine: &Machine,
    outcomes: &[Outcome],
) -> Result<()> {
    let mut text = String::from("# Benchmarks\n\n");
    machine
        .lines()
        .iter()
        .for_each(|line| text.push_str(&format!("- {line}\n")));
    text.push_str(
        "\n`× base` is the median of the ratios of paired samples: to the floor where there is one, else to the first row. `lost`\n\
         counts rounds that did not end within their limit.\n",
    );
    for outcome in outcomes {
        _ = write!(text, "\n## {}: {}\n", outcome.id, outcome.title);
        for series in &outcome.series {
            _ = write!(
                text,
                "\n### {}, {}\n\n{}",
                series.title(),
                series.unit,
                markdown(&rows(series))
            );
        }
        text.push('\n');
        lines(outcome)
            .iter()
            .for_each(|line| text.push_str(&format!("- {line}\n")));
        for (name, svg) in plots(outcome) {
            fs_err::write(directory.join(&name), svg)?;
            _ = write!(text, "\n![{}]({name})\n", outcome.title);
        }
    }
    fs_err::write(directory.join("report.md"), text)?;
    if let Some(json) = json {
        let all = serde_json::json!({ "machine": machine, "benches": outcomes });
        fs_err::write(json, format!("{all:#}\n"))?;
    }
    println!("\nreport: {}", directory.join("report.md").display());
    Ok(())
}

/// Writes a figure as people read it: three digits that count.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        size if size == 0.0 || size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
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

fn aligned(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let mut text = String::new();
    for row in rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            _ = if column == 0 {
                write!(text, "  {cell:<width$}")
            } else {
                write!(text, "  {cell:>width$}")
            };
        }
        text.push('\n');
    }
    text
}

fn markdown(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        _ = writeln!(text, "| {} |", row.join(" | "));
        if at == 0 {
            _ = writeln!(text, "|---|{}", "---:|".repeat(row.len() - 1));
        }
    }
    text
}

/// The quantities that were measured over several sizes, with a curve of medians for each contender.
fn growths(outcome: &Outcome) -> Vec<(&'static str, &'static str, Vec<Curve>)> {
    let mut quantities: Vec<(&str, &str)> = Vec::new();
    for series in outcome.series.iter().filter(|series| series.size.is_some()) {
        if !quantities.iter().any(|known| known.0 == series.quantity) {
            quantities.push((series.quantity, series.unit));
        }
    }
    let of = |(quantity, unit)| {
        let mut curves: Vec<Curve> = Vec::new();
        for series in outcome
            .series
            .iter()
            .filter(|series| series.quantity == quantity)
        {
            for contender in &series.contenders {
                let Some(((size, _), summary)) = series.size.zip(contender.summary()) else {
                    continue;
                };
                let point = (size, summary.median);
                match curves.iter_mut().find(|curve| curve.name == contender.name) {
                    Some(curve) => curve.points.push(point),
                    None => curves.push(Curve {
                        name: contender.name.into(),
                        points: vec![point],
                    }),
                }
            }
        }
        (quantity, unit, curves)
    };
    quantities
        .into_iter()
        .map(of)
        .filter(|(_, _, curves)| curves.iter().any(|curve| curve.points.len() > 1))
        .collect()
}

fn growth_lines(outcome: &Outcome) -> Vec<String> {
    let told = |(quantity, _, curves): (&str, _, Vec<Curve>)| {
        let fits: Vec<String> = curves
            .iter()
            .filter_map(|curve| {
                let exponent = stats::exponent(&curve.points)?;
                Some(format!("{} {}", curve.name, plot::power(exponent)))
            })
            .collect();
        format!("growth of {quantity}: {}", fits.join(", "))
    };
    growths(outcome).into_iter().map(told).collect()
}

fn plots(outcome: &Outcome) -> Vec<(String, String)> {
    let file = |quantity: &str| {
        let plain = quantity.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
        format!("{}-{plain}.svg", outcome.id)
    };
    let title = |quantity: &str| format!("{}: {quantity}", outcome.id);
    let growths = growths(outcome)
        .into_iter()
        .filter_map(|(quantity, unit, curves)| {
            let svg = plot::growth(&title(quantity), unit, &curves)?;
            Some((file(quantity), svg))
        });
    let unsized_ones = outcome.series.iter().filter(|series| series.size.is_none());
    let distributions = unsized_ones.filter_map(|series| {
        let curve = |contender: &Contender| Curve {
            name: contender.name.into(),
            points: plot::shares(&stats::sorted(
                contender.samples.iter().map(|sample| sample.value),
            )),
        };
        let curves: Vec<Curve> = series.contenders.iter().map(curve).collect();
        let svg = plot::distribution(&title(series.quantity), series.unit, &curves)?;
        Some((file(series.quantity), svg))
    });
    growths.chain(distributions).collect()
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
        outcome.at_most("median", Some(2.0), 1.1, "× floor");
        outcome.skipped.push("a peer: not installed".into());
        outcome
    }

    #[test]
    fn the_report_names_ratios_growth_verdicts_and_skips() {
        let directory = tempfile::tempdir().unwrap();
        let json = directory.path().join("figures.json");
        let machine = Machine::before();
        write(directory.path(), Some(&json), &machine, &[outcome()]).unwrap();
        let report = fs_err::read_to_string(directory.path().join("report.md")).unwrap();
        for line in [
            "### all awake, 1,000, ms",
            "| ours: gate | 3 | 20.0 | 24.0 | 40.0 | 59.6 | 60.0 | 2.00 | 0 |",
            "- MISSED: median: 2 × floor (target ≤ 1.1 × floor)",
            "- growth of all awake: gate n^1.00, raw n^1.00",
            "- skipped: a peer: not installed",
            "![sleepers](b0-all-awake.svg)",
        ] {
            assert!(report.contains(line), "{line}\n{report}");
        }
        assert!(directory.path().join("b0-all-awake.svg").exists());
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
    fn columns_stand_under_each_other() {
        let text = aligned(&rows(&outcome().series[0]));
        let widths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
    }

    #[test]
    fn figures_have_three_digits_that_count() {
        let told = [0.0, 0.01234, 0.1234, 1.234, 12.34, 1234.4].map(figure);
        assert_eq!(told, ["0", "0.0123", "0.12", "1.23", "12.3", "1234"]);
    }
}
