//! The value of `--since`.

use loop_state::Timestamp;

/// From when on records are shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since(pub(crate) Timestamp);

impl std::str::FromStr for Since {
    type Err = String;

    /// Reads a point in time, or how long ago it was.
    fn from_str(text: &str) -> Result<Self, String> {
        let now = jiff::Timestamp::now();
        let at = match rlm_text::duration::parse(text) {
            Ok(ago) => now - ago,
            Err(_) => text.parse().map_err(|_| {
                let shown = text.escape_debug();
                format!("`{shown}` is no time: write for example 10m, or 2026-01-31T09:30:00Z")
            })?,
        };
        let millis = u64::try_from(at.as_millisecond()).unwrap_or_default();
        Ok(Self(Timestamp(millis)))
    }
}
