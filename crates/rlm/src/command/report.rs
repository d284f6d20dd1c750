//! `rlm report`: gathers the data of a run and writes the page. Without `--force` it overwrites no file that is not a report of the run.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use rlm_report::{CommandLineTerms, collect, json, page};
use rlm_store::git::own_files::{BEGINNING, begins_report};
use rlm_store::{Project, RunId, Timeline, state_dir};
use rlm_text::escape::plain;
use uuid::Uuid;

use crate::agents;
use crate::args::ReportArgs;
use crate::command::fleet::FleetRun;
use crate::command::{pick, select, written};
use crate::exit::{Code, Failure};
use crate::hint::quoted;
use crate::hint::resume_hint;
use crate::output;
use crate::render::{json_line, permission_text};
use crate::session::refuse_inside;

pub(crate) fn execute(directory: &Path, args: &ReportArgs) -> Result<ExitCode, Failure> {
    if let Some(target) = FleetRun::named(directory, args.run.as_deref())? {
        return target
            .with_timeline(|project, timeline| report(directory, project, timeline, args));
    }
    let run = pick::named(directory, !args.json, args.run.as_deref())?;
    let (project, run) = select::named_or_newest(directory, run.as_deref())?;
    let timeline = project.timeline(&run.id)?;
    report(directory, &project, timeline, args)
}

/// Prints the report of a run, or writes the page.
fn report(
    directory: &Path,
    project: &Project,
    timeline: Timeline,
    args: &ReportArgs,
) -> Result<ExitCode, Failure> {
    let run = timeline.head.run.clone();
    if args.json {
        let line = format!("{}\n", json_line(&json(&timeline, exit_code(&timeline))));
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
    let is_live = timeline.state.is_live();
    // The next commit of a run with --commit includes new files in its working tree, except those that are named like a report.
    let name = target.as_ref().and_then(|it| it.file_name()?.to_str());
    let is_named = name.is_some_and(|it| it.starts_with("rlm-") && it.ends_with(".html"));
    let takes_it_in =
        !is_named && timeline.head.settings.commit && timeline.head.settings.worktree.is_none();
    let wording = terms(&timeline);
    let page = page(&collect(project, timeline, wording));
    let Some(target) = target else {
        return Ok(written(page.as_bytes()));
    };
    write(&target, page.as_bytes(), args.output.is_some()).map_err(|e| unwritable(&target, &e))?;
    let shown = target.strip_prefix(".").unwrap_or(&target);
    let live = if is_live { ", of a live run" } else { "" };
    let size = rlm_text::bytes::show(page.len() as u64);
    let shown = plain(&quoted(&shown.to_string_lossy()));
    output::line(&format!("{shown} ({size}{live})"));
    let folder = target.parent().and_then(|it| fs_err::canonicalize(it).ok());
    if is_live && takes_it_in && folder.is_some_and(|it| it.starts_with(project.root())) {
        anstream::eprintln!(
            "the file is in the working tree that the run commits: move it, or add it to .gitignore"
        );
    }
    Ok(Code::Done.into())
}

/// Returns the texts of the page that belong to the command line.
pub(crate) fn terms(timeline: &Timeline) -> CommandLineTerms {
    let head = &timeline.head;
    let phases = &head.settings.phases;
    let end = head.machine.end.as_ref().map(|end| &end.reason);
    CommandLineTerms {
        version: env!("CARGO_PKG_VERSION"),
        agents: phases.iter().map(|it| agents::name(&it.agent)).collect(),
        permissions: phases.iter().map(permission_text).collect(),
        resume: end.and_then(|end| resume_hint(&head.run, end)),
        exit_code: exit_code(timeline),
    }
}

fn exit_code(timeline: &Timeline) -> Option<u8> {
    let end = timeline.head.machine.end.as_ref()?;
    Some(Code::of(&end.reason) as u8)
}

/// Refuses a default target that is not a regular file: an agent may have put it there.
fn refuse_planted(target: &Path) -> Result<(), Failure> {
    match state_dir::metadata(target) {
        Ok(there) if !there.is_file() => Err(Failure::usage(format!(
            "`{}` is not a regular file: move it away, or choose another file with -o",
            target.display()
        ))),
        _ => Ok(()),
    }
}

/// Refuses to replace a file that is not a report of this run.
fn refuse_other(target: &Path, run: &RunId) -> Result<(), Failure> {
    let file = match state_dir::open_named(target) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(unwritable(target, &e)),
        Err(_) | Ok(None) => return Ok(()),
        Ok(Some(file)) => file,
    };
    let mut beginning = Vec::new();
    let read = file.take(BEGINNING).read_to_end(&mut beginning);
    read.map_err(|e| unwritable(target, &e))?;
    match beginning.is_empty() || begins_report(&beginning, Some(run)) {
        true => Ok(()),
        false => Err(Failure::usage(format!(
            "`{}` exists and is not a report of run `{run}`: choose another file with -o, or replace it with --force",
            target.display()
        ))),
    }
}

/// Writes the whole file or nothing, readable only for the user. A pipe or device that the user named is written directly.
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
    // Commits of `rlm` leave out files with this name.
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
        ErrorKind::NotFound => "its directory doesn't exist".to_owned(),
        ErrorKind::IsADirectory => "it is a directory".to_owned(),
        _ => error.to_string(),
    };
    Failure::failed(format!(
        "the report can't be written to `{}`: {why}; choose another file with -o",
        target.display()
    ))
}
