//! Amounts, spans of time and points in time as a page says them.

use std::time::Duration;

use jiff::tz::TimeZone;
use loop_runner::Fate;
use loop_runner::timeline::{Attempt, WaitFor};
use loop_state::{CutCause, Timestamp, Usage};
use maud::{Markup, html};
use rlm_text::money::dollars;

/// A span of time in its two largest units.
pub(super) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    let two = |large: u64, one: &str, small: u64, other: &str| match small {
        0 => format!("{large} {one}"),
        _ => format!("{large} {one} {small} {other}"),
    };
    match seconds {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3600 => two(seconds / 60, "min", seconds % 60, "s"),
        3600..86_400 => two(seconds / 3600, "h", seconds % 3600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

/// A number with its thousands apart.
pub(super) fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// How many of something, in words where that reads better.
pub(super) fn count(n: usize, one: &str, many: &str) -> String {
    format!("{} {}", number(n as u64), if n == 1 { one } else { many })
}

pub(super) fn bytes(n: u64) -> String {
    match n {
        0..1024 => format!("{n} bytes"),
        1024..1_048_576 => format!("{} KiB", n.div_ceil(1024)),
        _ => format!("{:.1} MiB", n as f64 / 1_048_576.0),
    }
}

/// What was used; empty where the agent does not say.
pub(super) fn used(usage: Usage) -> String {
    match (usage.cost_microusd, usage.tokens()) {
        (0, 0) => String::new(),
        (0, tokens) => format!("{} tokens", number(tokens)),
        (cost, _) => dollars(cost),
    }
}

/// What became of an attempt: a word, the class of its colour, and why.
pub(super) fn fate(attempt: &Attempt) -> (&'static str, &'static str, String) {
    match &attempt.fate {
        Fate::Complete => ("complete", "good", String::new()),
        Fate::Failed(why) => ("failed", "bad", why.clone()),
        Fate::Cut(cause) => ("cut", "cut", cut(*cause).to_owned()),
        Fate::Judging => ("being judged", "open", "its turn is over".to_owned()),
        _ => ("at work", "open", String::new()),
    }
}

pub(super) fn cut(cause: Option<CutCause>) -> &'static str {
    match cause {
        None => "its session was lost, and a fresh one began",
        Some(CutCause::Crash) => "the loop's process died",
        Some(CutCause::Stop) => "the run was stopped",
        Some(CutCause::TimeLimit) => "the run's time was used up",
        Some(CutCause::Budget) => "the budget was used up",
        Some(CutCause::RateLimit) => "a rate limit was reached",
        Some(CutCause::Transient) => "the agent failed in a way that may not come again",
        Some(CutCause::Restart) => "a person wanted it done again",
        Some(_) => "the agent could not work",
    }
}

pub(super) fn waited_for(why: WaitFor) -> &'static str {
    match why {
        WaitFor::Sleep => "the pause between iterations",
        WaitFor::Limit => "the end of a rate limit",
        WaitFor::Retry => "another try",
        WaitFor::Pause => "a person, paused",
        WaitFor::Review(loop_state::Occasion::Phase) => "a person’s word on the phase",
        WaitFor::Review(_) => "a person’s word on the batch",
        WaitFor::Interrupt => "a person’s word, after an interrupt",
        _ => "something",
    }
}

/// Points in time, in one zone.
#[derive(Debug)]
pub(super) struct Clock {
    zone: TimeZone,
    /// Whether the day must be said with each.
    pub(super) has_days: bool,
}

impl Clock {
    pub(super) fn new(zone: TimeZone, from: Timestamp, to: Timestamp) -> Self {
        let clock = Self {
            zone,
            has_days: false,
        };
        let has_days = clock.format(from, "%F") != clock.format(to, "%F");
        Self { has_days, ..clock }
    }

    fn format(&self, at: Timestamp, format: &str) -> String {
        let at = jiff::Timestamp::from_millisecond(i64::try_from(at.0).unwrap_or(i64::MAX));
        let at = at.unwrap_or_default().to_zoned(self.zone.clone());
        at.strftime(format).to_string()
    }

    /// The day, the time and the zone's offset.
    pub(super) fn full(&self, at: Timestamp) -> String {
        self.format(at, "%-d %b %Y, %H:%M:%S %:z")
    }

    /// The time, with its day where there are several.
    fn short(&self, at: Timestamp) -> String {
        self.format(
            at,
            if self.has_days {
                "%-d %b %H:%M:%S"
            } else {
                "%H:%M:%S"
            },
        )
    }

    /// The offset of the zone at that time.
    pub(super) fn offset(&self, at: Timestamp) -> String {
        self.format(at, "%:z")
    }

    /// Returns a point in time with its day, which programs can read too.
    pub(super) fn full_time(&self, at: Timestamp) -> Markup {
        self.time(at, &self.full(at))
    }

    /// Returns a point in time, with its day where there are several.
    pub(super) fn short_time(&self, at: Timestamp) -> Markup {
        self.time(at, &self.short(at))
    }

    fn time(&self, at: Timestamp, shown: &str) -> Markup {
        html! { time datetime=(self.format(at, "%Y-%m-%dT%H:%M:%S%:z")) { (shown) } }
    }
}
