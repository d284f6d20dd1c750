//! The whole page of a report: its head and its sections.

use std::time::Duration;

use loop_state::{Evidence, StopReason};
use maud::{Markup, PreEscaped, html};
use rlm_store::git::own_files::report_mark;
use rlm_store::{AttemptOutcome, PhaseSettings, RunState};
use rlm_text::money::dollars;

use crate::report::ReportData;
use crate::transcript::middle_out;
use crate::visible::{pre, visible};
use crate::words::{Clock, attempt_title, count, format_duration, number, removed, uncommitted};
use crate::{detail, figures, rows, summary};

/// The style of the page, for a program that shows [`body`] in a page of its own.
pub const CSS: &str = concat!(include_str!("plots.css"), include_str!("style.css"));
/// The page can load nothing, run nothing and send nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";
/// The maximum number of bytes of a prompt at the end of the page.
const MAX_PROMPT: usize = 32 << 10;

/// Returns the page.
#[must_use]
pub fn page(report: &ReportData) -> String {
    let timeline = &report.timeline;
    let clock = Clock::new(report.zone.clone(), timeline.began(), timeline.until());
    let page = html! {
        (PreEscaped("<!doctype html>\n"))
        html lang="en" {
            (head(report))
            "\n"
            body { main class="page" { (sections(report, &clock)) } }
        }
        "\n"
    };
    visible(&page.into_string())
}

fn head(report: &ReportData) -> Markup {
    let run = &report.timeline.head.run;
    html! {
        head {
            meta charset="utf-8";
            meta http-equiv="Content-Security-Policy" content=(POLICY);
            (PreEscaped(report_mark(run)))
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="referrer" content="no-referrer";
            meta name="robots" content="noindex";
            title { (run) " – rlm report" }
            style { (PreEscaped(CSS)) }
        }
    }
}

/// Returns the content of the page without its head, for a page of another program. It needs the style [`CSS`].
#[must_use]
pub fn body(report: &ReportData) -> String {
    let timeline = &report.timeline;
    let clock = Clock::new(report.zone.clone(), timeline.began(), timeline.until());
    visible(&sections(report, &clock).into_string())
}

fn sections(report: &ReportData, clock: &Clock) -> Markup {
    let in_full = rows::attempts_in_full(&report.timeline);
    let all = report.timeline.attempts.len();
    let iterations = html! {
        @if in_full.len() < all {
            p class="note" {
                (number(in_full.len() as u64)) " of " (number(all as u64))
                " attempts are shown in full: the first 3, the newest 20, then failed and unfinished ones, then others. The maximum is "
                (rows::MAX_IN_FULL)
                ". In the table above, each of the others has a row, or shares a row with its neighbours. The transcripts contain everything."
            }
        }
        @for index in &in_full {
            "\n" (detail::detail(report, clock, *index))
        }
    };
    html! {
        (header(report, clock))
        (section("How it ended", end(report)))
        (section("Time and cost", figures::plots(&report.timeline, clock)))
        (section("Timeline", rows::table(report, clock, &in_full)))
        (section("Iteration details", iterations))
        (section("Task", task_text(report)))
        (section("About this page", about(report, clock)))
    }
}

fn section(title: &str, inner: Markup) -> Markup {
    html! { "\n" section { h2 { (title) } (inner) } }
}

/// Returns the state in one or two words, and the CSS class of its colour.
fn state(report: &ReportData) -> (&'static str, &'static str) {
    let end = report
        .timeline
        .head
        .machine
        .end
        .as_ref()
        .map(|end| &end.reason);
    match (report.timeline.state, end) {
        (RunState::Running, _) => ("running", "open"),
        (RunState::Paused, _) => ("paused", "open"),
        (RunState::Crashed, _) => ("crashed", "bad"),
        (RunState::Transferred, _) => ("transferred", "open"),
        (_, Some(StopReason::Done(Evidence::Check))) => ("done", "good"),
        (_, Some(StopReason::AlreadyDone)) => ("already done", "good"),
        (_, Some(StopReason::Done(_))) => ("done, unchecked", "cut"),
        (_, Some(StopReason::AllIterationsRan)) => ("finished", "good"),
        (_, Some(StopReason::Stopped(_)) | None) => ("stopped", "cut"),
        (_, Some(StopReason::BudgetSpent(_))) => ("budget used up", "cut"),
        (_, Some(StopReason::IterationLimit(_) | StopReason::TimeLimit(_))) => {
            ("limit reached", "cut")
        }
        (_, Some(StopReason::RateLimit { .. })) => ("rate limit", "cut"),
        (_, Some(StopReason::Stuck { .. })) => ("stuck", "bad"),
        (_, Some(_)) => ("failed", "bad"),
    }
}

fn header(report: &ReportData, clock: &Clock) -> Markup {
    let timeline = &report.timeline;
    let (from, to) = (timeline.began(), timeline.until());
    let (word, class) = state(report);
    html! {
        header {
            p class="over" {
                "rlm report · " (clock.full_time(from)) " to "
                @if clock.has_days { (clock.full_time(to)) } @else { (clock.short_time(to)) }
            }
            div class="head" {
                h1 { (timeline.head.run.as_str()) }
                span class={ "state " (class) } { (word) }
            }
            @if matches!(timeline.state, RunState::Running | RunState::Paused) {
                p class="warn" {
                    "This run is live. The page shows its state at " (clock.full_time(to)) "; later events are missing."
                }
            }
            div class="lead" {
                @for sentence in summary::sentences(report) { (sentence.paragraph(clock)) }
            }
            dl class="figures" {
                @for (name, value, small) in key_figures(report) {
                    div { dt { (name) } dd { (value) small { (small) } } }
                }
            }
        }
    }
}

/// Returns the figures at the top of the page: name, value and remark.
fn key_figures(report: &ReportData) -> Vec<(&'static str, String, String)> {
    let timeline = &report.timeline;
    let m = &timeline.head.machine;
    let counting = || timeline.attempts.iter().filter(|it| !it.discarded);
    let failed = counting()
        .filter(|it| matches!(it.outcome, AttemptOutcome::Failed(_)))
        .count();
    let whole = failed
        + counting()
            .filter(|it| it.outcome == AttemptOutcome::Complete)
            .count();
    let unfinished = timeline
        .attempts
        .iter()
        .filter(|it| matches!(it.outcome, AttemptOutcome::Unfinished(_)))
        .count();
    let some = |n: usize, what: &str| match n {
        0 => format!("none {what}"),
        n => format!("{} {what}", number(n as u64)),
    };
    let attempts = number(timeline.attempts.len() as u64);
    let active = format_duration(Duration::from_millis(timeline.active_ms()));
    let elapsed = timeline.until().since(timeline.began());
    let of = m.rules.limits.max_duration.map_or_else(
        || format!("of {} from start to end", format_duration(elapsed)),
        |max| format!("of {} allowed", format_duration(max)),
    );
    let mut figures = vec![
        ("Iterations", number(whole as u64), some(failed, "failed")),
        ("Attempts", attempts, some(unfinished, "unfinished")),
        ("Active", active, of),
    ];
    let (cost, tokens) = (m.usage.cost_microusd, m.usage.tokens());
    if cost > 0 || m.rules.limits.max_cost_microusd.is_some() {
        let of = m.rules.limits.max_cost_microusd.map_or_else(
            || "no limit".to_owned(),
            |max| format!("of {} allowed", dollars(max)),
        );
        figures.push(("Cost", dollars(cost), of));
    }
    if tokens > 0 || m.rules.limits.max_tokens.is_some() {
        let (read, written) = (number(m.usage.input_tokens), number(m.usage.output_tokens));
        let of = m.rules.limits.max_tokens.map_or_else(
            || format!("{read} input, {written} output"),
            |max| format!("of {} allowed", number(max)),
        );
        figures.push(("Tokens", number(tokens), of));
    }
    figures
}

/// Returns the end of the run and its evidence.
fn end(report: &ReportData) -> Markup {
    let attempts = &report.timeline.attempts;
    let last = attempts.iter().rfind(|it| !it.commands.is_empty());
    html! {
        dl class="facts" {
            @for (name, value) in end_facts(report) {
                dt { (name) } dd { bdi { (value) } }
            }
        }
        @if let Some(last) = last {
            h3 { "Final checks: " (attempt_title(&report.timeline, last)) }
            (detail::commands(report, last))
        }
    }
}

fn end_facts(report: &ReportData) -> Vec<(&'static str, String)> {
    let head = &report.timeline.head;
    let mut facts = Vec::new();
    match &head.machine.end {
        Some(end) => {
            facts.push(("Reason", end.reason.to_string()));
            let evidence = match end.reason {
                StopReason::Done(Evidence::Check) | StopReason::AlreadyDone => {
                    "the loop ran the check itself, and the check passed"
                }
                StopReason::Done(_) => "only the agent’s completion promise",
                _ => "none",
            };
            facts.push(("Evidence", evidence.to_owned()));
            if let Some(code) = report.wording.exit_code {
                facts.push(("Exit code", code.to_string()));
            }
        }
        None => facts.push(("Reason", "the run has not ended".to_owned())),
    }
    if let Some(commit) = &head.git_commit {
        let changed = match head.git_changed {
            None | Some(0) => String::new(),
            Some(n) => format!(
                ", and {} not committed",
                count(n as usize, "changed file", "changed files")
            ),
        };
        facts.push(("Commit", format!("{commit}{changed}")));
    }
    if let Some(missing) = &head.uncommitted {
        facts.push(("Not committed", uncommitted(missing)));
    }
    if let Some(own) = &head.settings.worktree {
        facts.push(("Branch", own.branch.clone()));
    }
    if !report.remaining_processes.is_empty() {
        let left: Vec<String> = report
            .remaining_processes
            .iter()
            .map(ToString::to_string)
            .collect();
        facts.push(("Still alive", left.join(", ")));
    }
    facts
}

fn task_text(report: &ReportData) -> Markup {
    let settings = report.timeline.head.settings.without_secrets();
    // A phase that ran again after a review is in the timeline once for each time. Only its last result counts.
    let counting = report.timeline.phases.iter().filter(|it| !it.discarded);
    let results = counting.filter_map(|it| Some((&it.name, it.result.as_ref()?.trim_end())));
    html! {
        @for (index, phase) in settings.phases.iter().enumerate() {
            @if settings.phases.len() > 1 {
                h3 { "Phase " (index + 1) ": " (phase.name) }
            }
            (asked_of_phase(report, index, phase))
            @if let Some(prompt) = report.prompts.get(index).filter(|it| !it.trim().is_empty()) {
                details class="plain" {
                    summary { "Prompt, as last read" }
                    div { (pre(middle_out(prompt, MAX_PROMPT).0.trim_end())) }
                }
            }
        }
        @for (name, result) in results {
            h4 { "Result of phase " (name) ", as its agent reported it" }
            (pre(result))
        }
    }
}

fn asked_of_phase(report: &ReportData, index: usize, phase: &PhaseSettings) -> Markup {
    let agent = report.wording.agents.get(index);
    let may = report.wording.permissions.get(index);
    let max_iterations = phase.limits.max_iterations.map(u64::from).map(number);
    html! {
        dl class="facts" {
            @if let Some(agent) = agent { dt { "Agent" } dd { code { (agent) } } }
            @for gate in &phase.required_checks { dt { "Required check" } dd { code { (gate) } } }
            @if let Some(check) = &phase.check { dt { "Check" } dd { code { (check) } } }
            @if let Some(promise) = &phase.promise { dt { "Completion promise" } dd { code { (promise) } } }
            @if let Some(may) = may { dt { "Permissions" } dd { (may) } }
            @if let Some(max) = max_iterations { dt { "Iteration limit" } dd { (max) } }
            @if let Some(max) = phase.limits.iteration_timeout { dt { "Time limit of a turn" } dd { (format_duration(max)) } }
        }
    }
}

fn about(report: &ReportData, clock: &Clock) -> Markup {
    let timeline = &report.timeline;
    html! {
        @for unknown in &timeline.unknown {
            p class="warn" { "Unknown: " (unknown) "." }
        }
        p class="note" {
            "Generated by rlm " (report.wording.version) " from the run’s journal and transcripts, up to "
            (clock.full_time(timeline.until()))
            ". The page is one file; it loads nothing and runs nothing. Long texts and long transcripts are shortened in the middle, with a note in each place; "
            code { "rlm logs " (timeline.head.run.as_str()) }
            @match &report.removed {
                None => " prints everything.",
                Some(gone) => { " prints the transcripts that remain; " (removed(gone)) "." }
            }
            " The output of agents and tools is shown without colours and with visible control characters. The page shows no secret settings, but the output of agents and tools may contain secrets: check the page before you share it."
        }
    }
}
