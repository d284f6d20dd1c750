//! Formats points in time for programs.

use loop_state::Timestamp;

/// Returns the instant, or the last instant that can be formatted.
#[must_use]
pub fn instant(at: Timestamp) -> jiff::Timestamp {
    let at = i64::try_from(at.as_millis()).map(jiff::Timestamp::from_millisecond);
    at.ok().and_then(Result::ok).unwrap_or(jiff::Timestamp::MAX)
}

/// Formats a point in time as RFC 3339, in UTC, with milliseconds.
#[must_use]
pub fn utc(at: Timestamp) -> String {
    instant(at).strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shown_time_is_the_same_instant_and_sorts_like_it(one in 0u64..250_000_000_000_000, other in any::<u64>()) {
            let [first, second] = [one, other].map(|at| utc(Timestamp::from_millis(at)));
            let read: jiff::Timestamp = first.parse().unwrap();
            prop_assert_eq!(read, instant(Timestamp::from_millis(one)));
            prop_assert_eq!(first.len(), second.len());
            let is_sorted = if one <= other { first <= second } else { first >= second };
            prop_assert!(is_sorted, "{first} {second}");
        }
    }

    #[test]
    fn times_beyond_the_range_are_shown_as_the_last_one() {
        assert_eq!(utc(Timestamp::from_millis(1)), "1970-01-01T00:00:00.001Z");
        assert_eq!(
            utc(Timestamp::from_millis(u64::MAX)),
            utc(Timestamp::from_millis(u64::MAX - 1))
        );
    }
}
