//! The result of all storms, as a table and as JSON.

use serde_json::{Value, json};

use crate::judge::Finding;
use crate::plan::Fault;
use crate::storm::StormResult;

/// The number of findings that the table names.
const NAMED: usize = 20;
/// The number of lines of evidence in the table. The JSON has all.
const LINES: usize = 120;

/// The result of all storms.
#[derive(Debug, Clone)]
pub struct Score {
    /// The seed of the storms.
    pub seed: u64,
    /// The lease of the workers in milliseconds.
    pub lease_ms: u64,
    /// One result for each fleet.
    pub storms: Vec<StormResult>,
}

impl Score {
    /// Returns whether nothing went wrong, and no storm was interrupted.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.storms
            .iter()
            .all(|storm| storm.findings.is_empty() && !storm.is_interrupted)
    }

    /// Returns the score as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "seed": self.seed,
            "lease_ms": self.lease_ms,
            "is_clean": self.is_clean(),
            "storms": self.storms,
        })
    }

    /// Returns the table, and a summary.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!("{:<36}", "");
        for storm in &self.storms {
            let title = match storm.servers {
                1 => "one server".to_owned(),
                servers => format!("{servers} servers"),
            };
            text += &format!("{title:>14}");
        }
        text.push('\n');
        let mut row = |name: &str, cell: &dyn Fn(&StormResult) -> String| {
            text += &format!("{name:<36}");
            for storm in &self.storms {
                text += &format!("{:>14}", cell(storm));
            }
            text.push('\n');
        };
        for fault in Fault::ALL {
            row(fault.name(), &|storm| storm.landed(fault).to_string());
        }
        row("runs", &|storm| storm.runs.to_string());
        row("resumed after three hits", &|storm| {
            storm.resumes.to_string()
        });
        row("committed iterations", &|storm| {
            storm.iterations.to_string()
        });
        row("started agents", &|storm| storm.starts.to_string());
        row("seconds to take over, median / max", &takeover);
        let count = |is: fn(&Finding) -> bool| {
            move |storm: &StormResult| {
                storm
                    .findings
                    .iter()
                    .filter(|it| is(it))
                    .count()
                    .to_string()
            }
        };
        row(
            "committed iterations lost",
            &count(|it| matches!(it, Finding::Lost { .. })),
        );
        row(
            "committed iterations done twice",
            &count(|it| matches!(it, Finding::Twice { .. })),
        );
        row(
            "two agents of a run at once",
            &count(|it| matches!(it, Finding::Overlap { .. })),
        );
        row(
            "runs that did not end",
            &count(|it| matches!(it, Finding::NotEnded { .. })),
        );
        row("processes left", &|storm| {
            let left = storm.findings.iter().map(|it| match it {
                Finding::Left { processes } => processes.len(),
                _ => 0,
            });
            left.sum::<usize>().to_string()
        });
        row(
            "other findings",
            &count(|it| matches!(it, Finding::Contradiction { .. } | Finding::Stalled { .. })),
        );
        text.push('\n');
        let all = self.storms.iter().flat_map(|storm| &storm.findings);
        for finding in all.clone().take(NAMED) {
            text += &format!("{}\n", json!(finding));
        }
        if let more @ 1.. = all.count().saturating_sub(NAMED) {
            text += &format!("and {more} more\n");
        }
        let evidence = self.storms.iter().flat_map(|storm| &storm.evidence);
        for line in evidence.take(LINES) {
            text += &format!("  {line}\n");
        }
        text + &self.sentence()
    }

    fn sentence(&self) -> String {
        let kills = self.storms.iter().map(|it| it.landed(Fault::KillWorker));
        let kills: usize = kills.sum();
        match self.is_clean() {
            true => format!(
                "In {kills} kills of workers, and the other faults above, no committed iteration was lost or done twice."
            ),
            false if self.storms.iter().any(|storm| storm.is_interrupted) => {
                "Interrupted: all started processes were killed.".into()
            }
            false => "Not clean.".into(),
        }
    }
}

fn takeover(storm: &StormResult) -> String {
    let mut all = storm.takeovers_ms.clone();
    all.sort_unstable();
    match (all.get(all.len() / 2), all.last()) {
        (Some(median), Some(longest)) => {
            let seconds = |millis: u64| format!("{}.{}", millis / 1000, millis % 1000 / 100);
            format!("{} / {}", seconds(*median), seconds(*longest))
        }
        _ => "-".into(),
    }
}
