//! The transitions from the end of a turn to the end of its iteration.

use std::time::Duration;

use super::wait::TRIES;
use super::{Effects, Machine, once_saved};
use crate::text::{error, tail};
use crate::{
    Again, CheckOutcome, CheckResult, Command, Cut, CutCause, Effect, Evidence, Failure, Feedback,
    Last, LastCheck, MAX_ERRORS, Notice, SessionPolicy, SteerState, Step, StopReason, StopRequest,
    Streak, Then, Timestamp, Tree, TurnOutcome, Warning, When,
};

impl Machine {
    pub(super) fn turn_ended(&mut self, outcome: TurnOutcome, at: Timestamp) -> Effects {
        let halted = std::mem::take(&mut self.head.halting);
        let timed_out = self.head.failure.is_some();
        let started = !matches!(
            outcome,
            TurnOutcome::NotStarted(_) | TurnOutcome::SessionHeld(_)
        );
        let is_first = self.head.counts.attempts == self.head.taken_attempts + 1;
        let failure = match outcome {
            // In the first attempt of a process this is a mistake in the settings. Later it may be temporary, for example during an update of the
            // agent.
            TurnOutcome::NotStarted(why) if is_first => {
                return self.not_begun(StopReason::Failed(tail(why)), at);
            }
            TurnOutcome::SessionHeld(why) if is_first => {
                return self.not_begun(StopReason::Held(tail(why)), at);
            }
            TurnOutcome::Hopeless(why) if !self.must_stop_now() => {
                return self.turn_hopeless(tail(why), at);
            }
            TurnOutcome::SessionLost if !halted && self.head.continues => {
                return self.session_lost(at);
            }
            TurnOutcome::RateLimited { reset, why } if self.may_wait(halted && !timed_out) => {
                return self.rate_limited(reset, why, at);
            }
            TurnOutcome::Transient(why)
                if self.may_wait(halted) && self.head.waits.tries + 1 < TRIES =>
            {
                return self.transient(why, at);
            }
            // A stop or a limit ended the turn, or a person requested a redo.
            TurnOutcome::RateLimited { .. } => return self.turn_halted(at),
            TurnOutcome::Interrupted if !halted => return self.turn_interrupted(at),
            TurnOutcome::Stopped | TurnOutcome::Interrupted if halted && !timed_out => {
                return self.turn_halted(at);
            }
            TurnOutcome::Interrupted => Some("it was interrupted".into()),
            TurnOutcome::SessionLost => Some("its session does not exist any more".into()),
            TurnOutcome::Stopped => Some("it was stopped from outside".into()),
            TurnOutcome::Failed(why)
            | TurnOutcome::Transient(why)
            | TurnOutcome::SessionHeld(why)
            | TurnOutcome::NotStarted(why)
            | TurnOutcome::Hopeless(why) => Some(tail(why)),
            TurnOutcome::Claimed => {
                self.head.claimed = true;
                None
            }
            TurnOutcome::Completed => None,
        };
        if let Some(again) = self.again() {
            return self.turn_again(again, at);
        }
        let head = &mut self.head;
        head.failure = head.failure.take().or(failure);
        head.streaks.crashes = 0;
        head.waits = Default::default();
        // An agent that failed before its first answer may not have read its prompt, so the next prompt repeats everything.
        let has_read = head.failure.is_none() || head.prompted;
        if head.failure.is_some() {
            head.recall_steers();
        }
        head.briefed.clear();
        if started && has_read {
            head.feedback = None;
            if let Some(handover) = &mut head.handover {
                handover.told = true;
            }
        }
        if started {
            head.cut = None;
            head.steers.retain(|steer| steer.state != SteerState::Seen);
        }
        self.unsay();
        let head = &mut self.head;
        if head.failure.is_some() {
            head.counts.failed += 1;
            head.streaks.failures += 1;
        } else {
            head.streaks.failures = 0;
        }
        head.streaks.idle = if head.idled && head.failure.is_none() {
            head.streaks.idle + 1
        } else {
            0
        };
        let in_a_row = head.streaks.idle;
        // Save first: the checks and the end of the leftovers can take long, and a crash there must not lose the turn.
        let mut effects = vec![Effect::Save];
        if in_a_row > 0 {
            effects.push(Effect::Announce(Notice::NothingDone { in_a_row }));
        }
        effects.extend(self.judge());
        effects
    }

    /// Ends the run before this process did anything.
    fn not_begun(&mut self, reason: StopReason, at: Timestamp) -> Effects {
        self.head.step = Step::Ready;
        self.unsay();
        self.end(reason, at)
    }

    /// Returns whether the machine may retry later: nothing else was requested.
    fn may_wait(&self, halted: bool) -> bool {
        !halted && self.again().is_none()
    }

    /// Marks all steers as not delivered.
    fn unsay(&mut self) {
        for steer in &mut self.head.steers {
            steer.state = SteerState::Recorded;
        }
    }

    /// Handles a turn that ended because of a stop, a limit or a redo.
    fn turn_halted(&mut self, at: Timestamp) -> Effects {
        if let Some(again) = self.again() {
            return self.turn_again(again, at);
        }
        match self.why_halted(at) {
            Some((cause, reason)) => {
                self.cut(cause);
                self.end(reason, at)
            }
            None => {
                // The limit that ended the turn was raised meanwhile.
                self.cut(CutCause::Budget);
                self.begin_attempt(at)
            }
        }
    }

    /// Returns the scope of the requested redo, unless the run has to stop first.
    fn again(&self) -> Option<Again> {
        self.head.again.filter(|_| !self.must_stop_now())
    }

    /// Returns why the run has to end; `None` if the limit that ended the turn was raised meanwhile.
    fn why_halted(&self, at: Timestamp) -> Option<(CutCause, StopReason)> {
        if let Some(StopRequest {
            by,
            when: When::Now,
        }) = self.head.stopping
        {
            return Some((CutCause::Stop, StopReason::Stopped(by)));
        }
        let spent = self.head.spent().map(StopReason::Budget);
        let spent = spent.map(|reason| (CutCause::Budget, reason));
        let time = || Some((CutCause::TimeLimit, self.time_limit(at)?));
        spent.or_else(time)
    }

    pub(super) fn cut(&mut self, cause: CutCause) {
        let head = &mut self.head;
        head.cut = Some(Cut {
            attempt: head.attempt,
            cause,
        });
        head.counts.cuts += 1;
        head.failure = None;
        head.step = Step::Ready;
        // A session that continues has the steers that it read.
        let remembers = head.phase_rules().session == SessionPolicy::Continue
            && head.session.is_some()
            && head.prompted
            && !head.fresh;
        for steer in &mut head.steers {
            if !(remembers && steer.state == SteerState::Seen) {
                steer.state = SteerState::Recorded;
            }
        }
    }

    /// Starts the required checks and the check of a finished turn.
    pub(super) fn judge(&mut self) -> Effects {
        if let Some(StopRequest {
            by,
            when: When::Now,
        }) = self.head.stopping
        {
            return self.settle(Then::End(StopReason::Stopped(by)));
        }
        if self.head.phase_rules().gates > 0 {
            self.head.step = Step::Gate { index: 0 };
            vec![Effect::RunGate(0)]
        } else {
            self.ask_check()
        }
    }

    fn ask_check(&mut self) -> Effects {
        let rules = self.head.phase_rules();
        match (rules.until, !rules.promise || self.head.claimed) {
            (true, true) => {
                self.head.step = Step::Check;
                vec![Effect::RunCheck]
            }
            (false, true) if rules.promise => self.settle(Then::Done(Evidence::Claim)),
            _ => self.settle(Then::Next),
        }
    }

    pub(super) fn command_ended(
        &mut self,
        source: Command,
        result: CheckResult,
        at: Timestamp,
    ) -> Effects {
        let warning = self.warn_of_a_slip(source, &result).map(Effect::Warn);
        let mut effects = Effects::from_iter(warning);
        effects.extend(self.after_command(source, result, at));
        effects
    }

    /// Returns a warning about a command that can't run, only for the first such failure in a row.
    fn warn_of_a_slip(&self, command: Command, result: &CheckResult) -> Option<Warning> {
        let CheckResult::NotRun(said) = result else {
            return None;
        };
        let in_a_row = match command {
            Command::Gate(_) => self.head.streaks.gates,
            Command::Check => self.head.streaks.unrun,
        };
        let max = self.head.rules.limits.max_failures;
        (in_a_row == 0).then(|| Warning::CommandNotRun {
            command,
            said: said.clone(),
            stuck_after: (max > 0).then_some(max),
        })
    }

    fn after_command(&mut self, source: Command, result: CheckResult, at: Timestamp) -> Effects {
        let recheck = matches!(self.head.step, Step::Recheck { .. });
        if std::mem::take(&mut self.head.halting) {
            if let Some(again) = self.again() {
                return self.command_again(again);
            }
            let Some((_, reason)) = self.why_halted(at) else {
                return match recheck {
                    true => self.recheck_from(0),
                    false => self.judge(),
                };
            };
            if recheck {
                self.head.step = Step::Ready;
                return self.end(reason, at);
            }
            return self.settle(Then::End(reason));
        }
        if source == Command::Check {
            self.checked(&result);
        }
        let text = match result {
            CheckResult::Passed => return self.command_passed(source, recheck),
            CheckResult::Failed(text) | CheckResult::NotRun(text) => text,
            CheckResult::Stopped => "it was stopped from outside".into(),
        };
        let text = tail(text);
        self.head.feedback = Some(Feedback { source, text });
        if recheck {
            return self.begin_attempt(at);
        }
        if let (Command::Gate(index), None) = (source, &self.head.failure) {
            self.head.streaks.gates += 1;
            self.head.failure = Some(format!("required check {} failed", index + 1));
        }
        self.settle(Then::Next)
    }

    /// Records how the check ended, and whether it could run. A check that something else stopped shows neither.
    fn checked(&mut self, result: &CheckResult) {
        let head = &mut self.head;
        let outcome = match result {
            CheckResult::Passed => CheckOutcome::Passed,
            CheckResult::Failed(_) => CheckOutcome::Failed,
            CheckResult::NotRun(_) => CheckOutcome::NotRun,
            CheckResult::Stopped => return,
        };
        if outcome == CheckOutcome::NotRun {
            head.streaks.unrun += 1;
        } else {
            head.streaks.unrun = 0;
            head.checked = true;
        }
        let (phase, iteration) = (head.phase, head.iteration);
        head.last_check = Some(LastCheck {
            phase,
            iteration,
            outcome,
        });
    }

    fn command_passed(&mut self, source: Command, recheck: bool) -> Effects {
        // The agent has not read the earlier output of this command, which is now out of date.
        let feedback = self.head.feedback.take();
        self.head.feedback = feedback.filter(|it| it.source != source);
        match source {
            Command::Check => self.settle(Then::Done(Evidence::Check)),
            Command::Gate(index) if recheck => self.recheck_from(index + 1),
            Command::Gate(index) if index + 1 < self.head.phase_rules().gates => {
                self.head.step = Step::Gate { index: index + 1 };
                vec![Effect::RunGate(index + 1)]
            }
            Command::Gate(_) => {
                self.head.streaks.gates = 0;
                self.ask_check()
            }
        }
    }

    pub(super) fn settle(&mut self, then: Then) -> Effects {
        self.head.step = Step::Settling { then };
        vec![Effect::EndLeftovers]
    }

    pub(super) fn settled(&mut self, then: Then, leftovers: Tree, at: Timestamp) -> Effects {
        let done = match then {
            Then::End(reason) => return self.end(reason, at),
            Then::Again(again) => {
                return match self.head.stopping {
                    // The redo stays in the step, where a resume finds it.
                    Some(request) if self.must_stop_now() => {
                        self.end(StopReason::Stopped(request.by), at)
                    }
                    _ => self.begin_again(again, at),
                };
            }
            Then::Done(evidence) => Some(evidence),
            Then::Next => None,
        };
        let head = &mut self.head;
        head.cut = None;
        head.counts.iterations += 1;
        head.unreviewed += 1;
        head.step = Step::Sleeping { until: at };
        let failure = head.failure.take();
        if let Some(what) = failure.clone().map(error) {
            let iteration = head.iteration;
            let surplus = (head.errors.len() + 1).saturating_sub(MAX_ERRORS);
            head.errors.drain(..surplus);
            head.errors.push(Failure {
                iteration,
                at,
                what,
            });
        }
        head.last = Some(Last {
            iteration: head.iteration,
            at,
            failure: failure.clone(),
            usage: head.iteration_usage,
        });
        let news = Notice::IterationEnded {
            iteration: head.iteration,
            failure,
            leftovers,
            usage: head.iteration_usage,
        };
        if done.is_some() || self.is_plan_made() {
            return self.phase_over(done, Some(news), at);
        }
        if let Some(request) = self.head.stopping {
            return once_saved(news, self.stop_here(request, false, at));
        }
        let reason = { self.stuck() }.or_else(|| self.limit(at));
        if let Some(reason) = reason.or_else(|| self.stuck_idle()) {
            return once_saved(news, self.end(reason, at));
        }
        if let Some(effects) = self.hold_up(false, at) {
            return once_saved(news, effects);
        }
        if self.head.rules.limits.sleep.is_zero() {
            return once_saved(news, self.begin_iteration(self.head.iteration + 1, at));
        }
        let until = at + self.head.rules.limits.sleep;
        self.head.step = Step::Sleeping { until };
        vec![
            Effect::Save,
            Effect::Announce(news),
            Effect::Announce(Notice::Sleeping { until }),
        ]
    }

    /// Returns how a phase ends after its last planned iteration, which decides between success and failure.
    pub(super) fn plan_end(&self) -> StopReason {
        let last = self.head.last.as_ref();
        match last.and_then(|last| last.failure.clone().map(|why| (last.iteration, why))) {
            Some((last, why)) => StopReason::LastFailed(last, why),
            None => StopReason::Planned,
        }
    }

    pub(super) fn stuck(&self) -> Option<StopReason> {
        let (max, streaks) = (self.head.rules.limits.max_failures, self.head.streaks);
        // A check that ran before may run again once the agent has fixed what it broke.
        let unrun = if self.head.checked { 0 } else { streaks.unrun };
        [
            (Streak::Failures, streaks.failures),
            (Streak::Gates, streaks.gates),
            (Streak::Unrun, unrun),
        ]
        .into_iter()
        .find(|(_, count)| max > 0 && *count >= max)
        .map(|(streak, count)| StopReason::Stuck(streak, count))
    }

    /// Returns a stop reason after too many turns in a row without progress. The caller asks for limits first, because they are more specific.
    pub(super) fn stuck_idle(&self) -> Option<StopReason> {
        let (max, idle) = (self.head.rules.limits.max_failures, self.head.streaks.idle);
        (max > 0 && idle >= max).then_some(StopReason::Stuck(Streak::Idle, idle))
    }

    /// Returns the limit that forbids another iteration.
    pub(super) fn limit(&self, at: Timestamp) -> Option<StopReason> {
        let rules = self.head.phase_rules();
        if let Some(budget) = self.head.spent() {
            return Some(StopReason::Budget(budget));
        }
        match rules.limits.max_iterations {
            Some(max) if self.head.iteration >= max && (rules.until || rules.promise) => {
                Some(StopReason::IterationLimit(max))
            }
            Some(max) if self.head.iteration >= max => Some(self.plan_end()),
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
