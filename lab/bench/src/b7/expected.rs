//! What a measured process reads, and what it reports.

use std::time::Duration;

/// What a measured process reads: where it comes from, and how much it is.
pub(super) struct Expected {
    pub(super) file: String,
    pub(super) times: String,
    pub(super) bytes: usize,
    pub(super) lines: usize,
    pub(super) turns: usize,
}

/// What a measured process found.
pub(super) struct Read {
    pub(super) took: Duration,
    pub(super) lines: usize,
    pub(super) dropped: usize,
}
