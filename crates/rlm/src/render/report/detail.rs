//! One attempt in full: its prompt, what its agent said and did, its gates and check, its commit.

use std::collections::VecDeque;

use loop_runner::Record;
use loop_runner::timeline::{Attempt, Command};
use loop_state::{CheckResult, Timestamp};

use super::html::Html;
use super::rows::{capital, first_line};
use super::words::{Clock, bytes, count, fate, number, span, used};
use super::{Report, anchor};

/// The most bytes of one piece of a transcript, and of a prompt.
const MAX_PIECE: usize = 8 << 10;
const MAX_PROMPT: usize = 16 << 10;

/// What is shown of an attempt's transcript.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    prompt: Option<Piece>,
    head: Vec<Piece>,
    tail: VecDeque<Piece>,
    /// How many bytes the page gives to it, and how many are taken at its beginning and its end.
    room: usize,
    in_head: usize,
    in_tail: usize,
    left_out: u64,
    bytes_left_out: u64,
    /// Text as it was streamed, until a message says it again.
    streamed: String,
    last_at: Option<Timestamp>,
}

/// A piece of a transcript.
#[derive(Debug)]
struct Piece {
    kind: String,
    text: String,
}

impl Piece {
    fn new(kind: &str, text: &str, most: usize) -> (Self, u64) {
        let (text, left_out) = middle_out(text, most);
        let kind = kind.to_owned();
        (Self { kind, text }, left_out)
    }

    /// How much of the page it takes, about.
    fn weight(&self) -> usize {
        let escaped = |byte: u8| match byte {
            b'&' | b'<' | b'>' | b'"' | b'\'' => 5,
            b'\n' | b'\t' => 1,
            0..b' ' | 0x7f => 3,
            _ => 1,
        };
        self.text.bytes().map(escaped).sum::<usize>() + 60
    }
}

impl Transcript {
    /// Makes one that may take so many bytes of the page.
    pub(crate) fn with_room(room: usize) -> Self {
        Self {
            room,
            ..Self::default()
        }
    }

    /// Returns when its last record was made.
    pub(super) fn last_at(&self) -> Option<Timestamp> {
        self.last_at
    }

    /// Takes the next record. Holds no more than what is shown.
    pub(crate) fn take(&mut self, record: &Record) {
        self.last_at = self.last_at.max(Some(record.at));
        match record.kind.as_str() {
            // The line behind what is shown.
            "raw" => return,
            "text" => {
                if self.streamed.len() < MAX_PIECE {
                    self.streamed.push_str(&record.text);
                }
                return;
            }
            "message" => self.streamed.clear(),
            "prompt" if self.prompt.is_none() => {
                let (prompt, left_out) = Piece::new("prompt", &record.text, MAX_PROMPT);
                self.prompt = Some(prompt);
                self.bytes_left_out += left_out;
                return;
            }
            _ => {}
        }
        self.bytes_left_out += record.omitted;
        self.push(&record.kind, &record.text);
    }

    /// Takes what was streamed and cut off.
    pub(crate) fn finish(&mut self) {
        let streamed = std::mem::take(&mut self.streamed);
        if !streamed.is_empty() {
            self.push("cut off", &streamed);
        }
    }

    fn push(&mut self, kind: &str, text: &str) {
        let (piece, left_out) = Piece::new(kind, text, MAX_PIECE);
        self.bytes_left_out += left_out;
        let weight = piece.weight();
        if self.tail.is_empty() && self.in_head + weight <= self.room / 3 {
            self.in_head += weight;
            self.head.push(piece);
            return;
        }
        self.in_tail += weight;
        self.tail.push_back(piece);
        while self.in_tail > self.room - self.room / 3 && self.tail.len() > 1 {
            if let Some(gone) = self.tail.pop_front() {
                self.in_tail -= gone.weight();
                self.left_out += 1;
                self.bytes_left_out += gone.text.len() as u64;
            }
        }
    }
}

/// Leaves out the middle of a text that is longer than so many bytes; returns how many were left out.
pub(super) fn middle_out(text: &str, most: usize) -> (String, u64) {
    if text.len() <= most {
        return (text.to_owned(), 0);
    }
    let mut head = most / 2;
    let mut tail = text.len() - most / 2;
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    let left_out = (tail - head) as u64;
    let note = format!("\n… {} left out …\n", bytes(left_out));
    (
        format!("{}{note}{}", &text[..head], &text[tail..]),
        left_out,
    )
}

/// What git says of a commit.
#[derive(Debug)]
pub(crate) enum Stat {
    /// The files that it changed, and by how many lines.
    Changed(String),
    /// It is the one that was there before.
    Same,
    /// Git does not have it here, or did not answer.
    Unknown,
}

/// What a page shows of one attempt.
#[derive(Debug)]
pub(crate) struct Detail {
    /// Its transcript, or why there is none.
    pub(crate) transcript: Result<Transcript, String>,
    /// Of its commit, if it has one.
    pub(crate) stat: Option<Stat>,
}

pub(super) fn write(html: &mut Html, report: &Report, clock: &Clock, index: usize) {
    let attempt = &report.timeline.attempts[index];
    let (word, class, why) = fate(attempt);
    let word = if attempt.discarded { "discarded" } else { word };
    let about = [report.took(index), used(attempt.usage)];
    let about: Vec<String> = about.into_iter().filter(|it| !it.is_empty()).collect();
    html.element("details", &[("class", "it")], |html| {
        html.element("summary", &[], |html| {
            html.element("h3", &[("id", &anchor(index))], |html| {
                html.text(&capital(&title(report, attempt)))
            });
            html.element("span", &[("class", "out")], |html| {
                html.text_in("strong", class, word);
                if !why.is_empty() {
                    html.text(" ");
                    html.element("bdi", &[], |html| html.text(&first_line(&why)));
                }
            });
            html.text_in("span", "about", &about.join(" · "));
        });
        html.element("div", &[], |html| {
            html.element("p", &[("class", "note")], |html| {
                html.text("Began ");
                clock.time(html, attempt.began, &clock.full(attempt.began));
                let more = [
                    (attempt.process > 1).then(|| format!("in process {}", attempt.process)),
                    attempt
                        .continues
                        .then(|| "in the session before it".to_owned()),
                    (attempt.usage.tokens() > 0).then(|| {
                        let usage = attempt.usage;
                        format!(
                            "read {} and wrote {} tokens",
                            number(usage.input_tokens),
                            number(usage.output_tokens)
                        )
                    }),
                    attempt
                        .idle
                        .then(|| "no tool ran and nothing changed".to_owned()),
                    (attempt.denied > 0).then(|| {
                        format!(
                            "{} denied",
                            count(attempt.denied as usize, "request", "requests")
                        )
                    }),
                    (attempt.leftovers > 0).then(|| {
                        format!(
                            "{} left running and ended",
                            count(attempt.leftovers as usize, "process", "processes")
                        )
                    }),
                    (attempt.survivors > 0).then(|| {
                        format!(
                            "{} could not be ended",
                            count(attempt.survivors as usize, "process", "processes")
                        )
                    }),
                ];
                for more in more.into_iter().flatten() {
                    html.text(&format!("; {more}"));
                }
                html.text(".");
            });
            if why.contains('\n') || why.len() > 120 {
                html.text_in("h4", "", "What went wrong");
                html.text_in("pre", "", why.trim_end());
            }
            let detail = report.details.get(&index);
            match detail.map(|detail| &detail.transcript) {
                None => {}
                Some(Err(why)) => html.text_in("p", "left", &format!("No transcript: {why}.")),
                Some(Ok(transcript)) => words(html, report, attempt, transcript),
            }
            commands(html, report, attempt);
            commit(
                html,
                attempt,
                detail.and_then(|detail| detail.stat.as_ref()),
            );
        });
    });
}

/// Names an attempt.
pub(super) fn title(report: &Report, attempt: &Attempt) -> String {
    let phases = &report.timeline.head.settings.phases;
    let phase = phases
        .get(attempt.phase as usize)
        .filter(|_| phases.len() > 1);
    let phase = phase.map_or_else(String::new, |phase| format!("{} ", phase.name));
    let first = report
        .timeline
        .attempts
        .iter()
        .find(|it| (it.phase, it.iteration) == (attempt.phase, attempt.iteration));
    let attempts = match first.is_some_and(|first| first.attempt == attempt.attempt) {
        true => String::new(),
        false => format!(", attempt {}", attempt.attempt),
    };
    format!("{phase}iteration {}{attempts}", attempt.iteration)
}

/// The prompt and the transcript.
fn words(html: &mut Html, report: &Report, attempt: &Attempt, transcript: &Transcript) {
    if let Some(prompt) = &transcript.prompt {
        folded(html, "Prompt", |html| {
            html.text_in("pre", "", prompt.text.trim_end())
        });
    }
    let pieces = transcript.head.len() + transcript.tail.len();
    let all = u64::try_from(pieces).unwrap_or(u64::MAX) + transcript.left_out;
    if all == 0 {
        html.text_in("p", "left", "Its transcript is empty.");
        return;
    }
    let entries = count(
        usize::try_from(all).unwrap_or(usize::MAX),
        "entry",
        "entries",
    );
    folded(html, &format!("Transcript, {entries}"), |html| {
        run_of(html, transcript.head.iter());
        if transcript.left_out > 0 {
            let left_out = count(
                usize::try_from(transcript.left_out).unwrap_or(usize::MAX),
                "entry",
                "entries",
            );
            html.text_in("p", "left", &format!("… {left_out} left out here …"));
        }
        run_of(html, transcript.tail.iter());
        if transcript.bytes_left_out > 0 {
            html.element("p", &[("class", "left")], |html| {
                html.text(&format!(
                    "{} of it are left out here; all of it: ",
                    bytes(transcript.bytes_left_out)
                ));
                let (run, iteration) = (&report.timeline.head.run, attempt.iteration);
                html.text_in(
                    "code",
                    "",
                    &format!("rlm logs {run} --iteration {iteration}"),
                );
                html.text(" (");
                html.text_in(
                    "code",
                    "",
                    &format!(
                        ".rlm/runs/{run}/transcripts/{iteration}-{}",
                        attempt.attempt
                    ),
                );
                html.text(")");
            });
        }
    });
}

/// What the agent says is text, what it does is a line, what comes of that stands below; lines of one stream stand together.
fn run_of<'a>(html: &mut Html, pieces: impl Iterator<Item = &'a Piece>) {
    let pieces: Vec<&Piece> = pieces.collect();
    let stands_alone = |piece: &Piece| !matches!(piece.kind.as_str(), "stdout" | "stderr" | "note");
    for same in pieces.chunk_by(|a, b| a.kind == b.kind && !stands_alone(a)) {
        let texts: Vec<&str> = same
            .iter()
            .map(|piece| piece.text.trim_end_matches('\n'))
            .collect();
        let text = texts.join("\n");
        html.line();
        match same[0].kind.as_str() {
            "message" => html.text_in("p", "msg", &text),
            "tool" => html.element("p", &[("class", "tool")], |html| {
                html.text_in("code", "", &text)
            }),
            "result" => html.text_in("pre", "", &text),
            "reduced" => html.text_in("p", "left", &text),
            "end" => html.text_in("p", "said", &format!("The turn ended: {text}")),
            kind => {
                html.text_in("p", "said", label(kind));
                html.text_in("pre", "", &text);
            }
        }
    }
}

/// Says whose words a piece is.
fn label(kind: &str) -> &str {
    match kind {
        "stdout" => "agent, standard output",
        "stderr" => "agent, standard error",
        "steer" => "a person says",
        "ask" => "agent asks",
        "cut off" => "agent, cut off",
        "truncated" => "the transcript was not written further: it is too large",
        other => other,
    }
}

fn folded(html: &mut Html, title: &str, inner: impl FnOnce(&mut Html)) {
    html.element("details", &[("class", "plain")], |html| {
        html.text_in("summary", "", title);
        html.element("div", &[], inner);
    });
}

/// The gates and the check.
pub(super) fn commands(html: &mut Html, report: &Report, attempt: &Attempt) {
    if attempt.commands.is_empty() {
        return;
    }
    html.text_in("h4", "", "Gates and check");
    for command in &attempt.commands {
        let (name, text) = named(report, attempt, command);
        let (word, class, output) = match &command.result {
            CheckResult::Passed => ("passed", "good", None),
            CheckResult::Failed(text) => ("did not pass", "bad", Some(text)),
            CheckResult::NotRun(text) => ("could not be run", "bad", Some(text)),
            _ => ("was stopped", "cut", None),
        };
        html.element("p", &[], |html| {
            html.text(&format!("{name} "));
            html.text_in("code", "", text);
            html.text(" ");
            html.text_in("strong", class, word);
            let again = if command.is_recheck {
                ", after a resume"
            } else {
                ""
            };
            html.text(&format!(
                " in {}{again}",
                span(command.ended.since(command.began))
            ));
        });
        let output = output
            .map(|text| text.trim_end())
            .filter(|text| !text.is_empty());
        if let Some(output) = output {
            html.text_in("pre", "", output);
        }
        if command.left_out > 0 {
            let left_out = bytes(command.left_out as u64);
            html.text_in(
                "p",
                "left",
                &format!("The first {left_out} of that are left out."),
            );
        }
    }
}

/// Names a gate or the check, and its command as the settings have it now.
pub(super) fn named<'a>(
    report: &'a Report,
    attempt: &Attempt,
    command: &Command,
) -> (String, &'a str) {
    let phase = report
        .timeline
        .head
        .settings
        .phases
        .get(attempt.phase as usize);
    match command.command {
        loop_runner::Command::Gate(index) => {
            let gate = phase.and_then(|phase| phase.gates.get(index as usize));
            (
                format!("Gate {}", index + 1),
                gate.map_or("", String::as_str),
            )
        }
        loop_runner::Command::Check => {
            let check = phase.and_then(|phase| phase.until.as_deref());
            ("The check".to_owned(), check.unwrap_or_default())
        }
    }
}

fn commit(html: &mut Html, attempt: &Attempt, stat: Option<&Stat>) {
    let Some(commit) = &attempt.commit else {
        return;
    };
    html.text_in("h4", "", "Commit");
    html.element("p", &[], |html| {
        html.text_in("code", "", commit);
        match stat {
            Some(Stat::Same) => html.text(", which was there before: nothing was to be committed"),
            Some(Stat::Unknown) => html.text("; git does not have it here"),
            _ => {}
        }
    });
    if let Some(Stat::Changed(stat)) = stat {
        html.text_in("pre", "", stat);
    }
}
