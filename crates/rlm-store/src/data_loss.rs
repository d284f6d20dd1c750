//! The data loss after damage: the saved state is older than the acknowledged one.

use std::fmt;
use std::path::Path;

use checkpoint_store::{LoadReport, Seq};
use loop_state::Head;
use serde::{Deserialize, Serialize};

use crate::{RunId, transcript};

/// The largest number of data losses that a run remembers.
const MAX_REMEMBERED: usize = 4;

/// The data that a run lost because its saved state is damaged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataLoss {
    /// The newest save that is left.
    pub save: u64,
    /// The damage, one line each; empty if the files are valid but too old.
    pub damaged: Vec<String>,
    /// The new paths of the damaged files, relative to the top of the project; empty until the run is resumed.
    pub set_aside: Vec<String>,
    /// The iteration at which a resume from that save continues.
    pub resumes_at: u32,
    /// The last iteration with a transcript, if it is later than `resumes_at`. The iterations before it were complete.
    pub last_transcript: Option<u32>,
    /// Whether there are transcripts of another phase, so that more is lost than iterations of one phase.
    pub spans_phases: bool,
}

impl DataLoss {
    /// Returns the data loss of a run with this loaded state, if there is any.
    pub fn detect(run_dir: &Path, head: &Head, save: Seq, report: &LoadReport) -> Option<Self> {
        let (reached, is_of_phases) = transcripts_beyond(run_dir, head);
        let this = Self {
            save: save.get(),
            damaged: report.skipped.iter().map(ToString::to_string).collect(),
            set_aside: Vec::new(),
            resumes_at: head.resume_point().iteration,
            last_transcript: reached,
            spans_phases: is_of_phases,
        };
        (!this.damaged.is_empty() || this.loses_iterations()).then_some(this)
    }

    /// Records the new paths of the damaged files.
    pub fn set_aside(mut self, run: &RunId, report: &LoadReport) -> Self {
        let files = report.set_aside.iter();
        self.set_aside = files
            .map(|file| format!("{}/runs/{run}/{file}", crate::state_directory()))
            .collect();
        self
    }

    /// Adds this loss to the list.
    pub fn record(self, losses: &mut Vec<Self>) {
        losses.push(self);
        losses.drain(..losses.len().saturating_sub(MAX_REMEMBERED));
    }

    /// Returns whether a resume from the newest save that is left would repeat complete work.
    #[must_use]
    pub fn loses_iterations(&self) -> bool {
        self.last_transcript.is_some() || self.spans_phases
    }
}

/// Returns the last iteration with a transcript, if it is later than the iteration of the saved state.
pub fn last_transcript_beyond(run_dir: &Path, head: &Head) -> Option<u32> {
    transcripts_beyond(run_dir, head).0
}

/// Returns the same, and whether there are transcripts of another phase.
fn transcripts_beyond(run_dir: &Path, head: &Head) -> (Option<u32>, bool) {
    let at = head.resume_point().iteration;
    let unknown = transcript::unknown(run_dir, head);
    let more_phases = head.phase as usize + 1 < head.rules.phases.len();
    // Iteration numbers that begin again belong to another phase. A later attempt of the same iteration may belong to another phase too.
    let is_of_phases = unknown.iter().any(|(iteration, attempt)| {
        let is_other = *iteration < at || (*iteration == at && more_phases);
        is_other && *attempt > head.highest_attempt
    });
    let last = unknown.iter().map(|(iteration, _)| *iteration).max();
    (
        last.filter(|last| *last > at && !is_of_phases),
        is_of_phases,
    )
}

impl fmt::Display for DataLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "everything after save {} is lost, including settings and steers",
            self.save
        )?;
        match self.last_transcript {
            Some(reached) => write!(f, " (the transcripts reach iteration {reached})")?,
            None if self.spans_phases => {
                f.write_str(" (there are transcripts of another phase)")?
            }
            None => f.write_str(", if anything was saved")?,
        }
        for damaged in &self.damaged {
            write!(f, "; {damaged}")?;
        }
        match self.set_aside.as_slice() {
            [] => Ok(()),
            files => write!(f, "; set aside: {}", files.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loop_state::{
        Machine, MachineInput, PhaseLimits, PhaseRules, ProcessTreeOutcome, Rules, TimedInput,
        Timestamp, TurnOutcome,
    };

    fn machine(phases: usize) -> Machine {
        let phase = |number: usize| PhaseRules {
            name: format!("phase {number}"),
            limits: PhaseLimits {
                max_iterations: Some(2),
                ..PhaseLimits::default()
            },
            ..PhaseRules::default()
        };
        let rules = Rules {
            phases: (0..phases).map(phase).collect(),
            ..Rules::default()
        };
        let mut machine = Machine::from(Head::new(rules).unwrap());
        machine.step(TimedInput {
            at: Timestamp::from_millis(1),
            what: MachineInput::Started,
        });
        machine
    }

    fn loss(transcripts: &[&str], head: &Head) -> Option<DataLoss> {
        let dir = tempfile::tempdir().unwrap();
        fs_err::create_dir(dir.path().join("transcripts")).unwrap();
        for name in transcripts {
            let path = dir.path().join("transcripts").join(name);
            fs_err::write(path.with_extension("ndjson"), "").unwrap();
        }
        DataLoss::detect(dir.path(), head, Seq::new(7), &LoadReport::default())
    }

    #[test]
    fn work_is_lost_if_transcripts_show_more_than_the_attempt_in_flight() {
        let mut one = machine(1);
        assert_eq!(loss(&["1-1"], one.head()), None, "a crash");
        assert_eq!(loss(&["1-1", "1-2"], one.head()), None, "only an attempt");
        let lost = loss(&["1-1", "2-1", "3-1"], one.head()).unwrap();
        assert_eq!((lost.resumes_at, lost.last_transcript), (1, Some(3)));
        for what in [
            MachineInput::TurnEnded(TurnOutcome::Completed),
            MachineInput::LeftoversEnded(ProcessTreeOutcome::default()),
        ] {
            let at = Timestamp::from_millis(2);
            one.step(TimedInput { at, what });
        }
        assert_eq!(loss(&["1-1", "2-1"], one.head()), None, "the one in flight");
        let several = machine(2);
        let lost = loss(&["1-1", "2-1", "1-2", "2-2"], several.head()).unwrap();
        assert!(
            lost.spans_phases && lost.last_transcript.is_none(),
            "{lost:?}"
        );
    }
}
