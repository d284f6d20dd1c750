use serde::{Deserialize, Serialize};

use crate::{
    Evidence, PhaseRules, Rules, RulesError, Steer, SteerState, StopReason, StopRequest, Timestamp,
    Usage,
};

/// The whole state of a run: what is saved, and all that a resume needs.
///
/// Fields are public to be read; only [`Machine::step`](crate::Machine::step) changes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// What bounds the run.
    pub rules: Rules,
    /// The index of the present phase.
    pub phase: u32,
    /// The number of the present iteration within its phase, from 1; 0 before the first.
    pub iteration: u32,
    /// The number of the present or last attempt of this iteration; 0 before the first.
    pub attempt: u32,
    /// The highest number that any attempt of the run ever had.
    pub highest_attempt: u32,
    /// The number that first attempts have. Grows when iterations are numbered anew, so that no pair of iteration and attempt comes twice.
    pub first_attempt: u32,
    /// Where in its iteration the run stands.
    pub step: Step,
    /// What went wrong in the present turn.
    #[serde(default)]
    pub failure: Option<String>,
    /// The last attempt of this iteration, if it was cut.
    #[serde(default)]
    pub cut: Option<Cut>,
    /// What the next prompt must say about a failed gate or check.
    #[serde(default)]
    pub feedback: Option<Feedback>,
    /// What people said, until a turn that saw it is over.
    #[serde(default)]
    pub steers: Vec<Steer>,
    /// The id of the agent's session, as far as it is known.
    #[serde(default)]
    pub session: Option<String>,
    /// Whether the agent is known to have the prompt of this iteration in that session.
    #[serde(default)]
    pub prompted: bool,
    /// Whether the present attempt went on with an earlier session.
    #[serde(default)]
    pub continues: bool,
    /// Whether the next attempt gets a fresh session in any case.
    #[serde(default)]
    pub fresh: bool,
    /// Whether the present turn made the promise.
    #[serde(default)]
    pub claimed: bool,
    /// Whether the present turn did nothing that could be seen.
    #[serde(default)]
    pub idled: bool,
    /// A wish to pause when the iteration is complete.
    #[serde(default)]
    pub pausing: bool,
    /// A wish to do the present work again, while what runs is being ended.
    #[serde(default)]
    pub again: Option<Again>,
    /// A wish to stop that is being carried out.
    #[serde(default)]
    pub stopping: Option<StopRequest>,
    /// Whether what runs now, a turn or a command, was told to end.
    #[serde(default)]
    pub halting: bool,
    /// Failures in a row.
    #[serde(default)]
    pub streaks: Streaks,
    /// Totals of the run; they only grow.
    #[serde(default)]
    pub counts: Counts,
    /// What the agent used in the run, by its own reckoning.
    #[serde(default)]
    pub usage: Usage,
    /// The last complete iteration.
    #[serde(default)]
    pub last: Option<Last>,
    /// When the run began.
    pub started_at: Timestamp,
    /// When the present or last process took it.
    pub taken_at: Timestamp,
    /// When the last event happened.
    pub last_at: Timestamp,
    /// How many attempts earlier processes had begun.
    #[serde(default)]
    pub taken_attempts: u32,
    /// For how many milliseconds earlier processes were active.
    #[serde(default)]
    pub active_ms: u64,
    /// Why and when the run ended.
    #[serde(default)]
    pub end: Option<End>,
}

impl Head {
    /// Makes the head of a run that is still to begin.
    ///
    /// # Errors
    ///
    /// When no run can be made by these rules.
    pub fn new(rules: Rules) -> Result<Self, RulesError> {
        rules.validate()?;
        Ok(Self {
            rules,
            phase: 0,
            iteration: 0,
            attempt: 0,
            highest_attempt: 0,
            first_attempt: 1,
            step: Step::Ready,
            failure: None,
            cut: None,
            feedback: None,
            steers: Vec::new(),
            session: None,
            prompted: false,
            continues: false,
            fresh: false,
            claimed: false,
            idled: false,
            pausing: false,
            again: None,
            stopping: None,
            halting: false,
            streaks: Streaks::default(),
            counts: Counts::default(),
            usage: Usage::default(),
            last: None,
            started_at: Timestamp::default(),
            taken_at: Timestamp::default(),
            last_at: Timestamp::default(),
            taken_attempts: 0,
            active_ms: 0,
            end: None,
        })
    }

    /// Returns the rules of the present phase.
    #[must_use]
    pub fn phase_rules(&self) -> &PhaseRules {
        &self.rules.phases[self.phase as usize]
    }

    /// Returns whether the run waits for a person, however long that takes.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        matches!(self.step, Step::Interrupted { .. } | Step::Paused { .. })
    }

    /// Returns the steers that no agent is known to have seen, oldest first.
    pub fn unseen_steers(&self) -> impl Iterator<Item = &Steer> {
        let unseen = |steer: &&Steer| steer.state != SteerState::Seen;
        self.steers.iter().filter(unseen)
    }

    /// Returns the iteration that a resume begins with, and whether it is done again because it was cut.
    #[must_use]
    pub fn resumes_at(&self) -> (u32, bool) {
        match self.step {
            Step::Sleeping { .. } | Step::Paused { .. } => (self.iteration + 1, false),
            Step::Turn { .. } | Step::Interrupted { .. } => (self.iteration, true),
            Step::Ready | Step::Recheck { .. } => (self.iteration.max(1), self.cut.is_some()),
            Step::Gate { .. } | Step::Check | Step::Settling { .. } => (self.iteration, false),
        }
    }
}

/// Where in its iteration a run stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Step {
    /// The present iteration's next attempt is still to begin.
    Ready,
    /// The agent works.
    Turn {
        /// Since when.
        since: Timestamp,
    },
    /// A person interrupted the turn; its session is open and waits for a word.
    Interrupted {
        /// Since when.
        since: Timestamp,
    },
    /// A gate runs.
    Gate {
        /// Its index.
        index: u32,
    },
    /// The check runs.
    Check,
    /// Gates and check run before a cut iteration is done again: its work may have been finished.
    Recheck {
        /// The gate that runs, or the number of gates when it is the check.
        gate: u32,
    },
    /// What the attempt left running is being ended.
    Settling {
        /// What comes after that.
        then: Then,
    },
    /// The iteration is complete and the next one is waited for.
    Sleeping {
        /// When it begins.
        until: Timestamp,
    },
    /// The iteration is complete and a person wants the next one to wait.
    Paused {
        /// Since when.
        since: Timestamp,
    },
}

/// What a person wants done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Again {
    /// The iteration.
    Iteration,
    /// The phase.
    Phase,
}

/// What follows when the tree of an attempt is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Then {
    /// The iteration is complete.
    Next,
    /// The iteration is complete and this shows that the phase is done.
    Done(Evidence),
    /// What a person wants done again.
    Again(Again),
    /// The run ends, with the iteration's turn made but not judged.
    End(StopReason),
}

/// An attempt that did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// Its number.
    pub attempt: u32,
    /// What cut it.
    pub cause: CutCause,
}

/// What cuts an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum CutCause {
    /// The loop's process died: killed, crashed, machine gone.
    Crash,
    /// The run was asked to stop.
    Stop,
    /// The run's time was used up.
    TimeLimit,
    /// A person wanted it done again.
    Restart,
    /// The agent can't work before a person has mended something.
    Agent,
}

/// The output of a failed command, for the next prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feedback {
    /// Which command.
    pub source: FeedbackSource,
    /// The tail of what it printed.
    pub text: String,
}

/// A command whose output goes into the next prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FeedbackSource {
    /// The gate with this index.
    Gate(u32),
    /// The check.
    Check,
}

/// Failures in a row, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streaks {
    /// Turns that failed.
    pub failures: u32,
    /// Iterations whose gates failed.
    pub gates: u32,
    /// Turns cut by the death of the loop's process.
    pub crashes: u32,
    /// Turns that did nothing.
    #[serde(default)]
    pub idle: u32,
}

/// Totals of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Complete iterations.
    pub iterations: u32,
    /// Attempts that were begun.
    pub attempts: u32,
    /// Iterations whose turn failed.
    pub failed: u32,
    /// Attempts that were cut.
    pub cuts: u32,
    /// Steers that were recorded.
    #[serde(default)]
    pub steers: u32,
    /// What the agent asked for and was denied.
    #[serde(default)]
    pub denied: u32,
    /// Processes that took the run, the first one included.
    pub processes: u32,
}

/// What the last complete iteration came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Last {
    /// Its number.
    pub iteration: u32,
    /// When it was complete.
    pub at: Timestamp,
    /// What went wrong, if anything did.
    #[serde(default)]
    pub failure: Option<String>,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// When it ended.
    pub at: Timestamp,
    /// Why.
    pub reason: StopReason,
}
