use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What bounds a run. All of it is saved with the run; a resume may replace it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// The pipeline; at least one phase.
    pub phases: Vec<PhaseRules>,
    /// How long the run may be active, all its processes together. Time in which it was stopped doesn't count.
    #[serde(default)]
    pub max_duration: Option<Duration>,
    /// How many failures of one kind in a row end the run; 0 for no limit.
    pub max_failures: u32,
    /// The pause between two iterations.
    pub sleep: Duration,
}

/// What bounds one phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseRules {
    /// Its name, for people and for paths.
    pub name: String,
    /// How many commands must pass before an iteration counts.
    #[serde(default)]
    pub gates: u32,
    /// Whether a check decides that the phase is done.
    #[serde(default)]
    pub until: bool,
    /// Whether the agent can promise that the phase is done. With a check, that is asked only then.
    #[serde(default)]
    pub promise: bool,
    /// Which of the agent's sessions an iteration gets.
    #[serde(default)]
    pub session: SessionPolicy,
    /// Its limits.
    pub limits: Limits,
}

/// Which of the agent's sessions an iteration gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionPolicy {
    /// One of its own: what is not in the prompt or on the disk is forgotten.
    #[default]
    Fresh,
    /// That of the iteration before it. A cut attempt is gone on with, and its prompt is not sent again.
    Continue,
}

/// Limits of a phase; `None` means none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The last iteration's number. Without a check it is the plan, with one it is a limit.
    #[serde(default)]
    pub max_iterations: Option<u32>,
    /// How long one turn may take.
    #[serde(default)]
    pub iteration_timeout: Option<Duration>,
    /// How long the agent may give no sign of life within a turn.
    #[serde(default)]
    pub idle_timeout: Option<Duration>,
}

/// Why rules make no run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RulesError {
    /// There is no phase.
    #[error("a run needs at least one phase")]
    NoPhase,
    /// A phase would never end.
    #[error("phase `{0}` has no end: give it a check, a promise or a number of iterations")]
    Endless(String),
    /// A limit of zero iterations.
    #[error("phase `{0}` may run 0 iterations: at least 1 is needed")]
    ZeroIterations(String),
}

impl Rules {
    /// Checks that a run by these rules can begin and can end.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), RulesError> {
        if self.phases.is_empty() {
            return Err(RulesError::NoPhase);
        }
        for phase in &self.phases {
            match phase.limits.max_iterations {
                None if !phase.until && !phase.promise => {
                    return Err(RulesError::Endless(phase.name.clone()));
                }
                Some(0) => return Err(RulesError::ZeroIterations(phase.name.clone())),
                _ => {}
            }
        }
        Ok(())
    }
}
