//! Plots as inline SVG. They are stretched to the width of the page, so there is no text in them: labels stand beside them, and what they show is said
//! in a caption as well.

use std::collections::BTreeSet;
use std::time::Duration;

use loop_runner::timeline::{ProcessEnd, Timeline, WaitFor};
use loop_state::Timestamp;

use super::Report;
use super::html::Html;
use super::words::{Clock, count, fate, number, span};
use crate::money::dollars;

/// How wide and high a plot is in its own units.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 100.0;
/// The most points, or bars, of a plot.
const POINTS: usize = 250;

pub(super) fn write(html: &mut Html, report: &Report, clock: &Clock) {
    lanes(html, &report.timeline, clock);
    spent(html, &report.timeline);
    durations(html, &report.timeline);
}

/// Where points in time lie. Time in which no process had the run is shortened.
struct Scale {
    /// The spans of the processes, and where each begins.
    spans: Vec<(Timestamp, Timestamp, f64)>,
    unit: f64,
    gaps: usize,
    shortened: Duration,
}

impl Scale {
    fn of(timeline: &Timeline) -> Self {
        let until = timeline.until();
        let processes = timeline.processes.iter();
        let mut spans: Vec<_> = processes
            .map(|it| (it.began, it.ended.unwrap_or(until), 0.0))
            .collect();
        let length = |from: Timestamp, to: Timestamp| to.since(from).as_secs_f64().max(0.001);
        let active: f64 = spans.iter().map(|(from, to, _)| length(*from, *to)).sum();
        let (most, mut at, mut before) = (active * 0.03, 0.0, None);
        let (mut gaps, mut shortened) = (0, Duration::ZERO);
        for (from, to, place) in &mut spans {
            if let Some(before) = before {
                let gap: Duration = from.since(before);
                let shown = gap.as_secs_f64().min(most);
                if gap.as_secs_f64() > most {
                    gaps += 1;
                    shortened += gap;
                }
                at += shown;
            }
            *place = at;
            at += length(*from, *to);
            before = Some(*to);
        }
        let unit = WIDTH / f64::max(at, 0.001);
        Self {
            spans,
            unit,
            gaps,
            shortened,
        }
    }

    fn x(&self, at: Timestamp) -> f64 {
        let span = self
            .spans
            .iter()
            .rfind(|(from, ..)| *from <= at)
            .or(self.spans.first());
        let Some((from, to, place)) = span else {
            return 0.0;
        };
        (place + at.min(*to).since(*from).as_secs_f64()) * self.unit
    }
}

/// A bar of a lane.
struct Bar {
    from: f64,
    to: f64,
    class: &'static str,
}

/// Puts bars together that nobody could tell apart, and those of what went wrong before all others, so that none covers them.
fn merged(bars: impl Iterator<Item = Bar>) -> Vec<Bar> {
    let mut out: Vec<Bar> = Vec::new();
    for bar in bars {
        let is_narrow = bar.to - bar.from < 1.5;
        match out.last_mut() {
            Some(last) if is_narrow && last.class == bar.class && bar.from - last.to < 0.25 => {
                last.to = last.to.max(bar.to);
            }
            _ => out.push(bar),
        }
    }
    out.sort_by_key(|bar| bar.class != "fg");
    out
}

fn rect(html: &mut Html, class: &str, [x, y, width, height]: [f64; 4]) {
    let [x, y, width, height] = [x, y, width, height].map(|it| format!("{it:.2}"));
    html.empty(
        "rect",
        &[
            ("class", class),
            ("x", &x),
            ("y", &y),
            ("width", &width),
            ("height", &height),
        ],
    );
}

fn svg(html: &mut Html, class: &str, label: &str, inner: impl FnOnce(&mut Html)) {
    html.element(
        "svg",
        &[
            ("class", class),
            ("viewBox", "0 0 1000 100"),
            ("preserveAspectRatio", "none"),
            ("role", "img"),
            ("aria-label", label),
        ],
        inner,
    );
}

fn lanes(html: &mut Html, timeline: &Timeline, clock: &Clock) {
    let scale = Scale::of(timeline);
    let until = timeline.until();
    let bar = |from: Timestamp, to: Timestamp, class| Bar {
        from: scale.x(from),
        to: scale.x(to).max(scale.x(from) + 1.0),
        class,
    };
    let work = timeline.attempts.iter().map(|attempt| {
        let ended = attempt.ended.or(attempt.turn_ended).unwrap_or(until);
        bar(attempt.began, ended, fill(fate(attempt).1))
    });
    let waits = timeline
        .waits
        .iter()
        .filter(|wait| wait.why != WaitFor::Sleep);
    let waits = waits.map(|wait| {
        let class = match wait.why {
            WaitFor::Limit | WaitFor::Retry => "fw",
            _ => "fo",
        };
        bar(wait.began, wait.ended.unwrap_or(until), class)
    });
    let processes = timeline
        .processes
        .iter()
        .map(|it| bar(it.began, it.ended.unwrap_or(until), "fw"));
    let (work, waits) = (merged(work), merged(waits));
    let processes: Vec<Bar> = processes.collect();
    let died: Vec<f64> = timeline
        .processes
        .iter()
        .filter(|it| it.end == ProcessEnd::Died)
        .filter_map(|it| it.ended)
        .map(|at| scale.x(at))
        .collect();
    let bars = work.iter().chain(&waits).chain(&processes);
    let mut shown: BTreeSet<&str> = bars.map(|bar| bar.class).collect();
    shown.extend((!died.is_empty()).then_some("fb"));
    html.element("figure", &[], |html| {
        html.element("figcaption", &[], |html| {
            html.text_in("b", "", "When it worked and when it waited.");
            let mut text = format!(
                " {}, {} and {}.",
                count(timeline.attempts.len(), "attempt", "attempts"),
                count(
                    timeline
                        .waits
                        .iter()
                        .filter(|it| it.why != WaitFor::Sleep)
                        .count(),
                    "wait",
                    "waits"
                ),
                count(timeline.processes.len(), "process", "processes"),
            );
            if scale.gaps > 0 {
                text.push_str(&format!(
                    " No process had the run for {} in all; {} shortened here.",
                    span(scale.shortened),
                    if scale.gaps == 1 {
                        "that is"
                    } else {
                        "these gaps are"
                    }
                ));
            }
            html.text(&text);
        });
        html.element("div", &[("class", "plot lanes")], |html| {
            let lanes = [
                ("Work", work, "attempts over time, by their outcome"),
                ("Waits", waits, "waits over time"),
                ("Process", processes, "the processes that had the run"),
            ];
            for (name, bars, label) in lanes.into_iter().filter(|(_, bars, _)| !bars.is_empty()) {
                html.text_in("span", "name", name);
                svg(html, "lane", label, |html| {
                    for bar in bars {
                        rect(html, bar.class, [bar.from, 0.0, bar.to - bar.from, HEIGHT]);
                    }
                    if name == "Process" {
                        died.iter().for_each(|at| {
                            rect(html, "fb", [(at - 3.0).max(0.0), 0.0, 3.0, HEIGHT])
                        });
                    }
                });
            }
            html.element("div", &[("class", "x")], |html| {
                for at in [timeline.began(), until] {
                    clock.time(html, at, &clock.short(at));
                }
            });
        });
        let key = [
            ("kg", "fg", "complete"),
            ("kb", "fb", "failed; a process that died"),
            ("kc", "fc", "cut"),
            ("kw", "fw", "a process, or waiting for time"),
            ("ko", "fo", "at work, or waiting for a person"),
        ];
        html.element("ul", &[("class", "key")], |html| {
            for (class, _, what) in key.into_iter().filter(|(_, fill, _)| shown.contains(fill)) {
                html.element("li", &[], |html| {
                    html.empty("i", &[("class", class)]);
                    html.text(what);
                });
            }
        });
    });
}

fn fill(class: &str) -> &'static str {
    match class {
        "good" => "fg",
        "bad" => "fb",
        "cut" => "fc",
        _ => "fo",
    }
}

/// What was used, attempt by attempt, and the limit if there is one.
fn spent(html: &mut Html, timeline: &Timeline) {
    let rules = &timeline.head.machine.rules;
    let costs = timeline.head.machine.usage.cost_microusd > 0;
    let (name, limit): (_, Option<u64>) = match costs {
        true => ("Cost", rules.max_cost_microusd),
        false => ("Tokens", rules.max_tokens),
    };
    let mut all = 0u64;
    let sums: Vec<u64> = timeline
        .attempts
        .iter()
        .map(|attempt| {
            all = all.saturating_add(match costs {
                true => attempt.usage.cost_microusd,
                false => attempt.usage.tokens(),
            });
            all
        })
        .collect();
    let shown = |amount: u64| match costs {
        true => dollars(amount),
        false => number(amount),
    };
    if all == 0 {
        html.text_in(
            "p",
            "note",
            "There is no plot of the cost: the agent does not say what it uses.",
        );
        return;
    }
    let in_sight = limit.filter(|limit| *limit <= all.saturating_mul(3));
    let top = in_sight.unwrap_or(0).max(all) as f64;
    let y = |amount: u64| HEIGHT - amount as f64 / top * HEIGHT;
    let mut text = format!(" {} in all", shown(all));
    match (limit, in_sight) {
        (Some(limit), Some(_)) => text.push_str(&format!(
            "; the dashed line is the limit of {}.",
            shown(limit)
        )),
        (Some(limit), None) => {
            text.push_str(&format!("; the limit of {} lies far above.", shown(limit)))
        }
        _ => text.push_str("; there is no limit."),
    }
    plot(
        html,
        name,
        " over the attempts.",
        &text,
        &shown(top as u64),
        ("first attempt", "last"),
        |html| {
            let mut points = vec![(0.0, HEIGHT)];
            let steps = sums.len().min(POINTS);
            points.extend((1..=steps).map(|step| {
                let at = step * sums.len() / steps;
                (at as f64 / sums.len() as f64 * WIDTH, y(sums[at - 1]))
            }));
            let curve: Vec<String> = points
                .iter()
                .map(|(x, y)| format!("{x:.1} {y:.2}"))
                .collect();
            let curve = format!("M{}", curve.join("L"));
            let area = format!("{curve}L{WIDTH} {HEIGHT}L0 {HEIGHT}Z");
            html.empty("path", &[("class", "area"), ("d", &area)]);
            html.empty("path", &[("class", "curve"), ("d", &curve)]);
            if let Some(limit) = in_sight {
                let y = format!("{:.2}", y(limit));
                html.empty(
                    "line",
                    &[
                        ("class", "limit"),
                        ("x1", "0"),
                        ("x2", "1000"),
                        ("y1", &y),
                        ("y2", &y),
                    ],
                );
            }
        },
    );
}

/// How long each attempt took.
fn durations(html: &mut Html, timeline: &Timeline) {
    let until = timeline.until();
    let mut took: Vec<Duration> = timeline.attempts.iter().map(|it| it.took(until)).collect();
    let Some(longest) = took.iter().max().copied().filter(|it| !it.is_zero()) else {
        return;
    };
    let bars = took.len().min(POINTS);
    let bar = |bar: usize| {
        let range = bar * took.len() / bars..(bar + 1) * took.len() / bars;
        let longest = took[range.clone()]
            .iter()
            .max()
            .copied()
            .unwrap_or_default();
        // Of those that share a bar the worst shows.
        let worst = timeline.attempts[range].iter().map(|it| fill(fate(it).1));
        let rank = |class: &&str| ["fg", "fo", "fc", "fb"].iter().position(|it| it == class);
        (longest, worst.max_by_key(rank).unwrap_or("fg"))
    };
    let columns: Vec<_> = (0..bars).map(bar).collect();
    took.sort_unstable();
    let text = format!(
        " The longest took {}, one in the middle {}.",
        span(longest),
        span(took[took.len() / 2])
    );
    plot(
        html,
        "Time",
        " of each attempt, its gates and check included.",
        &text,
        &span(longest),
        ("first attempt", "last"),
        |html| {
            let width = WIDTH / bars as f64;
            let gap = if bars > 100 {
                0.0
            } else {
                width.min(40.0) * 0.15
            };
            // A single bar need not fill the page.
            let wide = width.min(60.0);
            for (at, (took, class)) in columns.iter().enumerate() {
                let height = (took.as_secs_f64() / longest.as_secs_f64() * HEIGHT).max(1.0);
                rect(
                    html,
                    class,
                    [
                        (at as f64 + 0.5) * width - (wide - gap) / 2.0,
                        HEIGHT - height,
                        wide - gap,
                        height,
                    ],
                );
            }
        },
    );
}

fn plot(
    html: &mut Html,
    name: &str,
    of: &str,
    text: &str,
    top: &str,
    (first, last): (&str, &str),
    inner: impl FnOnce(&mut Html),
) {
    html.element("figure", &[], |html| {
        html.element("figcaption", &[], |html| {
            html.element("b", &[], |html| html.text(&format!("{name}{of}")));
            html.text(text);
        });
        html.element("div", &[("class", "plot")], |html| {
            html.element("div", &[("class", "y"), ("aria-hidden", "true")], |html| {
                html.text_in("span", "", top);
                html.text_in("span", "", "0");
            });
            svg(html, "", &format!("{name}{of}{text}"), |html| {
                html.empty(
                    "line",
                    &[
                        ("class", "grid"),
                        ("x1", "0"),
                        ("x2", "1000"),
                        ("y1", "50"),
                        ("y2", "50"),
                    ],
                );
                inner(html);
            });
            html.element("div", &[("class", "x"), ("aria-hidden", "true")], |html| {
                html.text_in("span", "", first);
                html.text_in("span", "", last);
            });
        });
    });
}
