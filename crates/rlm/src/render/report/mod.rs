//! A run as one page of HTML, for `rlm report`. The page loads nothing and runs nothing; it is the same for the same state of a run.
//!
//! Templates in Rust (`maud`) build it: they escape every text and close every element. [`visible`] then shows the control characters of the finished
//! page.

mod detail;
mod json;
mod page;
mod plots;
mod rows;
mod summary;
#[cfg(test)]
mod tests;
mod visible;
mod words;

use std::collections::BTreeMap;

use agent_duplex::ProcessName;
use jiff::tz::TimeZone;
use loop_runner::{Fate, Removed, Timeline};
use loop_state::CutCause;

pub(crate) use detail::{Detail, Stat, Transcript};
pub(crate) use json::json;
pub(crate) use page::{is_of, page};
pub(crate) use rows::in_full;

/// All that a page is made of.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) timeline: Timeline,
    /// The text of each phase's prompt, as it was last read.
    pub(crate) prompts: Vec<String>,
    /// What is shown of those attempts that are shown in full, by their index.
    pub(crate) details: BTreeMap<usize, Detail>,
    /// What of the run is alive though no process has it.
    pub(crate) left: Vec<ProcessName>,
    pub(crate) zone: TimeZone,
    /// Which transcripts are not there any more.
    pub(crate) removed: Option<Removed>,
}

impl Report {
    /// Says how long an attempt took. Of one whose process died the journal knows little; its transcript may know more.
    fn took(&self, index: usize) -> String {
        let attempt = &self.timeline.attempts[index];
        let took = words::span(attempt.took(self.timeline.until()));
        if attempt.fate != Fate::Cut(Some(CutCause::Crash)) {
            return took;
        }
        let transcript = self.details.get(&index).map(|detail| &detail.transcript);
        let last = transcript.and_then(|it| it.as_ref().ok()?.last_at());
        let known = attempt.ended.max(last).unwrap_or(attempt.began);
        match known.since(attempt.began) {
            known if known.is_zero() => "not known".into(),
            known => format!("≥ {}", words::span(known)),
        }
    }
}

/// Returns where on the page an attempt is shown in full.
fn anchor(index: usize) -> String {
    format!("a{}", index + 1)
}
