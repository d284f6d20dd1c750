//! Plots as inline SVG. A plot is stretched to the width of the page, so it contains no text: labels are beside it, and a caption states what it
//! shows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use loop_state::Timestamp;
use maud::{Markup, html};
use rlm_store::timeline::{ProcessEnd, Timeline, WaitedFor};
use rlm_text::money::dollars;

use crate::words::{Clock, count, format_duration, number, outcome};

/// The width and the height of a plot in its own units.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 100.0;
/// The maximum number of points of a plot.
const POINTS: usize = 250;

/// The style of the plots, for a program that shows [`figures`](crate::figures()) in a page of its own.
pub const PLOTS_CSS: &str = include_str!("plots.css");

/// The amount that a plot shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spent {
    Cost,
    Tokens,
}

impl Spent {
    /// Returns the costs, or the tokens if the agent reports no cost.
    pub(crate) fn of(timeline: &Timeline) -> Self {
        match timeline.head.machine.usage.cost_microusd {
            0 => Self::Tokens,
            _ => Self::Cost,
        }
    }
}

/// The horizontal scale for points in time. Time in which no process worked on the run is shortened.
struct Scale {
    /// The time spans of the processes, and where each one begins on the scale.
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

/// Merges bars of one class that are too narrow to distinguish, so that their number is bounded by the width of the plot. Draws the bars of problems
/// last, so that no other bar covers them.
fn merged(bars: impl Iterator<Item = Bar>) -> Vec<Bar> {
    let mut out: Vec<Bar> = Vec::new();
    let mut last_of_class: BTreeMap<&str, usize> = BTreeMap::new();
    for bar in bars {
        let is_narrow = bar.to - bar.from < 1.5;
        let last = last_of_class.get(bar.class).map(|at| &mut out[*at]);
        match last {
            Some(last) if is_narrow && bar.from - last.to < 0.25 => {
                last.to = last.to.max(bar.to);
            }
            _ => {
                last_of_class.insert(bar.class, out.len());
                out.push(bar);
            }
        }
    }
    out.sort_by_key(|bar| bar.class != "fg");
    out
}

/// The smallest part of the whole that is visible.
pub(crate) const SMALLEST: f64 = 0.01;

/// A bar from the bottom of a plot: its height as a part of the whole, its class, and its text.
pub(crate) struct Column {
    pub(crate) part: f64,
    pub(crate) class: &'static str,
    pub(crate) text: String,
}

/// Draws columns beside each other.
pub(crate) fn columns(all: &[Column]) -> Markup {
    let width = WIDTH / all.len().max(1) as f64;
    let gap = if all.len() > 100 {
        0.0
    } else {
        width.min(40.0) * 0.15
    };
    // A few columns don't fill the width of the page.
    let wide = width.min(60.0);
    html! {
        @for (at, column) in all.iter().enumerate() {
            @let height = column.part * HEIGHT;
            @let left = (at as f64 + 0.5) * width - (wide - gap) / 2.0;
            @let [x, y, width, height] = [left, HEIGHT - height, wide - gap, height].map(|it| format!("{it:.2}"));
            rect class=(column.class) x=(x) y=(y) width=(width) height=(height) { title { (column.text) } }
        }
    }
}

fn rect(class: &str, [x, y, width, height]: [f64; 4]) -> Markup {
    let [x, y, width, height] = [x, y, width, height].map(|it| format!("{it:.2}"));
    html! { rect class=(class) x=(x) y=(y) width=(width) height=(height) {} }
}

fn svg(class: Option<&str>, label: &str, inner: Markup) -> Markup {
    html! {
        svg class=[class] viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" aria-label=(label) { (inner) }
    }
}

pub(crate) fn lanes(timeline: &Timeline, clock: &Clock) -> Markup {
    let scale = Scale::of(timeline);
    let until = timeline.until();
    let bar = |from: Timestamp, to: Timestamp, class| Bar {
        from: scale.x(from),
        to: scale.x(to).max(scale.x(from) + 1.0),
        class,
    };
    let work = timeline.attempts.iter().map(|attempt| {
        let ended = attempt.ended.or(attempt.turn_ended).unwrap_or(until);
        bar(attempt.began, ended, fill(outcome(attempt).1))
    });
    let waits = timeline
        .waits
        .iter()
        .filter(|wait| wait.cause != WaitedFor::Sleep);
    let waits = waits.map(|wait| {
        let class = match wait.cause {
            WaitedFor::RateLimit | WaitedFor::Retry => "fw",
            _ => "fo",
        };
        bar(wait.began, wait.ended.unwrap_or(until), class)
    });
    let processes = timeline
        .processes
        .iter()
        .map(|it| bar(it.began, it.ended.unwrap_or(until), "fw"));
    let died = { timeline.processes.iter() }
        .filter(|it| it.end == ProcessEnd::Died)
        .filter_map(|it| it.ended)
        .map(|at| scale.x(at))
        .map(|at| Bar {
            from: (at - 3.0).max(0.0),
            to: (at - 3.0).max(0.0) + 3.0,
            class: "fb",
        });
    let lanes = [
        ("Work", merged(work), "attempts over time, by their outcome"),
        ("Waits", merged(waits), "waits over time"),
        (
            "Process",
            processes.chain(died).collect(),
            "the processes of the run",
        ),
    ];
    let shown: BTreeSet<&str> = { lanes.iter() }
        .flat_map(|(_, bars, _)| bars)
        .map(|bar| bar.class)
        .collect();
    let key = [
        ("kg", "fg", "complete"),
        ("kb", "fb", "failed, or a process that died"),
        ("kc", "fc", "unfinished"),
        (
            "kw",
            "fw",
            "a process, or a wait for a rate limit or a retry",
        ),
        ("ko", "fo", "working, or waiting for a person"),
    ];
    html! {
        figure {
            figcaption { b { "Work and waits over time." } (lanes_caption(timeline, &scale)) }
            div class="plot lanes" {
                @for (name, bars, label) in lanes.into_iter().filter(|(_, bars, _)| !bars.is_empty()) {
                    span class="name" { (name) }
                    (svg(Some("lane"), label, html! {
                        @for bar in bars { (rect(bar.class, [bar.from, 0.0, bar.to - bar.from, HEIGHT])) }
                    }))
                }
                div class="x" { (clock.short_time(timeline.began())) (clock.short_time(until)) }
            }
            ul class="key" {
                @for (class, _, what) in key.into_iter().filter(|(_, fill, _)| shown.contains(fill)) {
                    li { i class=(class) {} (what) }
                }
            }
        }
    }
}

fn lanes_caption(timeline: &Timeline, scale: &Scale) -> String {
    let waits = { timeline.waits.iter() }.filter(|it| it.cause != WaitedFor::Sleep);
    let mut text = format!(
        " {}, {} and {}.",
        count(timeline.attempts.len(), "attempt", "attempts"),
        count(waits.count(), "wait", "waits"),
        count(timeline.processes.len(), "process", "processes"),
    );
    if scale.gaps > 0 {
        let gaps = match scale.gaps {
            1 => "this gap is",
            _ => "these gaps are",
        };
        text.push_str(&format!(
            " No process worked on the run for {} in total; {gaps} shortened here.",
            format_duration(scale.shortened)
        ));
    }
    text
}

pub(crate) fn fill(class: &str) -> &'static str {
    match class {
        "good" => "fg",
        "bad" => "fb",
        "cut" => "fc",
        _ => "fo",
    }
}

/// Renders a plot of the usage after each attempt, and of its limit if there is one.
pub(crate) fn spent(timeline: &Timeline, what: Spent) -> Markup {
    let limits = &timeline.head.machine.rules.limits;
    let (name, limit): (_, Option<u64>) = match what {
        Spent::Cost => ("Cost", limits.max_cost_microusd),
        Spent::Tokens => ("Tokens", limits.max_tokens),
    };
    let mut all = 0u64;
    let sums: Vec<u64> = timeline
        .attempts
        .iter()
        .map(|attempt| {
            all = all.saturating_add(match what {
                Spent::Cost => attempt.usage.cost_microusd,
                Spent::Tokens => attempt.usage.tokens(),
            });
            all
        })
        .collect();
    let shown = |amount: u64| match what {
        Spent::Cost => dollars(amount),
        Spent::Tokens => number(amount),
    };
    if all == 0 {
        return html! {
            p class="note" { "No usage data: the agent does not report it." }
        };
    }
    let in_sight = limit.filter(|limit| *limit <= all.saturating_mul(3));
    let top = in_sight.unwrap_or(0).max(all);
    let y = |amount: u64| HEIGHT - amount as f64 / top as f64 * HEIGHT;
    let limit = match (limit, in_sight) {
        (Some(limit), Some(_)) => format!("the dashed line is the limit of {}.", shown(limit)),
        (Some(limit), None) => format!("the limit of {} is above the plot.", shown(limit)),
        _ => "there is no limit.".to_owned(),
    };
    let mut points = vec![(0.0, HEIGHT)];
    let steps = sums.len().min(POINTS);
    points.extend((1..=steps).map(|step| {
        let at = step * sums.len() / steps;
        (at as f64 / sums.len() as f64 * WIDTH, y(sums[at - 1]))
    }));
    let points: Vec<String> = { points.iter() }
        .map(|(x, y)| format!("{x:.1} {y:.2}"))
        .collect();
    let curve = format!("M{}", points.join("L"));
    let area = format!("{curve}L{WIDTH} {HEIGHT}L0 {HEIGHT}Z");
    let inner = html! {
        path class="area" d=(area) {}
        path class="curve" d=(curve) {}
        @if let Some(limit) = in_sight {
            @let y = format!("{:.2}", y(limit));
            line class="limit" x1="0" x2="1000" y1=(y) y2=(y) {}
        }
    };
    plot(
        &format!("{name} over the attempts."),
        &format!(" {} in total; {limit}", shown(all)),
        &shown(top),
        inner,
    )
}

/// Renders a plot over the attempts, from 0 to `top`.
pub(crate) fn plot(title: &str, text: &str, top: &str, inner: Markup) -> Markup {
    let inner = html! {
        line class="grid" x1="0" x2="1000" y1="50" y2="50" {}
        (inner)
    };
    html! {
        figure {
            figcaption { b { (title) } (text) }
            div class="plot" {
                div class="y" aria-hidden="true" { span { (top) } span { "0" } }
                (svg(None, &format!("{title}{text}"), inner))
                div class="x" aria-hidden="true" { span { "first attempt" } span { "last" } }
            }
        }
    }
}
