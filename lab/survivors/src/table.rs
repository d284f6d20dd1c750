//! The score as text. This module does no I/O.

use std::fmt::Write;
use std::time::Duration;

use crate::score::KILL_BOUND;
use crate::{Role, Row, RunResult, Score, StopMethod, Survivor, TimeSpread};

/// Number of survivors that the table names for one run.
const NAMED: usize = 8;

impl Score {
    /// Returns the table, an example of each failure, and a summary.
    #[must_use]
    pub fn table(&self, coloured: bool) -> String {
        let mut text = format!("{:<16}", "");
        for role in Role::ALL {
            text += &format!("{:>8}", role.name());
        }
        text += &format!(
            "{:>8}{:>9}{:>16}{:>16}  exit status\n",
            "ignored", "no start", "tool gone", "all gone"
        );
        for row in &self.rows {
            line(&mut text, row, coloured);
        }
        text.push('\n');
        for row in &self.rows {
            examples(&mut text, row);
        }
        kill_note(&mut text, &self.rows);
        text + &self.sentence()
    }

    fn sentence(&self) -> String {
        let runs: usize = self.rows.iter().map(|row| row.runs.len()).sum();
        let of = |is_so: &dyn Fn(&Row) -> bool| {
            let rows = self.rows.iter().filter(|row| is_so(row));
            rows.map(|row| row.way.name())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let survived = |row: &Row| Role::ALL.iter().any(|role| row.survived(*role) > 0);
        let told = [
            ("There are survivors after", of(&survived)),
            ("The tool did not stop after", of(&|row| row.ignored() > 0)),
            (
                "Some stops could not be judged",
                of(&|row| row.never_ready() > 0 || row.runs.is_empty()),
            ),
        ];
        let told: Vec<String> = told
            .into_iter()
            .filter(|(_, ways)| !ways.is_empty())
            .map(|(what, ways)| format!("{what}: {ways}"))
            .collect();
        let sum = |count: &dyn Fn(&Row) -> usize| self.rows.iter().map(count).sum::<usize>();
        let (named, skipped) = (sum(&Row::named), sum(&Row::skipped));
        let judged = runs - skipped;
        let but = match named {
            0 => String::new(),
            _ => format!(", except those that the tool named ({named}),"),
        };
        let not_shown = match skipped {
            0 => String::new(),
            _ => format!(" {skipped} stops could not be shown here."),
        };
        match told.as_slice() {
            [] => format!(
                "Stop means stop: no process{but} survived in {judged} of {judged} stops.{not_shown}"
            ),
            told => format!("Not clean. {}.", told.join(". ")),
        }
    }
}

fn line(text: &mut String, row: &Row, coloured: bool) {
    *text += &format!("{:<16}", row.way.name());
    let judged = row.judged();
    for role in Role::ALL {
        let count = row.survived(role);
        let cell = match judged {
            0 => format!("{:>8}", "-"),
            _ => format!("{:>8}", format!("{count}/{judged}")),
        };
        *text += &painted(cell, judged > 0, count > 0, coloured);
    }
    for (count, width) in [(row.ignored(), 8), (row.never_ready(), 9)] {
        let cell = format!("{count:>width$}");
        *text += &painted(cell, false, count > 0, coloured);
    }
    for spread in [row.tool_gone(), row.all_gone()] {
        *text += &format!("{:>16}", spread.map_or_else(|| "-".into(), both));
    }
    let statuses = row.statuses();
    let statuses = statuses.iter().map(|(status, count)| match count {
        count if *count == judged => (*status).to_owned(),
        count => format!("{status} ×{count}"),
    });
    let statuses = statuses.collect::<Vec<_>>().join(", ");
    *text += format!("  {statuses}").trim_end();
    text.push('\n');
}

/// Adds an example of each failure of one way, from the first run that shows it.
fn examples(text: &mut String, row: &Row) {
    let name = row.way.name();
    let mut first = |tell: &dyn Fn(&RunResult) -> Option<String>| {
        let mut told = row.runs.iter().filter_map(|run| tell(&run.verdict));
        if let Some(told) = told.next() {
            *text += &format!("{name}: {told}\n");
        }
    };
    first(&|verdict| match verdict {
        RunResult::Ended { left, .. } if !left.is_empty() => {
            Some(format!("survivors: {}", named(left)))
        }
        _ => None,
    });
    first(&|verdict| match verdict {
        RunResult::Ignored { left } => {
            Some(format!("the stop was ignored; alive: {}", named(left)))
        }
        _ => None,
    });
    first(&|verdict| match verdict {
        RunResult::Named { left, status, .. } => Some(format!(
            "named by the tool, which exited with {status}: {}",
            named(left)
        )),
        _ => None,
    });
    first(&|verdict| match verdict {
        RunResult::Skipped { why } => Some(format!("skipped: {why}")),
        _ => None,
    });
    first(&|verdict| match verdict {
        RunResult::NeverReady { why } => Some(format!("not judged: {why}")),
        _ => None,
    });
}

fn named(left: &[Survivor]) -> String {
    if left.is_empty() {
        return "none".into();
    }
    let shown = left.iter().take(NAMED).map(|survivor| {
        let zombie = if survivor.zombie { ", a zombie" } else { "" };
        let (pid, name, role) = (survivor.pid, &survivor.name, survivor.role.name());
        format!("{pid} {name} ({role}{zombie})")
    });
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if let more @ 1.. = left.len().saturating_sub(NAMED) {
        let _infallible = write!(text, " and {more} more");
    }
    text
}

/// Adds a note that compares the row of a kill with the promise. The row itself has the same time limit as the others, because the machine may be
/// busy.
fn kill_note(text: &mut String, rows: &[Row]) {
    let row = rows.iter().find(|row| row.way == StopMethod::Kill);
    if let Some(spread) = row.and_then(Row::all_gone) {
        let (max, bound) = (seconds(spread.max), KILL_BOUND.as_secs());
        let than = if spread.max > KILL_BOUND {
            "over"
        } else {
            "within"
        };
        *text += &format!(
            "kill -9: the last process ended after {max} s, {than} the limit of {bound} s.\n"
        );
    }
}

fn both(spread: TimeSpread) -> String {
    format!("{} / {} s", seconds(spread.p50), seconds(spread.max))
}

fn seconds(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64())
}

/// Colours a cell, which must already be padded, because escape sequences would count as width.
fn painted(cell: String, good: bool, bad: bool, coloured: bool) -> String {
    match (coloured, good, bad) {
        (true, _, true) => format!("\x1b[31m{cell}\x1b[0m"),
        (true, true, false) => format!("\x1b[32m{cell}\x1b[0m"),
        _ => cell,
    }
}
