//! Days in UTC, such as `2026-11-22`.

use std::time::SystemTime;

/// Returns the current day.
pub(crate) fn today() -> String {
    let since = SystemTime::UNIX_EPOCH.elapsed();
    of(since.map_or(0, |since| since.as_secs()))
}

/// Returns the day of a time in seconds since 1970, by Howard Hinnant's algorithm `civil_from_days`.
pub(crate) fn of(time: u64) -> String {
    let days = time / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_in_utc() {
        for (time, expected) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_795_305_599, "2026-11-21"),
            (1_795_305_600, "2026-11-22"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(of(time), expected, "{time}");
        }
    }
}
