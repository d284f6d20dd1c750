//! The whole state of a run, and the small types that only the head uses.

use serde::{Deserialize, Serialize};

use crate::text::tail;
use crate::{
    Again, Budget, Counts, Cut, Failure, Finished, PhaseRules, Rules, RulesError, Steer,
    SteerState, Step, StopReason, StopRequest, Streaks, Then, Timestamp, Usage, Version, Waits,
};

/// The maximum of any number of iterations, attempts or failures. No run reaches it; a larger number was not written by a machine.
pub(crate) const MAX_NUMBER: u32 = 1 << 30;

/// The whole state of a run: everything that is saved and that a resume needs.
///
/// The fields are public only for reading; only a [`Machine`](crate::Machine) changes them. The head is serialised as it is; deserialising refuses a
/// head that no machine can have written, see [`HeadError`](crate::HeadError).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(remote = "Self")]
pub struct Head {
    /// The version of the saved form.
    pub version: Version,
    /// The rules of the run.
    pub rules: Rules,
    /// The origin of the run, if it is a fork.
    pub parent: Option<Lineage>,
    /// The index of the current phase.
    pub phase: u32,
    /// The number of the current iteration within its phase, from 1; 0 before the first one of each phase.
    pub iteration: u32,
    /// The number of the current or last attempt of this iteration; 0 before the first.
    pub attempt: u32,
    /// The highest attempt number of the whole run.
    pub highest_attempt: u32,
    /// The number of a first attempt. It increases when iterations are numbered again, so that no pair of iteration and attempt occurs twice.
    pub first_attempt: u32,
    /// The step of the current iteration.
    pub step: Step,
    /// Why the current turn failed.
    pub failure: Option<String>,
    /// The last attempt of this iteration, if it is unfinished.
    pub cut: Option<Cut>,
    /// The output of a failed required check or check, for the next prompt.
    pub feedback: Option<Feedback>,
    /// The steers, until a turn that read them is over.
    pub steers: Vec<Steer>,
    /// The id of the agent's session, if known.
    pub session: Option<String>,
    /// The steers in the prompt of the current attempt, until the agent answers. An agent that doesn't answer may have read none of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub briefed: Vec<u32>,
    /// Whether the agent has the prompt of this iteration in that session.
    pub prompted: bool,
    /// Whether the current attempt continues an earlier session.
    pub continues: bool,
    /// Whether the next attempt always gets a fresh session.
    pub fresh: bool,
    /// The last change to another agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
    /// Whether the current turn made the completion promise.
    pub claimed: bool,
    /// Whether the check of this phase could run since the current process took over the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub checked: bool,
    /// Whether the current turn made no progress.
    pub idled: bool,
    /// The last message of the agent in this phase.
    pub said: Option<String>,
    /// The latest failed iterations of this phase.
    pub errors: Vec<Failure>,
    /// The finished phases, in order.
    pub finished: Vec<Finished>,
    /// Whether a person can be asked, as the current process reports.
    pub attended: bool,
    /// The number of complete iterations since a review was last due.
    pub unreviewed: u32,
    /// Whether the run pauses when the iteration is complete.
    pub pausing: bool,
    /// The requested redo, while the current work is being ended.
    pub again: Option<Again>,
    /// The stop request that the run carries out.
    pub stopping: Option<StopRequest>,
    /// Whether the current turn or command is being ended.
    pub halting: bool,
    /// Failures in a row.
    pub streaks: Streaks,
    /// The retries of the current iteration after rate limits and transient failures.
    pub waits: Waits,
    /// The totals of the run, which never decrease.
    pub counts: Counts,
    /// The usage of the run, as the agents report it.
    pub usage: Usage,
    /// The usage of the current iteration, in all its attempts together.
    #[serde(default, skip_serializing_if = "Usage::is_nothing")]
    pub iteration_usage: Usage,
    /// The last complete iteration.
    pub last: Option<Last>,
    /// How the last check of the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_check: Option<LastCheck>,
    /// When the run began.
    pub started_at: Timestamp,
    /// When the current or last process took over the run.
    pub taken_at: Timestamp,
    /// The time of the last input.
    pub last_at: Timestamp,
    /// The number of attempts in earlier processes.
    pub taken_attempts: u32,
    /// The active time of earlier processes, in milliseconds.
    pub active_ms: u64,
    /// The end of the run, if it has ended.
    pub end: Option<End>,
}

impl Head {
    /// Creates the head of a run that has not begun.
    ///
    /// # Errors
    ///
    /// Returns an error if the rules are invalid.
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

    /// Returns the rules of the current phase.
    #[must_use]
    pub fn phase_rules(&self) -> &PhaseRules {
        &self.rules.phases[self.phase as usize]
    }

    /// Returns whether the run has a phase after the current one.
    #[must_use]
    pub fn has_later_phase(&self) -> bool {
        (self.phase as usize) + 1 < self.rules.phases.len()
    }

    /// Returns whether the run waits for a person, without a time limit.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        matches!(
            self.step,
            Step::Interrupted { .. } | Step::Paused { .. } | Step::Review { .. }
        )
    }

    /// Returns the result of the previous phase, if its agent reported one.
    #[must_use]
    pub fn last_result(&self) -> Option<&str> {
        let before = (self.phase as usize).checked_sub(1)?;
        self.finished.get(before)?.result.as_deref()
    }

    /// Returns the usage of the current phase: the total without the finished phases.
    pub(crate) fn phase_usage(&self) -> Usage {
        let finished = self.finished.iter().map(|phase| phase.usage);
        finished.fold(self.usage, Usage::without)
    }

    /// Adds the time since this process took over the run, or since the last call, to the active time.
    pub(crate) fn count_active(&mut self, until: Timestamp) {
        let active = until.since(self.taken_at).as_millis() as u64;
        self.active_ms = self.active_ms.saturating_add(active);
        self.taken_at = until;
    }

    /// Returns the reason that a process reports when it has finished with the run: the reason of the end, or of a stop before the run began.
    #[must_use]
    pub fn stop_reason(&self) -> Option<StopReason> {
        let stopping = self.stopping.map(|request| StopReason::Stopped(request.by));
        { self.end.as_ref() }.map_or(stopping, |end| Some(end.reason.clone()))
    }

    /// Returns the steers that no agent has read, as far as known, oldest first.
    pub fn unseen_steers(&self) -> impl Iterator<Item = &Steer> {
        let unseen = |steer: &&Steer| steer.state != SteerState::Seen;
        self.steers.iter().filter(unseen)
    }

    /// Marks the steers of an unanswered prompt as not delivered.
    pub(crate) fn recall_steers(&mut self) {
        let briefed = std::mem::take(&mut self.briefed);
        let mine = |steer: &&mut Steer| briefed.contains(&steer.id);
        for steer in self.steers.iter_mut().filter(mine) {
            steer.state = SteerState::Recorded;
        }
    }

    /// Returns the number of complete iterations, without those that were discarded later.
    #[must_use]
    pub fn iterations_complete(&self) -> u32 {
        let before = self.finished.iter().take(self.phase as usize);
        let here = self.resumes_at().0.saturating_sub(1);
        before.fold(here, |sum, phase| sum.saturating_add(phase.iterations))
    }

    /// Returns how many of the complete iterations failed. Each phase counts at most [`MAX_ERRORS`](crate::MAX_ERRORS).
    #[must_use]
    pub fn iterations_failed(&self) -> usize {
        let finished = self.finished.iter().map(|phase| phase.errors.len());
        finished.sum::<usize>() + self.errors.len()
    }

    /// Returns whether the turn of the current attempt is over and its required checks or its check run, or its leftovers are being ended after them.
    #[must_use]
    pub fn is_judging(&self) -> bool {
        match &self.step {
            Step::Gate { .. } | Step::Check => true,
            Step::Settling { then } => !matches!(then, Then::Again(_)),
            _ => false,
        }
    }

    /// Returns whether the current attempt is not the first one of its iteration. The first attempt doesn't always have number 1: no number is used
    /// twice, also not in later phases or after a return to an earlier iteration.
    #[must_use]
    pub fn is_tried_again(&self) -> bool {
        self.attempt > self.first_attempt
    }

    /// Returns the iteration at which a resume begins, and whether the resume redoes it because it is unfinished.
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

    /// Returns the used-up budget, if there is one. A budget is used up when its limit is reached.
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

    /// Records that another agent replaces `from`. The session belongs to `from` and doesn't continue.
    pub(crate) fn hand_over(&mut self, from: String) {
        let attempt = self.counts.attempts;
        // An agent that was replaced before its first attempt did no work, so it is not recorded.
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

    /// Returns the previous agent, if the current one has not been told about it.
    pub(crate) fn predecessor(&self) -> Option<&str> {
        let untold = self.handover.as_ref().filter(|handover| !handover.told);
        untold.map(|handover| handover.from.as_str())
    }

    /// Creates the head of a fork that continues from the current state; its first input is [`Happening::Resumed`](crate::Happening::Resumed).
    ///
    /// The fork keeps the history, the counters and the usage, so that it doesn't get a fresh budget. It doesn't keep streaks, nor requests to stop,
    /// pause or redo, nor the session, which may contain later work. A turn that began after the iteration of the fork is dropped; only its number
    /// stays used.
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

    /// Creates the head of the same run in a place where the session of its agent is unknown: the next attempt gets a fresh session.
    #[must_use]
    pub fn elsewhere(mut self) -> Self {
        self.session = None;
        self.prompted = false;
        self.continues = false;
        self
    }
}

/// A change to another agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Handover {
    /// The previous agent.
    pub from: String,
    /// The number of the last attempt of that agent, counted over the whole run.
    pub attempt: u32,
    /// Whether the current agent has been told in a turn that is over.
    pub told: bool,
}

/// The origin of a fork.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lineage {
    /// The name of the other run.
    pub run: String,
    /// The last iteration of the other run that the fork continues from.
    pub iteration: u32,
    /// The number of the save that the fork continues from.
    pub seq: u64,
}

/// The output of a failed command, for the next prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Feedback {
    /// The command.
    pub source: Command,
    /// The tail of its output.
    pub text: String,
}

/// A command that the loop runs itself: a required check or the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// The required check with this index.
    Gate(u32),
    /// The check.
    Check,
}

/// The result of the last complete iteration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Last {
    /// The number of the iteration.
    pub iteration: u32,
    /// When the iteration was complete.
    pub at: Timestamp,
    /// Why the iteration failed, if it did.
    pub failure: Option<String>,
    /// The usage of all its attempts together.
    #[serde(default, skip_serializing_if = "Usage::is_nothing")]
    pub usage: Usage,
}

/// The end of the last check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LastCheck {
    /// The index of the phase of the check.
    pub phase: u32,
    /// The iteration of the check within that phase.
    pub iteration: u32,
    /// How the check ended.
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
    /// It could not run.
    NotRun,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct End {
    /// When the run ended.
    pub at: Timestamp,
    /// The stop reason.
    pub reason: StopReason,
}
