//! What happened, as the rows of a table: attempts, and in between what else happened. Where there are many, those that went well and lie far back
//! are one row together.

use std::collections::BTreeSet;
use std::time::Duration;

use loop_runner::timeline::{Moment, Process, ProcessEnd, Steer, Timeline, Wait, WaitFor, What};
use loop_state::{Again, SteerState, StopCause, Timestamp, Usage, Verdict};

use super::html::Html;
use super::words::{Clock, count, fate, span, used, waited_for};
use super::{Report, anchor, detail};

/// So many attempts are all shown, each in a row of its own and in full.
pub(super) const ALL: usize = 60;
/// So many rows are shown at the beginning and at the end of a long run, and of what went wrong in between.
const FIRST: usize = 10;
const LAST: usize = 150;
const WRONG: usize = 200;

/// One row.
#[derive(Debug)]
enum Row<'a> {
    Attempt(usize),
    Process(&'a Process),
    Wait(&'a Wait),
    Steer(&'a Steer),
    Moment(&'a Moment),
    /// So many attempts from one to another, of which so many went wrong, and so many other rows.
    Group(Group),
}

#[derive(Debug, Default)]
struct Group {
    first: usize,
    last: usize,
    attempts: usize,
    wrong: usize,
    others: usize,
    took: Duration,
    usage: Usage,
}

/// Returns the attempts that are shown in full.
pub(crate) fn in_full(timeline: &Timeline) -> BTreeSet<usize> {
    let all = timeline.attempts.len();
    let mut chosen: BTreeSet<usize> = (0..all.min(3)).chain(all.saturating_sub(20)..all).collect();
    let newest = (0..all).rev();
    let wrong = newest
        .clone()
        .filter(|at| timeline.attempts[*at].went_wrong());
    for at in wrong.chain(newest) {
        if chosen.len() >= ALL {
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
        .filter(|wait| wait.why != WaitFor::Sleep);
    let processes = timeline.processes.iter().skip(1);
    let mut rows: Vec<(Timestamp, Row<'_>)> = processes
        .map(|process| (process.began, Row::Process(process)))
        .chain(
            timeline
                .moments
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
    if timeline.attempts.len() <= ALL && rows.len() <= FIRST + LAST + WRONG {
        return rows;
    }
    grouped(timeline, rows)
}

/// Puts those rows together that tell least.
fn grouped<'a>(
    timeline: &'a Timeline,
    rows: Vec<(Timestamp, Row<'a>)>,
) -> Vec<(Timestamp, Row<'a>)> {
    let far = rows.len().saturating_sub(LAST);
    let tells = |row: &Row<'_>| match row {
        Row::Attempt(at) => timeline.attempts[*at].went_wrong() || timeline.attempts[*at].discarded,
        _ => true,
    };
    let telling = rows[FIRST.min(far)..far]
        .iter()
        .filter(|(_, row)| tells(row))
        .count();
    let mut surplus = telling.saturating_sub(WRONG);
    let mut out: Vec<(Timestamp, Row<'a>)> = Vec::new();
    for (place, (at, row)) in rows.into_iter().enumerate() {
        let is_near = place < FIRST || place >= far;
        let keeps = is_near || (tells(&row) && surplus == 0);
        if keeps {
            out.push((at, row));
            continue;
        }
        surplus -= usize::from(tells(&row));
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
        self.wrong += usize::from(attempt.went_wrong());
        self.took += attempt.took(timeline.until());
        self.usage.input_tokens += attempt.usage.input_tokens;
        self.usage.output_tokens += attempt.usage.output_tokens;
        self.usage.cost_microusd += attempt.usage.cost_microusd;
    }
}

/// Appends the table.
pub(super) fn write(html: &mut Html, report: &Report, clock: &Clock, in_full: &BTreeSet<usize>) {
    let timeline = &report.timeline;
    let until = timeline.until();
    let is_used = timeline.head.machine.usage != Usage::default();
    let class = if is_used { "events" } else { "events unused" };
    html.element("table", &[("class", class)], |html| {
        html.element("caption", &[], |html| {
            html.text(&format!("Times are local, UTC{}. A process that was taken over, a wait or a person’s word stands between the iterations.", clock.offset(until)));
        });
        html.element("thead", &[], |html| {
            html.element("tr", &[], |html| {
                for (name, class) in [("Began", "t"), ("What", ""), ("Took", "n"), ("Used", "n")] {
                    html.element("th", &[("scope", "col"), ("class", class)], |html| html.text(name));
                }
            });
        });
        html.element("tbody", &[], |html| {
            for (at, row) in rows(timeline) {
                html.line();
                line(html, report, clock, at, &row, in_full);
            }
            if let Some(end) = &timeline.head.machine.end {
                html.line();
                aside(html, clock, end.at, "The end", &end.reason.to_string(), None);
            }
        });
    });
}

fn line(
    html: &mut Html,
    report: &Report,
    clock: &Clock,
    at: Timestamp,
    row: &Row<'_>,
    in_full: &BTreeSet<usize>,
) {
    let timeline = &report.timeline;
    let until = timeline.until();
    match row {
        Row::Attempt(index) => {
            let attempt = &timeline.attempts[*index];
            let (word, class, why) = fate(attempt);
            let gone = if attempt.discarded { "gone" } else { "" };
            html.element("tr", &[("class", gone)], |html| {
                html.element("td", &[("class", "t")], |html| {
                    clock.time(html, at, &clock.short(at))
                });
                html.element("td", &[("class", "what")], |html| {
                    let title = detail::title(report, attempt);
                    let title = capital(&title);
                    match in_full.contains(index) {
                        true => html.element(
                            "a",
                            &[("href", &format!("#{}", anchor(*index)))],
                            |html| html.text(&title),
                        ),
                        false => html.text(&title),
                    }
                    html.text(" ");
                    html.text_in("strong", class, word);
                    if attempt.discarded {
                        html.text(", discarded");
                    }
                    if !why.is_empty() {
                        html.element("bdi", &[("class", "why")], |html| {
                            html.text(&first_line(&why))
                        });
                    }
                });
                html.text_in("td", "n", &report.took(*index));
                html.text_in("td", "n", &used(attempt.usage));
            });
        }
        Row::Group(group) => {
            let (first, last) = (
                &timeline.attempts[group.first],
                &timeline.attempts[group.last],
            );
            let mut text = match group.attempts {
                0 => String::new(),
                attempts => format!(
                    "iterations {} to {}: {}, {}",
                    first.iteration,
                    last.iteration,
                    count(attempts, "attempt", "attempts"),
                    match group.wrong {
                        0 => "all complete".to_owned(),
                        wrong => format!(
                            "{} of them failed or cut",
                            super::words::number(wrong as u64)
                        ),
                    }
                ),
            };
            if group.others > 0 {
                let and = if text.is_empty() { "" } else { "; " };
                text.push_str(&format!(
                    "{and}{}",
                    count(group.others, "other event", "other events")
                ));
            }
            html.element("tr", &[("class", "aside")], |html| {
                html.element("td", &[("class", "t")], |html| {
                    clock.time(html, at, &clock.short(at))
                });
                html.text_in("td", "what", &format!("Together: {text}"));
                html.text_in("td", "n", &span(group.took));
                html.text_in("td", "n", &used(group.usage));
            });
        }
        Row::Process(process) => {
            let before = timeline
                .processes
                .iter()
                .find(|it| it.number + 1 == process.number);
            let before = match before.map(|before| &before.end) {
                Some(ProcessEnd::Died) => "; the one before it had died",
                _ => "",
            };
            let from = process
                .from
                .map(|from| format!(", from iteration {from} on"));
            let agent = process
                .predecessor
                .as_ref()
                .map(|agent| format!(", with another agent than {agent}"));
            let what = format!(
                "process {}{}{}{before}",
                process.number,
                from.unwrap_or_default(),
                agent.unwrap_or_default()
            );
            aside(html, clock, at, "Resumed", &what, None);
        }
        Row::Wait(wait) => {
            let took = wait.ended.unwrap_or(until).since(wait.began);
            let what = wait
                .what
                .as_deref()
                .map_or_else(String::new, |what| format!(": {}", first_line(what)));
            aside(
                html,
                clock,
                at,
                "Waited",
                &format!("for {}{what}", waited_for(wait.why)),
                Some(took),
            );
        }
        Row::Steer(steer) => {
            let state = match steer.state {
                SteerState::Recorded => "not delivered yet",
                SteerState::Delivered => "delivered",
                SteerState::Seen => "seen by the agent",
            };
            aside(
                html,
                clock,
                at,
                "A person said",
                &format!("“{}” ({state})", first_line(&steer.text)),
                None,
            );
        }
        Row::Moment(moment) => {
            let (name, what) = moment_words(moment);
            aside(html, clock, at, name, &what, None);
        }
    }
}

/// Appends a row that is no attempt.
fn aside(
    html: &mut Html,
    clock: &Clock,
    at: Timestamp,
    name: &str,
    what: &str,
    took: Option<Duration>,
) {
    html.element("tr", &[("class", "aside")], |html| {
        html.element("td", &[("class", "t")], |html| {
            clock.time(html, at, &clock.short(at))
        });
        html.element("td", &[("class", "what")], |html| {
            html.text_in("strong", "", name);
            html.text(" ");
            html.element("bdi", &[], |html| html.text(what));
        });
        html.text_in("td", "n", &took.map_or_else(String::new, span));
        html.text_in("td", "n", "");
    });
}

fn moment_words(moment: &Moment) -> (&'static str, String) {
    match &moment.what {
        What::Interrupted => ("Interrupted", "by a person; the session waits".to_owned()),
        What::Continued => ("Continued", "by a person".to_owned()),
        What::Pausing => ("A person asked", "for a pause after the iteration".to_owned()),
        What::Stopping { by, later } => {
            let when = if *later { "after the iteration" } else { "now" };
            let by = match by {
                StopCause::Person => "by a person",
                StopCause::Terminated => "by SIGTERM",
                StopCause::HungUp => "by SIGHUP: the terminal went away",
                _ => "by something",
            };
            ("Asked to stop", format!("{when}, {by}"))
        }
        What::Again(Again::Iteration) => ("A person asked", "for the iteration to be done again".to_owned()),
        What::Again(Again::Phase) => ("A person asked", "for the phase to be begun again".to_owned()),
        What::Reviewed(verdict) => ("A person looked", match verdict {
            Verdict::Continue => "and let it go on".to_owned(),
            Verdict::Revise(text) => format!("and wants it revised: “{}”", first_line(text)),
            Verdict::StartOver => "and wants it begun again".to_owned(),
            _ => "and stopped it".to_owned(),
        }),
        What::RuleSet(change) => ("Changed", change.to_string()),
        What::NothingDone(in_a_row) => ("Nothing done", format!("no tool ran and nothing changed, {in_a_row} in a row")),
        What::SessionLost => ("Session lost", "the one that was to be gone on with is not there any more".to_owned()),
        What::StateLost => ("State lost", "what was saved last was damaged: its transcripts are there, and their iterations are done again".to_owned()),
        What::StoodStill(ms) => ("Stood still", format!("for {}: suspended, or its clock was set", span(Duration::from_millis(*ms)))),
        What::Discarded { from, attempts, .. } => (
            "Went back",
            format!("to iteration {from}; {} discarded", count(*attempts as usize, "attempt", "attempts")),
        ),
        _ => ("Something", "that this program does not know".to_owned()),
    }
}

/// The beginning of a text, for where there is one line for it.
pub(super) fn first_line(text: &str) -> String {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines().next().unwrap_or_default();
    match line.char_indices().nth(160) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None if lines().nth(1).is_some() => format!("{line} …"),
        None => line.to_owned(),
    }
}

pub(super) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}
