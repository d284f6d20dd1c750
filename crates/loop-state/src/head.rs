//! The whole state of a run, and the small parts of it that have no file of their own.

use serde::{Deserialize, Serialize};

use crate::text::tail;
use crate::{
    Again, Budget, Counts, Cut, Failure, Finished, PhaseRules, Rules, RulesError, Steer,
    SteerState, Step, StopReason, StopRequest, Streaks, Then, Timestamp, Usage, Version, Waits,
};

/// No number of iterations, attempts or failures grows beyond this in any life; what is larger comes from outside.
pub(crate) const MAX_NUMBER: u32 = 1 << 30;

/// The whole state of a run: what is saved, and all that a resume needs.
///
/// Fields are public to be read; only a [`Machine`](crate::Machine) changes them. It is serialised as it is; deserialising refuses
/// one that no machine can have written, see [`HeadError`](crate::HeadError).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(remote = "Self")]
pub struct Head {
    /// The version of its saved form.
    pub version: Version,
    /// What bounds the run.
    pub rules: Rules,
    /// The run that this one is a fork of.
    pub parent: Option<Lineage>,
    /// The index of the present phase.
    pub phase: u32,
    /// The number of the present iteration within its phase, from 1; 0 before the first one of each phase.
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
    pub failure: Option<String>,
    /// The last attempt of this iteration, if it was cut.
    pub cut: Option<Cut>,
    /// What the next prompt must say about a failed gate or check.
    pub feedback: Option<Feedback>,
    /// What people said, until a turn that saw it is over.
    pub steers: Vec<Steer>,
    /// The id of the agent's session, as far as it is known.
    pub session: Option<String>,
    /// The steers in the prompt of the present attempt, until the agent answers it: whoever did not may have read nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub briefed: Vec<u32>,
    /// Whether the agent is known to have the prompt of this iteration in that session.
    pub prompted: bool,
    /// Whether the present attempt went on with an earlier session.
    pub continues: bool,
    /// Whether the next attempt gets a fresh session in any case.
    pub fresh: bool,
    /// The last time that another agent went on with the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
    /// Whether the present turn made the promise.
    pub claimed: bool,
    /// Whether the check of this phase could be run since the present process took the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub checked: bool,
    /// Whether the present turn did nothing that could be seen.
    pub idled: bool,
    /// What the agent said last in this phase.
    pub said: Option<String>,
    /// The latest iterations of this phase that went wrong.
    pub errors: Vec<Failure>,
    /// The phases that are over, in order.
    pub finished: Vec<Finished>,
    /// Whether a person can be asked, as far as the present process says.
    pub attended: bool,
    /// How many iterations were complete since a person was last to be asked.
    pub unreviewed: u32,
    /// A wish to pause when the iteration is complete.
    pub pausing: bool,
    /// A wish to do the present work again, while what runs is being ended.
    pub again: Option<Again>,
    /// A wish to stop that is being carried out.
    pub stopping: Option<StopRequest>,
    /// Whether what runs now, a turn or a command, was told to end.
    pub halting: bool,
    /// Failures in a row.
    pub streaks: Streaks,
    /// What the present iteration was cut by that time mends.
    pub waits: Waits,
    /// Totals of the run; they only grow.
    pub counts: Counts,
    /// What the agent used in the run, by its own reckoning.
    pub usage: Usage,
    /// What of that the present iteration used, all its attempts together.
    #[serde(default, skip_serializing_if = "Usage::is_nothing")]
    pub iteration_usage: Usage,
    /// The last complete iteration.
    pub last: Option<Last>,
    /// How the last check of the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_check: Option<LastCheck>,
    /// When the run began.
    pub started_at: Timestamp,
    /// When the present or last process took it.
    pub taken_at: Timestamp,
    /// When the last event happened.
    pub last_at: Timestamp,
    /// How many attempts earlier processes had begun.
    pub taken_attempts: u32,
    /// For how many milliseconds earlier processes were active.
    pub active_ms: u64,
    /// Why and when the run ended.
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
            version: Version::default(),
            rules,
            parent: None,
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
            briefed: Vec::new(),
            prompted: false,
            continues: false,
            fresh: false,
            handover: None,
            claimed: false,
            checked: false,
            idled: false,
            said: None,
            errors: Vec::new(),
            finished: Vec::new(),
            attended: false,
            unreviewed: 0,
            pausing: false,
            again: None,
            stopping: None,
            halting: false,
            streaks: Streaks::default(),
            waits: Waits::default(),
            counts: Counts::default(),
            usage: Usage::default(),
            iteration_usage: Usage::default(),
            last: None,
            last_check: None,
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

    /// Returns whether the run has a phase after the present one.
    #[must_use]
    pub fn has_later_phase(&self) -> bool {
        (self.phase as usize) + 1 < self.rules.phases.len()
    }

    /// Returns whether the run waits for a person, however long that takes.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        matches!(
            self.step,
            Step::Interrupted { .. } | Step::Paused { .. } | Step::Review { .. }
        )
    }

    /// Returns what the phase before the present one came to, if its agent said so.
    #[must_use]
    pub fn last_result(&self) -> Option<&str> {
        let before = (self.phase as usize).checked_sub(1)?;
        self.finished.get(before)?.result.as_deref()
    }

    /// Returns what the present phase has used: all that is not another one's.
    pub(crate) fn phase_usage(&self) -> Usage {
        let finished = self.finished.iter().map(|phase| phase.usage);
        finished.fold(self.usage, Usage::without)
    }

    /// Counts the time since this process took the run, or since it was last counted.
    pub(crate) fn count_active(&mut self, until: Timestamp) {
        let active = until.since(self.taken_at).as_millis() as u64;
        self.active_ms = self.active_ms.saturating_add(active);
        self.taken_at = until;
    }

    /// Returns the reason that a process reports when it is done with the run: that of the end, or of a stop that came before the run began.
    #[must_use]
    pub fn stop_reason(&self) -> Option<StopReason> {
        let stopping = self.stopping.map(|request| StopReason::Stopped(request.by));
        { self.end.as_ref() }.map_or(stopping, |end| Some(end.reason.clone()))
    }

    /// Returns the steers that no agent is known to have seen, oldest first.
    pub fn unseen_steers(&self) -> impl Iterator<Item = &Steer> {
        let unseen = |steer: &&Steer| steer.state != SteerState::Seen;
        self.steers.iter().filter(unseen)
    }

    /// Takes back that the agent has the steers of a prompt that it did not answer.
    pub(crate) fn recall_steers(&mut self) {
        let briefed = std::mem::take(&mut self.briefed);
        let mine = |steer: &&mut Steer| briefed.contains(&steer.id);
        for steer in self.steers.iter_mut().filter(mine) {
            steer.state = SteerState::Recorded;
        }
    }

    /// Returns how many iterations are complete and count: not those that were discarded when somebody went back.
    #[must_use]
    pub fn iterations_complete(&self) -> u32 {
        let before = self.finished.iter().take(self.phase as usize);
        let here = self.resumes_at().0.saturating_sub(1);
        before.fold(here, |sum, phase| sum.saturating_add(phase.iterations))
    }

    /// Returns how many of those went wrong; of each phase no more than [`MAX_ERRORS`](crate::MAX_ERRORS) are counted.
    #[must_use]
    pub fn iterations_failed(&self) -> usize {
        let finished = self.finished.iter().map(|phase| phase.errors.len());
        finished.sum::<usize>() + self.errors.len()
    }

    /// Returns whether the turn of the present attempt is over and what it did is being judged: by its gates and the check, once its tree is gone.
    #[must_use]
    pub fn is_judging(&self) -> bool {
        match &self.step {
            Step::Gate { .. } | Step::Check => true,
            Step::Settling { then } => !matches!(then, Then::Again(_)),
            _ => false,
        }
    }

    /// Whether the present attempt is not the first one of its iteration. Attempts of a later phase, and those after a return to an earlier iteration,
    /// don't begin with number 1: no number is used twice.
    #[must_use]
    pub fn is_tried_again(&self) -> bool {
        self.attempt > self.first_attempt
    }

    /// Returns the iteration that a resume begins with, and whether it is done again because it was cut.
    #[must_use]
    pub fn resumes_at(&self) -> (u32, bool) {
        match self.step {
            Step::Sleeping { .. } | Step::Paused { .. } | Step::Review { .. } => {
                (self.iteration + 1, false)
            }
            Step::Turn { .. } | Step::Interrupted { .. } | Step::Waiting { .. } => {
                (self.iteration, true)
            }
            Step::Ready | Step::Recheck { .. } => (self.iteration.max(1), self.cut.is_some()),
            Step::Gate { .. } | Step::Check | Step::Settling { .. } => (self.iteration, false),
        }
    }

    /// Returns the budget that is used up, if one is: at its limit there is nothing left to spend.
    #[must_use]
    pub fn spent(&self) -> Option<Budget> {
        let (cost, tokens) = (self.usage.cost_microusd, self.usage.tokens());
        let cost = self
            .rules
            .limits
            .max_cost_microusd
            .map(|limit| Budget::Cost { limit, used: cost });
        let tokens = self.rules.limits.max_tokens.map(|limit| Budget::Tokens {
            limit,
            used: tokens,
        });
        let is_spent = |budget: &Budget| match *budget {
            Budget::Cost { limit, used } | Budget::Tokens { limit, used } => used >= limit,
        };
        [cost, tokens].into_iter().flatten().find(is_spent)
    }

    /// Gives the work to another agent than `from`, which nobody knows by its session.
    pub(crate) fn hand_over(&mut self, from: String) {
        let attempt = self.counts.attempts;
        // An agent that was named and never began has done nothing.
        let idle = self.handover.take().filter(|last| last.attempt == attempt);
        let from = idle.map_or_else(|| tail(from), |last| last.from);
        let told = false;
        self.handover = (attempt > 0).then_some(Handover {
            from,
            attempt,
            told,
        });
        self.session = None;
        self.prompted = false;
        self.continues = false;
    }

    /// Returns the agent that worked before the present one, if that is still to be told.
    pub(crate) fn predecessor(&self) -> Option<&str> {
        let untold = self.handover.as_ref().filter(|handover| !handover.told);
        untold.map(|handover| handover.from.as_str())
    }

    /// Makes the head of a new run that goes on where this one stands; its first event is [`Happening::Resumed`](crate::Happening::Resumed).
    ///
    /// What was counted and used up to here counts for the fork too, as its history does, so that a budget is not had twice. What failed in a row, and
    /// every wish to stop, to wait or to begin again, was the other run's, and so is the conversation: it may know what comes after. A turn that was begun behind the
    /// iteration that is gone on from is as if it had not been, but for its number.
    #[must_use]
    pub fn fork(mut self, mut parent: Lineage) -> Self {
        parent.run = tail(parent.run);
        let is_begun = !self.step.is_rest() && self.step != Step::Ready;
        if is_begun && self.iteration > parent.iteration {
            self.step = Step::Ready;
            self.cut = None;
            self.recall_steers();
        }
        self.parent = Some(parent);
        self.streaks = Streaks::default();
        self.waits = Waits::default();
        self.stopping = None;
        self.pausing = false;
        self.again = None;
        if let Step::Settling {
            then: then @ Then::Again(_),
        } = &mut self.step
        {
            *then = Then::Next;
        }
        self.halting = false;
        self.end = None;
        self.elsewhere()
    }

    /// Makes the head of the same run where nobody knows the conversation of its agent: the next attempt begins another one.
    #[must_use]
    pub fn elsewhere(mut self) -> Self {
        self.session = None;
        self.prompted = false;
        self.continues = false;
        self
    }
}

/// Another agent went on with the work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Handover {
    /// The agent before it.
    pub from: String,
    /// The last attempt of that agent's, counted over the whole run.
    pub attempt: u32,
    /// Whether a turn is over that was told of it.
    pub told: bool,
}

/// Where a run comes from that is a fork of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lineage {
    /// The other run's name.
    pub run: String,
    /// The iteration of it that is gone on from.
    pub iteration: u32,
    /// The number of the save that is gone on from.
    pub seq: u64,
}

/// The output of a failed command, for the next prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Feedback {
    /// Which command.
    pub source: Command,
    /// The tail of what it printed.
    pub text: String,
}

/// A command of the loop's own: a gate, or the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// The gate with this index.
    Gate(u32),
    /// The check.
    Check,
}

/// What the last complete iteration came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Last {
    /// Its number.
    pub iteration: u32,
    /// When it was complete.
    pub at: Timestamp,
    /// What went wrong, if anything did.
    pub failure: Option<String>,
    /// What it used, all its attempts together.
    #[serde(default, skip_serializing_if = "Usage::is_nothing")]
    pub usage: Usage,
}

/// How the last check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LastCheck {
    /// The index of its phase.
    pub phase: u32,
    /// Its iteration within that phase.
    pub iteration: u32,
    /// How it ended.
    pub outcome: CheckOutcome,
}

/// How a check ended, without its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CheckOutcome {
    /// It passed.
    Passed,
    /// It failed.
    Failed,
    /// It could not be run.
    NotRun,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct End {
    /// When it ended.
    pub at: Timestamp,
    /// Why.
    pub reason: StopReason,
}
