//! All data of a page.

use std::collections::BTreeMap;

use agent_duplex::ProcessName;
use jiff::tz::TimeZone;
use loop_state::UnfinishedCause;
use rlm_store::{AttemptOutcome, RemovedTranscripts, Timeline};

use crate::transcript::AttemptDetail;
use crate::words;

/// The texts of a page that depend on the command line.
#[derive(Clone, Debug)]
pub struct CommandLineTerms {
    /// The version of the program.
    pub version: &'static str,
    /// The name of each phase's agent.
    pub agents: Vec<String>,
    /// The permissions of each phase's agent.
    pub permissions: Vec<&'static str>,
    /// The command that resumes the run, if it can be resumed.
    pub resume: Option<String>,
    /// The exit code of the run's end.
    pub exit_code: Option<u8>,
}

/// All data of a page; see [`collect`](crate::collect()).
#[derive(Debug)]
pub struct ReportData {
    pub(crate) timeline: Timeline,
    pub(crate) wording: CommandLineTerms,
    /// The text of each phase's prompt, as last read.
    pub(crate) prompts: Vec<String>,
    /// The transcript and the commit of each attempt that the page shows in full, by the index of the attempt.
    pub(crate) details: BTreeMap<usize, AttemptDetail>,
    /// The processes of the run that are still alive although no `rlm` process works on the run.
    pub(crate) remaining_processes: Vec<ProcessName>,
    pub(crate) zone: TimeZone,
    /// The removed transcripts.
    pub(crate) removed: Option<RemovedTranscripts>,
}

impl ReportData {
    /// Returns how long an attempt took. If its process died, the transcript may contain a later time than the journal.
    pub(crate) fn duration(&self, index: usize) -> String {
        let attempt = &self.timeline.attempts[index];
        let took = words::format_duration(attempt.duration(self.timeline.until()));
        if attempt.outcome != AttemptOutcome::Unfinished(Some(UnfinishedCause::ProcessDied)) {
            return took;
        }
        let transcript = self.details.get(&index).map(|detail| &detail.transcript);
        let last = transcript.and_then(|it| it.as_ref().ok()?.last_at());
        let known = attempt.ended.max(last).unwrap_or(attempt.began);
        match known.since(attempt.began) {
            known if known.is_zero() => "unknown".into(),
            known => format!("≥ {}", words::format_duration(known)),
        }
    }
}
