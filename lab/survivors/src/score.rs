//! Sums up the runs, with one row for each way. This module does no I/O.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::{Plan, Role, RunResult, StopMethod, Survivor};

/// The time limit that `rlm` promises for the end of all processes after a kill; the table compares the row `kill -9` with it.
pub(crate) const KILL_BOUND: Duration = Duration::from_secs(2);

/// One stop and its result.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The way in which the tool was stopped.
    pub way: StopMethod,
    /// The number of the run in that way, from 0.
    pub number: usize,
    /// The result.
    pub verdict: RunResult,
}

/// The median and the maximum of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeSpread {
    /// The median.
    pub p50: Duration,
    /// The maximum.
    pub max: Duration,
}

impl TimeSpread {
    fn of(times: impl Iterator<Item = Duration>) -> Option<Self> {
        let mut times: Vec<Duration> = times.collect();
        times.sort_unstable();
        Some(Self {
            p50: *times.get(times.len().saturating_sub(1) / 2)?,
            max: *times.last()?,
        })
    }

    fn json(self) -> Value {
        json!({ "p50": self.p50.as_secs_f64(), "max": self.max.as_secs_f64() })
    }
}

/// All runs of one way.
#[derive(Debug, Clone)]
pub struct Row {
    /// The way.
    pub way: StopMethod,
    /// The runs, in their order.
    pub runs: Vec<Run>,
}

impl Row {
    fn ended(&self) -> impl Iterator<Item = (&str, Duration, Option<Duration>, &[Survivor])> {
        self.runs.iter().filter_map(|run| match &run.verdict {
            RunResult::Named {
                status, tool_gone, ..
            } => Some((status.as_str(), *tool_gone, None, [].as_slice())),
            RunResult::Ended {
                status,
                tool_gone,
                all_gone,
                left,
            } => Some((status.as_str(), *tool_gone, *all_gone, left.as_slice())),
            _ => None,
        })
    }

    /// Returns the number of runs whose tool ended, so that the survivors can be counted.
    #[must_use]
    pub fn judged(&self) -> usize {
        self.ended().count()
    }

    /// Returns the number of judged runs with a survivor of this role.
    #[must_use]
    pub fn survived(&self, role: Role) -> usize {
        let has = |left: &[Survivor]| left.iter().any(|survivor| survivor.role == role);
        self.ended().filter(|(.., left)| has(left)).count()
    }

    /// Returns the number of runs whose tool did not end.
    #[must_use]
    pub fn ignored(&self) -> usize {
        let ignored = |run: &&Run| matches!(run.verdict, RunResult::Ignored { .. });
        self.runs.iter().filter(ignored).count()
    }

    /// Returns the number of runs whose tool named all processes that it could not end.
    #[must_use]
    pub fn named(&self) -> usize {
        let named = |run: &&Run| matches!(run.verdict, RunResult::Named { .. });
        self.runs.iter().filter(named).count()
    }

    /// Returns the number of runs that this tool or this machine doesn't allow.
    #[must_use]
    pub fn skipped(&self) -> usize {
        let skipped = |run: &&Run| matches!(run.verdict, RunResult::Skipped { .. });
        self.runs.iter().filter(skipped).count()
    }

    /// Returns the number of runs whose agent did not begin to work.
    #[must_use]
    pub fn never_ready(&self) -> usize {
        self.runs.len() - self.judged() - self.ignored() - self.skipped()
    }

    /// Returns the time from the stop to the end of the tool.
    #[must_use]
    pub fn tool_gone(&self) -> Option<TimeSpread> {
        TimeSpread::of(self.ended().map(|(_, tool_gone, ..)| tool_gone))
    }

    /// Returns the time from the stop to the end of the last process, in the runs without survivors.
    #[must_use]
    pub fn all_gone(&self) -> Option<TimeSpread> {
        TimeSpread::of(self.ended().filter_map(|(_, _, all_gone, _)| all_gone))
    }

    /// Returns the exit statuses of the tool, each with the number of its runs.
    #[must_use]
    pub fn statuses(&self) -> BTreeMap<&str, usize> {
        let mut statuses = BTreeMap::new();
        for (status, ..) in self.ended() {
            *statuses.entry(status).or_default() += 1;
        }
        statuses
    }

    /// Returns whether each run ended without survivors.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        !self.runs.is_empty()
            && self.judged() + self.skipped() == self.runs.len()
            && self.ended().all(|(.., left)| left.is_empty())
    }

    fn json(&self) -> Value {
        let survivors: BTreeMap<_, _> = Role::ALL
            .map(|role| (role.name(), self.survived(role)))
            .into();
        json!({
            "way": self.way.name(),
            "runs": self.runs.len(),
            "judged": self.judged(),
            "named": self.named(),
            "skipped": self.skipped(),
            "ignored": self.ignored(),
            "never_ready": self.never_ready(),
            "runs_with_survivors": survivors,
            "tool_gone_s": self.tool_gone().map(TimeSpread::json),
            "all_gone_s": self.all_gone().map(TimeSpread::json),
            "statuses": self.statuses(),
            "each": self.runs.iter().map(|run| result_json(&run.verdict)).collect::<Vec<_>>(),
        })
    }
}

/// Returns a verdict as JSON, with times in seconds, as everywhere in the file.
fn result_json(verdict: &RunResult) -> Value {
    let mut value = serde_json::to_value(verdict).unwrap_or_default();
    if let RunResult::Named { tool_gone, .. } = verdict {
        value["tool_gone"] = json!(tool_gone.as_secs_f64());
    }
    if let RunResult::Ended {
        tool_gone,
        all_gone,
        ..
    } = verdict
    {
        value["tool_gone"] = json!(tool_gone.as_secs_f64());
        value["all_gone"] = json!(all_gone.map(|time| time.as_secs_f64()));
    }
    value
}

/// The score of a tool.
#[derive(Debug, Clone)]
pub struct Score {
    /// A row for each tried way.
    pub rows: Vec<Row>,
}

impl Score {
    /// Sorts runs by way; each of these ways has a row.
    #[must_use]
    pub fn of(ways: &[StopMethod], mut runs: Vec<Run>) -> Self {
        runs.sort_by_key(|run| run.number);
        let row = |way| Row {
            way,
            runs: runs.iter().filter(|run| run.way == way).cloned().collect(),
        };
        Self {
            rows: ways.iter().copied().map(row).collect(),
        }
    }

    /// Returns whether every run of every way is clean.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.rows.iter().all(Row::is_clean)
    }

    /// Returns the score as JSON for other programs; times are in seconds.
    #[must_use]
    pub fn json(&self, plan: &Plan) -> Value {
        json!({
            "tool": plan.command,
            "moment": format!("{:?}", plan.moment).to_lowercase(),
            "stubborn": plan.stubborn,
            "time_limit_s": plan.time_limit.as_secs(),
            "clean": self.is_clean(),
            "ways": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
        })
    }
}
