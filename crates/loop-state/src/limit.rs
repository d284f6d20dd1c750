//! How long a limit lasts, parsed from the message with which an agent's service refused a request.

use std::time::Duration;

/// The texts that come directly before the time until a retry.
const MARKS: [&str; 7] = [
    "retry in ",
    "try again in ",
    "retry after ",
    "retry-after: ",
    "try again after ",
    "resets in ",
    "reset in ",
];
/// The longest time that is accepted.
const MOST: Duration = Duration::from_secs(14 * 86_400);

/// Returns the time that a refusal names, such as `Please retry in 34.07s` or `Try again in 1 hour 20 minutes`.
///
/// Call this only for a service error that is known to be a limit: any text can contain such words.
pub(crate) fn retry_delay(words: &str) -> Option<Duration> {
    let words = words.to_lowercase();
    let mut found = MARKS.iter().filter_map(|mark| {
        let (_, rest) = words.split_once(mark)?;
        time(rest)
    });
    found.next()
}

/// Parses the time at the beginning of a text: `34.07s`, `1h 20m`, `3 days 4 hours`, `20`.
fn time(text: &str) -> Option<Duration> {
    let (mut rest, mut all) = (text.trim_start(), None);
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let digits = digits.unwrap_or(rest.len());
        let number: Option<f64> = rest[..digits].trim_end_matches('.').parse().ok();
        let Some(number) = number.filter(|number| *number >= 0.0) else {
            return all;
        };
        let behind = rest[digits..].trim_start();
        let word = behind
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(behind.len());
        let seconds = match &behind[..word] {
            "ms" | "milliseconds" => 0.001,
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3600.0,
            "d" | "day" | "days" => 86_400.0,
            // A bare number means seconds, as in the `Retry-After` header, unless a date or a time of day begins with it.
            "" if all.is_none() && !behind.starts_with(|c| "-/:".contains(c)) => 1.0,
            _ => return all,
        };
        let more = Duration::try_from_secs_f64(number * seconds).ok()?;
        let sum = all.unwrap_or(Duration::ZERO).checked_add(more)?;
        all = Some(sum).filter(|sum| *sum <= MOST);
        all?;
        rest = behind[word..].trim_start_matches([' ', ',']);
        rest = rest.strip_prefix("and ").unwrap_or(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn x107a_reset_time_is_parsed_from_the_refusal() {
        for (words, seconds) in [
            (
                "You exceeded your quota. Please retry in 34.5s.",
                Some(34.5),
            ),
            (
                "usage limit: try again in 3 days 4 hours 2 minutes.",
                Some(273_720.0),
            ),
            ("Rate limited, TRY AGAIN IN 1h20m", Some(4800.0)),
            ("429, retry after 20", Some(20.0)),
            ("retry after 250ms", Some(0.25)),
            ("resets in 5 minutes and 3 seconds", Some(303.0)),
            ("try again in a while", None),
            ("try again in 9999999 days", None),
            ("Retry-After: 120", Some(120.0)),
            ("retry after 2026-11-22T03:00:00Z", None),
            ("resets in 5:30", None),
            ("too many requests", None),
            ("retry in ", None),
        ] {
            let named_time = retry_delay(words).map(|time| time.as_secs_f64());
            assert_eq!(named_time, seconds, "{words}");
        }
    }

    proptest! {
        #[test]
        fn retry_time_is_none_or_bounded(before in "\\PC{0,20}", after in "[0-9a-z. ,]{0,30}") {
            for mark in MARKS {
                let time = retry_delay(&format!("{before}{mark}{after}"));
                prop_assert!(time.is_none_or(|time| time <= MOST));
            }
        }
    }
}
