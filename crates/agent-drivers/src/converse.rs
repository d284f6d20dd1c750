//! What the drivers share whose agents converse over lines of JSON.

mod change;
mod dialogue;
mod json;
mod link;
mod live;
#[cfg(test)]
pub(crate) mod odd;
mod patience;
mod process;

pub(crate) use change::Change;
pub(crate) use dialogue::Dialogue;
pub(crate) use json::{line, parse};
pub(crate) use link::{Heard, Link};
pub(crate) use live::Live;
pub(crate) use patience::Means;
pub(crate) use process::last_line;

use patience::{Impatience, Leaving, Patience, Stopping};
use process::{Seen, look, signal, stop};
use std::time::Duration;

/// How many characters of a call are shown.
pub(crate) const SUMMARY: usize = 400;
/// How many bytes of a tool's result are handed on.
const RESULT: usize = 4096;

/// How long the agent may take to answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) initialize: Duration,
    pub(crate) others: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Timeouts {
            initialize: minute,
            others: minute,
        }
    }
}

/// Cuts what a tool returned to its beginning.
pub(crate) fn beginning(mut text: String) -> String {
    let mut ends = (0..=RESULT.min(text.len())).rev();
    let end = ends.find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
    text
}
