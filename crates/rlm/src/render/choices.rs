//! The numbered list of runs of which a person chooses one.

use std::time::Duration;

use rlm_store::RunEntry;
use rlm_terminal::style::{DIM, styled};
use rlm_terminal::table::{Cell, Column, table};
use rlm_text::count;
use rlm_text::duration::approximate;
use rlm_text::escape::plain;

use crate::render::lines;
use crate::render::live::column;

const COLUMNS: [Column; 5] = [
    column("", 0),
    column("RUN", 0),
    column("STATE", 0),
    column("SAVED", 1),
    column("TITLE", 0),
];

/// Returns the list. The title of a run is the first line of its prompt if the run has no other.
pub(crate) fn choices(
    runs: &[RunEntry],
    left_out: usize,
    now: jiff::Timestamp,
    columns: Option<usize>,
) -> String {
    let row = |(index, run): (usize, &RunEntry)| {
        let head = run.head.as_ref().ok();
        let title = head.and_then(|head| head.settings.title.as_deref());
        let age = Duration::from_secs(lines::age(run.last_at, now));
        vec![
            Cell::new(format!("{}", index + 1)),
            Cell::new(plain(run.id.as_str())),
            Cell::styled(lines::state(run.state), lines::of_state(run.state)),
            Cell::new(approximate(age)),
            Cell::new(plain(title.unwrap_or_default())),
        ]
    };
    let rows: Vec<_> = runs.iter().enumerate().map(row).collect();
    let list = table(&COLUMNS, &rows, columns);
    match left_out {
        0 => list,
        more => {
            let more = count(more, "older run", "older runs");
            let more = format!("… and {more}; to choose one of them, write more of its id");
            format!("{list}\n{}", styled(DIM, more))
        }
    }
}

#[cfg(test)]
mod tests {
    use loop_state::Timestamp;
    use rlm_store::RunState;

    use super::*;

    #[test]
    fn choices_are_numbered_and_older_runs_are_counted() {
        let run = |id: &str, state, at| RunEntry {
            loss: None,
            id: id.parse().unwrap(),
            state,
            head: Err("not read".into()),
            notes: Vec::new(),
            last_at: Timestamp::from_millis(at),
        };
        let runs = [
            run("night-2", RunState::Running, 7_190_000),
            run("night-1", RunState::Stopped, 0),
        ];
        let now = jiff::Timestamp::from_second(7_200).unwrap();
        let shown = choices(&runs, 3, now, Some(80));
        insta::assert_snapshot!(anstream::adapter::strip_str(&shown).to_string());
    }
}
