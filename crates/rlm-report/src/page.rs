//! The page of a report as a whole: its head and its sections.

use std::time::Duration;

use loop_state::{Evidence, StopReason};
use maud::{Markup, PreEscaped, html};
use rlm_store::git::written::report_mark;
use rlm_store::{Fate, PhaseSettings, RunState};
use rlm_text::money::dollars;

use crate::report::Report;
use crate::transcript::middle_out;
use crate::visible::{pre, visible};
use crate::words::{Clock, count, number, removed, span, uncommitted};
use crate::{detail, plots, rows, summary};

pub(crate) const CSS: &str = include_str!("style.css");
/// The page loads nothing, runs nothing and sends nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";
/// The most bytes of a prompt at the end of the page.
const MAX_PROMPT: usize = 32 << 10;

/// Returns the page.
#[must_use]
pub fn page(report: &Report) -> String {
    let timeline = &report.timeline;
    let clock = Clock::new(report.zone.clone(), timeline.began(), timeline.until());
    let page = html! {
        (PreEscaped("<!doctype html>\n"))
        html lang="en" {
            (head(report))
            "\n"
            body { main class="page" { (body(report, &clock)) } }
        }
        "\n"
    };
    visible(&page.into_string())
}

fn head(report: &Report) -> Markup {
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

fn body(report: &Report, clock: &Clock) -> Markup {
    let in_full = rows::in_full(&report.timeline);
    let all = report.timeline.attempts.len();
    let iterations = html! {
        @if in_full.len() < all {
            p class="note" {
                (number(in_full.len() as u64)) " of " (number(all as u64))
                " attempts are shown in full: the first three, the newest twenty, and before all others those that failed or were cut, up to "
                (rows::ALL)
                ". Of the rest the table above has a line, or one for many of them; all of it is in the transcripts."
            }
        }
        @for index in &in_full {
            "\n" (detail::detail(report, clock, *index))
        }
    };
    html! {
        (header(report, clock))
        (section("How it ended", end(report)))
        (section("Time and cost", plots::plots(report, clock)))
        (section("What happened", rows::table(report, clock, &in_full)))
        (section("Iterations in full", iterations))
        (section("What it was asked to do", asked(report)))
        (section("About this page", about(report, clock)))
    }
}

fn section(title: &str, inner: Markup) -> Markup {
    html! { "\n" section { h2 { (title) } (inner) } }
}

/// Returns the state in a word or two, and the class of its colour.
fn state(report: &Report) -> (&'static str, &'static str) {
    let end = report
        .timeline
        .head
        .machine
        .end
        .as_ref()
        .map(|end| &end.reason);
    match (report.timeline.state, end) {
        (RunState::Running, _) => ("at work", "open"),
        (RunState::Paused, _) => ("paused", "open"),
        (RunState::Crashed, _) => ("died", "bad"),
        (RunState::Moved, _) => ("moved", "open"),
        (_, Some(StopReason::Done(Evidence::Check))) => ("done", "good"),
        (_, Some(StopReason::Done(_))) => ("done, it says", "cut"),
        (_, Some(StopReason::Planned)) => ("all made", "good"),
        (_, Some(StopReason::Stopped(_)) | None) => ("stopped", "cut"),
        (_, Some(StopReason::Budget(_))) => ("budget used up", "cut"),
        (_, Some(StopReason::IterationLimit(_) | StopReason::TimeLimit(_))) => {
            ("limit reached", "cut")
        }
        (_, Some(StopReason::RateLimit { .. })) => ("rate limit", "cut"),
        (_, Some(StopReason::Stuck(..))) => ("stuck", "bad"),
        (_, Some(_)) => ("failed", "bad"),
    }
}

fn header(report: &Report, clock: &Clock) -> Markup {
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
                    "This is a picture of a run that is live, as of " (clock.full_time(to)) ". More will have happened since."
                }
            }
            div class="lead" {
                @for sentence in summary::sentences(report) { (sentence.paragraph(clock)) }
            }
            dl class="figures" {
                @for (name, value, small) in figures(report) {
                    div { dt { (name) } dd { (value) small { (small) } } }
                }
            }
        }
    }
}

/// Returns the figures at the top of the page: name, value, and a remark.
fn figures(report: &Report) -> Vec<(&'static str, String, String)> {
    let timeline = &report.timeline;
    let m = &timeline.head.machine;
    let counting = || timeline.attempts.iter().filter(|it| !it.discarded);
    let failed = counting()
        .filter(|it| matches!(it.fate, Fate::Failed(_)))
        .count();
    let whole = failed + counting().filter(|it| it.fate == Fate::Complete).count();
    let cut = timeline
        .attempts
        .iter()
        .filter(|it| matches!(it.fate, Fate::Cut(_)))
        .count();
    let some = |n: usize, what: &str| match n {
        0 => format!("none {what}"),
        n => format!("{} {what}", number(n as u64)),
    };
    let attempts = number(timeline.attempts.len() as u64);
    let active = span(Duration::from_millis(timeline.active_ms()));
    let elapsed = timeline.until().since(timeline.began());
    let of = m.rules.limits.max_duration.map_or_else(
        || format!("in {} from first to last", span(elapsed)),
        |max| format!("of {} allowed", span(max)),
    );
    let mut figures = vec![
        ("Iterations", number(whole as u64), some(failed, "failed")),
        ("Attempts", attempts, some(cut, "cut")),
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
            || format!("{read} read, {written} written"),
            |max| format!("of {} allowed", number(max)),
        );
        figures.push(("Tokens", number(tokens), of));
    }
    figures
}

/// Returns the end and its evidence.
fn end(report: &Report) -> Markup {
    let attempts = &report.timeline.attempts;
    let last = attempts.iter().rfind(|it| !it.commands.is_empty());
    html! {
        dl class="facts" {
            @for (name, value) in end_facts(report) {
                dt { (name) } dd { bdi { (value) } }
            }
        }
        @if let Some(last) = last {
            h3 { "The last judgement, of " (detail::title(report, last)) }
            (detail::commands(report, last))
        }
    }
}

fn end_facts(report: &Report) -> Vec<(&'static str, String)> {
    let head = &report.timeline.head;
    let mut facts = Vec::new();
    match &head.machine.end {
        Some(end) => {
            facts.push(("Reason", end.reason.to_string()));
            let evidence = match end.reason {
                StopReason::Done(Evidence::Check) => {
                    "the check, which the loop itself ran and which passed"
                }
                StopReason::Done(_) => "none but the agent’s word",
                _ => "none: it did not end as done",
            };
            facts.push(("Evidence", evidence.to_owned()));
            if let Some(code) = report.wording.exit_code {
                facts.push(("Exit code", code.to_string()));
            }
        }
        None => facts.push(("Reason", "it has not come to an end".to_owned())),
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
    if !report.left.is_empty() {
        let left: Vec<String> = report.left.iter().map(ToString::to_string).collect();
        facts.push(("Still alive", left.join(", ")));
    }
    facts
}

fn asked(report: &Report) -> Markup {
    let settings = report.timeline.head.settings.without_secrets();
    let mut results = Vec::new();
    for phase in &report.timeline.phases {
        if let Some(result) = &phase.result {
            results.push((&phase.name, result.trim_end()));
        }
    }
    html! {
        @for (index, phase) in settings.phases.iter().enumerate() {
            @if settings.phases.len() > 1 {
                h3 { "Phase " (index + 1) ": " (phase.name) }
            }
            (asked_of_phase(report, index, phase))
            @if let Some(prompt) = report.prompts.get(index).filter(|it| !it.trim().is_empty()) {
                details class="plain" {
                    summary { "Prompt, as it was last read" }
                    div { (pre(middle_out(prompt, MAX_PROMPT).0.trim_end())) }
                }
            }
        }
        @for (name, result) in results {
            h4 { "What phase " (name) " came to, in its agent’s words" }
            (pre(result))
        }
    }
}

fn asked_of_phase(report: &Report, index: usize, phase: &PhaseSettings) -> Markup {
    let agent = report.wording.agents.get(index);
    let may = report.wording.permissions.get(index);
    let max_iterations = phase.limits.max_iterations.map(u64::from).map(number);
    html! {
        dl class="facts" {
            @if let Some(agent) = agent { dt { "Agent" } dd { code { (agent) } } }
            @for gate in &phase.gates { dt { "Gate" } dd { code { (gate) } } }
            @if let Some(check) = &phase.until { dt { "Done when it passes" } dd { code { (check) } } }
            @if let Some(promise) = &phase.promise { dt { "Done when it says" } dd { code { (promise) } } }
            @if let Some(may) = may { dt { "Permissions" } dd { (may) } }
            @if let Some(max) = max_iterations { dt { "Iterations, at most" } dd { (max) } }
            @if let Some(max) = phase.limits.iteration_timeout { dt { "A turn, at most" } dd { (span(max)) } }
        }
    }
}

fn about(report: &Report, clock: &Clock) -> Markup {
    let timeline = &report.timeline;
    html! {
        @for unknown in &timeline.unknown {
            p class="warn" { "Not known: " (unknown) "." }
        }
        p class="note" {
            "Made by rlm " (report.wording.version) " from the run’s journal and transcripts, up to "
            (clock.full_time(timeline.until()))
            ". It is one file that loads nothing and runs nothing. Long texts are shortened in the middle and long transcripts between their beginning and their end, and it is said where; "
            code { "rlm logs " (timeline.head.run.as_str()) }
            @match &report.removed {
                None => " prints all of it.",
                Some(gone) => { " prints what is left of them: " (removed(gone)) "." }
            }
            " What agents and tools printed is shown as it was, with colours left out and control characters made visible. Settings that hold secrets are not in it, but what was printed is: look through it before you pass it on."
        }
    }
}
