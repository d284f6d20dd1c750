//! `rlm logs`

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use loop_runner::{Project, Record, Records, by_age, transcripts};
use loop_state::Timestamp;

use crate::args::LogsArgs;
use crate::command::live::{is_live, of_any_project};
use crate::command::no_run_yet;
use crate::exit::{Code, Failure};
use crate::render;

/// How often a run that is followed is looked at.
const POLL: Duration = Duration::from_millis(200);

pub(crate) fn execute(directory: &Path, args: &LogsArgs) -> Result<ExitCode, Failure> {
    let here = Project::find(directory)?;
    let (project, run) = match &args.run {
        Some(name) => of_any_project(here, name)?,
        None => {
            let newest = here.runs()?.pop().ok_or_else(no_run_yet)?;
            (here, newest)
        }
    };
    let run = run.id;
    let mut out = anstream::stdout().lock();
    let mut seen = BTreeSet::new();
    let mut reading: Option<Reading> = None;
    loop {
        // Asked first: what it wrote before its end is read then.
        let goes_on = args.follow && project.run(&run).is_ok_and(|run| is_live(&run));
        let all = transcripts(&project.run_dir(&run)).map_err(|e| unreadable(&e))?;
        let wanted = |number| args.iteration.is_none_or(|only| only == number);
        let new = all.into_iter().filter(|(number, ..)| wanted(*number));
        let new: Vec<_> = new
            .filter(|(iteration, attempt, _)| !seen.contains(&(*iteration, *attempt)))
            .collect();
        let mut told = reading
            .iter_mut()
            .try_for_each(|it| it.read(&mut out, args));
        for (iteration, attempt, path) in by_age(new) {
            told = told.and_then(|()| finish(reading.take(), &mut out, args));
            seen.insert((iteration, attempt));
            reading = Reading::open(iteration, attempt, &path)?;
            told = told.and_then(|()| {
                let mut next = reading.iter_mut();
                next.try_for_each(|it| it.read(&mut out, args))
            });
        }
        match told {
            // Who asked does not want to know any more.
            Err(Trouble::Unheard) => return Ok(Code::Done.into()),
            Err(Trouble::Unread(e)) => return Err(unreadable(&e)),
            Ok(()) if goes_on => std::thread::park_timeout(POLL),
            Ok(()) => break,
        }
    }
    if let (Some(iteration), true) = (args.iteration, seen.is_empty()) {
        return Err(Failure::not_found(format!(
            "run `{run}` has no transcript of iteration {iteration}; `{} logs {run}` prints all",
            render::rlm()
        )));
    }
    let _unheard = finish(reading, &mut out, args);
    Ok(Code::Done.into())
}

/// Why no more can be printed.
enum Trouble {
    Unread(io::Error),
    Unheard,
}

/// A transcript that is being read, and may still grow.
struct Reading {
    /// What stands above it, until that is printed.
    title: Option<String>,
    records: Records,
    /// Text as it was streamed is shown only where no message said it again: at the cut end of a turn.
    streamed: String,
}

impl Reading {
    /// Opens one; `None` where it was removed since it was listed.
    fn open(iteration: u32, attempt: u32, path: &Path) -> Result<Option<Self>, Failure> {
        let records = match Records::open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|e| unreadable(&e))?,
        };
        Ok(Some(Self {
            title: Some(format!("── iteration {iteration}, attempt {attempt} ──")),
            records,
            streamed: String::new(),
        }))
    }

    /// Prints what is there by now.
    fn read(&mut self, out: &mut impl Write, args: &LogsArgs) -> Result<(), Trouble> {
        while let Some(record) = self.records.next() {
            self.record(&record.map_err(Trouble::Unread)?, out, args)?;
        }
        Ok(())
    }

    fn record(
        &mut self,
        record: &Record,
        out: &mut impl Write,
        args: &LogsArgs,
    ) -> Result<(), Trouble> {
        if args.since.is_some_and(|Since(since)| record.at < since) {
            return Ok(());
        }
        if args.json {
            return say(out, &render::json_line(record));
        }
        match record.kind.as_str() {
            "text" => {
                self.streamed.push_str(&record.text);
                return Ok(());
            }
            "message" => self.streamed.clear(),
            _ => {}
        }
        let text = render::record(record);
        self.title(out, args)?;
        match text.is_empty() {
            true => Ok(()),
            false => say(out, &text),
        }
    }

    fn title(&mut self, out: &mut impl Write, args: &LogsArgs) -> Result<(), Trouble> {
        match self.title.take() {
            Some(title) if !args.json => say(out, &title),
            _ => Ok(()),
        }
    }
}

/// Prints what stands at the end of a transcript that grows no more.
fn finish(read: Option<Reading>, out: &mut impl Write, args: &LogsArgs) -> Result<(), Trouble> {
    let Some(mut read) = read else {
        return Ok(());
    };
    if args.since.is_none() || !read.streamed.is_empty() {
        read.title(out, args)?;
    }
    match read.streamed.is_empty() {
        true => Ok(()),
        false => say(out, &render::streamed(&read.streamed)),
    }
}

fn say(out: &mut impl Write, text: &str) -> Result<(), Trouble> {
    writeln!(out, "{text}").map_err(|_| Trouble::Unheard)
}

fn unreadable(error: &io::Error) -> Failure {
    Failure {
        code: Code::Failed,
        message: format!("a transcript can't be read: {error}"),
    }
}

/// From when on records are shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since(Timestamp);

impl std::str::FromStr for Since {
    type Err = String;

    /// Reads a point in time, or how long ago it was.
    fn from_str(text: &str) -> Result<Self, String> {
        let now = jiff::Timestamp::now();
        let at = match crate::duration::parse(text) {
            Ok(ago) => now - ago,
            Err(_) => text.parse().map_err(|_| {
                let shown = text.escape_debug();
                format!("`{shown}` is no time: write for example 10m, or 2026-01-31T09:30:00Z")
            })?,
        };
        let millis = u64::try_from(at.as_millisecond()).unwrap_or_default();
        Ok(Self(Timestamp(millis)))
    }
}
