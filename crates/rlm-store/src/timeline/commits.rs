//! Which commit has the work of which attempt.

use std::collections::HashMap;

use super::Timeline;
use crate::git::is_object_name;
use crate::{Committed, Project};

/// The most commits that are looked at, newest first.
const MOST: &str = "--max-count=12000";

/// Where an attempt stands: its phase, its iteration, its number.
type Place = (u32, u32, u32);

/// Fills in the commits: those that the saves know, and those whose trailers say whose they are.
pub(super) fn fill(project: &Project, timeline: &mut Timeline, saved: Vec<Committed>) {
    let mut commits: HashMap<Place, String> = HashMap::new();
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

/// Asks git for the commits of the run before `newest`. That git does not answer is the same as that there is none.
fn logged(project: &Project, timeline: &Timeline, newest: &str) -> HashMap<Place, String> {
    let run = &timeline.head.run;
    let field = |name| format!("%(trailers:key=Rlm-{name},valueonly,separator=)");
    let format = ["Iteration", "Attempt", "Phase"].map(field).join("%x09");
    let since = timeline.began().0 / 1000;
    let arguments = [
        "log",
        MOST,
        &format!("--since={since}"),
        "--fixed-strings",
        &format!("--grep=Rlm-Run: {run}"),
        &format!("--format=%H%x09{format}"),
        newest,
    ];
    let Some(text) = project.git().ask(&arguments) else {
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
