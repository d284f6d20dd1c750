//! What a damage took from a run: its saved state is older than what was acknowledged.

use std::fmt;
use std::path::Path;

use checkpoint_store::{LoadReport, Seq};
use loop_state::Head;
use serde::{Deserialize, Serialize};

use crate::{RunId, transcript};

/// How many losses a run remembers.
const KEPT: usize = 4;

/// What is lost of a run because its saved state is damaged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// The save that is left.
    pub save: u64,
    /// What is damaged, a line each; nothing where the files look whole and are too old.
    pub damaged: Vec<String>,
    /// Where the damaged files lie, from the top of the project on, once the run was taken up again.
    pub set_aside: Vec<String>,
    /// The iteration at which that save goes on.
    pub at: u32,
    /// The last iteration that has a transcript, where it is a later one: those before it were complete.
    pub reached: Option<u32>,
    /// Whether there are transcripts of another phase, so that more than iterations is lost.
    pub is_of_phases: bool,
}

impl Loss {
    /// Returns what is lost of a run of which this is loaded, if anything is.
    pub fn of(run_dir: &Path, head: &Head, save: Seq, report: &LoadReport) -> Option<Self> {
        let (reached, is_of_phases) = beyond(run_dir, head);
        let this = Self {
            save: save.get(),
            damaged: report.skipped.iter().map(ToString::to_string).collect(),
            set_aside: Vec::new(),
            at: head.resumes_at().0,
            reached,
            is_of_phases,
        };
        (!this.damaged.is_empty() || this.is_work()).then_some(this)
    }

    /// Notes where the damaged files lie now.
    pub fn set_aside(mut self, run: &RunId, report: &LoadReport) -> Self {
        let files = report.set_aside.iter();
        self.set_aside = files
            .map(|file| format!(".rlm/runs/{run}/{file}"))
            .collect();
        self
    }

    /// Remembers it.
    pub fn remember(self, losses: &mut Vec<Self>) {
        losses.push(self);
        losses.drain(..losses.len().saturating_sub(KEPT));
    }

    /// Returns whether work that was complete would be done again from that save.
    #[must_use]
    pub fn is_work(&self) -> bool {
        self.reached.is_some() || self.is_of_phases
    }
}

/// Returns the last iteration that has a transcript, where it is later than the one that the saved state goes on with.
pub fn reached(run_dir: &Path, head: &Head) -> Option<u32> {
    beyond(run_dir, head).0
}

/// The same, and whether there are transcripts of another phase.
fn beyond(run_dir: &Path, head: &Head) -> (Option<u32>, bool) {
    let at = head.resumes_at().0;
    let unknown = transcript::unknown(run_dir, head);
    let more_phases = head.phase as usize + 1 < head.rules.phases.len();
    // Numbers that begin anew are another phase's, and another attempt may be.
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

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "what came after save {} is lost, settings and steers too",
            self.save
        )?;
        match self.reached {
            Some(reached) => write!(f, " (the transcripts reach iteration {reached})")?,
            None if self.is_of_phases => {
                f.write_str(" (there are transcripts of another phase)")?
            }
            None => f.write_str(", if anything did")?,
        }
        for damaged in &self.damaged {
            write!(f, "; {damaged}")?;
        }
        match self.set_aside.as_slice() {
            [] => Ok(()),
            files => write!(f, "; the damaged file lies in {}", files.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loop_state::{
        Event, Happening, Limits, Machine, PhaseRules, Rules, Timestamp, Tree, TurnOutcome,
    };

    fn machine(phases: usize) -> Machine {
        let phase = |number: usize| PhaseRules {
            name: format!("phase {number}"),
            limits: Limits {
                max_iterations: Some(2),
                ..Limits::default()
            },
            ..PhaseRules::default()
        };
        let rules = Rules {
            phases: (0..phases).map(phase).collect(),
            ..Rules::default()
        };
        let mut machine = Machine::from(Head::new(rules).unwrap());
        machine.step(Event {
            at: Timestamp(1),
            what: Happening::Started,
        });
        machine
    }

    fn loss(transcripts: &[&str], head: &Head) -> Option<Loss> {
        let dir = tempfile::tempdir().unwrap();
        fs_err::create_dir(dir.path().join("transcripts")).unwrap();
        for name in transcripts {
            let path = dir.path().join("transcripts").join(name);
            fs_err::write(path.with_extension("ndjson"), "").unwrap();
        }
        Loss::of(dir.path(), head, Seq::new(7), &LoadReport::default())
    }

    #[test]
    fn work_is_lost_where_transcripts_tell_of_more_than_the_attempt_in_flight() {
        let mut one = machine(1);
        assert_eq!(loss(&["1-1"], one.head()), None, "a crash");
        assert_eq!(loss(&["1-1", "1-2"], one.head()), None, "only an attempt");
        let lost = loss(&["1-1", "2-1", "3-1"], one.head()).unwrap();
        assert_eq!((lost.at, lost.reached), (1, Some(3)));
        for what in [
            Happening::TurnEnded(TurnOutcome::Completed),
            Happening::Settled(Tree::default()),
        ] {
            let at = Timestamp(2);
            one.step(Event { at, what });
        }
        assert_eq!(loss(&["1-1", "2-1"], one.head()), None, "the one in flight");
        let several = machine(2);
        let lost = loss(&["1-1", "2-1", "1-2", "2-2"], several.head()).unwrap();
        assert!(lost.is_of_phases && lost.reached.is_none(), "{lost:?}");
    }
}
