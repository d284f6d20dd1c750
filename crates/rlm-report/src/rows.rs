//! The timeline as rows of a table: attempts, and the events between them. In a long run, old attempts without a problem share a row.

use std::collections::BTreeSet;
use std::time::Duration;

use loop_state::{
    RedoScope, ReviewDecision, SteerState, StopCause, StopTiming, Timestamp, UsageTotal,
};
use maud::{Markup, html};
use rlm_store::DeliveryResult;
use rlm_store::timeline::{
    ProcessEnd, RunProcess, SteerRecord, Timeline, TimelineEvent, TimelineEventKind, WaitSpan,
    WaitedFor,
};

use crate::detail::anchor;
use crate::report::ReportData;
use crate::words::{
    Clock, attempt_title, capital, count, delivery, first_line, format_duration, number, outcome,
    usage_text, wait_text,
};

/// The maximum number of attempts that the page shows in full. A run with at most this many attempts is not grouped into shared rows.
pub(crate) const MAX_IN_FULL: usize = 60;
/// The maximum number of separate rows of a long run: at its start, at its end, and of failed or unfinished attempts between them.
const FIRST: usize = 10;
const LAST: usize = 150;
const MAX_PROBLEM_ROWS: usize = 200;

/// One row.
#[derive(Debug)]
enum Row<'a> {
    Attempt(usize),
    Process(&'a RunProcess),
    Wait(&'a WaitSpan),
    Steer(&'a SteerRecord),
    Moment(&'a TimelineEvent),
    /// Several consecutive attempts and other rows, shown as one row.
    Group(Group),
}

#[derive(Debug, Default)]
struct Group {
    first: usize,
    last: usize,
    attempts: usize,
    failed: usize,
    others: usize,
    took: Duration,
    usage: UsageTotal,
}

/// Returns the attempts that are shown in full.
pub(crate) fn attempts_in_full(timeline: &Timeline) -> BTreeSet<usize> {
    let all = timeline.attempts.len();
    let mut chosen: BTreeSet<usize> = (0..all.min(3)).chain(all.saturating_sub(20)..all).collect();
    let newest = (0..all).rev();
    let wrong = newest
        .clone()
        .filter(|at| timeline.attempts[*at].has_failed());
    for at in wrong.chain(newest) {
        if chosen.len() >= MAX_IN_FULL {
            break;
        }
        chosen.insert(at);
    }
    chosen
}

fn rows(timeline: &Timeline) -> Vec<(Timestamp, Row<'_>)> {
    let attempts = timeline.attempts.iter().enumerate();
    let attempts = attempts.map(|(at, attempt)| (attempt.began, Row::Attempt(at)));
    let waits = timeline
        .waits
        .iter()
        .filter(|wait| wait.cause != WaitedFor::Sleep);
    let processes = timeline.processes.iter().skip(1);
    let mut rows: Vec<(Timestamp, Row<'_>)> = processes
        .map(|process| (process.began, Row::Process(process)))
        .chain(
            timeline
                .events
                .iter()
                .map(|moment| (moment.at, Row::Moment(moment))),
        )
        .chain(attempts)
        .chain(
            timeline
                .steers
                .iter()
                .map(|steer| (steer.at, Row::Steer(steer))),
        )
        .chain(waits.map(|wait| (wait.began, Row::Wait(wait))))
        .collect();
    rows.sort_by_key(|(at, _)| *at);
    if timeline.attempts.len() <= MAX_IN_FULL && rows.len() <= FIRST + LAST + MAX_PROBLEM_ROWS {
        return rows;
    }
    grouped(timeline, rows)
}

/// Groups the rows in the middle that show no problem.
fn grouped<'a>(
    timeline: &'a Timeline,
    rows: Vec<(Timestamp, Row<'a>)>,
) -> Vec<(Timestamp, Row<'a>)> {
    let far = rows.len().saturating_sub(LAST);
    let has_problem = |row: &Row<'_>| match row {
        Row::Attempt(at) => timeline.attempts[*at].has_failed() || timeline.attempts[*at].discarded,
        _ => true,
    };
    let telling = rows[FIRST.min(far)..far]
        .iter()
        .filter(|(_, row)| has_problem(row))
        .count();
    let mut surplus = telling.saturating_sub(MAX_PROBLEM_ROWS);
    let mut out: Vec<(Timestamp, Row<'a>)> = Vec::new();
    for (place, (at, row)) in rows.into_iter().enumerate() {
        let is_near = place < FIRST || place >= far;
        let keeps = is_near || (has_problem(&row) && surplus == 0);
        if keeps {
            out.push((at, row));
            continue;
        }
        surplus -= usize::from(has_problem(&row));
        if !matches!(out.last(), Some((_, Row::Group(_)))) {
            out.push((at, Row::Group(Group::default())));
        }
        if let Some((_, Row::Group(group))) = out.last_mut() {
            group.add(timeline, &row);
        }
    }
    out
}

impl Group {
    fn add(&mut self, timeline: &Timeline, row: &Row<'_>) {
        let Row::Attempt(at) = row else {
            self.others += 1;
            return;
        };
        let attempt = &timeline.attempts[*at];
        if self.attempts == 0 {
            self.first = *at;
        }
        self.last = *at;
        self.attempts += 1;
        self.failed += usize::from(attempt.has_failed());
        self.took += attempt.duration(timeline.until());
        self.usage.input_tokens += attempt.usage.input_tokens;
        self.usage.output_tokens += attempt.usage.output_tokens;
        self.usage.cost_microusd += attempt.usage.cost_microusd;
    }
}

/// Renders the table.
pub(crate) fn table(report: &ReportData, clock: &Clock, in_full: &BTreeSet<usize>) -> Markup {
    let timeline = &report.timeline;
    let is_used = timeline.head.machine.usage != UsageTotal::default();
    html! {
        table class=(if is_used { "events" } else { "events unused" }) {
            caption {
                "Times are local, UTC" (clock.offset(timeline.until()))
                ". Resumes, waits and requests of a person are shown between the iterations."
            }
            thead {
                tr {
                    @for (name, class) in [("Began", "t"), ("Event", ""), ("Duration", "n"), ("Usage", "n")] {
                        th scope="col" class=(class) { (name) }
                    }
                }
            }
            tbody {
                @for (at, row) in rows(timeline) {
                    "\n" (line(report, clock, at, &row, in_full))
                }
                @if let Some(end) = &timeline.head.machine.end {
                    "\n" (note_row(clock, end.at, "Ended", &end.reason.to_string(), None))
                }
            }
        }
    }
}

fn line(
    report: &ReportData,
    clock: &Clock,
    at: Timestamp,
    row: &Row<'_>,
    in_full: &BTreeSet<usize>,
) -> Markup {
    match row {
        Row::Attempt(index) => attempt_line(report, clock, *index, in_full.contains(index)),
        Row::Group(group) => group_line(&report.timeline, clock, at, group),
        Row::Process(process) => {
            let what = process_words(&report.timeline, process);
            note_row(clock, at, "Resumed", &what, None)
        }
        Row::Wait(wait) => {
            let ended = wait.ended.unwrap_or(report.timeline.until());
            let what = { wait.message.as_deref() }
                .map_or_else(String::new, |what| format!(": {}", first_line(what)));
            let what = format!("for {}{what}", wait_text(wait.cause));
            note_row(clock, at, "Waited", &what, Some(ended.since(wait.began)))
        }
        Row::Steer(steer) => {
            let state = match steer.state {
                SteerState::Recorded => "not delivered yet",
                SteerState::Delivered => "delivered",
                SteerState::Seen if !report.timeline.reports_reading() => "in a prompt",
                SteerState::Seen => "seen by the agent",
            };
            let what = format!("“{}” ({state})", first_line(&steer.text));
            note_row(clock, at, "Steer", &what, None)
        }
        Row::Moment(moment) => {
            let (name, what) = moment_words(moment);
            note_row(clock, at, name, &what, None)
        }
    }
}

fn attempt_line(report: &ReportData, clock: &Clock, index: usize, in_full: bool) -> Markup {
    let attempt = &report.timeline.attempts[index];
    let (word, class, why) = outcome(attempt);
    let name = capital(&attempt_title(&report.timeline, attempt));
    html! {
        tr class=[attempt.discarded.then_some("gone")] {
            td class="t" { (clock.short_time(attempt.began)) }
            td class="what" {
                @if in_full { a href={ "#" (anchor(index)) } { (name) } } @else { (name) }
                " " strong class=(class) { (word) }
                @if attempt.discarded { ", discarded" }
                @if !why.is_empty() { bdi class="why" { (first_line(&why)) } }
            }
            td class="n" { (report.duration(index)) }
            td class="n" { (usage_text(attempt.usage)) }
        }
    }
}

fn group_line(timeline: &Timeline, clock: &Clock, at: Timestamp, group: &Group) -> Markup {
    let iteration = |index: usize| timeline.attempts[index].iteration;
    html! {
        tr class="aside" {
            td class="t" { (clock.short_time(at)) }
            td class="what" {
                "Collapsed: "
                @if group.attempts > 0 {
                    "iterations " (iteration(group.first)) " to " (iteration(group.last)) ": "
                    (count(group.attempts, "attempt", "attempts"))
                    @match group.failed {
                        0 => ", all complete",
                        wrong => { ", " (number(wrong as u64)) " of them failed or unfinished" }
                    }
                }
                @if group.attempts > 0 && group.others > 0 { "; " }
                @if group.others > 0 { (count(group.others, "other event", "other events")) }
            }
            td class="n" { (format_duration(group.took)) }
            td class="n" { (usage_text(group.usage)) }
        }
    }
}

fn process_words(timeline: &Timeline, process: &RunProcess) -> String {
    let before = { timeline.processes.iter() }.find(|it| it.number + 1 == process.number);
    let before = match before.map(|before| &before.end) {
        Some(ProcessEnd::Died) => "; the previous process died",
        _ => "",
    };
    let from = { process.from }.map(|from| format!(", from iteration {from} on"));
    let agent = { process.predecessor.as_ref() }
        .map(|agent| format!(", with another agent in place of {agent}"));
    let (from, agent) = (from.unwrap_or_default(), agent.unwrap_or_default());
    format!("process {}{from}{agent}{before}", process.number)
}

/// Renders a row that is not an attempt.
fn note_row(
    clock: &Clock,
    at: Timestamp,
    name: &str,
    what: &str,
    took: Option<Duration>,
) -> Markup {
    html! {
        tr class="aside" {
            td class="t" { (clock.short_time(at)) }
            td class="what" { strong { (name) } " " bdi { (what) } }
            td class="n" { (took.map_or_else(String::new, format_duration)) }
            td class="n" {}
        }
    }
}

fn moment_words(moment: &TimelineEvent) -> (&'static str, String) {
    match &moment.kind {
        TimelineEventKind::Interrupted => ("Interrupted", "by a person; the session stays open".to_owned()),
        TimelineEventKind::Continued => ("Continued", "by a person".to_owned()),
        TimelineEventKind::Pausing => ("Pause requested", "after the iteration".to_owned()),
        TimelineEventKind::Stopping(stop) => {
            let when = match stop.when {
                StopTiming::AfterIteration => "after the iteration",
                StopTiming::Now => "now",
            };
            let by = match stop.by {
                StopCause::Person => "by a person",
                StopCause::Terminated => "by SIGTERM",
                StopCause::HungUp => "by SIGHUP: the terminal was closed",
                _ => "by an unknown cause",
            };
            ("Stop requested", format!("{when}, {by}"))
        }
        TimelineEventKind::Redone(RedoScope::Iteration) => ("Redo requested", "by a person, for the iteration".to_owned()),
        TimelineEventKind::Redone(RedoScope::Phase) => ("Redo requested", "by a person, for the phase".to_owned()),
        TimelineEventKind::Reviewed(verdict) => ("Reviewed", match verdict {
            ReviewDecision::Continue => "by a person: continue".to_owned(),
            ReviewDecision::Revise(text) => format!("by a person: revise, “{}”", first_line(text)),
            ReviewDecision::StartOver => "by a person: start over".to_owned(),
            _ => "by a person: exit".to_owned(),
        }),
        TimelineEventKind::RuleChanged(change) => ("Rule changed", change.to_string()),
        TimelineEventKind::NoProgress(in_a_row) => ("No progress", format!("no tool ran and nothing changed; {in_a_row} in a row")),
        TimelineEventKind::SessionLost => ("Session lost", "the agent no longer has the session that the run wanted to continue".to_owned()),
        TimelineEventKind::DataLost => ("Data loss", "the newest saved state was damaged; its iterations run again, and their transcripts are kept".to_owned()),
        TimelineEventKind::Suspended(ms) => ("Suspended", format!("for {}, or the clock was changed", format_duration(Duration::from_millis(*ms)))),
        TimelineEventKind::Notified(record) => (
            match record.result {
                DeliveryResult::Delivered(_) => "Notified",
                DeliveryResult::Failed(_) => "Not notified",
            },
            delivery(record),
        ),
        TimelineEventKind::Discarded { from, attempts, .. } => (
            "Went back",
            format!("to iteration {from}; {} discarded", count(*attempts as usize, "attempt", "attempts")),
        ),
    }
}
