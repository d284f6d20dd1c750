//! What is said of transcripts that were removed on purpose.

use loop_runner::Removed;
use rlm_text::count;
use rlm_text::escape::plain;
use rlm_text::time::utc;

/// Says which, since when and by what.
pub(crate) fn removed(removed: &Removed) -> String {
    let attempts = count(removed.attempts.len(), "attempt", "attempts");
    let of = match removed.attempts.len() {
        1 => "the transcript of",
        _ => "the transcripts of",
    };
    let was = if removed.attempts.len() == 1 {
        "was"
    } else {
        "were"
    };
    let (at, by) = (utc(removed.at), plain(&removed.by));
    format!("{of} {attempts} {was} removed at {at} by `{by}`")
}
