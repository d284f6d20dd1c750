//! The figures of an earlier day, in a file of the repository.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::harness::{Machine, Outcome, Result};

/// The file as it was when this program was built.
const KNOWN: &str = include_str!("../../kept.json");
/// The relative difference up to which a figure counts as unchanged, because no two times are equal.
const SAME: f64 = 0.02;

/// A figure of an earlier day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RecordedFigure {
    pub(super) value: f64,
    unit: String,
    date: String,
    machine: String,
}

impl RecordedFigure {
    /// Describes the change from this figure to `now`.
    pub(super) fn compared(&self, what: &str, now: f64) -> String {
        let change = now / self.value - 1.0;
        let change = match change {
            change if change.abs() <= SAME => "unchanged".to_owned(),
            change if change > 0.0 => format!("GROWN by {:.0} %", change * 100.0),
            change => format!("smaller by {:.0} %", -change * 100.0),
        };
        let Self {
            value,
            unit,
            date,
            machine,
        } = self;
        format!("{what}: {change}; it was {value} {unit} on {date} ({machine})")
    }
}

/// Returns the recorded figure, if it has the same unit.
pub(super) fn known(what: &str, unit: &str) -> Option<RecordedFigure> {
    all().remove(what).filter(|kept| kept.unit == unit)
}

fn all() -> BTreeMap<String, RecordedFigure> {
    serde_json::from_str(KNOWN).unwrap_or_default()
}

/// Overwrites the recorded figures with the new ones; figures that were not measured stay.
///
/// # Errors
///
/// Fails when the file cannot be written.
pub(crate) fn keep(path: &Path, machine: &Machine, outcomes: &[Outcome]) -> Result<()> {
    let mut all = all();
    let found = outcomes
        .iter()
        .filter(|outcome| outcome.id.starts_with("b14"));
    for series in found.flat_map(|outcome| &outcome.series) {
        let Some(now) = series.median(super::NOW) else {
            continue;
        };
        let kept = RecordedFigure {
            value: (now * 100.0).round() / 100.0,
            unit: series.unit.to_owned(),
            date: machine.date().to_owned(),
            machine: machine.kind(),
        };
        all.insert(series.quantity.to_owned(), kept);
    }
    Ok(fs_err::write(
        path,
        format!("{:#}\n", serde_json::json!(all)),
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_figures_are_readable_and_growth_is_named() {
        let all: BTreeMap<String, RecordedFigure> = serde_json::from_str(KNOWN).unwrap();
        for (what, kept) in all {
            assert_eq!(known(&what, "another unit"), None);
            assert_eq!(known(&what, &kept.unit), Some(kept));
        }
        let kept = RecordedFigure {
            value: 10.0,
            unit: "MB".into(),
            date: "2026-01-01".into(),
            machine: "any".into(),
        };
        assert!(
            kept.compared("binary", 10.1)
                .starts_with("binary: unchanged")
        );
        let grown = kept.compared("binary", 12.5);
        assert_eq!(
            grown,
            "binary: GROWN by 25 %; it was 10 MB on 2026-01-01 (any)"
        );
        assert!(kept.compared("binary", 5.0).contains("smaller by 50 %"));
    }
}
