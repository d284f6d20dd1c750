//! The phases of a run: the current one, and the results of the finished ones.

use std::fmt;

use loop_state::{Evidence, FinishedPhase, Head, IterationStep};
use rlm_text::escape::plain;
use rlm_text::time::utc;
use rlm_text::{count, money};
use serde::Serialize;
use serde_json::Value;

/// The position of a run in its pipeline.
#[derive(Debug, Serialize)]
pub(crate) struct Phases {
    phase: String,
    /// The number of the phase, from 1.
    phase_number: u32,
    /// The number of phases.
    phases: u32,
    autonomy: String,
    /// The part that waits for a review: a phase, or a batch.
    review: Option<String>,
    finished: Vec<FinishedPhaseView>,
}

/// A finished phase.
#[derive(Debug, Serialize)]
struct FinishedPhaseView {
    phase: String,
    at: String,
    iterations: u32,
    evidence: Option<&'static str>,
    usage: Value,
    /// The usage as text.
    #[serde(skip)]
    used: Option<String>,
    errors: Vec<FailedIteration>,
}

/// A failed iteration.
#[derive(Debug, Serialize)]
struct FailedIteration {
    iteration: u32,
    at: String,
    what: String,
}

impl From<&Head> for Phases {
    fn from(head: &Head) -> Self {
        Self {
            phase: head.phase_rules().name.clone(),
            phase_number: head.phase + 1,
            phases: u32::try_from(head.rules.phases.len()).unwrap_or(u32::MAX),
            autonomy: head.rules.autonomy.to_string(),
            review: match head.step {
                IterationStep::Review { point: of, .. } => Some(of.to_string()),
                _ => None,
            },
            finished: head
                .finished_phases
                .iter()
                .map(FinishedPhaseView::from)
                .collect(),
        }
    }
}

impl From<&FinishedPhase> for FinishedPhaseView {
    fn from(phase: &FinishedPhase) -> Self {
        let wrong = phase.errors.iter().map(|error| FailedIteration {
            iteration: error.iteration,
            at: utc(error.at),
            what: error.what.clone(),
        });
        Self {
            phase: phase.name.clone(),
            at: utc(phase.at),
            iterations: phase.iterations,
            evidence: match phase.evidence {
                Some(Evidence::Check) => Some("check"),
                Some(_) => Some("promise"),
                None => None,
            },
            usage: money::usage_json(phase.usage),
            used: money::usage_text(phase.usage),
            errors: wrong.collect(),
        }
    }
}

impl Phases {
    fn are_several(&self) -> bool {
        self.phases > 1
    }

    /// Returns the name of the current phase as one word, if there are several phases.
    pub(crate) fn name(&self) -> Option<String> {
        self.are_several()
            .then(|| plain(&self.phase).replace(' ', "_"))
    }

    /// Returns a text about the current phase, if there are several phases.
    pub(crate) fn position_text(&self) -> String {
        match self.are_several() {
            true => format!(
                ", phase {} ({} of {})",
                plain(&self.phase),
                self.phase_number,
                self.phases
            ),
            false => String::new(),
        }
    }

    /// Returns a line for each finished phase, and for each of its errors.
    pub(crate) fn finished_lines(&self) -> Vec<String> {
        let over = self.finished.iter().filter(|_| self.are_several());
        let lines = over.flat_map(|done| {
            let errors = done.errors.iter();
            let errors =
                errors.map(|it| format!("  error, iteration {}: {}", it.iteration, it.what));
            std::iter::once(done.to_string()).chain(errors)
        });
        lines.map(|line| plain(&line)).collect()
    }
}

impl fmt::Display for FinishedPhaseView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.evidence {
            Some("check") => "its check passed",
            Some(_) => "finished, according to the agent",
            None => "all its iterations ran",
        };
        let iterations = count(self.iterations as usize, "iteration", "iterations");
        write!(f, "phase {}: {how}, {iterations}", self.phase)?;
        self.used.iter().try_for_each(|used| write!(f, ", {used}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loop_state::{IterationFailure, PhaseRules, Rules, Timestamp, UsageTotal};

    #[test]
    fn x119d_finished_phase_shows_evidence_and_errors() {
        let phase = |name: &str| PhaseRules {
            name: name.into(),
            has_check: true,
            ..PhaseRules::default()
        };
        let rules = Rules {
            phases: ["plan", "build", "check"].map(phase).into(),
            ..Rules::default()
        };
        let mut head = Head::new(rules).unwrap();
        head.phase = 2;
        let at = Timestamp::from_millis(1000);
        let failure = IterationFailure {
            iteration: 1,
            at,
            what: "it\u{1b}[2J broke".into(),
        };
        let done = |name: &str, evidence, errors| FinishedPhase {
            name: name.into(),
            at,
            iterations: 2,
            evidence,
            result: Some("much".into()),
            usage: UsageTotal {
                input_tokens: 1200,
                output_tokens: 34,
                cost_microusd: 50_000,
            },
            errors,
        };
        head.finished_phases = vec![
            done("plan", Some(Evidence::Promise), vec![]),
            done("build", Some(Evidence::Check), vec![failure]),
        ];
        let phases = Phases::from(&head);
        let text = format!(
            "r{}\n{}",
            phases.position_text(),
            phases.finished_lines().join("\n")
        );
        insta::assert_snapshot!(text, @r"
        r, phase check (3 of 3)
        phase plan: finished, according to the agent, 2 iterations, 0.05 USD, 1234 tokens
        phase build: its check passed, 2 iterations, 0.05 USD, 1234 tokens
          error, iteration 1: it\u{1b}[2J broke
        ");
        let json = serde_json::to_value(&phases).unwrap();
        let build = &json["finished"][1];
        assert_eq!(
            (&build["evidence"], &build["usage"]["cost_usd"]),
            (&"check".into(), &0.05.into())
        );
        assert_eq!(
            (&build["errors"][0]["iteration"], &json["autonomy"]),
            (&1.into(), &"full".into())
        );
    }
}
