//! Parses and formats durations such as `90`, `90s`, `15m`, `1h30m` or `500ms`. A bare number means seconds.

use std::fmt::Write as _;
use std::time::Duration;

const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("ms", 1),
    ("m", 60_000),
    ("s", 1000),
];

/// Parses a duration.
///
/// # Errors
///
/// Returns one line for the user if the text is not a duration or is longer than ten years.
pub fn parse(text: &str) -> Result<Duration, String> {
    let bad = || {
        format!(
            "`{}` is not a duration: write for example 90, 90s, 15m or 1h30m",
            text.escape_debug()
        )
    };
    if let Ok(seconds) = text.parse::<u64>() {
        return bounded(Duration::from_secs(seconds));
    }
    let (mut rest, mut millis) = (text, 0u64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let number: u64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = &rest[digits..];
        let (unit, factor) = UNITS
            .iter()
            .find(|(unit, _)| rest.starts_with(unit))
            .ok_or_else(bad)?;
        rest = &rest[unit.len()..];
        millis = number
            .checked_mul(*factor)
            .and_then(|m| millis.checked_add(m))
            .ok_or_else(bad)?;
    }
    if text.is_empty() {
        Err(bad())
    } else {
        bounded(Duration::from_millis(millis))
    }
}

/// Refuses more than ten years, since later dates can't be formatted.
fn bounded(duration: Duration) -> Result<Duration, String> {
    const MOST: Duration = Duration::from_secs(3650 * 86_400);
    if duration <= MOST {
        Ok(duration)
    } else {
        Err("the time is longer than 3650 days".into())
    }
}

/// Formats a duration in a form that [`parse`] accepts; less than a millisecond is `0s`.
///
/// # Panics
///
/// Never: writing to a string doesn't fail.
#[must_use]
pub fn show(duration: Duration) -> String {
    let mut left = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, factor) in [UNITS[0], UNITS[1], UNITS[3], UNITS[4], UNITS[2]] {
        if left >= factor {
            write!(text, "{}{unit}", left / factor).expect("writing to a string doesn't fail");
            left %= factor;
        }
    }
    if text.is_empty() { "0s".into() } else { text }
}

/// Formats a duration in at most its two largest units, for an age.
#[must_use]
pub fn approximate(duration: Duration) -> String {
    let secs = duration.as_secs();
    let (whole, part) = match secs {
        0..60 => return format!("{secs}s"),
        60..3600 => (60, 1),
        3600..86_400 => (3600, 60),
        _ => (86_400, 3600),
    };
    // Beside ten or more of the larger unit, the smaller unit is useless.
    let (count, rest) = (secs / whole, secs % whole / part * part);
    let rest = if count < 10 { rest } else { 0 };
    show(Duration::from_secs(count * whole + rest))
}

/// Serialises a duration as [`show`] formats it.
///
/// # Errors
///
/// Returns the errors of the serialiser.
pub fn serialize_text<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&show(*time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shown_duration_parses_back(millis in 0u64..10_000_000_000) {
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(parse(&show(duration)), Ok(duration));
        }

        #[test]
        fn x117d_any_text_is_a_duration_or_one_clear_error(text in "\\PC{0,12}") {
            if let Err(e) = parse(&text) {
                prop_assert!(e.contains("is not a duration") || e.contains("longer than"));
            }
        }
    }

    #[test]
    fn an_age_has_two_units_at_most() {
        let shown = [0, 59, 61, 599, 700, 3600, 8077, 90_061, 864_000]
            .map(|secs| approximate(Duration::from_secs(secs)));
        assert_eq!(shown.join(" "), "0s 59s 1m1s 9m59s 11m 1h 2h14m 1d1h 10d");
    }

    #[test]
    fn a_bare_number_is_seconds() {
        assert_eq!(parse("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(show(Duration::from_secs(3600)), "1h");
    }

    #[test]
    fn common_spellings_of_durations_are_parsed() {
        let read = [
            "0",
            "90",
            "90s",
            "15m",
            "1h30m",
            "500ms",
            "1d2h3m4s5ms",
            "3650d",
            "3651d",
            "",
            "s",
            "1x",
            "-1",
            "1.5s",
            "1h 30m",
            "99999999999999999999",
            "18446744073709551615d",
        ];
        let shown = read.map(|text| match parse(text) {
            Ok(time) => format!("{text:?} = {}, about {}", show(time), approximate(time)),
            Err(why) => why,
        });
        insta::assert_snapshot!(shown.join("\n"), @r#"
        "0" = 0s, about 0s
        "90" = 1m30s, about 1m30s
        "90s" = 1m30s, about 1m30s
        "15m" = 15m, about 15m
        "1h30m" = 1h30m, about 1h30m
        "500ms" = 500ms, about 0s
        "1d2h3m4s5ms" = 1d2h3m4s5ms, about 1d2h
        "3650d" = 3650d, about 3650d
        the time is longer than 3650 days
        `` is not a duration: write for example 90, 90s, 15m or 1h30m
        `s` is not a duration: write for example 90, 90s, 15m or 1h30m
        `1x` is not a duration: write for example 90, 90s, 15m or 1h30m
        `-1` is not a duration: write for example 90, 90s, 15m or 1h30m
        `1.5s` is not a duration: write for example 90, 90s, 15m or 1h30m
        `1h 30m` is not a duration: write for example 90, 90s, 15m or 1h30m
        `99999999999999999999` is not a duration: write for example 90, 90s, 15m or 1h30m
        `18446744073709551615d` is not a duration: write for example 90, 90s, 15m or 1h30m
        "#);
    }
}
