//! Single lines: warnings, failures, records of a transcript, JSON.

use rlm_store::Record;
use rlm_terminal::style::{BAD, DIM, MIND, styled};
use rlm_text::escape::plain;

use crate::exit::Failure;
use crate::ulimits;

/// A line that warns.
pub(crate) fn warning(text: &str) -> String {
    let text = ulimits::explained(text);
    format!("{} {}", styled(MIND, "warning:"), plain(&text))
}

/// The one line of a command that could not do what it was asked to.
pub(crate) fn failure(failure: &Failure) -> String {
    let message = ulimits::explained(&failure.message);
    format!("{} {}", styled(BAD, "rlm:"), plain(&message))
}

/// A record of a transcript, as `rlm logs` prints it.
pub(crate) fn record(record: &Record) -> String {
    let text = rlm_text::escape::safe(&record.text);
    match record.kind.as_str() {
        "stdout" | "message" => text,
        // The line behind what is shown.
        "raw" => String::new(),
        kind => text
            .lines()
            .map(|line| format!("{} {line}\n", styled(DIM, format!("[{kind}]"))))
            .collect::<String>()
            .trim_end()
            .to_owned(),
    }
}

/// Text that was streamed and cut off.
pub(crate) fn streamed(text: &str) -> String {
    format!(
        "{} {}",
        rlm_text::escape::safe(text.trim_end()),
        styled(MIND, "(cut off)")
    )
}

/// One JSON object on one line.
pub(crate) fn json_line(value: &impl serde::Serialize) -> String {
    rlm_text::escape::json_escaped(
        serde_json::to_string(value).expect("what is rendered is plain data"),
    )
}
