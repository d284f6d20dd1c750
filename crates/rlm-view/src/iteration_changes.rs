//! Finds the changes of an iteration: in the record that the run wrote at the end of it, or else in its commit.

use std::io::ErrorKind;
use std::path::Path;

use rlm_store::{Project, RunHead, TranscriptWindow, removed_transcripts};

use crate::attempts;
use crate::parsed_changes::ParsedChanges;
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
    /// The directory in which git has these commits, quoted for a shell.
    pub(crate) directory: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FoundChanges {
    /// The changed files, one in a line, and the patch below them.
    Text(String),
    /// The beginning of such a text: `max-transcripts` shortened the record.
    Shortened(String),
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
        Recorded::Text(text) => ParsedChanges::new(text).is_incomplete,
        Recorded::Shortened(_) | Recorded::Failed(_) | Recorded::None(_) => true,
    };
    let commits = match &head {
        Some(head) if head.settings.commit && is_incomplete => commits(&project, row, attempt),
        _ => None,
    };
    let is_running = row.state.is_live() && attempt == newest;
    let of_commits = match &recorded {
        Recorded::Text(_) => None,
        _ => commits.as_ref().map(|it| of_commits(&project, it)),
    };
    let found = match (recorded, of_commits) {
        (Recorded::Text(text), _) => FoundChanges::Text(text),
        (Recorded::Shortened(text), None | Some(FoundChanges::Unknown(_))) => {
            FoundChanges::Shortened(text)
        }
        (_, Some(of_commits)) => of_commits,
        (Recorded::Failed(why), None) => FoundChanges::Unknown(why),
        (Recorded::None(why), None) => {
            let why = reason(head.as_ref(), is_running, &why, &run_dir, attempt);
            FoundChanges::Unknown(why)
        }
    };
    Some(ShownChanges {
        attempt,
        attempts,
        found,
        commits,
        directory: runs.program().quoted(&project.root().to_string_lossy()),
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
#[derive(Debug, PartialEq, Eq)]
enum Recorded {
    Text(String),
    /// The beginning of a record that was shortened later.
    Shortened(String),
    /// The run could not compare the files.
    Failed(String),
    None(NoRecord),
}

/// A reason why a transcript has no such record, as far as the transcript shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NoRecord {
    /// The run wrote none.
    NotWritten,
    /// `max-transcripts` removed records after the beginning of the transcript, and the record may have been one of them.
    MayBeRemoved,
    /// The end of the transcript has none, and the rest is too long to be searched.
    NotFound,
    /// There is no transcript.
    NoTranscript,
    /// The transcript can't be read, for this reason.
    Unreadable(String),
}

fn find_record(path: &Path) -> Recorded {
    let mut end = None;
    let mut searched = 0;
    let (mut is_last, mut has_end, mut may_be_removed) = (true, false, false);
    loop {
        let window = match TranscriptWindow::before(path, end, WINDOW) {
            Ok(window) => window,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Recorded::None(NoRecord::NoTranscript);
            }
            Err(e) => return Recorded::None(NoRecord::Unreadable(e.to_string())),
        };
        for (_, record) in window.records.into_iter().rev() {
            match record.kind.as_str() {
                "changes" => {
                    return match record.text.strip_prefix("The changed files are unknown: ") {
                        Some(why) => Recorded::Failed(why.to_owned()),
                        None if record.omitted > 0 => Recorded::Shortened(record.text),
                        None => Recorded::Text(record.text),
                    };
                }
                // The run writes the changes after the end of the turn.
                "end" => has_end = true,
                // If this is the last record, only raw lines were removed.
                "reduced" => may_be_removed |= !is_last && !has_end,
                _ => {}
            }
            is_last = false;
        }
        searched += window.to - window.from;
        end = Some(window.from);
        if window.from == 0 {
            return Recorded::None(match may_be_removed {
                true => NoRecord::MayBeRemoved,
                false => NoRecord::NotWritten,
            });
        }
        if searched >= MAX_SEARCHED {
            return Recorded::None(NoRecord::NotFound);
        }
    }
}

/// Returns the commits before and after an attempt, from the timeline of the run.
fn commits(project: &Project, row: &RunRow, attempt: (u32, u32)) -> Option<CommitRange> {
    let timeline = project.timeline(&row.run).ok()?;
    let attempts = timeline.attempts;
    let at = { attempts.iter() }.rposition(|it| (it.iteration, it.attempt) == attempt)?;
    let after = attempts[at].commit.clone()?;
    let before = attempts[..at].iter().rev();
    let before = before.filter_map(|it| it.commit.clone()).next();
    // The page has a command with these names.
    let is_name = |name: &String| name.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !std::iter::once(&after).chain(&before).all(is_name) {
        return None;
    }
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
fn reason(
    head: Option<&RunHead>,
    is_running: bool,
    why: &NoRecord,
    run_dir: &Path,
    attempt: (u32, u32),
) -> String {
    let is_removed = removed_transcripts(run_dir).is_some_and(|it| it.attempts.contains(&attempt));
    if is_removed {
        return "the transcript of this iteration was removed, and the run made no commit".into();
    }
    if is_running {
        return "the iteration has not ended; the run compares the files at its end".into();
    }
    match (why, head) {
        (_, Some(head)) if head.git_commit.is_none() && head.snapshot.is_none() => {
            "the project is not a git working tree with a commit".into()
        }
        (NoRecord::NotWritten, _) => {
            "the iteration did not end normally, so the run did not compare the files".into()
        }
        (NoRecord::MayBeRemoved, _) => {
            "max-transcripts removed records of this iteration, the rest has no list of the changes, and the run made no commit".into()
        }
        (NoRecord::NotFound, _) => {
            "the end of the transcript has no list of the changes, and the run made no commit".into()
        }
        (NoRecord::NoTranscript, _) => {
            "the transcript of this iteration is missing, and the run made no commit".into()
        }
        (NoRecord::Unreadable(why), _) => {
            format!("the transcript of this iteration can't be read: {why}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lines: &[&str]) -> Recorded {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1-1.ndjson");
        let lines: String = lines
            .iter()
            .map(|it| format!("{{\"at\":7,{it}}}\n"))
            .collect();
        std::fs::write(&path, lines).unwrap();
        find_record(&path)
    }

    #[test]
    fn v7b_shortened_or_removed_record_is_recognised() {
        let end = r#""kind":"end","text":"completed""#;
        let reduced = r#""kind":"reduced","text":"3 records left out","omitted":9"#;
        let whole = r#""kind":"changes","text":"a +1 -0""#;
        let shortened = r#""kind":"changes","text":"a +1 -0","omitted":9"#;
        let failed = r#""kind":"changes","text":"The changed files are unknown: why""#;
        let text = || "a +1 -0".to_owned();
        assert_eq!(found(&[whole, end]), Recorded::Text(text()));
        assert_eq!(found(&[reduced, whole, end]), Recorded::Text(text()));
        assert_eq!(
            found(&[reduced, shortened, end]),
            Recorded::Shortened(text())
        );
        assert_eq!(found(&[failed, end]), Recorded::Failed("why".into()));
    }

    #[test]
    fn v7b_page_names_max_transcripts_only_if_it_can_be_the_reason() {
        let end = r#""kind":"end","text":"completed""#;
        let reduced = r#""kind":"reduced","text":"3 records left out","omitted":9"#;
        let other = r#""kind":"note","text":"x""#;
        let folder = tempfile::tempdir().unwrap();
        let text = |found| match found {
            Recorded::None(why) => reason(None, false, &why, folder.path(), (1, 1)),
            found => panic!("{found:?}"),
        };
        for (lines, expected) in [
            (&[end, reduced, other][..], "max-transcripts removed"),
            (&[reduced, other, reduced], "max-transcripts removed"),
            // The record would follow the end of the turn.
            (&[reduced, end], "did not end normally"),
            (&[reduced, end, reduced], "did not end normally"),
            // Only raw lines were removed.
            (&[other, reduced], "did not end normally"),
            (&[end], "did not end normally"),
            (&[], "did not end normally"),
        ] {
            let shown = text(found(lines));
            assert!(shown.contains(expected), "{lines:?}: {shown}");
            assert_eq!(shown.contains("max-transcripts"), expected.contains("max-"));
        }
        let missing = folder.path().join("1-1.ndjson");
        assert!(text(find_record(&missing)).contains("is missing"));
        std::fs::write(folder.path().join("1-1.ndjson.zst"), "damaged").unwrap();
        assert!(text(find_record(&missing)).contains("can't be read"));
    }

    #[test]
    fn v7b_search_for_the_record_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1-1.ndjson");
        let line = format!(
            "{{\"at\":7,\"kind\":\"raw\",\"text\":\"{}\"}}\n",
            "x".repeat(1000)
        );
        let lines = line.repeat(3 * MAX_SEARCHED as usize / line.len());
        std::fs::write(&path, lines).unwrap();
        assert_eq!(find_record(&path), Recorded::None(NoRecord::NotFound));
    }
}
