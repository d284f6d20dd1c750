//! `rlm logs`: prints the transcripts of a run one after the other, also while they grow.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use loop_state::Timestamp;
use rlm_store::{Record, Records, removed_transcripts, sorted_by_age, transcripts};
use rlm_terminal::style::{BOLD, DIM, styled};
use serde::Serialize;

use crate::args::{LogsArgs, Since};
use crate::command::{pick, select};
use crate::exit::{Code, Failure};
use crate::hint;
use crate::output;
use crate::render::{self};

/// How often a followed run is checked for new records.
const POLL: Duration = Duration::from_millis(200);

pub(crate) fn execute(directory: &Path, args: &LogsArgs) -> Result<ExitCode, Failure> {
    let run = pick::named(directory, !args.json, args.run.as_deref())?;
    let (project, run) = select::named_or_newest(directory, run.as_deref())?;
    let run = run.id;
    // While the state of a live run is removed and rebuilt, only the process shows that the run is live.
    let holder = project.holder(&run);
    let works = || match project.run(&run) {
        Ok(run) => run.is_live(),
        Err(_) => holder.as_ref().is_some_and(|it| it.process.is_alive()),
    };
    let wanted = |number| args.iteration.is_none_or(|only| only == number);
    let mut out = output::text();
    let mut seen = BTreeSet::new();
    let mut reading: Option<TranscriptReader> = None;
    let mut damaged = false;
    loop {
        // Check this first, so that the code below reads all records from before the end.
        let continues = args.follow && works();
        let all = transcripts(&project.run_dir(&run)).map_err(|e| unreadable(&e))?;
        let new = all.into_iter().filter(|(number, ..)| wanted(*number));
        let new: Vec<_> = new
            .filter(|(iteration, attempt, _)| !seen.contains(&(*iteration, *attempt)))
            .collect();
        let mut printed = reading
            .iter_mut()
            .try_for_each(|it| it.read(&mut out, args));
        for (iteration, attempt, path) in sorted_by_age(new) {
            damaged |= reading.as_ref().is_some_and(|it| it.is_damaged);
            printed = printed.and_then(|()| finish(reading.take(), &mut out, args));
            seen.insert((iteration, attempt));
            reading = TranscriptReader::open(iteration, attempt, &path)?;
            printed = printed.and_then(|()| {
                let mut next = reading.iter_mut();
                next.try_for_each(|it| it.read(&mut out, args))
            });
        }
        match printed {
            // The reader closed the output.
            Err(ReaderGone) => return Ok(Code::Done.into()),
            Ok(()) if continues => std::thread::park_timeout(POLL),
            Ok(()) => break,
        }
    }
    let removed = removed_transcripts(&project.run_dir(&run));
    if let Some(removed) = removed.filter(|it| it.attempts.iter().any(|(it, _)| wanted(*it))) {
        let (rlm, notice) = (hint::program_command(), rlm_report::removed(&removed));
        if seen.is_empty() {
            return Err(Failure::not_found(format!(
                "{notice}; to see the data in the journal of run `{run}`: {rlm} report {run}"
            )));
        }
        anstream::eprintln!("{notice}");
    }
    if let (Some(iteration), true) = (args.iteration, seen.is_empty()) {
        return Err(Failure::not_found(format!(
            "run `{run}` has no transcript of iteration {iteration}; `{} logs {run}` prints all",
            hint::program_command()
        )));
    }
    damaged |= reading.as_ref().is_some_and(|it| it.is_damaged);
    let _gone = finish(reading, &mut out, args);
    Ok(Code::of_state(damaged).into())
}

/// The reader closed the output.
struct ReaderGone;

/// A transcript that is being read and may still grow.
struct TranscriptReader {
    iteration: u32,
    attempt: u32,
    /// Whether its heading is not printed yet.
    is_new: bool,
    records: Records,
    is_damaged: bool,
    /// Streamed text. It is printed only if no message repeats it, as at the end of an interrupted turn.
    streamed: String,
    streamed_at: Timestamp,
}

impl TranscriptReader {
    /// Opens a transcript; `None` if it was removed since it was listed.
    fn open(iteration: u32, attempt: u32, path: &Path) -> Result<Option<Self>, Failure> {
        let records = match Records::open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|e| unreadable(&e))?,
        };
        Ok(Some(Self {
            iteration,
            attempt,
            is_new: true,
            records,
            is_damaged: false,
            streamed: String::new(),
            streamed_at: Timestamp::default(),
        }))
    }

    /// Prints the records that exist by now.
    fn read(&mut self, out: &mut impl Write, args: &LogsArgs) -> Result<(), ReaderGone> {
        while let Some(record) = self.records.next() {
            match record {
                Ok(record) => self.record(&record, out, args)?,
                Err(e) => {
                    let (iteration, attempt) = (self.iteration, self.attempt);
                    let mut why = unreadable(&e);
                    why.message +=
                        &format!("; it belongs to iteration {iteration}, attempt {attempt}");
                    self.is_damaged = true;
                    anstream::eprintln!("{}", render::failure(&why));
                }
            }
        }
        Ok(())
    }

    fn record(
        &mut self,
        record: &Record,
        out: &mut impl Write,
        args: &LogsArgs,
    ) -> Result<(), ReaderGone> {
        if args.since.is_some_and(|Since(since)| record.at < since) {
            return Ok(());
        }
        if args.json {
            let (iteration, attempt) = (self.iteration, self.attempt);
            let line = Line {
                iteration,
                attempt,
                record,
            };
            return print_text(out, &render::json_line(&line));
        }
        match record.kind.as_str() {
            "text" => {
                self.streamed.push_str(&record.text);
                self.streamed_at = record.at;
                return Ok(());
            }
            "message" => self.streamed.clear(),
            _ => {}
        }
        self.title(out, args)?;
        self.print_text(out, args, record.at, &render::record(record))
    }

    fn title(&mut self, out: &mut impl Write, args: &LogsArgs) -> Result<(), ReaderGone> {
        let is_new = std::mem::replace(&mut self.is_new, false);
        if !is_new || args.json || args.prefix {
            return Ok(());
        }
        let (iteration, attempt) = (self.iteration, self.attempt);
        let title = format!("── iteration {iteration}, attempt {attempt} ──");
        print_text(out, &styled(BOLD, title))
    }

    /// Prints text; with `--prefix` each line begins with its time, iteration and attempt.
    fn print_text(
        &self,
        out: &mut impl Write,
        args: &LogsArgs,
        at: Timestamp,
        text: &str,
    ) -> Result<(), ReaderGone> {
        if text.is_empty() {
            return Ok(());
        }
        if !args.prefix {
            return print_text(out, text);
        }
        let prefix = format!(
            "{} {}.{}",
            rlm_text::time::utc(at),
            self.iteration,
            self.attempt
        );
        let prefix = styled(DIM, prefix);
        text.lines()
            .try_for_each(|line| print_text(out, &format!("{prefix} {line}")))
    }
}

/// A record in the JSON output.
#[derive(Serialize)]
struct Line<'a> {
    iteration: u32,
    attempt: u32,
    #[serde(flatten)]
    record: &'a Record,
}

/// Prints the rest of a transcript that no longer grows.
fn finish(
    read: Option<TranscriptReader>,
    out: &mut impl Write,
    args: &LogsArgs,
) -> Result<(), ReaderGone> {
    let Some(mut read) = read else {
        return Ok(());
    };
    if args.since.is_none() || !read.streamed.is_empty() {
        read.title(out, args)?;
    }
    match read.streamed.is_empty() {
        true => Ok(()),
        false => {
            let text = render::streamed(&read.streamed);
            read.print_text(out, args, read.streamed_at, &text)
        }
    }
}

fn print_text(out: &mut impl Write, text: &str) -> Result<(), ReaderGone> {
    writeln!(out, "{text}").map_err(|_| ReaderGone)
}

fn unreadable(error: &io::Error) -> Failure {
    Failure::failed(format!("a transcript can't be read: {error}"))
}
