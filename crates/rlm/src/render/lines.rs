//! Shared parts of the output: single lines, the style of a state, ages and sizes.

use std::time::{Duration, SystemTime};

use anstyle::Style;
use loop_state::Timestamp;
use rlm_store::{Record, RunState};
use rlm_terminal::style::{BAD, DIM, GOOD, WARNING_STYLE, styled};
use rlm_text::escape::plain;

use crate::exit::Failure;
use crate::ulimits;

/// Returns a warning line.
pub(crate) fn warning(text: &str) -> String {
    let text = ulimits::explained(text);
    format!("{} {}", styled(WARNING_STYLE, "warning:"), plain(&text))
}

/// Returns the error line of a failed command.
pub(crate) fn failure(failure: &Failure) -> String {
    let message = ulimits::explained(&failure.message);
    format!("{} {}", styled(BAD, "rlm:"), plain(&message))
}

/// Returns a record of a transcript, as `rlm logs` prints it.
pub(crate) fn record(record: &Record) -> String {
    let text = rlm_text::escape::safe(&record.text);
    match record.kind.as_str() {
        "stdout" | "message" => text,
        // A raw line of the protocol. Its decoded record is shown instead.
        "raw" => String::new(),
        kind => text
            .lines()
            .map(|line| format!("{} {line}\n", styled(DIM, format!("[{kind}]"))))
            .collect::<String>()
            .trim_end()
            .to_owned(),
    }
}

/// Returns streamed text that no message completed.
pub(crate) fn streamed(text: &str) -> String {
    format!(
        "{} {}",
        rlm_text::escape::safe(text.trim_end()),
        styled(WARNING_STYLE, "(cut off)")
    )
}

/// Returns one JSON object on one line.
pub(crate) fn json_line(value: &impl serde::Serialize) -> String {
    rlm_text::escape::json_escaped(
        serde_json::to_string(value).expect("the value converts to JSON"),
    )
}

/// Returns the style of a state: green for a running run, yellow for one that waits for a person, red for a broken one.
pub(crate) fn of_state(state: RunState) -> Style {
    match state {
        RunState::Running => GOOD,
        RunState::Paused => WARNING_STYLE,
        RunState::Crashed | RunState::Damaged => BAD,
        RunState::Stopped => Style::new(),
        _ => DIM,
    }
}

/// Returns the name of a state, as in JSON.
pub(crate) fn state(state: RunState) -> String {
    format!("{state:?}").to_lowercase()
}

/// Returns the age in whole seconds; a time in the future has the age zero.
pub(super) fn age(at: Timestamp, now: jiff::Timestamp) -> u64 {
    let now = Timestamp::from_millis(u64::try_from(now.as_millisecond()).unwrap_or(0));
    now.since(at).as_secs()
}

pub(super) fn stamp(time: SystemTime) -> Timestamp {
    time.into()
}

pub(super) fn ago(seconds: u64) -> String {
    format!(
        "{} ago",
        rlm_text::duration::show(Duration::from_secs(seconds))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s21c_a_time_in_the_future_is_new() {
        let now = jiff::Timestamp::from_second(1_000).unwrap();
        assert_eq!(age(Timestamp::from_millis(999_000), now), 1);
        assert_eq!(age(Timestamp::from_millis(1_000_001), now), 0);
        assert_eq!(age(Timestamp::from_millis(u64::MAX), now), 0);
        assert_eq!(
            age(
                Timestamp::from_millis(0),
                jiff::Timestamp::from_second(-1).unwrap()
            ),
            0
        );
        assert_eq!(
            stamp(SystemTime::UNIX_EPOCH - Duration::from_secs(1)),
            Timestamp::from_millis(0)
        );
        assert_eq!(ago(3_700), "1h1m40s ago");
    }
}
