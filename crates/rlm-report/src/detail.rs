//! One attempt in full: its prompt, its transcript, its checks and its commit.

use loop_state::CheckResult;
use maud::{Markup, html};
use rlm_store::timeline::{AttemptSpan, CommandRun};
use rlm_text::bytes::show as size;

use crate::report::ReportData;
use crate::transcript::{CommitChange, Piece, Transcript};
use crate::visible::pre;
use crate::words::{
    Clock, attempt_title, capital, count, first_line, format_duration, number, outcome, usage_text,
};

/// Returns the anchor of an attempt that the page shows in full.
pub(crate) fn anchor(index: usize) -> String {
    format!("a{}", index + 1)
}

pub(crate) fn detail(report: &ReportData, clock: &Clock, index: usize) -> Markup {
    let attempt = &report.timeline.attempts[index];
    let (word, class, why) = outcome(attempt);
    let word = if attempt.discarded { "discarded" } else { word };
    let about = [report.duration(index), usage_text(attempt.usage)];
    let about: Vec<String> = about.into_iter().filter(|it| !it.is_empty()).collect();
    let detail = report.details.get(&index);
    html! {
        details class="it" {
            summary {
                h3 id=(anchor(index)) { (capital(&attempt_title(&report.timeline, attempt))) }
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
                    h4 { "Failure" }
                    (pre(why.trim_end()))
                }
                @match detail.map(|detail| &detail.transcript) {
                    None => {}
                    Some(Err(why)) => p class="left" { "No transcript: " (why) "." },
                    Some(Ok(it)) => (transcript(report, attempt, it)),
                }
                @let changes = detail.and_then(|detail| detail.transcript.as_ref().ok()?.changes.as_deref());
                @if let Some(changes) = changes { (changed_files(changes)) }
                (commands(report, attempt))
                // The list of changed files says the same as the commit.
                @let stat = detail.and_then(|detail| detail.stat.as_ref());
                @let stat = stat.filter(|stat| changes.is_none() || !matches!(stat, CommitChange::Changed(_)));
                (commit(attempt, stat))
            }
        }
    }
}

/// Returns the notable facts about an attempt, each as a clause.
fn remarks(attempt: &AttemptSpan) -> Vec<String> {
    let mut remarks = Vec::new();
    if attempt.process > 1 {
        remarks.push(format!("in process {}", attempt.process));
    }
    if attempt.continues {
        remarks.push("in the previous session".to_owned());
    }
    if attempt.usage.tokens() > 0 {
        remarks.push(format!(
            "{} input and {} output tokens",
            number(attempt.usage.input_tokens),
            number(attempt.usage.output_tokens)
        ));
    }
    if attempt.no_progress {
        remarks.push("no tool ran and nothing changed".to_owned());
    }
    let mut counted = |n: u32, one: &str, many: &str, what: &str| {
        if n > 0 {
            remarks.push(format!("{} {what}", count(n as usize, one, many)));
        }
    };
    counted(
        attempt.denied,
        "permission request",
        "permission requests",
        "denied",
    );
    let left = "left running by the agent, ended by rlm";
    counted(attempt.leftovers, "process", "processes", left);
    let survived = "could not be ended";
    counted(attempt.survivors, "process", "processes", survived);
    remarks
}

/// Returns the prompt and the transcript.
fn transcript(report: &ReportData, attempt: &AttemptSpan, transcript: &Transcript) -> Markup {
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
                (size(transcript.bytes_left_out)) " are left out here; to see everything: "
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
            p class="left" { "The transcript is empty." }
        } @else {
            (folded(&format!("Transcript, {}", entries(all)), inner))
        }
    }
}

/// Renders pieces in order: messages as text, tool calls as a line, results below them. Lines of one stream stay together.
fn stream<'a>(pieces: impl Iterator<Item = &'a Piece>) -> Markup {
    let pieces: Vec<&Piece> = pieces.collect();
    let is_alone = |piece: &Piece| !matches!(piece.kind.as_str(), "stdout" | "stderr" | "note");
    html! {
        @for same in pieces.chunk_by(|a, b| a.kind == b.kind && !is_alone(a)) {
            "\n" (joined(same))
        }
    }
}

/// Renders pieces of one kind as one element.
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
            kind => { p class="said" { (speaker(kind)) } (pre(&text)) }
        }
    }
}

/// Returns the heading of a piece.
fn speaker(kind: &str) -> &str {
    match kind {
        "stdout" => "agent, standard output",
        "stderr" => "agent, standard error",
        "steer" => "steer",
        "ask" => "permission request",
        "cut off" => "agent, unfinished message",
        "truncated" => "the transcript reached its size limit and ends here",
        other => other,
    }
}

fn folded(title: &str, inner: Markup) -> Markup {
    html! { details class="plain" { summary { (title) } div { (inner) } } }
}

/// Renders the list of changed files, and the patch below it.
fn changed_files(changes: &str) -> Markup {
    let (files, patch) = changes.split_once("\n\n").unwrap_or((changes, ""));
    html! {
        h4 { "Changed files" }
        @if files.trim().is_empty() { p class="left" { "None." } } @else { (pre(files.trim_end())) }
        @if patch.starts_with("diff ") {
            (folded("Patch", diff(patch)))
        } @else if !patch.is_empty() {
            p class="left" { (patch) }
        }
    }
}

/// Renders a patch; added and removed lines have a colour of their own.
fn diff(patch: &str) -> Markup {
    let class = |line: &str| match line.as_bytes().first() {
        _ if line.starts_with("+++ ") || line.starts_with("--- ") => "wait",
        Some(b'+') => "good",
        Some(b'-') => "bad",
        Some(b'@') => "open",
        Some(b' ') => "",
        _ => "wait",
    };
    html! {
        pre {
            "\n"
            @for line in patch.lines() {
                @match class(line) {
                    "" => (line),
                    class => span class=(class) { (line) },
                }
                "\n"
            }
        }
    }
}

/// Renders the required checks and the check.
pub(crate) fn commands(report: &ReportData, attempt: &AttemptSpan) -> Markup {
    html! {
        @if !attempt.commands.is_empty() {
            h4 { "Checks" }
            @for it in &attempt.commands { (command(report, attempt, it)) }
        }
    }
}

fn command(report: &ReportData, attempt: &AttemptSpan, command: &CommandRun) -> Markup {
    let (name, text) = named(report, attempt, command);
    let (word, class, output) = match &command.result {
        CheckResult::Passed => ("passed", "good", ""),
        CheckResult::Failed(text) => ("did not pass", "bad", text.trim_end()),
        CheckResult::NotRun(text) => ("could not run", "bad", text.trim_end()),
        _ => ("was stopped", "cut", ""),
    };
    html! {
        p {
            (name) " " code { (text) } " " strong class=(class) { (word) }
            " in " (format_duration(command.ended.since(command.began)))
            @if command.is_recheck { ", after a resume" }
        }
        @if !output.is_empty() { (pre(output)) }
        @if command.left_out > 0 {
            p class="left" { "The first " (size(command.left_out as u64)) " of the output are left out." }
        }
    }
}

/// Returns the name of a required check or the check, and its command from the current settings.
pub(crate) fn named<'a>(
    report: &'a ReportData,
    attempt: &AttemptSpan,
    command: &CommandRun,
) -> (String, &'a str) {
    let phase = report
        .timeline
        .head
        .settings
        .phases
        .get(attempt.phase as usize);
    match command.command {
        loop_state::LoopCommand::RequiredCheck(index) => {
            let gate = phase.and_then(|phase| phase.required_checks.get(index as usize));
            (
                format!("Required check {}", index + 1),
                gate.map_or("", String::as_str),
            )
        }
        loop_state::LoopCommand::Check => {
            let check = phase.and_then(|phase| phase.check.as_deref());
            ("Check".to_owned(), check.unwrap_or_default())
        }
    }
}

fn commit(attempt: &AttemptSpan, stat: Option<&CommitChange>) -> Markup {
    html! {
        @if let Some(commit) = &attempt.commit {
            h4 { "Commit" }
            p {
                code { (commit) }
                @match stat {
                    Some(CommitChange::Same) => ", unchanged: there was nothing to commit",
                    Some(CommitChange::Unknown) => "; git can’t find it here",
                    _ => {}
                }
            }
            @if let Some(CommitChange::Changed(stat)) = stat { (pre(stat)) }
        }
    }
}
