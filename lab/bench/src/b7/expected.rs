//! The input of a measured process, and its result.

use std::time::Duration;

/// The input of a measured process: its source and its size.
pub(super) struct Expected {
    pub(super) file: String,
    pub(super) times: String,
    pub(super) bytes: usize,
    pub(super) lines: usize,
    pub(super) turns: usize,
}

/// The result of a measured process.
pub(super) struct Read {
    pub(super) took: Duration,
    pub(super) lines: usize,
    pub(super) dropped: usize,
}
