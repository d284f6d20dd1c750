//! All that a page is made of.

use std::collections::BTreeMap;

use agent_duplex::ProcessName;
use jiff::tz::TimeZone;
use loop_state::CutCause;
use rlm_store::{Fate, Removed, Timeline};

use crate::transcript::Detail;
use crate::words;

/// What a page says in the words of the command line.
#[derive(Clone, Debug)]
pub struct Wording {
    /// The version of the program.
    pub version: &'static str,
    /// The name of each phase's agent.
    pub agents: Vec<String>,
    /// What each phase's agent may do.
    pub permissions: Vec<&'static str>,
    /// The command that resumes a run with this end, if one does.
    pub resume: Option<String>,
    /// The exit code of the run's end.
    pub exit_code: Option<u8>,
}

/// All that a page is made of; see [`gather`](crate::gather()).
#[derive(Debug)]
pub struct Report {
    pub(crate) timeline: Timeline,
    pub(crate) wording: Wording,
    /// The text of each phase's prompt, as it was last read.
    pub(crate) prompts: Vec<String>,
    /// What is shown of those attempts that are shown in full, by their index.
    pub(crate) details: BTreeMap<usize, Detail>,
    /// Processes of the run that are alive though no process has the run.
    pub(crate) left: Vec<ProcessName>,
    pub(crate) zone: TimeZone,
    /// Which transcripts were removed.
    pub(crate) removed: Option<Removed>,
}

impl Report {
    /// Returns how long an attempt took. If its process died, the transcript may know more than the journal.
    pub(crate) fn took(&self, index: usize) -> String {
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
