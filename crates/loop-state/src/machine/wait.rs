//! The waits after which the machine retries: rate limits and transient failures.

use std::time::Duration;

use super::{Effects, Machine, after_save};
use crate::random::SeededRandom;
use crate::text::last_text_bytes;
use crate::{
    Effect, Head, IterationStep, Retries, RuleChange, RulesError, RunUpdate, StopReason, Timestamp,
    UnfinishedCause, WaitCause,
};

/// The number of tries of an iteration before a transient failure counts as a failure.
pub(super) const MAX_TRIES: u32 = 4;
/// The wait before the second try; each later wait is four times as long as the one before.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The extra wait after the time that an agent names: the clock of the service may differ from ours.
const RATE_LIMIT_MARGIN: Duration = Duration::from_secs(10);
/// The first wait for a rate limit without a known end; each later wait in the iteration is twice as long as the one before.
const FIRST_RATE_LIMIT_WAIT: Duration = Duration::from_secs(5);
/// The longest wait for a rate limit without a known end.
const LONGEST_RATE_LIMIT_WAIT: Duration = Duration::from_secs(15 * 60);

/// The longest random extra wait.
const MAX_JITTER: Duration = Duration::from_secs(60);

impl Machine {
    /// Waits for the end of a rate limit.
    pub(super) fn rate_limited(
        &mut self,
        reset: Option<Timestamp>,
        why: String,
        at: Timestamp,
    ) -> Effects {
        let nth = self.head.retries.rate_limits;
        self.head.retries.rate_limits = nth.saturating_add(1);
        let step =
            |nth: u32| (FIRST_RATE_LIMIT_WAIT * 2u32.pow(nth.min(8))).min(LONGEST_RATE_LIMIT_WAIT);
        let base = match reset.map(|reset| reset + RATE_LIMIT_MARGIN) {
            // If the agent names a time again after a wait, the machine waits at least as long as for a limit without a known end.
            Some(until) if until > at => nth
                .checked_sub(1)
                .map_or(until.since(at), |nth| until.since(at).max(step(nth))),
            // A time in the past says nothing about the limit, and must not cause an immediate retry.
            _ => step(nth),
        };
        self.wait(
            UnfinishedCause::RateLimit,
            WaitCause::RateLimit,
            base,
            why,
            at,
        )
    }

    /// Waits before the retry after a transient failure.
    pub(super) fn transient(&mut self, why: String, at: Timestamp) -> Effects {
        let nth = self.head.retries.transient_failures;
        self.head.retries.transient_failures += 1;
        let base = FIRST_RETRY * 4u32.pow(nth.min(MAX_TRIES));
        self.wait(UnfinishedCause::Transient, WaitCause::Retry, base, why, at)
    }

    fn wait(
        &mut self,
        cause: UnfinishedCause,
        why: WaitCause,
        base: Duration,
        what: String,
        at: Timestamp,
    ) -> Effects {
        self.mark_unfinished(cause);
        self.head.streaks.crashes = 0;
        // The random part alone must not make the wait exceed its limit.
        let waited = Duration::from_millis(self.head.retries.rate_limit_wait_ms);
        let left =
            { self.head.rules.limits.wait_on_limit.saturating_sub(waited) }.saturating_sub(base);
        let jitter = match why {
            WaitCause::RateLimit => self.head.jitter(base).min(left),
            WaitCause::Retry => self.head.jitter(base),
        };
        let until = at + base + jitter;
        self.head.step = IterationStep::Waiting {
            since: at,
            until,
            why,
        };
        let what = Some(last_text_bytes(what));
        match self.end_forbidden_wait(at) {
            Some(reason) => self.end(reason, at),
            None => vec![
                Effect::Save,
                Effect::Emit(RunUpdate::Waiting { why, until, what }),
            ],
        }
    }

    /// Ends the wait and returns the reason if the run must not wait, or must not wait that long.
    fn end_forbidden_wait(&mut self, at: Timestamp) -> Option<StopReason> {
        let stopped = self.head.stopping.map(|by| StopReason::Stopped(by.by));
        let spent = self.head.spent_budget().map(StopReason::BudgetSpent);
        let reason = stopped
            .or(spent)
            .or_else(|| self.time_limit(at))
            .or_else(|| self.head.exceeds_wait_limit())?;
        // A resume must try again at once.
        self.head.end_wait(at);
        Some(reason)
    }

    /// Begins the next attempt after a wait that is over or that a person ended.
    pub(super) fn wait_over(&mut self, at: Timestamp) -> Effects {
        self.head.end_wait(at);
        self.begin_attempt(at)
    }

    /// Continues a wait in another process.
    pub(super) fn resume_wait(&mut self, at: Timestamp) -> Effects {
        match (self.head.step.clone(), self.end_forbidden_wait(at)) {
            (_, Some(reason)) => self.end(reason, at),
            (IterationStep::Waiting { until, why, .. }, None) if until > at => {
                let what = None;
                let update = RunUpdate::Waiting { why, until, what };
                vec![Effect::Save, Effect::Emit(update)]
            }
            _ => self.wait_over(at),
        }
    }

    /// Changes a rule. Work that reached the new limit ends.
    pub(super) fn rule_set(
        &mut self,
        phase: u32,
        change: RuleChange,
        step: &IterationStep,
        at: Timestamp,
    ) -> Result<Effects, RulesError> {
        self.head.rules = self.head.rules.with(phase, &change)?;
        let reason = match (step, change) {
            (IterationStep::Waiting { .. }, _) => self.end_forbidden_wait(at),
            // Apply the limit now: otherwise the run would pay for another iteration first.
            (step, RuleChange::MaxFailures(_)) if step.is_resting() => {
                { self.stuck() }.or_else(|| self.stuck_without_progress())
            }
            _ => None,
        };
        let effects = match reason {
            Some(reason) => self.end(reason, at),
            None => {
                let mut effects = vec![Effect::Save];
                effects.extend(self.enforce_budget(step));
                effects
            }
        };
        let phases = &self.head.rules.phases;
        let update = match phases.len() > 1 && change.is_phase_rule() {
            true => RunUpdate::PhaseRuleChanged {
                phase: phases[phase as usize].name.clone(),
                change,
            },
            false => RunUpdate::RuleChanged(change),
        };
        Ok(after_save(update, effects))
    }
}

impl Head {
    /// Returns the random extra wait: up to a fifth of `base`, at most a minute. Without it, all runs of an account would retry at the same moment.
    /// It is the same for the same state and differs for each attempt of each run.
    fn jitter(&self, base: Duration) -> Duration {
        let seed = self.started_at.as_millis() ^ u64::from(self.counts.attempts).rotate_left(40);
        let most = (base / 5).min(MAX_JITTER).as_millis() as u64;
        Duration::from_millis(SeededRandom::new(seed).between(0, most))
    }

    /// Returns a stop reason if the current wait for a rate limit is longer than the run may wait.
    fn exceeds_wait_limit(&self) -> Option<StopReason> {
        let IterationStep::Waiting {
            since,
            until,
            why: WaitCause::RateLimit,
        } = self.step
        else {
            return None;
        };
        let cap = self.rules.limits.wait_on_limit;
        let all = Duration::from_millis(self.retries.rate_limit_wait_ms)
            .saturating_add(until.since(since));
        (all > cap).then_some(StopReason::RateLimit { until, cap })
    }

    /// Ends the current wait and counts the time spent waiting for a rate limit.
    pub(super) fn end_wait(&mut self, at: Timestamp) {
        if let IterationStep::Waiting {
            since,
            until,
            why: WaitCause::RateLimit,
        } = self.step
        {
            let waited = at.min(until).since(since).as_millis() as u64;
            let Retries {
                rate_limit_wait_ms: limit_ms,
                ..
            } = &mut self.retries;
            *limit_ms = limit_ms.saturating_add(waited);
        }
        if matches!(self.step, IterationStep::Waiting { .. }) {
            self.step = IterationStep::Ready;
        }
    }
}
