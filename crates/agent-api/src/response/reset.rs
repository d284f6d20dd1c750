//! The time at which a rate limit ends, read from the headers of a response. The crate has no clock, so it doesn't convert
//! dates to delays.

use std::time::{Duration, SystemTime};

use super::HttpResponse;
use crate::error::Reset;

/// A header that names a longer delay is not credible.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3_600);

/// The limits for which a Messages server reports the remaining amount and the time of the reset.
const MESSAGES_LIMITS: [&str; 4] = ["requests", "tokens", "input-tokens", "output-tokens"];

/// The same for OpenAI's services.
const OPENAI_LIMITS: [&str; 2] = ["requests", "tokens"];

/// Returns the time that the headers name: `retry-after` in its forms, or else the latest reset of a limit that is used up.
pub(super) fn of(response: &HttpResponse<'_>) -> Option<Reset> {
    let milliseconds = response.header("retry-after-ms").and_then(|text| {
        let milliseconds: f64 = text.trim().parse().ok()?;
        after(milliseconds / 1_000.0)
    });
    let retry_after = || {
        let text = response.header("retry-after")?.trim();
        match text.parse::<f64>() {
            Ok(seconds) => after(seconds),
            Err(_) => http_date(text).map(Reset::At),
        }
    };
    let used_up = |limits: &[&str], prefix: &str, order: Order| {
        let resets = limits.iter().filter_map(|limit| {
            let (remaining, reset) = match order {
                Order::LimitFirst => (
                    format!("{prefix}{limit}-remaining"),
                    format!("{prefix}{limit}-reset"),
                ),
                Order::LimitLast => (
                    format!("{prefix}remaining-{limit}"),
                    format!("{prefix}reset-{limit}"),
                ),
            };
            let remaining: u64 = response.header(&remaining)?.trim().parse().ok()?;
            (remaining == 0).then(|| response.header(&reset))?
        });
        resets.map(str::to_owned).collect::<Vec<_>>()
    };
    let messages = || {
        let resets = used_up(&MESSAGES_LIMITS, "anthropic-ratelimit-", Order::LimitFirst);
        let latest = resets.iter().filter_map(|text| rfc_3339(text)).max();
        latest.map(Reset::At)
    };
    let openai = || {
        let resets = used_up(&OPENAI_LIMITS, "x-ratelimit-", Order::LimitLast);
        let longest = resets.iter().filter_map(|text| short_duration(text)).max();
        longest.map(Reset::After)
    };
    { milliseconds.or_else(retry_after) }
        .or_else(messages)
        .or_else(openai)
}

/// The two ways in which services compose the name of a header.
#[derive(Clone, Copy)]
enum Order {
    LimitFirst,
    LimitLast,
}

fn after(seconds: f64) -> Option<Reset> {
    let delay = Duration::try_from_secs_f64(seconds).ok()?;
    (delay <= LONGEST).then_some(Reset::After(delay))
}

/// Parses a duration such as `6m0s`, `1.5s` or `20ms`.
fn short_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut sum = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = rest.split_at(end);
        let number: f64 = number.parse().ok()?;
        let (factor, length) = match unit.as_bytes() {
            [b'm', b's', ..] => (0.001, 2),
            [b'd', ..] => (86_400.0, 1),
            [b'h', ..] => (3_600.0, 1),
            [b'm', ..] => (60.0, 1),
            [b's', ..] => (1.0, 1),
            _ => return None,
        };
        sum += number * factor;
        rest = &unit[length..];
    }
    match after(sum) {
        Some(Reset::After(delay)) => Some(delay),
        _ => None,
    }
}

/// Parses a date of HTTP in its preferred form, `Sun, 06 Nov 1994 08:49:37 GMT`.
fn http_date(text: &str) -> Option<SystemTime> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (_weekday, date) = text.split_once(", ")?;
    let mut words = date.split(' ');
    let day = words.next()?.parse().ok()?;
    let name = words.next()?;
    let month = MONTHS.iter().position(|month| *month == name)?;
    let year = words.next()?.parse().ok()?;
    let time = words.next()?;
    if words.next()? != "GMT" || words.next().is_some() {
        return None;
    }
    at(year, u32::try_from(month).ok()? + 1, day, time, 0)
}

/// Parses a time such as `2026-11-28T08:30:00Z` or `2026-11-28T08:30:00.5+01:00`. Fractions of a second are ignored.
fn rfc_3339(text: &str) -> Option<SystemTime> {
    let (date, time) = text.trim().split_once(['T', 't', ' '])?;
    let mut parts = date.split('-');
    let year = parts.next()?.parse().ok()?;
    let month = parts.next()?.parse().ok()?;
    let day = parts.next()?.parse().ok()?;
    let zone = time.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = time.split_at(zone);
    let offset = match zone {
        "Z" | "z" => 0,
        zone => {
            let (sign, amount) = match zone.strip_prefix('-') {
                Some(amount) => (-1, amount),
                None => (1, zone.strip_prefix('+')?),
            };
            let (hours, minutes) = amount.split_once(':')?;
            let hours: u8 = hours.parse().ok()?;
            let minutes: u8 = minutes.parse().ok()?;
            sign * (i64::from(hours) * 3_600 + i64::from(minutes) * 60)
        }
    };
    let time = time.split_once('.').map_or(time, |(whole, _)| whole);
    at(year, month, day, time, offset)
}

/// Converts a date and a time of day (`08:49:37`) in a zone `offset` seconds ahead of UTC.
fn at(year: i64, month: u32, day: u32, time: &str, offset: i64) -> Option<SystemTime> {
    let mut parts = time.split(':').map(|part| part.parse::<u32>().ok());
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    let is_real = (1970..10_000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60
        && parts.next().is_none();
    if !is_real {
        return None;
    }
    // The number of days since 1970, in years that begin in March, so that a leap day is the last day of its year.
    let (year, month) = (year - i64::from(month <= 2), i64::from(month));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + i64::from(day) - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468;
    let seconds =
        days * 86_400 + i64::from(hour) * 3_600 + i64::from(minute) * 60 + i64::from(second);
    let seconds = u64::try_from(seconds - offset).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(time: Option<SystemTime>) -> Option<u64> {
        let since = time?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        Some(since.as_secs())
    }

    #[test]
    fn dates_have_their_unix_time() {
        let http = |text| seconds(http_date(text));
        assert_eq!(http("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(http("Thu, 29 Feb 2024 00:00:00 GMT"), Some(1_709_164_800));
        assert_eq!(http("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(http("Sun, 06 Nov 1994 08:49:37 CET"), None);
        assert_eq!(http("tomorrow"), None);
        let rfc = |text| seconds(rfc_3339(text));
        assert_eq!(rfc("1994-11-06T08:49:37Z"), Some(784_111_777));
        assert_eq!(rfc("1994-11-06T09:49:37.25+01:00"), Some(784_111_777));
        assert_eq!(rfc("1994-11-06T07:19:37-01:30"), Some(784_111_777));
        assert_eq!(rfc("1994-13-06T07:19:37Z"), None);
        assert_eq!(rfc("1994-11-06"), None);
    }

    #[test]
    fn short_durations_have_units() {
        let milliseconds = |text| short_duration(text).map(|it| it.as_millis());
        assert_eq!(milliseconds("6m0s"), Some(360_000));
        assert_eq!(milliseconds("1h2m3.5s"), Some(3_723_500));
        assert_eq!(milliseconds("20ms"), Some(20));
        assert_eq!(milliseconds("20"), None);
        assert_eq!(milliseconds("1e9s"), None);
        assert_eq!(milliseconds("99999999999h"), None);
        assert_eq!(milliseconds("é"), None);
    }
}
