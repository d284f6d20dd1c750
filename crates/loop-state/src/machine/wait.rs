//! What time mends: rate limits, and failures that may not come again.

use std::time::Duration;

use super::{Effects, Machine, once_saved};
use crate::text::tail;
use crate::{
    CutCause, Effect, Head, Notice, RuleChange, RulesError, Step, StopReason, Timestamp, Wait,
    Waits,
};

/// How many tries an iteration has before what may not come again counts as a failure.
pub(super) const TRIES: u32 = 4;
/// The wait before the second try; each later one is four times as long.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// What is waited beyond the time that an agent names: its clock and ours are two.
const MARGIN: Duration = Duration::from_secs(10);
/// The wait for a rate limit of which nobody says how long it lasts; each further one in the iteration is twice as long.
const FIRST_LIMIT: Duration = Duration::from_secs(30);
/// The longest one of these.
const LONGEST_LIMIT: Duration = Duration::from_secs(15 * 60);

/// The most that is waited beyond that for no other reason than that others wait too.
const MOST_JITTER: Duration = Duration::from_secs(60);

impl Machine {
    /// The agent may not work now: its iteration is done again when it may.
    pub(super) fn rate_limited(
        &mut self,
        reset: Option<Timestamp>,
        why: String,
        at: Timestamp,
    ) -> Effects {
        let nth = self.head.waits.limits;
        self.head.waits.limits = nth.saturating_add(1);
        let step = |nth: u32| (FIRST_LIMIT * 2u32.pow(nth.min(8))).min(LONGEST_LIMIT);
        let base = match reset.map(|reset| reset + MARGIN) {
            // One that names a time again and again is believed less and less.
            Some(until) if until > at => nth
                .checked_sub(1)
                .map_or(until.since(at), |nth| until.since(at).max(step(nth))),
            // A time that is over already says nothing, and must not be a reason to ask again at once.
            _ => step(nth),
        };
        self.wait(CutCause::RateLimit, Wait::Limit, base, why, at)
    }

    /// The agent failed in a way that may not come again.
    pub(super) fn transient(&mut self, why: String, at: Timestamp) -> Effects {
        let nth = self.head.waits.tries;
        self.head.waits.tries += 1;
        let base = FIRST_RETRY * 4u32.pow(nth.min(TRIES));
        self.wait(CutCause::Transient, Wait::Retry, base, why, at)
    }

    fn wait(
        &mut self,
        cause: CutCause,
        why: Wait,
        base: Duration,
        what: String,
        at: Timestamp,
    ) -> Effects {
        self.cut(cause);
        self.head.streaks.crashes = 0;
        // Chance alone must not make a wait too long to be waited for.
        let waited = Duration::from_millis(self.head.waits.limit_ms);
        let left =
            { self.head.rules.limits.wait_on_limit.saturating_sub(waited) }.saturating_sub(base);
        let jitter = match why {
            Wait::Limit => self.head.jitter(base).min(left),
            Wait::Retry => self.head.jitter(base),
        };
        let until = at + base + jitter;
        self.head.step = Step::Waiting {
            since: at,
            until,
            why,
        };
        let what = Some(tail(what));
        match self.wait_in_vain(at) {
            Some(reason) => self.end(reason, at),
            None => vec![
                Effect::Save,
                Effect::Announce(Notice::Waiting { why, until, what }),
            ],
        }
    }

    /// Returns why the present wait is not worth it, or longer than allowed; then the run does not stand in it any more.
    fn wait_in_vain(&mut self, at: Timestamp) -> Option<StopReason> {
        let asked = self.head.stopping.map(|by| StopReason::Stopped(by.by));
        let spent = self.head.spent().map(StopReason::Budget);
        let reason = asked
            .or(spent)
            .or_else(|| self.time_limit(at))
            .or_else(|| self.head.beyond_cap())?;
        // Whoever resumes the run wants it tried.
        self.head.leave_wait(at);
        Some(reason)
    }

    /// The wait is over, or a person does not want it any longer: the next attempt begins.
    pub(super) fn wait_over(&mut self, at: Timestamp) -> Effects {
        self.head.leave_wait(at);
        self.begin_attempt(at)
    }

    /// Another process takes the run up in a wait.
    pub(super) fn wait_on(&mut self, at: Timestamp) -> Effects {
        match (self.head.step.clone(), self.wait_in_vain(at)) {
            (_, Some(reason)) => self.end(reason, at),
            (Step::Waiting { until, why, .. }, None) if until > at => {
                let what = None;
                let news = Notice::Waiting { why, until, what };
                vec![Effect::Save, Effect::Announce(news)]
            }
            _ => self.wait_over(at),
        }
    }

    /// A person wants another rule. What is used up by it ends what uses it.
    pub(super) fn rule_set(
        &mut self,
        phase: u32,
        change: RuleChange,
        step: &Step,
        at: Timestamp,
    ) -> Result<Effects, RulesError> {
        self.head.rules = self.head.rules.with(phase, &change)?;
        let reason = match (step, change) {
            (Step::Waiting { .. }, _) => self.wait_in_vain(at),
            // The next iteration would be paid for before it is known that it was not to be.
            (step, RuleChange::MaxFailures(_)) if step.is_rest() => {
                { self.stuck() }.or_else(|| self.stuck_idle())
            }
            _ => None,
        };
        let effects = match reason {
            Some(reason) => self.end(reason, at),
            None => {
                let mut effects = vec![Effect::Save];
                effects.extend(self.hold_budget(step));
                effects
            }
        };
        let phases = &self.head.rules.phases;
        let notice = match phases.len() > 1 && change.is_of_phase() {
            true => Notice::PhaseRuleSet {
                phase: phases[phase as usize].name.clone(),
                change,
            },
            false => Notice::RuleSet(change),
        };
        Ok(once_saved(notice, effects))
    }
}

impl Head {
    /// Returns what is waited beyond `base`, so that not all runs of an account ask again at the same moment: up to a fifth of it, a minute at most. It is
    /// the same for the same state, and another one for each attempt of each run.
    fn jitter(&self, base: Duration) -> Duration {
        let seed = self.started_at.0 ^ u64::from(self.counts.attempts).rotate_left(40);
        let most = (base / 5).min(MOST_JITTER).as_millis() as u64;
        Duration::from_millis(spread(seed) % (most + 1))
    }

    /// Returns why the present wait for a rate limit is longer than the run may wait.
    fn beyond_cap(&self) -> Option<StopReason> {
        let Step::Waiting {
            since,
            until,
            why: Wait::Limit,
        } = self.step
        else {
            return None;
        };
        let cap = self.rules.limits.wait_on_limit;
        let all = Duration::from_millis(self.waits.limit_ms).saturating_add(until.since(since));
        (all > cap).then_some(StopReason::RateLimit { until, cap })
    }

    /// Counts what was waited for a rate limit.
    pub(super) fn leave_wait(&mut self, at: Timestamp) {
        if let Step::Waiting {
            since,
            until,
            why: Wait::Limit,
        } = self.step
        {
            let waited = at.min(until).since(since).as_millis() as u64;
            let Waits { limit_ms, .. } = &mut self.waits;
            *limit_ms = limit_ms.saturating_add(waited);
        }
        if matches!(self.step, Step::Waiting { .. }) {
            self.step = Step::Ready;
        }
    }
}

/// A step of SplitMix64: for seeds that are near each other it gives numbers that are not.
fn spread(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
