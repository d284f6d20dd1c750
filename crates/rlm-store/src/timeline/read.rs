//! Reads the timeline of a run from its journal, and asks git for its commits.

use checkpoint_store::{Loaded, Seq, reader};
use loop_state::{Event, Head};

use super::{Timeline, commits, fold};
use crate::runs::options;
use crate::{Committed, Error, Project, RunHead, RunId, RunState, runs};

impl Project {
    /// Tells what happened in a run. Writes nothing, works while the run lives, and asks git where the run's commits are.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`] when there is no such run, or nothing is saved of it; others when it can't be read. Damage is no error.
    pub fn timeline(&self, run: &RunId) -> Result<Timeline, Error> {
        let dir = self.existing(run)?;
        let unread = |e| Error::store(run, "read", e);
        let options = options(false);
        let Loaded {
            head,
            events,
            report,
            ..
        } = reader::load_with::<RunHead, Event>(&dir, &options).map_err(unread)?;
        let head = head.ok_or_else(|| runs::nothing_saved(self, run))?;
        let state = RunState::of(&head, reader::is_locked(&dir).unwrap_or(false));
        let mut oldest: Option<Head> = None;
        let mut committed: Vec<Committed> = Vec::new();
        reader::history(&dir, &options, |_: Seq, head: RunHead| {
            if let Some(commit) = head.committed.filter(|it| committed.last() != Some(it)) {
                committed.push(commit);
            }
            let begun = head.machine.counts.processes > 0;
            oldest = oldest.take().or(begun.then_some(head.machine));
        })
        .map_err(unread)?;
        let mut timeline = fold::timeline(head, state, &events, oldest);
        let skipped = report.skipped.iter().map(ToString::to_string);
        timeline.unknown.extend(skipped);
        commits::fill(self, &mut timeline, committed);
        Ok(timeline)
    }
}
