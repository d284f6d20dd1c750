//! Reads the data of a page that is not in the timeline.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use rlm_store::{Project, Records, RunState, Timeline, removed_transcripts, transcripts};

use crate::report::{CommandLineTerms, ReportData};
use crate::rows::attempts_in_full;
use crate::transcript::{AttemptDetail, CommitChange, Transcript};

/// The maximum number of bytes of all transcripts of a page together, and of one of them.
const MAX_TRANSCRIPT_BYTES: usize = 1_500_000;
const MAX_BYTES_EACH: usize = 96 << 10;

/// Reads the data of a page that is not in the timeline: transcripts, prompts, commits and living processes.
#[must_use]
pub fn collect(project: &Project, timeline: Timeline, wording: CommandLineTerms) -> ReportData {
    let run = timeline.head.run.clone();
    let files: BTreeMap<(u32, u32), PathBuf> = transcripts(&project.run_dir(&run))
        .unwrap_or_default()
        .into_iter()
        .map(|(iteration, attempt, path)| ((iteration, attempt), path))
        .collect();
    let removed = removed_transcripts(&project.run_dir(&run));
    let gone = |iteration, attempt| match &removed {
        Some(it) if it.attempts.contains(&(iteration, attempt)) => {
            format!("the file was removed by `{}`", it.by)
        }
        _ => "the file does not exist".to_owned(),
    };
    let chosen = attempts_in_full(&timeline);
    let room = (MAX_TRANSCRIPT_BYTES / chosen.len().max(1)).min(MAX_BYTES_EACH);
    let mut before: Option<&str> = None;
    let mut details = BTreeMap::new();
    for (index, attempt) in timeline.attempts.iter().enumerate() {
        let commit = attempt.commit.as_deref();
        if chosen.contains(&index) {
            let file = files.get(&(attempt.iteration, attempt.attempt));
            let transcript = file.map_or_else(
                || Err(gone(attempt.iteration, attempt.attempt)),
                |file| read(file, room).map_err(|e| e.to_string()),
            );
            let stat = commit.map(|commit| match project.commit_stat(commit) {
                _ if before == Some(commit) => CommitChange::Same,
                Some(stat) => CommitChange::Changed(stat),
                None => CommitChange::Unknown,
            });
            details.insert(index, AttemptDetail { transcript, stat });
        }
        before = commit.or(before);
    }
    let is_live = matches!(timeline.state, RunState::Running | RunState::Paused);
    ReportData {
        wording,
        prompts: project.prompts(&timeline.head).unwrap_or_default(),
        remaining_processes: match is_live {
            true => Vec::new(),
            false => project.processes_of(&run),
        },
        details,
        removed,
        zone: TimeZone::system(),
        timeline,
    }
}

fn read(file: &Path, room: usize) -> io::Result<Transcript> {
    let mut transcript = Transcript::with_room(room);
    for record in Records::open(file)? {
        transcript.take(&record?);
    }
    transcript.finish();
    Ok(transcript)
}
