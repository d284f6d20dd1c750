//! One attempt in full: its prompt, what its agent said and did, its gates and check, its commit.

use std::collections::VecDeque;

use loop_runner::Record;
use loop_runner::timeline::{Attempt, Command};
use loop_state::{CheckResult, Timestamp};
use maud::{Markup, html};

use super::rows::{capital, first_line};
use super::visible::pre;
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
            b'&' | b'<' | b'>' | b'"' => 5,
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

pub(super) fn detail(report: &Report, clock: &Clock, index: usize) -> Markup {
    let attempt = &report.timeline.attempts[index];
    let (word, class, why) = fate(attempt);
    let word = if attempt.discarded { "discarded" } else { word };
    let about = [report.took(index), used(attempt.usage)];
    let about: Vec<String> = about.into_iter().filter(|it| !it.is_empty()).collect();
    let detail = report.details.get(&index);
    html! {
        details class="it" {
            summary {
                h3 id=(anchor(index)) { (capital(&title(report, attempt))) }
                span class="out" {
                    strong class=(class) { (word) }
                    @if !why.is_empty() { " " bdi { (first_line(&why)) } }
                }
                span class="about" { (about.join(" · ")) }
            }
            div {
                p class="note" {
                    "Began " (clock.full_time(attempt.began))
                    @for remark in remarks(attempt) { "; " (remark) }
                    "."
                }
                @if why.contains('\n') || why.len() > 120 {
                    h4 { "What went wrong" }
                    (pre(why.trim_end()))
                }
                @match detail.map(|detail| &detail.transcript) {
                    None => {}
                    Some(Err(why)) => p class="left" { "No transcript: " (why) "." },
                    Some(Ok(it)) => (transcript(report, attempt, it)),
                }
                (commands(report, attempt))
                (commit(attempt, detail.and_then(|detail| detail.stat.as_ref())))
            }
        }
    }
}

/// Returns what is notable about an attempt, each as a clause.
fn remarks(attempt: &Attempt) -> Vec<String> {
    let mut remarks = Vec::new();
    if attempt.process > 1 {
        remarks.push(format!("in process {}", attempt.process));
    }
    if attempt.continues {
        remarks.push("in the session before it".to_owned());
    }
    if attempt.usage.tokens() > 0 {
        remarks.push(format!(
            "read {} and wrote {} tokens",
            number(attempt.usage.input_tokens),
            number(attempt.usage.output_tokens)
        ));
    }
    if attempt.idle {
        remarks.push("no tool ran and nothing changed".to_owned());
    }
    let mut counted = |n: u32, one: &str, many: &str, what: &str| {
        if n > 0 {
            remarks.push(format!("{} {what}", count(n as usize, one, many)));
        }
    };
    counted(attempt.denied, "request", "requests", "denied");
    let left = "left running and ended";
    counted(attempt.leftovers, "process", "processes", left);
    let survived = "could not be ended";
    counted(attempt.survivors, "process", "processes", survived);
    remarks
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

/// Returns the prompt and the transcript.
fn transcript(report: &Report, attempt: &Attempt, transcript: &Transcript) -> Markup {
    let pieces = (transcript.head.len() + transcript.tail.len()) as u64;
    let entries = |n: u64| {
        let n = usize::try_from(n).unwrap_or(usize::MAX);
        count(n, "entry", "entries")
    };
    let all = pieces + transcript.left_out;
    let (run, iteration) = (&report.timeline.head.run, attempt.iteration);
    let inner = html! {
        (stream(transcript.head.iter()))
        @if transcript.left_out > 0 {
            p class="left" { "… " (entries(transcript.left_out)) " left out here …" }
        }
        (stream(transcript.tail.iter()))
        @if transcript.bytes_left_out > 0 {
            p class="left" {
                (bytes(transcript.bytes_left_out)) " of it are left out here; all of it: "
                code { "rlm logs " (run.as_str()) " --iteration " (iteration) }
                " ("
                code { ".rlm/runs/" (run.as_str()) "/transcripts/" (iteration) "-" (attempt.attempt) }
                ")"
            }
        }
    };
    html! {
        @if let Some(prompt) = &transcript.prompt {
            (folded("Prompt", pre(prompt.text.trim_end())))
        }
        @if all == 0 {
            p class="left" { "Its transcript is empty." }
        } @else {
            (folded(&format!("Transcript, {}", entries(all)), inner))
        }
    }
}

/// Returns pieces in order: what the agent says as text, what it does as a line, results below. Lines of one stream stay together.
fn stream<'a>(pieces: impl Iterator<Item = &'a Piece>) -> Markup {
    let pieces: Vec<&Piece> = pieces.collect();
    let is_alone = |piece: &Piece| !matches!(piece.kind.as_str(), "stdout" | "stderr" | "note");
    html! {
        @for same in pieces.chunk_by(|a, b| a.kind == b.kind && !is_alone(a)) {
            "\n" (joined(same))
        }
    }
}

/// Returns pieces of one kind as one element.
fn joined(pieces: &[&Piece]) -> Markup {
    let texts = pieces.iter().map(|it| it.text.trim_end_matches('\n'));
    let text = texts.collect::<Vec<_>>().join("\n");
    html! {
        @match pieces[0].kind.as_str() {
            "message" => p class="msg" { (text) },
            "tool" => p class="tool" { code { (text) } },
            "result" => (pre(&text)),
            "reduced" => p class="left" { (text) },
            "end" => p class="said" { "The turn ended: " (text) },
            kind => { p class="said" { (label(kind)) } (pre(&text)) }
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

fn folded(title: &str, inner: Markup) -> Markup {
    html! { details class="plain" { summary { (title) } div { (inner) } } }
}

/// Returns the gates and the check.
pub(super) fn commands(report: &Report, attempt: &Attempt) -> Markup {
    html! {
        @if !attempt.commands.is_empty() {
            h4 { "Gates and check" }
            @for it in &attempt.commands { (command(report, attempt, it)) }
        }
    }
}

fn command(report: &Report, attempt: &Attempt, command: &Command) -> Markup {
    let (name, text) = named(report, attempt, command);
    let (word, class, output) = match &command.result {
        CheckResult::Passed => ("passed", "good", ""),
        CheckResult::Failed(text) => ("did not pass", "bad", text.trim_end()),
        CheckResult::NotRun(text) => ("could not be run", "bad", text.trim_end()),
        _ => ("was stopped", "cut", ""),
    };
    html! {
        p {
            (name) " " code { (text) } " " strong class=(class) { (word) }
            " in " (span(command.ended.since(command.began)))
            @if command.is_recheck { ", after a resume" }
        }
        @if !output.is_empty() { (pre(output)) }
        @if command.left_out > 0 {
            p class="left" { "The first " (bytes(command.left_out as u64)) " of that are left out." }
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

fn commit(attempt: &Attempt, stat: Option<&Stat>) -> Markup {
    html! {
        @if let Some(commit) = &attempt.commit {
            h4 { "Commit" }
            p {
                code { (commit) }
                @match stat {
                    Some(Stat::Same) => ", which was there before: nothing was to be committed",
                    Some(Stat::Unknown) => "; git does not have it here",
                    _ => {}
                }
            }
            @if let Some(Stat::Changed(stat)) = stat { (pre(stat)) }
        }
    }
}
