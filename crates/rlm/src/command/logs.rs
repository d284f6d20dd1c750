//! `rlm logs`: prints the transcripts of a run one after the other, also while they grow.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use loop_state::Timestamp;
use rlm_store::{
    Record, Records, TranscriptWindow, removed_transcripts, sorted_by_age, transcripts,
};
use rlm_terminal::style::{BOLD, DIM, styled};
use serde::Serialize;

use crate::args::{LogsArgs, Since};
use crate::command::fleet::FleetRun;
use crate::command::{pick, select};
use crate::exit::{Code, Failure};
use crate::hint;
use crate::output;
use crate::render::{self};

/// The number of bytes to read at once to find the last lines: at first, and at most.
const LAST_BYTES: usize = 64 << 10;
const MOST_BYTES: usize = 4 << 20;
/// How often a followed run is checked for new records.
const POLL: Duration = Duration::from_millis(200);

pub(crate) fn execute(directory: &Path, args: &LogsArgs) -> Result<ExitCode, Failure> {
    if let Some(target) = FleetRun::named(directory, args.run.as_deref())? {
        return target.logs(args);
    }
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
    let mut out = LastLines::new(output::text(), args.tail);
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
        let new = sorted_by_age(new);
        let (first, mut position) = match out.most {
            Some(lines) => last_lines(&new, lines, args),
            None => (0, 0),
        };
        for (index, (iteration, attempt, path)) in new.into_iter().enumerate() {
            seen.insert((iteration, attempt));
            if index < first {
                continue;
            }
            damaged |= reading.as_ref().is_some_and(|it| it.is_damaged);
            printed = printed.and_then(|()| finish(reading.take(), &mut out, args));
            reading = match TranscriptReader::open(iteration, attempt, &path, position) {
                Ok(opened) => opened,
                Err(error) => {
                    let _gone = out.release();
                    return Err(error);
                }
            };
            position = 0;
            printed = printed.and_then(|()| {
                let mut next = reading.iter_mut();
                next.try_for_each(|it| it.read(&mut out, args))
            });
        }
        if continues {
            printed = printed.and_then(|()| out.release());
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
    let _gone = finish(reading, &mut out, args).and_then(|()| out.release());
    Ok(Code::of_state(damaged).into())
}

/// The reader closed the output.
#[derive(Debug)]
pub(super) struct ReaderGone;

/// Finds where to begin so that at least so many lines follow, if there are so many. Returns the index of a transcript, and a position in it.
///
/// It reads backwards from the end, so it parses only the end of a long transcript.
fn last_lines(all: &[(u32, u32, PathBuf)], lines: usize, args: &LogsArgs) -> (usize, u64) {
    let mut left = lines;
    for (index, (.., path)) in all.iter().enumerate().rev() {
        let (mut end, mut room) = (None, LAST_BYTES);
        loop {
            let window = match TranscriptWindow::before(path, end, room) {
                Ok(window) => window,
                // It was removed since it was listed.
                Err(e) if e.kind() == io::ErrorKind::NotFound => break,
                // The one that reads it reports the damage.
                Err(_) => return (index, 0),
            };
            for (position, record) in window.records.iter().rev() {
                if args.since.is_some_and(|Since(since)| record.at < since) {
                    return (index, *position);
                }
                left = left.saturating_sub(lines_of(record, args));
                if left == 0 && (args.json || ends_streamed_text(record)) {
                    return (index, *position);
                }
            }
            if window.from == 0 {
                break;
            }
            end = Some(window.from);
            room = (room * 4).min(MOST_BYTES);
        }
    }
    (0, 0)
}

/// Returns whether no streamed text from before this record is printed after it.
fn ends_streamed_text(record: &Record) -> bool {
    matches!(
        record.kind.as_str(),
        "message" | "end" | "prompt" | "stdout" | "stderr"
    )
}

/// Returns the number of lines that are certainly printed for a record.
fn lines_of(record: &Record, args: &LogsArgs) -> usize {
    match record.kind.as_str() {
        _ if args.json => 1,
        // It is printed only if no message follows.
        "text" => 0,
        _ => render::record(record).lines().count(),
    }
}

/// An output that keeps only the last lines until it is released.
struct LastLines<W> {
    to: W,
    /// The number of lines to keep; `None` if each line is printed at once.
    most: Option<usize>,
    lines: VecDeque<Vec<u8>>,
    /// The line that is not complete yet.
    line: Vec<u8>,
}

impl<W: Write> LastLines<W> {
    fn new(to: W, most: Option<usize>) -> Self {
        Self {
            to,
            most,
            lines: VecDeque::new(),
            line: Vec::new(),
        }
    }

    /// Prints the lines; later lines are printed at once.
    fn release(&mut self) -> Result<(), ReaderGone> {
        self.most = None;
        let mut lines = self.lines.drain(..);
        lines.try_for_each(|line| self.to.write_all(&line).map_err(|_| ReaderGone))
    }
}

impl<W: Write> Write for LastLines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(most) = self.most else {
            return self.to.write(bytes);
        };
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.lines.push_back(std::mem::take(&mut self.line));
            }
            if self.lines.len() > most {
                self.lines.pop_front();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// A transcript that is being read and may still grow.
struct TranscriptReader {
    iteration: u32,
    attempt: u32,
    /// Whether its heading is not printed yet.
    is_new: bool,
    records: Records,
    is_damaged: bool,
    /// Streamed text. It is printed only if no message repeats it before the turn ends, as in an interrupted turn.
    streamed: String,
    streamed_at: Timestamp,
}

impl TranscriptReader {
    /// Opens a transcript; `None` if it was removed since it was listed.
    fn open(
        iteration: u32,
        attempt: u32,
        path: &Path,
        position: u64,
    ) -> Result<Option<Self>, Failure> {
        let records = match Records::open_at(path, position) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|e| unreadable(&e))?,
        };
        Ok(Some(Self::new(iteration, attempt, records)))
    }

    fn new(iteration: u32, attempt: u32, records: Records) -> Self {
        Self {
            iteration,
            attempt,
            is_new: true,
            records,
            is_damaged: false,
            streamed: String::new(),
            streamed_at: Timestamp::default(),
        }
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
            "end" => self.print_streamed(out, args)?,
            _ => {}
        }
        self.title(out, args)?;
        self.print_text(out, args, record.at, &render::record(record))
    }

    /// Prints streamed text that no message repeated.
    fn print_streamed(&mut self, out: &mut impl Write, args: &LogsArgs) -> Result<(), ReaderGone> {
        if self.streamed.is_empty() {
            return Ok(());
        }
        self.title(out, args)?;
        let text = render::streamed(&std::mem::take(&mut self.streamed));
        self.print_text(out, args, self.streamed_at, &text)
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

/// Prints transcripts that arrive in parts, as those of a run of the fleet. It has only unprinted bytes in memory.
#[cfg(feature = "fleet")]
pub(super) struct ArrivingLogs<'a> {
    args: &'a LogsArgs,
    out: LastLines<Box<dyn Write>>,
    arrived: rlm_store::ArrivedParts,
    /// The transcripts that may get more, the newest last. The end of one can arrive after the beginning of the next.
    reading: VecDeque<(ArrivingBytes, TranscriptReader)>,
    /// Whether anything that was asked for has arrived.
    has_any: bool,
}

/// The number of transcripts whose end can still arrive. A worker that loses the run stores the end of its transcript after the next one has begun.
#[cfg(feature = "fleet")]
const MOST_READING: usize = 3;

#[cfg(feature = "fleet")]
impl<'a> ArrivingLogs<'a> {
    pub(super) fn new(args: &'a LogsArgs) -> Self {
        Self {
            args,
            out: LastLines::new(Box::new(output::text()), args.tail),
            arrived: rlm_store::ArrivedParts::default(),
            reading: VecDeque::new(),
            has_any: false,
        }
    }

    /// Prints what is new in a part.
    pub(super) fn add(
        &mut self,
        epoch: u64,
        part: &rlm_store::TranscriptPart,
    ) -> Result<(), ReaderGone> {
        let (iteration, attempt) = (part.iteration, part.attempt);
        if { self.args.iteration }.is_some_and(|only| only != iteration) {
            return Ok(());
        }
        let Some(new) = self.arrived.add(epoch, part) else {
            return Ok(());
        };
        self.has_any = true;
        let is_it = |it: &TranscriptReader| (it.iteration, it.attempt) == (iteration, attempt);
        if new.begins {
            self.reading.retain(|(_, reader)| !is_it(reader));
        }
        let found = self.reading.iter().position(|(_, reader)| is_it(reader));
        let found = found.and_then(|index| self.reading.remove(index));
        if let Some((_, before)) = self.reading.back_mut() {
            before.print_streamed(&mut self.out, self.args)?;
            // If more of it arrives, it gets its heading again.
            before.is_new = true;
        }
        let (bytes, mut reader) = found.unwrap_or_else(|| {
            let bytes = ArrivingBytes::default();
            let records = Records::arriving(io::BufReader::new(bytes.clone()));
            (bytes, TranscriptReader::new(iteration, attempt, records))
        });
        bytes.add(new.bytes);
        let printed = reader.read(&mut self.out, self.args);
        self.reading.push_back((bytes, reader));
        if self.reading.len() > MOST_READING {
            self.reading.pop_front();
        }
        printed
    }

    /// Prints the lines that `--tail` has kept. Later lines are printed at once.
    pub(super) fn release(&mut self) -> Result<(), ReaderGone> {
        self.out.release()
    }

    /// Prints the rest, and returns whether anything that was asked for has arrived.
    pub(super) fn end(mut self) -> bool {
        let last = self.reading.pop_back().map(|(_, reader)| reader);
        let ended = finish(last, &mut self.out, self.args);
        let _gone = ended.and_then(|()| self.out.release());
        let omitted = self.arrived.omitted();
        if omitted > 0 {
            anstream::eprintln!(
                "{omitted} bytes of transcripts are missing: the server keeps only the last parts"
            );
        }
        self.has_any
    }
}

/// The bytes of a transcript that have arrived and are not read.
#[cfg(feature = "fleet")]
#[derive(Clone, Debug, Default)]
struct ArrivingBytes(std::sync::Arc<std::sync::Mutex<VecDeque<u8>>>);

#[cfg(feature = "fleet")]
impl ArrivingBytes {
    fn add(&self, bytes: &[u8]) {
        let unread = self.0.lock();
        unread
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .extend(bytes);
    }
}

#[cfg(feature = "fleet")]
impl io::Read for ArrivingBytes {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let unread = self.0.lock();
        unread
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .read(to)
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
    if args.since.is_none() {
        read.title(out, args)?;
    }
    read.print_streamed(out, args)
}

fn print_text(out: &mut impl Write, text: &str) -> Result<(), ReaderGone> {
    writeln!(out, "{text}").map_err(|_| ReaderGone)
}

fn unreadable(error: &io::Error) -> Failure {
    Failure::failed(format!("a transcript can't be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser as _;
    use proptest::prelude::*;

    fn args(words: &[&str]) -> LogsArgs {
        let words = ["rlm", "logs"].iter().chain(words);
        match Args::parse_from(words).command {
            Command::Logs(args) => args,
            other => panic!("{other:?}"),
        }
    }

    /// Prints transcripts from a position, as `rlm logs` does without `--follow`.
    fn printed(all: &[(u32, u32, PathBuf)], args: &LogsArgs) -> String {
        let mut out = LastLines::new(Vec::new(), args.tail);
        let (first, mut position) = match args.tail {
            Some(lines) => last_lines(all, lines, args),
            None => (0, 0),
        };
        for (iteration, attempt, path) in &all[first..] {
            let mut reading = TranscriptReader::open(*iteration, *attempt, path, position).unwrap();
            position = 0;
            reading.as_mut().unwrap().read(&mut out, args).unwrap();
            finish(reading, &mut out, args).unwrap();
        }
        out.release().unwrap();
        String::from_utf8(out.to).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn last_lines_are_those_of_the_whole_output(
            transcripts in proptest::collection::vec(
                proptest::collection::vec((0usize..5, 0usize..4), 0..30),
                1..4,
            ),
            lines in 0usize..60,
            option in 0usize..3,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let mut all = Vec::new();
            for (number, records) in transcripts.iter().enumerate() {
                let path = dir.path().join(format!("{number}-1.ndjson"));
                // A message or the end of the turn follows streamed text, except at the end of a growing transcript.
                let kinds = [
                    &["stdout"][..],
                    &["message"],
                    &["text", "raw", "message"],
                    &["raw"],
                    &["text", "note", "text", "steer", "end"],
                ];
                let last = [(&["text"][..], 1)];
                let records = records.iter().map(|(kind, lines)| (kinds[*kind], *lines)).chain(last);
                let records = records.flat_map(|(kinds, lines)| {
                    let text = "a line\n".repeat(lines);
                    kinds.iter().map(move |kind| {
                        format!("{{\"at\":1,\"kind\":\"{kind}\",\"text\":{text:?}}}\n")
                    })
                });
                fs_err::write(&path, records.collect::<String>()).unwrap();
                all.push((number as u32 + 1, 1, path));
            }
            let options = [&[][..], &["--prefix"], &["--json"]][option];
            let whole = printed(&all, &args(options));
            let count = lines.to_string();
            let last = printed(&all, &args(&[options, &["--tail", &count]].concat()));
            let all: Vec<&str> = whole.split_inclusive('\n').collect();
            let expected = all[all.len().saturating_sub(lines)..].concat();
            prop_assert_eq!(last, expected);
        }
    }
}
