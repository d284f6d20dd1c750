//! The report: a table on the terminal, Markdown with plots, JSON.

use std::fmt::Write;
use std::path::Path;

use super::outcome::{Contender, Outcome, Role, Series};
use super::overview;
use super::page::Page;
use super::plot::{self, Curve};
use super::stats::{self, paired_ratio};
use super::{Machine, Result};

/// The heads of the columns, and those where every contender has one figure.
const HEAD: &[&str] = &[
    "", "n", "min", "p10", "median", "p99", "max", "× base", "lost",
];
const SHORT: &[&str] = &["", "figure", "× base"];

/// What stands above all figures.
const KEY: &str = "`measured` is what the target is about: mostly the median of the ratios of paired samples. `growth` is the exponent over the sizes. \
                   The other figures are medians.";
const BASE: &str = "`× base` is the median of the ratios of paired samples: to the floor where there is one, else to the first row. `lost` counts rounds \
                    that did not end within their limit.";

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
    println!("\n{}", overview::score(outcomes));
}

/// Writes `report.md`, `report.html` and the plots to `directory`, and all figures to `json`.
pub(crate) fn write(
    directory: &Path,
    json: Option<&Path>,
    machine: &Machine,
    outcomes: &[Outcome],
) -> Result<()> {
    let mut text = format!("# Benchmarks\n\n{}.\n\n", overview::score(outcomes));
    let mut page = Page::new("Benchmarks");
    let overview = overview::rows(outcomes);
    _ = write!(text, "{}\n{KEY}\n\n", markdown(&overview, false));
    for line in machine.lines() {
        _ = writeln!(text, "- {line}");
    }
    _ = writeln!(text, "\n{BASE}");
    let about = [overview::score(outcomes), KEY.into(), BASE.into()];
    page.lines(&[&about[..], &machine.lines()].concat());
    page.table(&overview);
    for outcome in outcomes {
        let title = format!("{}: {}", outcome.id, outcome.title);
        _ = write!(text, "\n## {title}\n");
        for series in &outcome.series {
            let (title, rows) = (format!("{}, {}", series.title(), series.unit), rows(series));
            _ = write!(text, "\n### {title}\n\n{}", markdown(&rows, true));
        }
        text.push('\n');
        for line in lines(outcome) {
            _ = writeln!(text, "- {line}");
        }
        let plots = plots(outcome);
        for (name, svg) in &plots {
            fs_err::write(directory.join(name), svg)?;
            _ = write!(text, "\n![{}]({name})\n", outcome.title);
        }
        page.heading(outcome.id, &title);
        page.lines(&lines(outcome));
        page.plots(plots.iter().map(|(_, svg)| svg.as_str()));
        page.folded("all figures", |page| {
            for series in &outcome.series {
                page.lines(&[format!("{}, {}", series.title(), series.unit)]);
                page.table(&rows(series));
            }
        });
    }
    fs_err::write(directory.join("report.md"), text)?;
    fs_err::write(directory.join("report.html"), page.finish())?;
    if let Some(json) = json {
        let all = serde_json::json!({ "machine": machine, "benches": outcomes });
        fs_err::write(json, format!("{all:#}\n"))?;
    }
    println!("report: {}", directory.join("report.html").display());
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

/// Writes a table whose columns after the first are numbers, or none is.
fn markdown(rows: &[Vec<String>], numbers: bool) -> String {
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        _ = writeln!(text, "| {} |", cells.join(" | "));
        if at == 0 {
            let column = if numbers { "---:|" } else { "---|" };
            _ = writeln!(text, "|---|{}", column.repeat(row.len() - 1));
        }
    }
    text
}

/// A quantity that was measured over several sizes.
struct Growth {
    quantity: &'static str,
    unit: &'static str,
    sizes: Vec<(f64, &'static str)>,
    /// Of the medians of each contender.
    curves: Vec<Curve>,
}

fn growths(outcome: &Outcome) -> Vec<Growth> {
    let mut found: Vec<Growth> = Vec::new();
    for series in &outcome.series {
        let (Some(size), &Series { quantity, unit, .. }) = (series.size, series) else {
            continue;
        };
        let known = found.iter().position(|known| known.quantity == quantity);
        let at = known.unwrap_or_else(|| {
            let (sizes, curves) = Default::default();
            found.push(Growth {
                quantity,
                unit,
                sizes,
                curves,
            });
            found.len() - 1
        });
        let growth = &mut found[at];
        growth.sizes.push(size);
        for contender in &series.contenders {
            let Some(summary) = contender.summary() else {
                continue;
            };
            let point = (size.0, summary.median);
            let mut curves = growth.curves.iter_mut();
            match curves.find(|curve| curve.name == contender.name) {
                Some(curve) => curve.points.push(point),
                None => growth.curves.push(Curve {
                    name: contender.name.into(),
                    role: contender.role,
                    points: vec![point],
                }),
            }
        }
    }
    found.retain(|growth| growth.curves.iter().any(|curve| curve.points.len() > 1));
    found
}

fn growth_lines(outcome: &Outcome) -> Vec<String> {
    let told = |growth: Growth| {
        let fits: Vec<String> = { growth.curves.iter() }
            .filter_map(|curve| {
                let exponent = stats::exponent(&curve.points)?;
                Some(format!("{} {}", curve.name, plot::power(exponent)))
            })
            .collect();
        format!("growth of {}: {}", growth.quantity, fits.join(", "))
    };
    growths(outcome).into_iter().map(told).collect()
}

fn plots(outcome: &Outcome) -> Vec<(String, String)> {
    let file = |quantity: &str| {
        let plain = quantity.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
        format!("{}-{plain}.svg", outcome.id)
    };
    let title = |quantity: &str| format!("{}: {quantity}", outcome.id);
    let growths = growths(outcome).into_iter().filter_map(|growth| {
        let Growth {
            quantity,
            unit,
            sizes,
            curves,
        } = growth;
        let svg = plot::growth(&title(quantity), unit, &sizes, &curves)?;
        Some((file(quantity), svg))
    });
    // A single figure has no distribution.
    let is_many = |series: &&Series| {
        let mut contenders = series.contenders.iter();
        series.size.is_none() && contenders.any(|contender| contender.samples.len() > 2)
    };
    let distributions = outcome.series.iter().filter(is_many).filter_map(|series| {
        let curve = |contender: &Contender| Curve {
            name: contender.name.into(),
            role: contender.role,
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
        outcome
            .at_most("median", Some(2.0), 1.1, "× floor")
            .about("all awake, 1,000", "gate");
        outcome.skipped.push("a peer: not installed".into());
        outcome
    }

    #[test]
    fn the_report_names_ratios_growth_verdicts_and_skips() {
        let directory = tempfile::tempdir().unwrap();
        let json = directory.path().join("figures.json");
        let machine = Machine::before(directory.path());
        write(directory.path(), Some(&json), &machine, &[outcome()]).unwrap();
        let report = fs_err::read_to_string(directory.path().join("report.md")).unwrap();
        for line in [
            "0 of 1 targets hit",
            "| b0 | median | 4000 ms | raw: 2000 ms |  | 2 × floor | ≤ 1.1 × floor | MISSED | n^1.00 |",
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
        let page = fs_err::read_to_string(directory.path().join("report.html")).unwrap();
        assert!(page.contains("<td class=\"missed\">MISSED</td>"), "{page}");
        assert!(page.contains("<figure><svg"), "{page}");
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
