//! The output of `rlm checkpoints show`: a saved head, and the last events before it.

use std::fmt;

use loop_state::{Head, TimedInput};
use rlm_store::{RunHead, SavedState};
use rlm_text::count;
use rlm_text::escape::plain;
use rlm_text::time::utc;
use serde::Serialize;

use crate::agents;
use crate::hint::program_command;
use crate::render::Phases;
use crate::render::lines::{age, ago};
use crate::render::status::{checked, cost, last_outcome};

/// The number of last events that are shown.
const EVENTS: usize = 20;

/// One saved state in full.
#[derive(Debug, Serialize)]
pub(crate) struct StateView<'a> {
    run: &'a str,
    save: u64,
    at: String,
    age_s: u64,
    from: StateSource<'a>,
    head: RunHead,
    events: usize,
    last_events: &'a [TimedInput],
}

/// The file that the state was read from.
#[derive(Debug, Serialize)]
struct StateSource<'a> {
    file: Option<&'a str>,
    id: Option<String>,
    phase: Option<&'a str>,
    phase_save: Option<u64>,
    schema: Option<String>,
    epoch: u64,
    /// Damaged files that were skipped.
    skipped: Vec<String>,
    /// The size of an incomplete save at the end, which was never confirmed.
    torn_bytes: Option<u64>,
}

impl<'a> StateView<'a> {
    pub(crate) fn of(state: &'a SavedState, now: jiff::Timestamp) -> Self {
        let SavedState {
            head,
            events,
            report,
            ..
        } = state;
        let mut shown = head.clone();
        shown.settings = head.settings.without_secrets();
        let from = events.len().saturating_sub(EVENTS);
        let (phase, schema) = (report.phase.as_ref(), report.schema.as_ref());
        Self {
            run: head.run.as_str(),
            save: state.save.get(),
            at: utc(head.machine.last_at),
            age_s: age(head.machine.last_at, now),
            from: StateSource {
                file: report.used.as_deref(),
                id: report.file.map(|id| id.to_string()),
                phase: phase.map(|phase| phase.phase.as_str()),
                phase_save: phase.map(|phase| phase.seq.get()),
                schema: schema.map(|(name, version)| format!("{name} {version}")),
                epoch: report.epoch,
                skipped: report.skipped.iter().map(ToString::to_string).collect(),
                torn_bytes: report.repaired_tail,
            },
            head: shown,
            events: events.len(),
            last_events: &events[from..],
        }
    }
}

/// Returns the iteration and the attempt, and whether the attempt is unfinished; `None` before the first attempt.
fn place(head: &Head) -> Option<String> {
    let unfinished = match head.unfinished {
        Some(cut) if cut.attempt == head.attempt => ", unfinished",
        _ => "",
    };
    let (iteration, attempt) = (head.iteration, head.attempt);
    (attempt > 0).then(|| format!("iteration {iteration}, attempt {attempt}{unfinished}"))
}

impl fmt::Display for StateView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = &self.from;
        write!(f, "{}  save {}", plain(self.run), self.save)?;
        let head = &self.head.machine;
        let phase = Phases::from(head).position_text();
        let phase = phase.trim_start_matches(", ");
        let base = from.phase.zip(from.phase_save);
        let rows = [
            ("saved", Some(format!("{}, {}", self.at, ago(self.age_s)))),
            ("in", (!phase.is_empty()).then(|| phase.to_owned())),
            ("at", place(head)),
            ("last", last_outcome(head)),
            ("check", checked(head)),
            (
                "agent",
                { self.head.settings.phases.get(head.phase as usize) }
                    .map(|phase| agents::name(&phase.agent)),
            ),
            ("session", head.session.clone()),
            (
                "steers",
                Some(head.unseen_steers().count())
                    .filter(|waiting| *waiting > 0)
                    .map(|waiting| count(waiting, "message waits", "messages wait")),
            ),
            ("cost", cost(head)),
            ("file", from.file.map(str::to_owned)),
            ("id", from.id.clone()),
            (
                "phase",
                base.map(|(phase, save)| format!("{phase}, finished with save {save}")),
            ),
            (
                "schema",
                from.schema
                    .as_ref()
                    .map(|schema| format!("{schema}, written in epoch {}", from.epoch)),
            ),
            (
                "torn",
                from.torn_bytes.map(|bytes| {
                    format!(
                        "{bytes} bytes of an incomplete save that was never confirmed; nothing is lost"
                    )
                }),
            ),
        ];
        for (name, value) in rows {
            if let Some(value) = value {
                write!(f, "\n  {name:<7} {}", plain(&value))?;
            }
        }
        for skipped in &from.skipped {
            write!(f, "\n  skipped {}", plain(skipped))?;
        }
        let (rlm, run, save) = (program_command(), plain(self.run), self.save);
        write!(
            f,
            "\n\nthe whole state, and its last events: {rlm} checkpoints show {run} --save {save} --json"
        )?;
        Ok(())
    }
}
