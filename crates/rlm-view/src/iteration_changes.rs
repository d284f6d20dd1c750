//! Finds the changes of an iteration: in the record that the run wrote at the end of it, or else in its commit.

use std::path::Path;

use rlm_store::{Project, RunHead, TranscriptWindow, removed_transcripts};

use crate::attempts;
use crate::row::RunRow;
use crate::runs::Runs;

/// The bytes of a transcript that are searched at once, and in all. The record is near the end of the transcript.
const WINDOW: usize = 512 << 10;
const MAX_SEARCHED: u64 = 2 << 20;

/// The changes of one attempt of an iteration.
#[derive(Debug)]
pub(crate) struct ShownChanges {
    /// The iteration and the attempt.
    pub(crate) attempt: (u32, u32),
    /// All attempts, the newest last.
    pub(crate) attempts: Vec<(u32, u32)>,
    pub(crate) found: FoundChanges,
    /// The commits before and after the attempt, if the page needs them.
    pub(crate) commits: Option<CommitRange>,
    /// The directory in which git has these commits.
    pub(crate) directory: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FoundChanges {
    /// The changed files, one in a line, and the patch below them.
    Text(String),
    /// There are none, for this reason.
    Unknown(String),
}

/// The commits before and after an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommitRange {
    /// `None` for the first commit of the run.
    pub(crate) before: Option<String>,
    pub(crate) after: String,
}

/// Reads the changes of an attempt, or of the newest one. Returns `None` if there is no attempt. Blocks for some seconds at most.
pub(crate) fn read(runs: &Runs, row: &RunRow, wanted: Option<(u32, u32)>) -> Option<ShownChanges> {
    let project = runs.project(row)?;
    let run_dir = project.run_dir(&row.run);
    let attempts = all_attempts(&run_dir);
    let newest = *attempts.last()?;
    let attempt = wanted.filter(|it| attempts.contains(it)).unwrap_or(newest);
    let path = rlm_store::transcript::path(&run_dir, attempt.0, attempt.1);
    let recorded = find_record(&path);
    let entry = project.run(&row.run).ok();
    let head = entry.and_then(|entry| entry.head.ok());
    let is_incomplete = match &recorded {
        Recorded::Text(text) => text.contains("(the patch is too long; "),
        Recorded::Failed(_) | Recorded::None => true,
    };
    let commits = match &head {
        Some(head) if head.settings.commit && is_incomplete => commits(&project, row, attempt),
        _ => None,
    };
    let is_running = row.state.is_live() && attempt == newest;
    let found = match (recorded, &commits) {
        (Recorded::Text(text), _) => FoundChanges::Text(text),
        (_, Some(commits)) => of_commits(&project, commits),
        (Recorded::Failed(why), None) => FoundChanges::Unknown(why),
        (Recorded::None, None) => {
            FoundChanges::Unknown(reason(head.as_ref(), is_running, &run_dir, attempt))
        }
    };
    Some(ShownChanges {
        attempt,
        attempts,
        found,
        commits,
        directory: project.root().display().to_string(),
    })
}

/// Returns all attempts, also those whose transcripts were removed.
fn all_attempts(run_dir: &Path) -> Vec<(u32, u32)> {
    let present = attempts::sorted_attempts(run_dir);
    let removed = removed_transcripts(run_dir).map(|it| it.attempts);
    let removed = removed.into_iter().flatten();
    removed.chain(present).collect()
}

/// The record of the changes in a transcript.
enum Recorded {
    Text(String),
    /// The run could not compare the files.
    Failed(String),
    None,
}

fn find_record(path: &Path) -> Recorded {
    let mut end = None;
    let mut searched = 0;
    while searched < MAX_SEARCHED {
        let Ok(window) = TranscriptWindow::before(path, end, WINDOW) else {
            return Recorded::None;
        };
        let mut newest_first = window.records.into_iter().rev();
        if let Some((_, record)) = newest_first.find(|(_, it)| it.kind == "changes") {
            return match record.text.strip_prefix("The changed files are unknown: ") {
                Some(why) => Recorded::Failed(why.to_owned()),
                None => Recorded::Text(record.text),
            };
        }
        if window.from == 0 {
            break;
        }
        searched += window.to - window.from;
        end = Some(window.from);
    }
    Recorded::None
}

/// Returns the commits before and after an attempt, from the timeline of the run.
fn commits(project: &Project, row: &RunRow, attempt: (u32, u32)) -> Option<CommitRange> {
    let timeline = project.timeline(&row.run).ok()?;
    let attempts = timeline.attempts;
    let at = { attempts.iter() }.rposition(|it| (it.iteration, it.attempt) == attempt)?;
    let after = attempts[at].commit.clone()?;
    let before = attempts[..at].iter().rev();
    let before = before.filter_map(|it| it.commit.clone()).next();
    Some(CommitRange { before, after })
}

fn of_commits(project: &Project, commits: &CommitRange) -> FoundChanges {
    if commits.before.as_ref() == Some(&commits.after) {
        return FoundChanges::Text(String::new());
    }
    match project.commit_changes(commits.before.as_deref(), &commits.after) {
        Ok(changes) => FoundChanges::Text(changes.to_string()),
        Err(e) => FoundChanges::Unknown(format!("git can't show the commit of the iteration: {e}")),
    }
}

/// Returns why a run recorded no changes.
fn reason(head: Option<&RunHead>, is_running: bool, run_dir: &Path, attempt: (u32, u32)) -> String {
    let is_removed = removed_transcripts(run_dir).is_some_and(|it| it.attempts.contains(&attempt));
    if is_removed {
        return "the transcript of this iteration was removed, and the run made no commit".into();
    }
    if is_running {
        return "the iteration has not ended; the run compares the files at its end".into();
    }
    match head {
        Some(head) if head.git_commit.is_none() && head.snapshot.is_none() => {
            "the project is not a git working tree with a commit".into()
        }
        _ => "the iteration did not end normally, so the run did not compare the files".into(),
    }
}
