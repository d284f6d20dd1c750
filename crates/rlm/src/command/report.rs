//! `rlm report`: gathers what is known of a run and writes the page, never over a file that is something else.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use jiff::tz::TimeZone;
use loop_runner::{
    Project, Records, RunId, RunState, Timeline, removed_transcripts, state_dir, transcripts,
};
use rlm_text::escape::plain;
use uuid::Uuid;

use crate::args::ReportArgs;
use crate::command::{meant, written};
use crate::exit::{Code, Failure};
use crate::output;
use crate::render::report::{Detail, Report, Stat, Transcript, in_full, is_of, json, page};
use crate::render::{json_line, quoted};
use crate::session::refuse_inside;

/// What all transcripts of a page may take together, and one of them.
const ROOM: usize = 1_500_000;
const MOST_ROOM: usize = 96 << 10;
/// As much of a file is looked at to see whether it is a report.
const BEGINNING: u64 = 2048;

pub(crate) fn execute(directory: &Path, args: &ReportArgs) -> Result<ExitCode, Failure> {
    let (project, run) = meant::named_or_newest(directory, args.run.as_deref())?;
    let run = run.id;
    let timeline = project.timeline(&run)?;
    if args.json {
        let line = format!("{}\n", json_line(&json(&timeline)));
        return Ok(written(line.as_bytes()));
    }
    let target = match args.output.as_deref() {
        Some(path) if path == Path::new("-") => None,
        Some(path) => Some(directory.join(path)),
        None => Some(directory.join(format!("rlm-{run}.html"))),
    };
    refuse_inside("report", args.nested || target.is_none())?;
    if let Some(target) = target.as_ref().filter(|_| args.output.is_none()) {
        refuse_planted(target)?;
    }
    if let Some(target) = target.as_ref().filter(|_| !args.force) {
        refuse_other(target, &run)?;
    }
    let is_live = matches!(timeline.state, RunState::Running | RunState::Paused);
    // What lies in the tree of a run that commits is in its next commit, but for what is named as a report.
    let name = target.as_ref().and_then(|it| it.file_name()?.to_str());
    let is_named = name.is_some_and(|it| it.starts_with("rlm-") && it.ends_with(".html"));
    let takes_it_in =
        !is_named && timeline.head.settings.commit && timeline.head.settings.worktree.is_none();
    let page = page(&gather(&project, timeline));
    let Some(target) = target else {
        return Ok(written(page.as_bytes()));
    };
    write(&target, page.as_bytes(), args.output.is_some()).map_err(|e| unwritable(&target, &e))?;
    let shown = target.strip_prefix(".").unwrap_or(&target);
    let live = if is_live {
        ", of a run that goes on"
    } else {
        ""
    };
    let kib = page.len().div_ceil(1024);
    let shown = plain(&quoted(&shown.to_string_lossy()));
    output::line(&format!("{shown} ({kib} KiB{live})"));
    let folder = target.parent().and_then(|it| fs_err::canonicalize(it).ok());
    if is_live && takes_it_in && folder.is_some_and(|it| it.starts_with(project.root())) {
        anstream::eprintln!(
            "it lies in the tree that the run commits: move it, or have git ignore it"
        );
    }
    Ok(Code::Done.into())
}

/// Reads what a page shows beside the timeline.
fn gather(project: &Project, timeline: Timeline) -> Report {
    let run = timeline.head.run.clone();
    let files: BTreeMap<(u32, u32), PathBuf> = transcripts(&project.run_dir(&run))
        .unwrap_or_default()
        .into_iter()
        .map(|(iteration, attempt, path)| ((iteration, attempt), path))
        .collect();
    let removed = removed_transcripts(&project.run_dir(&run));
    let gone = |iteration, attempt| match &removed {
        Some(it) if it.attempts.contains(&(iteration, attempt)) => {
            format!("it was removed by `{}`", it.by)
        }
        _ => "there is none".to_owned(),
    };
    let chosen = in_full(&timeline);
    let room = (ROOM / chosen.len().max(1)).min(MOST_ROOM);
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
                _ if before == Some(commit) => Stat::Same,
                Some(stat) => Stat::Changed(stat),
                None => Stat::Unknown,
            });
            details.insert(index, Detail { transcript, stat });
        }
        before = commit.or(before);
    }
    let is_live = matches!(timeline.state, RunState::Running | RunState::Paused);
    Report {
        prompts: project.prompts(&timeline.head).unwrap_or_default(),
        left: match is_live {
            true => Vec::new(),
            false => project.left_of(&run),
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

/// Refuses what is not a regular file at a place that nobody named: an agent may have put it there.
fn refuse_planted(target: &Path) -> Result<(), Failure> {
    match state_dir::metadata(target) {
        Ok(there) if !there.is_file() => Err(Failure::usage(format!(
            "`{}` is not a regular file: move it away, or name another file by -o",
            target.display()
        ))),
        _ => Ok(()),
    }
}

/// Refuses to take the place of a file that is no report of this run.
fn refuse_other(target: &Path, run: &RunId) -> Result<(), Failure> {
    let file = match state_dir::open_named(target) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(unwritable(target, &e)),
        Err(_) | Ok(None) => return Ok(()),
        Ok(Some(file)) => file,
    };
    let mut beginning = Vec::new();
    let read = file.take(BEGINNING).read_to_end(&mut beginning);
    read.map_err(|e| unwritable(target, &e))?;
    match beginning.is_empty() || is_of(&String::from_utf8_lossy(&beginning), run.as_str()) {
        true => Ok(()),
        false => Err(Failure::usage(format!(
            "`{}` is there and is no report of run `{run}`: name another file by -o, or replace it by --force",
            target.display()
        ))),
    }
}

/// Writes the whole file or none, for its user alone; into a pipe or a device that the user named, it just writes.
fn write(target: &Path, page: &[u8], is_named: bool) -> io::Result<()> {
    if is_named
        && let Ok(meta) = fs_err::metadata(target)
        && !meta.is_file()
        && !meta.is_dir()
    {
        return fs_err::OpenOptions::new()
            .write(true)
            .open(target)?
            .write_all(page);
    }
    let folder = target.parent().unwrap_or(target);
    // A name that a commit leaves out.
    let new = folder.join(format!(".rlm-report-{}.new", Uuid::new_v4().simple()));
    let written = state_dir::create_new(&new)
        .and_then(|mut file| file.write_all(page))
        .and_then(|()| state_dir::rename(&new, target));
    if written.is_err() {
        let _gone = state_dir::remove_file(&new);
    }
    written
}

fn unwritable(target: &Path, error: &io::Error) -> Failure {
    let why = match error.kind() {
        ErrorKind::NotFound => "its directory is not there".to_owned(),
        ErrorKind::IsADirectory => "it is a directory".to_owned(),
        _ => error.to_string(),
    };
    Failure::failed(format!(
        "the report can't be written to `{}`: {why}; -o names another place",
        target.display()
    ))
}
