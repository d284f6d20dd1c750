//! The page of a report as a whole: its head, its sections, and the mark by which it is known again.

use std::time::Duration;

use loop_runner::{Fate, RunState};
use loop_state::{Evidence, StopReason};

use super::html::Html;
use super::words::{Clock, count, number, span};
use super::{Report, detail, plots, rows, summary};
use crate::agents;
use crate::exit::Code;
use crate::money::dollars;
use crate::render::banner::may;
use crate::render::git::uncommitted;
use crate::render::removed;

pub(super) const CSS: &str = include_str!("style.css");
/// Nothing is loaded, nothing runs, nothing is sent.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";
/// The most bytes of a prompt at the end of the page.
const MAX_PROMPT: usize = 32 << 10;

/// Returns the page.
pub(crate) fn page(report: &Report) -> String {
    let timeline = &report.timeline;
    let clock = Clock::new(report.zone.clone(), timeline.began(), timeline.until());
    let mut html = Html::default();
    html.doctype();
    html.element("html", &[("lang", "en")], |html| {
        html.element("head", &[], |html| head(html, report));
        html.line();
        html.element("body", &[], |html| {
            html.element("main", &[("class", "page")], |html| {
                body(html, report, &clock)
            });
        });
    });
    html.line();
    html.into_string()
}

/// What a page of this run begins with; see [`is_of`].
fn mark(run: &str) -> String {
    format!("rlm-report {run}")
}

/// Returns whether a file that begins so is a report of this run.
pub(crate) fn is_of(beginning: &str, run: &str) -> bool {
    let mark = format!("<meta name=\"generator\" content=\"{}\">", mark(run));
    beginning.starts_with("<!doctype html>") && beginning.contains(&mark)
}

fn head(html: &mut Html, report: &Report) {
    html.empty("meta", &[("charset", "utf-8")]);
    html.empty(
        "meta",
        &[
            ("http-equiv", "Content-Security-Policy"),
            ("content", POLICY),
        ],
    );
    html.empty(
        "meta",
        &[
            ("name", "generator"),
            ("content", &mark(report.timeline.head.run.as_str())),
        ],
    );
    html.empty(
        "meta",
        &[
            ("name", "viewport"),
            ("content", "width=device-width, initial-scale=1"),
        ],
    );
    html.empty("meta", &[("name", "referrer"), ("content", "no-referrer")]);
    html.empty("meta", &[("name", "robots"), ("content", "noindex")]);
    html.element("title", &[], |html| {
        html.text(&format!("{} – rlm report", report.timeline.head.run))
    });
    html.style(CSS);
}

fn body(html: &mut Html, report: &Report, clock: &Clock) {
    let in_full = rows::in_full(&report.timeline);
    html.element("header", &[], |html| header(html, report, clock));
    section(html, "How it ended", |html| end(html, report));
    section(html, "Time and cost", |html| {
        plots::write(html, report, clock)
    });
    section(html, "What happened", |html| {
        rows::write(html, report, clock, &in_full);
    });
    section(html, "Iterations in full", |html| {
        let all = report.timeline.attempts.len();
        if in_full.len() < all {
            html.text_in("p", "note", &format!(
                "{} of {} attempts are shown in full: the first three, the newest twenty, and before all others those that failed or were cut, up to {}. Of the rest the table above has a line, or one for many of them; all of it is in the transcripts.",
                number(in_full.len() as u64), number(all as u64), rows::ALL
            ));
        }
        for index in &in_full {
            html.line();
            detail::write(html, report, clock, *index);
        }
    });
    section(html, "What it was asked to do", |html| asked(html, report));
    section(html, "About this page", |html| about(html, report, clock));
}

fn section(html: &mut Html, title: &str, inner: impl FnOnce(&mut Html)) {
    html.line();
    html.element("section", &[], |html| {
        html.text_in("h2", "", title);
        inner(html);
    });
}

/// The state in a word or two, and the class of its colour.
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

fn header(html: &mut Html, report: &Report, clock: &Clock) {
    let timeline = &report.timeline;
    html.element("p", &[("class", "over")], |html| {
        html.text("rlm report · ");
        let (from, to) = (timeline.began(), timeline.until());
        clock.time(html, from, &clock.full(from));
        html.text(" to ");
        let shown = if clock.has_days {
            clock.full(to)
        } else {
            clock.short(to)
        };
        clock.time(html, to, &shown);
    });
    html.element("div", &[("class", "head")], |html| {
        html.element("h1", &[], |html| html.text(timeline.head.run.as_str()));
        let (word, class) = state(report);
        html.text_in("span", &format!("state {class}"), word);
    });
    if matches!(timeline.state, RunState::Running | RunState::Paused) {
        html.element("p", &[("class", "warn")], |html| {
            html.text("This is a picture of a run that is live, as of ");
            clock.time(html, timeline.until(), &clock.full(timeline.until()));
            html.text(". More will have happened since.");
        });
    }
    html.element("div", &[("class", "lead")], |html| {
        for sentence in summary::sentences(report) {
            sentence.write(html, clock);
        }
    });
    html.element("dl", &[("class", "figures")], |html| figures(html, report));
}

fn figures(html: &mut Html, report: &Report) {
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
    let elapsed = timeline.until().since(timeline.began());
    let mut figure = |name: &str, value: &str, small: &str| {
        html.element("div", &[], |html| {
            html.text_in("dt", "", name);
            html.element("dd", &[], |html| {
                html.text(value);
                html.text_in("small", "", small);
            });
        });
    };
    let failed = match failed {
        0 => "none failed".to_owned(),
        failed => format!("{} failed", number(failed as u64)),
    };
    figure("Iterations", &number(whole as u64), &failed);
    let cut = match cut {
        0 => "none cut".to_owned(),
        cut => format!("{} cut", number(cut as u64)),
    };
    figure("Attempts", &number(timeline.attempts.len() as u64), &cut);
    let active = span(Duration::from_millis(timeline.active_ms()));
    let of = m.rules.max_duration.map_or_else(
        || format!("in {} from first to last", span(elapsed)),
        |max| format!("of {} allowed", span(max)),
    );
    figure("Active", &active, &of);
    let (cost, tokens) = (m.usage.cost_microusd, m.usage.tokens());
    if cost > 0 || m.rules.max_cost_microusd.is_some() {
        let of = m.rules.max_cost_microusd.map_or_else(
            || "no limit".to_owned(),
            |max| format!("of {} allowed", dollars(max)),
        );
        figure("Cost", &dollars(cost), &of);
    }
    if tokens > 0 || m.rules.max_tokens.is_some() {
        let of = m.rules.max_tokens.map_or_else(
            || {
                format!(
                    "{} read, {} written",
                    number(m.usage.input_tokens),
                    number(m.usage.output_tokens)
                )
            },
            |max| format!("of {} allowed", number(max)),
        );
        figure("Tokens", &number(tokens), &of);
    }
}

/// The end and its evidence.
fn end(html: &mut Html, report: &Report) {
    let timeline = &report.timeline;
    let m = &timeline.head.machine;
    html.element("dl", &[("class", "facts")], |html| {
        let mut fact = |name: &str, value: &str| {
            html.text_in("dt", "", name);
            html.element("dd", &[], |html| {
                html.element("bdi", &[], |html| html.text(value))
            });
        };
        match &m.end {
            Some(end) => {
                fact("Reason", &end.reason.to_string());
                let evidence = match end.reason {
                    StopReason::Done(Evidence::Check) => {
                        "the check, which the loop itself ran and which passed"
                    }
                    StopReason::Done(_) => "none but the agent’s word",
                    _ => "none: it did not end as done",
                };
                fact("Evidence", evidence);
                fact("Exit code", &(Code::of(&end.reason) as u8).to_string());
            }
            None => fact("Reason", "it has not come to an end"),
        }
        if let Some(commit) = &timeline.head.git_commit {
            let changed = match timeline.head.git_changed {
                None | Some(0) => String::new(),
                Some(n) => format!(
                    ", and {} not committed",
                    count(n as usize, "changed file", "changed files")
                ),
            };
            fact("Commit", &format!("{commit}{changed}"));
        }
        if let Some(missing) = &timeline.head.uncommitted {
            fact("Not committed", &uncommitted(missing));
        }
        if let Some(own) = &timeline.head.settings.worktree {
            fact("Branch", &own.branch);
        }
        if !report.left.is_empty() {
            let left: Vec<String> = report.left.iter().map(ToString::to_string).collect();
            fact("Still alive", &left.join(", "));
        }
    });
    if let Some(last) = timeline.attempts.iter().rfind(|it| !it.commands.is_empty()) {
        html.element("h3", &[], |html| {
            html.text(&format!(
                "The last judgement, of {}",
                detail::title(report, last)
            ))
        });
        detail::commands(html, report, last);
    }
}

fn asked(html: &mut Html, report: &Report) {
    let settings = report.timeline.head.settings.without_secrets();
    for (index, phase) in settings.phases.iter().enumerate() {
        if settings.phases.len() > 1 {
            html.element("h3", &[], |html| {
                html.text(&format!("Phase {}: {}", index + 1, phase.name))
            });
        }
        html.element("dl", &[("class", "facts")], |html| {
            let mut fact = |name: &str, value: &str| {
                html.text_in("dt", "", name);
                html.element("dd", &[], |html| html.text_in("code", "", value));
            };
            fact("Agent", &agents::name(&phase.agent));
            for gate in &phase.gates {
                fact("Gate", gate);
            }
            if let Some(check) = &phase.until {
                fact("Done when it passes", check);
            }
            if let Some(promise) = &phase.promise {
                fact("Done when it says", promise);
            }
            let plain: [(&str, Option<String>); 3] = [
                ("Permissions", Some(may(phase).to_owned())),
                (
                    "Iterations, at most",
                    phase
                        .limits
                        .max_iterations
                        .map(|max| number(u64::from(max))),
                ),
                ("A turn, at most", phase.limits.iteration_timeout.map(span)),
            ];
            for (name, value) in plain {
                if let Some(value) = value {
                    html.text_in("dt", "", name);
                    html.text_in("dd", "", &value);
                }
            }
        });
        if let Some(prompt) = report.prompts.get(index).filter(|it| !it.trim().is_empty()) {
            html.element("details", &[("class", "plain")], |html| {
                html.text_in("summary", "", "Prompt, as it was last read");
                let (prompt, _) = detail::middle_out(prompt, MAX_PROMPT);
                html.element("div", &[], |html| {
                    html.text_in("pre", "", prompt.trim_end())
                });
            });
        }
    }
    let phases = report
        .timeline
        .phases
        .iter()
        .filter(|phase| phase.result.is_some());
    for phase in phases {
        html.text_in(
            "h4",
            "",
            &format!("What phase {} came to, in its agent’s words", phase.name),
        );
        html.text_in(
            "pre",
            "",
            phase.result.as_deref().unwrap_or_default().trim_end(),
        );
    }
}

fn about(html: &mut Html, report: &Report, clock: &Clock) {
    let timeline = &report.timeline;
    for unknown in &timeline.unknown {
        html.element("p", &[("class", "warn")], |html| {
            html.text(&format!("Not known: {unknown}."))
        });
    }
    html.element("p", &[("class", "note")], |html| {
        html.text(&format!("Made by rlm {} from the run’s journal and transcripts, up to ", env!("CARGO_PKG_VERSION")));
        clock.time(html, timeline.until(), &clock.full(timeline.until()));
        html.text(". It is one file that loads nothing and runs nothing. Long texts are shortened in the middle and long transcripts between their beginning and their end, and it is said where; ");
        html.text_in("code", "", &format!("rlm logs {}", timeline.head.run));
        match &report.removed {
            None => html.text(" prints all of it."),
            Some(gone) => html.text(&format!(" prints what is left of them: {}.", removed(gone))),
        }
        html.text(" What agents and tools printed is shown as it was, with colours left out and control characters made visible. Settings that hold secrets are not in it, but what was printed is: look through it before you pass it on.");
    });
}
