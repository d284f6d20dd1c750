//! The figures of a run as plots and as a table: what its attempts cost, how long they took, and how long the run waited.

use std::ops::Range;
use std::time::Duration;

use jiff::tz::TimeZone;
use loop_state::UsageTotal;
use maud::{Markup, html};
use rlm_store::Timeline;
use rlm_store::timeline::{WaitSpan, WaitedFor};
use rlm_text::money::dollars;

use crate::plots::{Column, SMALLEST, Spent, columns, fill, lanes, plot, spent};
use crate::visible::visible;
use crate::words::{
    Clock, attempt_title, capital, count, format_duration, number, outcome, wait_text,
};

/// The largest number of rows and of bars. In a longer run, a row is a group of consecutive attempts.
const GROUPS: usize = 200;
const CAUSES: [WaitedFor; 7] = [
    WaitedFor::RateLimit,
    WaitedFor::Retry,
    WaitedFor::Pause,
    WaitedFor::Review(loop_state::ReviewPoint::Phase),
    WaitedFor::Review(loop_state::ReviewPoint::Batch),
    WaitedFor::Interrupt,
    WaitedFor::Sleep,
];

/// Consecutive attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Group {
    name: String,
    /// The indices of the attempts.
    attempts: Range<usize>,
    /// The class of the worst outcome.
    class: &'static str,
    usage: UsageTotal,
    /// The time of all attempts, and of the longest one, including their checks.
    took: Duration,
    longest: Duration,
    /// The waits that began after the beginning of the first attempt, without the pauses between iterations.
    waited: Duration,
}

/// Returns the plots and the table of a run as HTML, for a page of another program. They need the style [`PLOTS_CSS`](crate::PLOTS_CSS).
#[must_use]
pub fn figures(timeline: &Timeline, zone: TimeZone) -> String {
    let clock = Clock::new(zone, timeline.began(), timeline.until());
    let groups = groups(timeline, GROUPS);
    let usage = timeline.head.machine.usage;
    let html = html! {
        (lanes(timeline, &clock))
        @if usage.cost_microusd > 0 { (spent(timeline, Spent::Cost)) }
        @if usage.tokens() > 0 { (spent(timeline, Spent::Tokens)) }
        @if usage == UsageTotal::default() { p class="note" { "The agent reports neither costs nor tokens." } }
        (times(timeline, &groups))
        (waits(timeline, &groups))
        (table(&groups, usage))
    };
    visible(&html.into_string())
}

/// Returns the plots of a report.
pub(crate) fn plots(timeline: &Timeline, clock: &Clock) -> Markup {
    html! {
        (lanes(timeline, clock))
        (spent(timeline, Spent::of(timeline)))
        (times(timeline, &groups(timeline, GROUPS)))
    }
}

/// Divides the attempts of a run into at most this many groups.
fn groups(timeline: &Timeline, most: usize) -> Vec<Group> {
    let (attempts, until) = (&timeline.attempts, timeline.until());
    let count = attempts.len().min(most);
    let group_of = |attempt: usize| (attempt * count) / attempts.len().max(1);
    let mut groups = vec![Group::default(); count];
    for (index, attempt) in attempts.iter().enumerate() {
        let group = &mut groups[group_of(index)];
        if group.attempts.is_empty() {
            group.attempts.start = index;
            group.class = "fg";
        }
        group.attempts.end = index + 1;
        let rank = |class: &str| ["fg", "fo", "fc", "fb"].iter().position(|it| *it == class);
        let class = fill(outcome(attempt).1);
        if rank(class) > rank(group.class) {
            group.class = class;
        }
        let took = attempt.duration(until);
        group.took += took;
        group.longest = group.longest.max(took);
        group.usage.input_tokens += attempt.usage.input_tokens;
        group.usage.output_tokens += attempt.usage.output_tokens;
        group.usage.cost_microusd += attempt.usage.cost_microusd;
    }
    for wait in timeline
        .waits
        .iter()
        .filter(|it| it.cause != WaitedFor::Sleep)
    {
        let after = attempts.partition_point(|attempt| attempt.began <= wait.began);
        if let Some(group) = groups.get_mut(group_of(after.saturating_sub(1))) {
            group.waited += length(timeline, wait);
        }
    }
    for group in &mut groups {
        group.name = name(timeline, group.attempts.clone());
    }
    groups
}

/// Returns the name of consecutive attempts, with a capital letter.
fn name(timeline: &Timeline, indices: Range<usize>) -> String {
    let attempts = &timeline.attempts[indices];
    let title = |attempt| attempt_title(timeline, attempt);
    match attempts {
        [] => String::new(),
        [only] => capital(&title(only)),
        [first, .., last] => format!(
            "{} to {} ({})",
            capital(&title(first)),
            title(last),
            count(attempts.len(), "attempt", "attempts")
        ),
    }
}

fn length(timeline: &Timeline, wait: &WaitSpan) -> Duration {
    wait.ended.unwrap_or(timeline.until()).since(wait.began)
}

/// Renders a plot of the time of each attempt.
fn times(timeline: &Timeline, groups: &[Group]) -> Markup {
    let until = timeline.until();
    let attempts = timeline.attempts.iter();
    let mut all: Vec<Duration> = attempts.map(|it| it.duration(until)).collect();
    all.sort_unstable();
    let Some(longest) = all.last().copied().filter(|it| !it.is_zero()) else {
        return Markup::default();
    };
    let bar = |group: &Group| Column {
        part: (group.longest.as_secs_f64() / longest.as_secs_f64()).max(SMALLEST),
        class: group.class,
        text: format!("{}: {}", group.name, format_duration(group.longest)),
    };
    let of_groups = match groups.len() < all.len() {
        true => " Each bar is the longest attempt of its group.",
        false => "",
    };
    let text = format!(
        " The longest took {}; the median is {}.{of_groups}",
        format_duration(longest),
        format_duration(all[all.len() / 2])
    );
    plot(
        "Time of each attempt, including its checks.",
        &text,
        &format_duration(longest),
        columns(&groups.iter().map(bar).collect::<Vec<_>>()),
    )
}

/// Renders the waits.
fn waits(timeline: &Timeline, groups: &[Group]) -> Markup {
    let longest = groups.iter().map(|group| group.waited).max();
    let longest = longest.unwrap_or_default();
    let causes = CAUSES.map(|cause| {
        let waits = || timeline.waits.iter().filter(|wait| wait.cause == cause);
        let time: Duration = waits().map(|wait| length(timeline, wait)).sum();
        (cause, waits().count(), time)
    });
    let all: Vec<_> = { groups.iter() }
        .map(|group| {
            let part = match group.waited.is_zero() {
                true => 0.0,
                false => (group.waited.as_secs_f64() / longest.as_secs_f64()).max(SMALLEST),
            };
            let text = format!("{}: {}", group.name, format_duration(group.waited));
            let class = "fw";
            Column { part, class, text }
        })
        .collect();
    html! {
        @if longest.is_zero() {
            p class="note" { "The run waited for no rate limit, no retry and no person." }
        } @else {
            (plot("Waits after each attempt.", " Pauses between iterations don't count.", &format_duration(longest), columns(&all)))
        }
        @if causes.iter().any(|(_, count, _)| *count > 0) { table class="waits" {
            caption class="hidden" { "Waits by their cause" }
            thead { tr { th scope="col" { "Waited for" } th scope="col" class="n" { "Waits" } th scope="col" class="n" { "Time" } } }
            tbody {
                @for (cause, number_of, time) in causes.into_iter().filter(|(_, count, _)| *count > 0) {
                    tr {
                        th scope="row" { (wait_text(cause)) }
                        td class="n" { (number(number_of as u64)) }
                        td class="n" { (duration(time)) }
                    }
                }
            }
        } }
    }
}

fn duration(time: Duration) -> Markup {
    html! { data value=(time.as_millis()) { (format_duration(time)) } }
}

/// Renders the figures behind the plots.
fn table(groups: &[Group], usage: UsageTotal) -> Markup {
    let all = groups.iter().fold(Group::default(), |sum, group| Group {
        usage: UsageTotal {
            cost_microusd: sum.usage.cost_microusd + group.usage.cost_microusd,
            input_tokens: sum.usage.input_tokens + group.usage.input_tokens,
            output_tokens: sum.usage.output_tokens + group.usage.output_tokens,
        },
        took: sum.took + group.took,
        waited: sum.waited + group.waited,
        ..sum
    });
    // An agent that reports no cost has not worked for nothing.
    let (has_cost, has_tokens) = (usage.cost_microusd > 0, usage.tokens() > 0);
    let value = |value: u64, text: String| html! { td class="n" { data value=(value) { (text) } } };
    let cells = |group: &Group| {
        let used = group.usage;
        html! {
            @if has_cost { (value(used.cost_microusd, dollars(used.cost_microusd))) }
            @if has_tokens {
                (value(used.input_tokens, number(used.input_tokens)))
                (value(used.output_tokens, number(used.output_tokens)))
            }
            td class="n" { (duration(group.took)) }
            td class="n" { (duration(group.waited)) }
        }
    };
    html! {
        details class="plain" {
            summary { "All figures as a table" }
            // A region that scrolls must be reachable with the keyboard.
            div class="table" role="region" aria-label="All figures" tabindex="0" {
                table class="values" {
                    caption class="hidden" { "Cost, tokens, time and waits of the attempts" }
                    thead {
                        tr {
                            th scope="col" { "Attempt" }
                            @if has_cost { th scope="col" class="n" { "Cost" } }
                            @if has_tokens {
                                th scope="col" class="n" { "Input tokens" }
                                th scope="col" class="n" { "Output tokens" }
                            }
                            th scope="col" class="n" { "Time" }
                            th scope="col" class="n" { "Waited" }
                        }
                    }
                    tbody {
                        @for group in groups { tr { th scope="row" { (group.name) } (cells(group)) } }
                    }
                    tfoot { tr { th scope="row" { "All" } (cells(&all)) } }
                }
            }
        }
    }
}
