//! Reads the timeline of a run from its journal, and its commits from git.

use std::collections::HashMap;

use checkpoint_store::{Loaded, Seq, reader};
use loop_state::{Head, TimedInput};

use super::{Timeline, fold};
use crate::git::is_object_name;
use crate::runs::options;
use crate::{Committed, Error, Project, RunHead, RunId, RunState, runs};

/// The option of `git log` for the largest number of commits to read, newest first.
const MOST: &str = "--max-count=12000";

/// The position of an attempt: its phase, its iteration, its number.
type AttemptKey = (u32, u32, u32);

impl Project {
    /// Returns the timeline of a run. Writes nothing, works for a live run, and reads the run's commits from git.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`] if there is no such run, or nothing is saved for it; other errors if it can't be read. Damage is no error.
    pub fn timeline(&self, run: &RunId) -> Result<Timeline, Error> {
        let dir = self.existing(run)?;
        let unread = |e| Error::store(run, "read", e);
        let options = options(false);
        let Loaded {
            head,
            events,
            report,
            ..
        } = reader::load_with::<RunHead, TimedInput>(&dir, &options).map_err(unread)?;
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
        fill_in_commits(self, &mut timeline, committed);
        Ok(timeline)
    }
}

/// Fills in the commits: those in the saves, and those with the run's trailers.
fn fill_in_commits(project: &Project, timeline: &mut Timeline, saved: Vec<Committed>) {
    let mut commits: HashMap<AttemptKey, String> = HashMap::new();
    if let Some(newest) = saved.last().filter(|newest| is_object_name(&newest.commit)) {
        commits = logged(project, timeline, &newest.commit);
    }
    for it in saved {
        commits.insert((it.phase, it.iteration, it.attempt), it.commit);
    }
    for attempt in &mut timeline.attempts {
        attempt.commit = commits.remove(&(attempt.phase, attempt.iteration, attempt.attempt));
    }
}

/// Reads the commits of the run up to `newest` from git. Returns no commits if git doesn't respond.
fn logged(project: &Project, timeline: &Timeline, newest: &str) -> HashMap<AttemptKey, String> {
    let run = &timeline.head.run;
    let field = |name| format!("%(trailers:key=Rlm-{name},valueonly,separator=)");
    let format = ["Iteration", "Attempt", "Phase"].map(field).join("%x09");
    let since = timeline.began().as_millis() / 1000;
    let arguments = [
        "log",
        MOST,
        &format!("--since={since}"),
        "--fixed-strings",
        &format!("--grep=Rlm-Run: {run}"),
        &format!("--format=%H%x09{format}"),
        newest,
    ];
    let Some(text) = project.git().query(&arguments) else {
        return HashMap::new();
    };
    let phases = &timeline.head.settings.phases;
    let placed = text.lines().filter_map(|line| {
        let mut fields = line.splitn(4, '\t');
        let commit = fields.next().filter(|it| is_object_name(it))?;
        let (iteration, attempt) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let name = fields.next()?;
        let phase = phases.iter().position(|phase| phase.name == name)?;
        let phase = u32::try_from(phase).ok()?;
        Some(((phase, iteration, attempt), commit.to_owned()))
    });
    placed.collect()
}
