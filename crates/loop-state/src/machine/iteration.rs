//! The transitions from the end of a turn to the end of its iteration.

use std::time::Duration;

use super::wait::MAX_TRIES;
use super::{Effects, Machine, after_save};
use crate::text::{last_error_bytes, last_text_bytes};
use crate::{
    AfterLeftovers, CheckOutcome, CheckResult, Effect, Evidence, Feedback, IterationFailure,
    IterationStep, LastCheck, LastIteration, LoopCommand, MAX_ERRORS, ProcessTreeOutcome,
    RedoScope, RunUpdate, SteerState, StopReason, StopRequest, StopTiming, Streak, Timestamp,
    TurnOutcome, UnfinishedAttempt, UnfinishedCause, Warning,
};

impl Machine {
    pub(super) fn turn_ended(&mut self, outcome: TurnOutcome, at: Timestamp) -> Effects {
        let was_stopping = std::mem::take(&mut self.head.is_stopping_step);
        let timed_out = self.head.failure.is_some();
        let started = !matches!(
            outcome,
            TurnOutcome::NotStarted(_) | TurnOutcome::SessionInUse(_)
        );
        // An attempt can start its agent again, in the session that it created.
        let has_created = self.head.has_prompt || self.head.session_position.is_some();
        if !started && !self.head.continues_session && !has_created {
            // The agent did not create this session, so a session with its id is not of this run.
            self.head.drop_session();
        }
        let is_first = self.head.counts.attempts == self.head.taken_attempts + 1;
        let failure = match outcome {
            // If the first attempt of a process can't start, the settings are wrong. A later failure may be temporary, such as one during an update
            // of the agent.
            TurnOutcome::NotStarted(why) if is_first => {
                return self.end_before_start(StopReason::Failed(last_text_bytes(why)), at);
            }
            TurnOutcome::SessionInUse(why) if is_first => {
                return self.end_before_start(StopReason::InUse(last_text_bytes(why)), at);
            }
            TurnOutcome::AgentUnusable(why) if !self.is_stop_due() => {
                return self.agent_unusable(last_text_bytes(why), at);
            }
            TurnOutcome::SessionLost if !was_stopping && self.head.continues_session => {
                return self.session_lost(at);
            }
            TurnOutcome::ServiceUnavailable { reset, why }
                if self.may_wait(was_stopping && !timed_out) =>
            {
                return self.rate_limited(reset, why, at);
            }
            TurnOutcome::Transient(why)
                if self.may_wait(was_stopping)
                    && self.head.retries.transient_failures + 1 < MAX_TRIES =>
            {
                return self.transient(why, at);
            }
            // A stop or a limit ended the turn, or a person requested a redo.
            TurnOutcome::ServiceUnavailable { .. } => return self.turn_stopped(at),
            TurnOutcome::Interrupted if !was_stopping => return self.turn_interrupted(at),
            TurnOutcome::Stopped | TurnOutcome::Interrupted if was_stopping && !timed_out => {
                return self.turn_stopped(at);
            }
            TurnOutcome::Interrupted => Some("the turn was interrupted".into()),
            TurnOutcome::SessionLost => Some("the session does not exist any more".into()),
            TurnOutcome::Stopped => Some("the turn was stopped from outside".into()),
            TurnOutcome::Failed(why)
            | TurnOutcome::Transient(why)
            | TurnOutcome::SessionInUse(why)
            | TurnOutcome::NotStarted(why)
            | TurnOutcome::AgentUnusable(why) => Some(last_text_bytes(why)),
            TurnOutcome::PromiseMade => {
                self.head.promised = true;
                None
            }
            TurnOutcome::Completed => None,
        };
        if let Some(scope) = self.due_redo() {
            return self.redo_turn(scope, at);
        }
        let head = &mut self.head;
        head.failure = head.failure.take().or(failure);
        head.streaks.crashes = 0;
        head.retries = Default::default();
        // An agent that failed before its first answer may not have read its prompt, so the next prompt repeats everything.
        let has_read = head.failure.is_none() || head.has_prompt;
        if head.failure.is_some() {
            head.unmark_prompt_steers();
        }
        head.prompt_steers.clear();
        if started && has_read {
            head.feedback = None;
            if let Some(handover) = &mut head.handover {
                handover.reported = true;
            }
        }
        if started {
            head.unfinished = None;
            head.steers.retain(|steer| steer.state != SteerState::Seen);
        }
        self.unmark_delivered_steers();
        let head = &mut self.head;
        if head.failure.is_some() {
            head.counts.failed += 1;
            head.streaks.failures += 1;
        } else {
            head.streaks.failures = 0;
        }
        head.streaks.no_progress = if head.made_no_progress && head.failure.is_none() {
            head.streaks.no_progress + 1
        } else {
            0
        };
        let in_a_row = head.streaks.no_progress;
        // Save first: the checks and the end of the leftovers can take long, and a crash there must not lose the turn.
        let mut effects = vec![Effect::Save];
        if in_a_row > 0 {
            effects.push(Effect::Emit(RunUpdate::NoProgress { in_a_row }));
        }
        effects.extend(self.start_checks());
        effects
    }

    /// Ends the run before this process did anything.
    fn end_before_start(&mut self, reason: StopReason, at: Timestamp) -> Effects {
        self.head.step = IterationStep::Ready;
        self.head.unmark_prompt_steers();
        self.unmark_delivered_steers();
        self.end(reason, at)
    }

    /// Returns whether the machine may retry later: nothing else was requested.
    fn may_wait(&self, was_stopping: bool) -> bool {
        !was_stopping && self.due_redo().is_none()
    }

    /// Marks the steers as not delivered that the agent got and has not read. The session has the other ones: the prompt of an earlier attempt can
    /// contain them.
    fn unmark_delivered_steers(&mut self) {
        let steers = self.head.steers.iter_mut();
        for steer in steers.filter(|steer| steer.state == SteerState::Delivered) {
            steer.state = SteerState::Recorded;
        }
    }

    /// Handles a turn that ended because of a stop, a limit or a redo.
    fn turn_stopped(&mut self, at: Timestamp) -> Effects {
        if let Some(scope) = self.due_redo() {
            return self.redo_turn(scope, at);
        }
        match self.stop_cause(at) {
            Some((cause, reason)) => {
                self.mark_unfinished(cause);
                self.end(reason, at)
            }
            None => {
                // The limit that ended the turn was raised meanwhile.
                self.mark_unfinished(UnfinishedCause::Budget);
                self.begin_attempt(at)
            }
        }
    }

    /// Returns the scope of the requested redo, unless the run has to stop first.
    fn due_redo(&self) -> Option<RedoScope> {
        self.head.redo.filter(|_| !self.is_stop_due())
    }

    /// Returns why the run has to end; `None` if the limit that ended the turn was raised meanwhile.
    fn stop_cause(&self, at: Timestamp) -> Option<(UnfinishedCause, StopReason)> {
        if let Some(StopRequest {
            by,
            when: StopTiming::Now,
        }) = self.head.stopping
        {
            return Some((UnfinishedCause::Stop, StopReason::Stopped(by)));
        }
        let spent = self.head.spent_budget().map(StopReason::BudgetSpent);
        let spent = spent.map(|reason| (UnfinishedCause::Budget, reason));
        let time = || Some((UnfinishedCause::TimeLimit, self.time_limit(at)?));
        spent.or_else(time)
    }

    pub(super) fn mark_unfinished(&mut self, cause: UnfinishedCause) {
        let head = &mut self.head;
        head.unfinished = Some(UnfinishedAttempt {
            attempt: head.attempt,
            cause,
        });
        head.counts.unfinished_attempts += 1;
        head.failure = None;
        head.step = IterationStep::Ready;
        let remembers = head.phase_rules().continues_attempts()
            && head.session.is_some()
            && (head.has_prompt || head.phase_rules().durable_session)
            && !head.fresh_session;
        // A session that continues has the steers that it read, and perhaps those of the unanswered prompt.
        let (steers, unanswered) = (&mut head.steers, &head.prompt_steers);
        for steer in steers {
            let is_read = steer.state == SteerState::Seen && !unanswered.contains(&steer.id);
            if !(remembers && is_read) {
                steer.state = SteerState::Recorded;
            }
        }
    }

    /// Starts the required checks and the check of a finished turn.
    pub(super) fn start_checks(&mut self) -> Effects {
        if let Some(StopRequest {
            by,
            when: StopTiming::Now,
        }) = self.head.stopping
        {
            return self.end_leftovers(AfterLeftovers::EndRun(StopReason::Stopped(by)));
        }
        if self.head.phase_rules().required_checks > 0 {
            self.head.step = IterationStep::RequiredCheck { index: 0 };
            vec![Effect::RunRequiredCheck(0)]
        } else {
            self.start_check()
        }
    }

    fn start_check(&mut self) -> Effects {
        let rules = self.head.phase_rules();
        match (rules.has_check, !rules.has_promise || self.head.promised) {
            (true, true) => {
                self.head.step = IterationStep::Check;
                vec![Effect::RunCheck]
            }
            (false, true) if rules.has_promise => {
                self.end_leftovers(AfterLeftovers::PhaseDone(Evidence::Promise))
            }
            _ => self.end_leftovers(AfterLeftovers::NextIteration),
        }
    }

    pub(super) fn command_ended(
        &mut self,
        source: LoopCommand,
        result: CheckResult,
        at: Timestamp,
    ) -> Effects {
        let warning = self
            .command_not_run_warning(source, &result)
            .map(Effect::Warn);
        let mut effects = Effects::from_iter(warning);
        effects.extend(self.after_command(source, result, at));
        effects
    }

    /// Returns a warning about a command that can't run, only for the first such failure in a row.
    fn command_not_run_warning(
        &self,
        command: LoopCommand,
        result: &CheckResult,
    ) -> Option<Warning> {
        let CheckResult::NotRun(why) = result else {
            return None;
        };
        // Before the first attempt it ends the run.
        if self.head.counts.attempts == 0 {
            return None;
        }
        let in_a_row = match command {
            LoopCommand::RequiredCheck(_) => self.head.streaks.required_checks,
            LoopCommand::Check => self.head.streaks.checks_not_run,
        };
        let max = self.head.rules.limits.max_failures;
        (in_a_row == 0).then(|| Warning::CommandNotRun {
            command,
            why: why.clone(),
            stuck_after: (max > 0).then_some(max),
        })
    }

    fn after_command(
        &mut self,
        source: LoopCommand,
        result: CheckResult,
        at: Timestamp,
    ) -> Effects {
        let recheck = matches!(self.head.step, IterationStep::Recheck { .. });
        let is_first = recheck && self.head.counts.attempts == 0;
        if std::mem::take(&mut self.head.is_stopping_step) {
            if let Some(scope) = self.due_redo() {
                return self.redo_after_command(scope);
            }
            let Some((_, reason)) = self.stop_cause(at) else {
                return match recheck {
                    true => self.recheck(0),
                    false => self.start_checks(),
                };
            };
            if recheck {
                self.head.step = IterationStep::Ready;
                return self.end(reason, at);
            }
            return self.end_leftovers(AfterLeftovers::EndRun(reason));
        }
        if source == LoopCommand::Check {
            self.checked(&result);
        }
        let text = match result {
            CheckResult::Passed if is_first && source == LoopCommand::Check => {
                return self.end_before_first_attempt(StopReason::AlreadyDone, at);
            }
            CheckResult::Passed => return self.command_passed(source, recheck),
            CheckResult::NotRun(why) if is_first => {
                let (command, why) = (source, last_text_bytes(why));
                let reason = StopReason::FirstCheckNotRun { command, why };
                return self.end_before_first_attempt(reason, at);
            }
            CheckResult::Failed(text) | CheckResult::NotRun(text) => text,
            CheckResult::Stopped => "the command was stopped from outside".into(),
        };
        let text = last_text_bytes(text);
        self.head.feedback = Some(Feedback { source, text });
        self.head.has_feedback = false;
        if recheck {
            return self.begin_attempt(at);
        }
        if let (LoopCommand::RequiredCheck(index), None) = (source, &self.head.failure) {
            self.head.streaks.required_checks += 1;
            self.head.failure = Some(format!("required check {} failed", index + 1));
        }
        self.end_leftovers(AfterLeftovers::NextIteration)
    }

    fn end_before_first_attempt(&mut self, reason: StopReason, at: Timestamp) -> Effects {
        self.head.step = IterationStep::Ready;
        self.end(reason, at)
    }

    /// Records how the check ended, and whether it could run. A stopped check shows neither.
    fn checked(&mut self, result: &CheckResult) {
        let head = &mut self.head;
        let Some(outcome) = result.outcome() else {
            return;
        };
        if outcome == CheckOutcome::NotRun {
            head.streaks.checks_not_run += 1;
        } else {
            head.streaks.checks_not_run = 0;
            head.check_has_run = true;
        }
        let is_first = head.counts.attempts == 0;
        let (phase, iteration) = (head.phase, if is_first { 0 } else { head.iteration });
        head.last_check = Some(LastCheck {
            phase,
            iteration,
            outcome,
        });
    }

    fn command_passed(&mut self, source: LoopCommand, recheck: bool) -> Effects {
        // The agent has not read the earlier output of this command, which is now out of date.
        let feedback = self.head.feedback.take();
        self.head.feedback = feedback.filter(|it| it.source != source);
        match source {
            LoopCommand::Check => self.end_leftovers(AfterLeftovers::PhaseDone(Evidence::Check)),
            LoopCommand::RequiredCheck(index) if recheck => self.recheck(index + 1),
            LoopCommand::RequiredCheck(index)
                if index + 1 < self.head.phase_rules().required_checks =>
            {
                self.head.step = IterationStep::RequiredCheck { index: index + 1 };
                vec![Effect::RunRequiredCheck(index + 1)]
            }
            LoopCommand::RequiredCheck(_) => {
                self.head.streaks.required_checks = 0;
                self.start_check()
            }
        }
    }

    pub(super) fn end_leftovers(&mut self, then: AfterLeftovers) -> Effects {
        self.head.step = IterationStep::EndingLeftovers { then };
        vec![Effect::EndLeftovers]
    }

    pub(super) fn leftovers_ended(
        &mut self,
        then: AfterLeftovers,
        leftovers: ProcessTreeOutcome,
        at: Timestamp,
    ) -> Effects {
        let done = match then {
            AfterLeftovers::EndRun(reason) => return self.end(reason, at),
            AfterLeftovers::Redo(scope) => {
                return match self.head.stopping {
                    // The step still contains the redo, so a resume finds it.
                    Some(request) if self.is_stop_due() => {
                        self.end(StopReason::Stopped(request.by), at)
                    }
                    _ => self.begin_redo(scope, at),
                };
            }
            AfterLeftovers::PhaseDone(evidence) => Some(evidence),
            AfterLeftovers::NextIteration => None,
        };
        let head = &mut self.head;
        head.unfinished = None;
        head.counts.iterations += 1;
        head.iterations_since_review += 1;
        head.step = IterationStep::Sleeping { until: at };
        let failure = head.failure.take();
        if let Some(what) = failure.clone().map(last_error_bytes) {
            let iteration = head.iteration;
            let surplus = (head.errors.len() + 1).saturating_sub(MAX_ERRORS);
            head.errors.drain(..surplus);
            head.errors.push(IterationFailure {
                iteration,
                at,
                what,
            });
        }
        head.last_iteration = Some(LastIteration {
            iteration: head.iteration,
            at,
            failure: failure.clone(),
            usage: head.iteration_usage,
        });
        let update = RunUpdate::IterationEnded {
            iteration: head.iteration,
            failure,
            leftovers,
            usage: head.iteration_usage,
            // The time before this process took over the run was not all working time.
            took: at.since(head.attempt_began_at.max(head.taken_at)),
            check: head.last_check.and_then(|check| {
                let place = (check.phase, check.iteration);
                (place == (head.phase, head.iteration)).then_some(check.outcome)
            }),
        };
        if done.is_some() || self.is_plan_complete() {
            return self.phase_over(done, Some(update), at);
        }
        if let Some(request) = self.head.stopping {
            return after_save(update, self.stop_here(request, false, at));
        }
        let reason = { self.stuck() }.or_else(|| self.limit(at));
        if let Some(reason) = reason.or_else(|| self.stuck_without_progress()) {
            return after_save(update, self.end(reason, at));
        }
        if let Some(effects) = self.pause_or_review(false, at) {
            return after_save(update, effects);
        }
        if self.head.rules.limits.sleep.is_zero() {
            return after_save(update, self.begin_iteration(self.head.iteration + 1, at));
        }
        let until = at + self.head.rules.limits.sleep;
        self.head.step = IterationStep::Sleeping { until };
        vec![
            Effect::Save,
            Effect::Emit(update),
            Effect::Emit(RunUpdate::Sleeping { until }),
        ]
    }

    /// Returns the stop reason of a phase whose planned iterations all ran. The last iteration decides between success and failure.
    pub(super) fn planned_end(&self) -> StopReason {
        let last = self.head.last_iteration.as_ref();
        match last.and_then(|last| last.failure.clone().map(|why| (last.iteration, why))) {
            Some((last, why)) => StopReason::LastIterationFailed {
                iteration: last,
                why,
            },
            None => StopReason::AllIterationsRan,
        }
    }

    pub(super) fn stuck(&self) -> Option<StopReason> {
        let (max, streaks) = (self.head.rules.limits.max_failures, self.head.streaks);
        // If the check could run before, the agent has perhaps broken it, and can fix it.
        let unrun = if self.head.check_has_run {
            0
        } else {
            streaks.checks_not_run
        };
        [
            (Streak::Failures, streaks.failures),
            (Streak::RequiredChecks, streaks.required_checks),
            (Streak::CheckNotRun, unrun),
        ]
        .into_iter()
        .find(|(_, count)| max > 0 && *count >= max)
        .map(|(streak, count)| StopReason::Stuck { streak, count })
    }

    /// Returns a stop reason after too many turns in a row without progress. The caller asks for limits first, because they are more specific.
    pub(super) fn stuck_without_progress(&self) -> Option<StopReason> {
        let (max, idle) = (
            self.head.rules.limits.max_failures,
            self.head.streaks.no_progress,
        );
        (max > 0 && idle >= max).then_some(StopReason::Stuck {
            streak: Streak::NoProgress,
            count: idle,
        })
    }

    /// Returns the limit that forbids another iteration.
    pub(super) fn limit(&self, at: Timestamp) -> Option<StopReason> {
        let rules = self.head.phase_rules();
        if let Some(budget) = self.head.spent_budget() {
            return Some(StopReason::BudgetSpent(budget));
        }
        match rules.limits.max_iterations {
            Some(max) if self.head.iteration >= max && (rules.has_check || rules.has_promise) => {
                Some(StopReason::IterationLimit(max))
            }
            Some(max) if self.head.iteration >= max => Some(self.planned_end()),
            _ => self.time_limit(at),
        }
    }

    pub(super) fn time_limit(&self, at: Timestamp) -> Option<StopReason> {
        let active = Duration::from_millis(self.head.active_ms);
        let active = active.saturating_add(at.since(self.head.taken_at));
        self.head
            .rules
            .limits
            .max_duration
            .filter(|max| active >= *max)
            .map(StopReason::TimeLimit)
    }
}
