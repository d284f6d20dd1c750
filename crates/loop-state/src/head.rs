//! The whole state of a run, and the small types that only the head uses.

use serde::{Deserialize, Serialize};

use crate::text::last_text_bytes;
use crate::{
    AfterLeftovers, Counts, FinishedPhase, IterationFailure, IterationStep, LoopCommand,
    PhaseRules, RedoScope, Retries, Rules, RulesError, SpentBudget, Steer, SteerState, StopCause,
    StopReason, StopRequest, Streaks, Timestamp, UnfinishedAttempt, UsageTotal, Version,
};

/// The maximum of any number of iterations, attempts or failures. No run reaches it, so a machine never writes a larger number.
pub(crate) const MAX_NUMBER: u32 = 1 << 30;

/// The whole state of a run: everything that is saved and that a resume needs.
///
/// The fields are public only for reading; only a [`Machine`](crate::Machine) changes them. The head is serialised as it is; deserialising refuses a
/// head that no machine can have written, see [`HeadError`](crate::HeadError).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(remote = "Self")]
#[non_exhaustive]
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
    /// The number that the first attempt of an iteration gets. It increases when iterations are numbered again, so that no pair of iteration and
    /// attempt occurs twice.
    pub first_attempt: u32,
    /// The step of the current iteration.
    pub step: IterationStep,
    /// Why the current turn failed.
    pub failure: Option<String>,
    /// The last attempt of this iteration, if it is unfinished.
    pub unfinished: Option<UnfinishedAttempt>,
    /// The output of a failed required check or check, for the next prompt.
    pub feedback: Option<Feedback>,
    /// The steers, until a turn that read them is over.
    pub steers: Vec<Steer>,
    /// The id of the agent's session, if known.
    pub session: Option<String>,
    /// The last known position in the session, if the agent keeps the session on disk. A session that is longer has a later message. A fork copies the
    /// session up to there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_position: Option<u64>,
    /// The steers in the prompt of the current attempt, until the agent answers. An agent that doesn't answer may have read none of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prompt_steers: Vec<u32>,
    /// Whether the agent's session already contains the prompt of this iteration.
    pub has_prompt: bool,
    /// Whether the agent's session already contains the feedback.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_feedback: bool,
    /// Whether the current attempt continues an earlier session.
    pub continues_session: bool,
    /// Whether the next attempt always gets a fresh session.
    pub fresh_session: bool,
    /// The last change to another agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
    /// Whether the current turn made the completion promise.
    pub promised: bool,
    /// Whether the check of this phase ran at least once since the current process took over the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub check_has_run: bool,
    /// Whether the current turn made no progress.
    pub made_no_progress: bool,
    /// The last message of the agent in this phase.
    pub last_message: Option<String>,
    /// The latest failed iterations of this phase.
    pub errors: Vec<IterationFailure>,
    /// The finished phases, in order.
    pub finished_phases: Vec<FinishedPhase>,
    /// Whether a person can be asked, as the current process reports.
    pub attended: bool,
    /// The number of complete iterations since a review was last due.
    pub iterations_since_review: u32,
    /// Whether the run pauses when the iteration is complete.
    pub pausing: bool,
    /// The requested redo, while the current work is being ended.
    pub redo: Option<RedoScope>,
    /// The stop request that the run carries out.
    pub stopping: Option<StopRequest>,
    /// The origin of a stop after the iteration, if a signal stopped the run before the iteration was complete. A worker of a fleet that takes the
    /// run over carries it out.
    pub stop_cut_short: Option<StopCause>,
    /// Whether the current turn or command is being ended.
    pub is_stopping_step: bool,
    /// Failures in a row.
    pub streaks: Streaks,
    /// The retries of the current iteration after rate limits and transient failures.
    pub retries: Retries,
    /// The totals of the run, which never decrease.
    pub counts: Counts,
    /// The usage of the run, as the agents report it.
    pub usage: UsageTotal,
    /// The usage of the current iteration, in all its attempts together.
    #[serde(default, skip_serializing_if = "UsageTotal::is_zero")]
    pub iteration_usage: UsageTotal,
    /// The last complete iteration.
    pub last_iteration: Option<LastIteration>,
    /// How the last check of the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_check: Option<LastCheck>,
    /// When the run began.
    pub started_at: Timestamp,
    /// When the current attempt began.
    pub attempt_began_at: Timestamp,
    /// When the current or last process took over the run.
    pub taken_at: Timestamp,
    /// The time of the last input.
    pub last_at: Timestamp,
    /// The number of attempts in earlier processes.
    pub taken_attempts: u32,
    /// The active time of earlier processes, in milliseconds.
    pub active_ms: u64,
    /// The end of the run, if it has ended.
    pub end: Option<RunEnd>,
}

/// Where a resume begins, unless it requests another iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ResumePoint {
    /// The number of the iteration.
    pub iteration: u32,
    /// Whether the resume redoes this iteration, because it began and is unfinished.
    pub is_unfinished: bool,
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
            step: IterationStep::Ready,
            failure: None,
            unfinished: None,
            feedback: None,
            steers: Vec::new(),
            session: None,
            session_position: None,
            prompt_steers: Vec::new(),
            has_prompt: false,
            has_feedback: false,
            continues_session: false,
            fresh_session: false,
            handover: None,
            promised: false,
            check_has_run: false,
            made_no_progress: false,
            last_message: None,
            errors: Vec::new(),
            finished_phases: Vec::new(),
            attended: false,
            iterations_since_review: 0,
            pausing: false,
            redo: None,
            stopping: None,
            stop_cut_short: None,
            is_stopping_step: false,
            streaks: Streaks::default(),
            retries: Retries::default(),
            counts: Counts::default(),
            usage: UsageTotal::default(),
            iteration_usage: UsageTotal::default(),
            last_iteration: None,
            last_check: None,
            started_at: Timestamp::default(),
            attempt_began_at: Timestamp::default(),
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
    pub(crate) fn has_later_phase(&self) -> bool {
        (self.phase as usize) + 1 < self.rules.phases.len()
    }

    /// Returns whether the run waits for a person, without a time limit.
    #[must_use]
    pub fn awaits_person(&self) -> bool {
        matches!(
            self.step,
            IterationStep::Interrupted { .. }
                | IterationStep::Paused { .. }
                | IterationStep::Review { .. }
        )
    }

    /// Returns the result of the previous phase, if its agent reported one.
    pub(crate) fn previous_phase_result(&self) -> Option<&str> {
        let before = (self.phase as usize).checked_sub(1)?;
        self.finished_phases.get(before)?.result.as_deref()
    }

    /// Returns the usage of the current phase: the total without the finished phases.
    pub(crate) fn phase_usage(&self) -> UsageTotal {
        let finished = self.finished_phases.iter().map(|phase| phase.usage);
        finished.fold(self.usage, UsageTotal::saturating_sub)
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
    pub(crate) fn unmark_prompt_steers(&mut self) {
        let unanswered = std::mem::take(&mut self.prompt_steers);
        let is_unanswered = |steer: &&mut Steer| unanswered.contains(&steer.id);
        for steer in self.steers.iter_mut().filter(is_unanswered) {
            steer.state = SteerState::Recorded;
        }
    }

    /// Returns the number of complete iterations, without those that were discarded later.
    #[must_use]
    pub fn iterations_complete(&self) -> u32 {
        let before = self.finished_phases.iter().take(self.phase as usize);
        let here = self.resume_point().iteration.saturating_sub(1);
        before.fold(here, |sum, phase| sum.saturating_add(phase.iterations))
    }

    /// Returns how many of the complete iterations failed. Each phase counts at most [`MAX_ERRORS`](crate::MAX_ERRORS).
    #[must_use]
    pub fn iterations_failed(&self) -> usize {
        let finished = self.finished_phases.iter().map(|phase| phase.errors.len());
        finished.sum::<usize>() + self.errors.len()
    }

    /// Returns whether the current attempt is past its turn: a required check or the check runs, or the leftovers are being ended. A redo also ends
    /// the leftovers, but then this returns false.
    #[must_use]
    pub fn is_checking(&self) -> bool {
        match &self.step {
            IterationStep::RequiredCheck { .. } | IterationStep::Check => true,
            IterationStep::EndingLeftovers { then } => !matches!(then, AfterLeftovers::Redo(_)),
            _ => false,
        }
    }

    /// Returns whether the current attempt is not the first one of its iteration. The first attempt doesn't always have number 1: no number is used
    /// twice, even in a later phase or after a return to an earlier iteration.
    #[must_use]
    pub fn is_retry(&self) -> bool {
        self.attempt > self.first_attempt
    }

    /// Returns where a resume begins.
    #[must_use]
    pub fn resume_point(&self) -> ResumePoint {
        let (iteration, is_unfinished) = match self.step {
            IterationStep::Sleeping { .. }
            | IterationStep::Paused { .. }
            | IterationStep::Review { .. } => (self.iteration + 1, false),
            IterationStep::Turn { .. }
            | IterationStep::Interrupted { .. }
            | IterationStep::Waiting { .. } => (self.iteration, true),
            IterationStep::Ready | IterationStep::Recheck { .. } => {
                (self.iteration.max(1), self.unfinished.is_some())
            }
            IterationStep::RequiredCheck { .. }
            | IterationStep::Check
            | IterationStep::EndingLeftovers { .. } => (self.iteration, false),
        };
        ResumePoint {
            iteration,
            is_unfinished,
        }
    }

    /// Returns the used-up budget, if there is one. A budget is used up when its limit is reached.
    #[must_use]
    pub fn spent_budget(&self) -> Option<SpentBudget> {
        let (cost, tokens) = (self.usage.cost_microusd, self.usage.tokens());
        let cost = self
            .rules
            .limits
            .max_cost_microusd
            .map(|limit| SpentBudget::Cost { limit, used: cost });
        let tokens = self
            .rules
            .limits
            .max_tokens
            .map(|limit| SpentBudget::Tokens {
                limit,
                used: tokens,
            });
        let is_spent = |budget: &SpentBudget| match *budget {
            SpentBudget::Cost { limit, used } | SpentBudget::Tokens { limit, used } => {
                used >= limit
            }
        };
        [cost, tokens].into_iter().flatten().find(is_spent)
    }

    /// Records that another agent replaces `from`. The session belongs to `from` and doesn't continue.
    pub(crate) fn hand_over(&mut self, from: String) {
        let attempt = self.counts.attempts;
        // An agent that was replaced before its first attempt did no work, so it is not recorded.
        let unused = self.handover.take().filter(|last| last.attempt == attempt);
        let from = unused.map_or_else(|| last_text_bytes(from), |last| last.from);
        self.handover = (attempt > 0).then_some(Handover {
            from,
            attempt,
            reported: false,
        });
        self.leave_session();
    }

    /// Returns the previous agent, until the current agent has finished a turn whose prompt named the previous one.
    pub(crate) fn predecessor(&self) -> Option<&str> {
        let unreported = self.handover.as_ref().filter(|handover| !handover.reported);
        unreported.map(|handover| handover.from.as_str())
    }

    /// Creates the head of a fork that continues from the current state; its first input is [`MachineInput::Resumed`](crate::MachineInput::Resumed).
    ///
    /// The fork keeps the history, the counters and the usage, so that it doesn't get a fresh budget. It doesn't keep streaks, nor requests to stop,
    /// pause or redo. A turn that began after the iteration of the fork is dropped, but its attempt number is never used again.
    ///
    /// The fork keeps the session only if the caller has copied it, up to [`session_position`](Self::session_position): otherwise it may contain later
    /// work.
    #[must_use]
    pub fn fork(mut self, mut parent: Lineage, session: ForkedSession) -> Self {
        parent.run = last_text_bytes(parent.run);
        let is_begun = !self.step.is_resting() && self.step != IterationStep::Ready;
        if is_begun && self.iteration > parent.iteration {
            self.step = IterationStep::Ready;
            self.unfinished = None;
            self.has_prompt = false;
            self.has_feedback = false;
            self.unmark_prompt_steers();
        }
        self.parent = Some(parent);
        self.streaks = Streaks::default();
        self.retries = Retries::default();
        self.stopping = None;
        self.stop_cut_short = None;
        self.pausing = false;
        self.redo = None;
        if let IterationStep::EndingLeftovers {
            then: then @ AfterLeftovers::Redo(_),
        } = &mut self.step
        {
            *then = AfterLeftovers::NextIteration;
        }
        self.is_stopping_step = false;
        self.end = None;
        match session {
            ForkedSession::Copied { position } => self.session_position = position,
            ForkedSession::None => self.leave_session(),
        }
        self
    }

    /// Creates the head of the same run in a place where the session of its agent is unknown: the next attempt gets a fresh session.
    #[must_use]
    pub fn without_session(mut self) -> Self {
        self.leave_session();
        self
    }

    /// Creates the head of the same run in a working tree that has only its commits. The work of an iteration that is not complete is not there, so its
    /// attempt is unfinished, even if its turn had ended: the next process repeats it.
    #[must_use]
    pub fn without_uncommitted_work(mut self) -> Self {
        let is_judged = match &self.step {
            IterationStep::RequiredCheck { .. } | IterationStep::Check => true,
            // A redo repeats the iteration anyway.
            IterationStep::EndingLeftovers { then } => !matches!(then, AfterLeftovers::Redo(_)),
            _ => false,
        };
        if is_judged {
            let since = self.last_at;
            self.step = IterationStep::Turn { since };
        }
        self
    }

    fn leave_session(&mut self) {
        self.drop_session();
        self.has_prompt = false;
        self.has_feedback = false;
        self.continues_session = false;
    }

    /// Returns whether the session is not known to have all parts of the current attempt's message.
    pub(crate) fn awaits_reading(&self) -> bool {
        let has_feedback = self.has_feedback || self.feedback.is_none();
        !self.has_prompt || !has_feedback || !self.prompt_steers.is_empty()
    }

    /// Records that the session has the message of the current attempt: the prompt, the feedback and the steers.
    pub(crate) fn prompt_received(&mut self) {
        self.has_prompt = true;
        self.has_feedback = true;
        let received = std::mem::take(&mut self.prompt_steers);
        self.steers_seen(&received);
    }

    /// Records that the session has these steers.
    pub(crate) fn steers_seen(&mut self, seen: &[u32]) {
        let is_seen = |steer: &&mut Steer| seen.contains(&steer.id);
        for steer in self.steers.iter_mut().filter(is_seen) {
            steer.state = SteerState::Seen;
        }
    }

    /// Records the position up to which the session is on disk. If an attempt has begun that is not over, a longer session has the message of the
    /// attempt: the agent saves a message before it does anything else. So a turn that ends before the first answer has the prompt in its session too.
    ///
    /// Position 0 means that the session can't be read: the last known position stays.
    pub(crate) fn session_saved(&mut self, position: u64) {
        let before = self.session_position.unwrap_or(0);
        let is_begun = self.unfinished.is_some()
            || matches!(
                self.step,
                IterationStep::Turn { .. } | IterationStep::Interrupted { .. }
            );
        if is_begun && position > before {
            self.prompt_received();
        }
        self.session_position = Some(if position == 0 { before } else { position });
    }

    /// Forgets the session; the next attempt gets a fresh one.
    pub(crate) fn drop_session(&mut self) {
        self.session = None;
        self.session_position = None;
    }
}

/// The session of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkedSession {
    /// The fork has a copy of the session under the same id.
    Copied {
        /// The position in the copy, as [`Head::session_position`].
        position: Option<u64>,
    },
    /// The next attempt gets a fresh session.
    None,
}

/// A change to another agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Handover {
    /// The previous agent.
    pub from: String,
    /// The number of the last attempt of that agent, counted over the whole run.
    pub attempt: u32,
    /// Whether the current agent has finished a turn whose prompt named the previous agent.
    pub reported: bool,
}

/// The origin of a fork.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lineage {
    /// The name of the other run.
    pub run: String,
    /// The iteration of the other run after which the fork continues.
    pub iteration: u32,
    /// The number of the save that the fork continues from.
    pub seq: u64,
}

/// The output of a failed command, for the next prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Feedback {
    /// The command.
    pub source: LoopCommand,
    /// The tail of its output.
    pub text: String,
}

/// The result of the last complete iteration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct LastIteration {
    /// The number of the iteration.
    pub iteration: u32,
    /// When the iteration was complete.
    pub at: Timestamp,
    /// Why the iteration failed, if it did.
    pub failure: Option<String>,
    /// The usage of all its attempts together.
    #[serde(default, skip_serializing_if = "UsageTotal::is_zero")]
    pub usage: UsageTotal,
}

/// The end of the last check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct LastCheck {
    /// The index of the phase of the check.
    pub phase: u32,
    /// The iteration of the check within that phase; 0 before the first iteration.
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
#[non_exhaustive]
pub struct RunEnd {
    /// When the run ended.
    pub at: Timestamp,
    /// The stop reason.
    pub reason: StopReason,
}
