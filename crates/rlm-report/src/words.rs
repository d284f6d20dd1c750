//! Formats amounts, durations, points in time and outcomes for a page.

use std::time::Duration;

use jiff::tz::TimeZone;
use loop_state::{Timestamp, UnfinishedCause, UsageTotal};
use maud::{Markup, html};
use rlm_store::timeline::{AttemptSpan, Timeline, WaitedFor};
use rlm_store::{
    AttemptOutcome, DeliveryResult, NotificationRecord, RemovedTranscripts, Uncommitted,
};
use rlm_text::escape::plain;
use rlm_text::money::dollars;
use rlm_text::time::{instant, utc};

/// Formats a duration in its two largest units.
pub(crate) fn format_duration(time: Duration) -> String {
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

/// Formats a number with commas between thousands.
pub(crate) fn number(n: u64) -> String {
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

/// Formats a number with the right form of its noun.
pub(crate) fn count(n: usize, one: &str, many: &str) -> String {
    format!("{} {}", number(n as u64), if n == 1 { one } else { many })
}

/// Formats a usage; empty if the agent reports none.
pub(crate) fn usage_text(usage: UsageTotal) -> String {
    match (usage.cost_microusd, usage.tokens()) {
        (0, 0) => String::new(),
        (0, tokens) => format!("{} tokens", number(tokens)),
        (cost, _) => dollars(cost),
    }
}

/// Returns the outcome of an attempt: a word, the CSS class of its colour, and the reason.
pub(crate) fn outcome(attempt: &AttemptSpan) -> (&'static str, &'static str, String) {
    match &attempt.outcome {
        AttemptOutcome::Complete => ("complete", "good", String::new()),
        AttemptOutcome::Failed(why) => ("failed", "bad", why.clone()),
        AttemptOutcome::Unfinished(cause) => ("unfinished", "cut", unfinished_text(*cause)),
        AttemptOutcome::Checking => ("checking", "open", "its turn has ended".to_owned()),
        _ => ("working", "open", String::new()),
    }
}

/// Returns the title of an attempt: its iteration, and also its phase and its own number if the run has several of them.
pub(crate) fn attempt_title(timeline: &Timeline, attempt: &AttemptSpan) -> String {
    let phases = &timeline.head.settings.phases;
    let phase = phases
        .get(attempt.phase as usize)
        .filter(|_| phases.len() > 1);
    let phase = phase.map_or_else(String::new, |phase| format!("{} ", phase.name));
    let mut attempts = timeline.attempts.iter();
    let first = attempts
        .find(|it| (it.phase, it.iteration) == (attempt.phase, attempt.iteration))
        .is_some_and(|first| first.attempt == attempt.attempt);
    let number = match first {
        true => String::new(),
        false => format!(", attempt {}", attempt.attempt),
    };
    format!("{phase}iteration {}{number}", attempt.iteration)
}

fn unfinished_text(cause: Option<UnfinishedCause>) -> String {
    match cause {
        None => "its session was lost; a fresh session began".to_owned(),
        Some(cause) => cause.to_string(),
    }
}

pub(crate) fn wait_text(why: WaitedFor) -> &'static str {
    match why {
        WaitedFor::Sleep => "the next iteration",
        WaitedFor::RateLimit => "the end of a rate limit",
        WaitedFor::Retry => "a retry",
        WaitedFor::Pause => "a person, while paused",
        WaitedFor::Review(loop_state::ReviewPoint::Phase) => "a review of the phase",
        WaitedFor::Review(_) => "a review of the batch",
        WaitedFor::Interrupt => "a person, after an interrupt",
    }
}

/// Returns the first line of a text that is not empty, shortened.
pub(crate) fn first_line(text: &str) -> String {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines().next().unwrap_or_default();
    match line.char_indices().nth(160) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None if lines().nth(1).is_some() => format!("{line} …"),
        None => line.to_owned(),
    }
}

/// Returns a text with a capital letter at its start.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

/// Returns a sentence about the removed transcripts: how many, when and by which command.
#[must_use]
pub fn removed(removed: &RemovedTranscripts) -> String {
    let n = removed.attempts.len();
    let attempts = count(n, "attempt", "attempts");
    let (transcripts, were) = match n {
        1 => ("transcript", "was"),
        _ => ("transcripts", "were"),
    };
    let (at, by) = (utc(removed.at), plain(&removed.by));
    format!("the {transcripts} of {attempts} {were} removed at {at} by `{by}`")
}

/// Returns a sentence about the iterations that are not committed, with the reason.
#[must_use]
pub fn uncommitted(uncommitted: &Uncommitted) -> String {
    let iterations = count(uncommitted.iterations as usize, "iteration", "iterations");
    format!("{iterations} not committed: {}", plain(&uncommitted.reason))
}

/// Returns a text about one notification: its event, its channel and the result.
#[must_use]
pub fn delivery(record: &NotificationRecord) -> String {
    let (event, channel) = (plain(&record.event), plain(&record.channel));
    let tries = match record.tries {
        0 | 1 => String::new(),
        tries => format!(" after {tries} tries"),
    };
    match &record.result {
        DeliveryResult::Delivered(text) => {
            format!(
                "`{event}` by {channel}, acknowledged{tries}: {}",
                plain(text)
            )
        }
        DeliveryResult::Failed(why) => {
            format!(
                "`{event}` by {channel}, not acknowledged{tries}: {}",
                plain(why)
            )
        }
    }
}

/// Formats points in time in one time zone.
#[derive(Debug)]
pub(crate) struct Clock {
    zone: TimeZone,
    /// Whether each point in time includes its day.
    pub(crate) has_days: bool,
}

impl Clock {
    pub(crate) fn new(zone: TimeZone, from: Timestamp, to: Timestamp) -> Self {
        let clock = Self {
            zone,
            has_days: false,
        };
        let has_days = clock.format(from, "%F") != clock.format(to, "%F");
        Self { has_days, ..clock }
    }

    fn format(&self, at: Timestamp, format: &str) -> String {
        let at = instant(at).to_zoned(self.zone.clone());
        at.strftime(format).to_string()
    }

    /// Returns the day, the time and the offset of the zone.
    pub(crate) fn full(&self, at: Timestamp) -> String {
        self.format(at, "%-d %b %Y, %H:%M:%S %:z")
    }

    /// Returns the time, with its day if the page covers several days.
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

    /// Returns the offset of the zone at that time.
    pub(crate) fn offset(&self, at: Timestamp) -> String {
        self.format(at, "%:z")
    }

    /// Returns a point in time with its day, also in a form for programs.
    pub(crate) fn full_time(&self, at: Timestamp) -> Markup {
        self.time(at, &self.full(at))
    }

    /// Returns a point in time, with its day if the page covers several days.
    pub(crate) fn short_time(&self, at: Timestamp) -> Markup {
        self.time(at, &self.short(at))
    }

    fn time(&self, at: Timestamp, shown: &str) -> Markup {
        html! { time datetime=(self.format(at, "%Y-%m-%dT%H:%M:%S%:z")) { (shown) } }
    }
}
