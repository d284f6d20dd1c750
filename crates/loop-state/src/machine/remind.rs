//! The reminders of conditions that last: an idle agent before its idle timeout, and a wait for the agent's service. They are for viewers that show
//! only lines and no live status.

use std::time::Duration;

use super::{Effects, Machine};
use crate::{AgentSilence, Effect, IterationStep, MachineInput, Reminder, Timestamp, WaitCause};

/// The time between two reports of a wait.
const WAITING: Duration = Duration::from_secs(600);

impl Machine {
    /// Returns when the next reminder is due, if nothing else happens before.
    #[must_use]
    pub fn next_reminder(&self) -> Option<Timestamp> {
        let silence = self.silence_to_report().map(|(at, _)| at);
        let waiting = self.wait_to_report().map(|(at, _)| at);
        silence.into_iter().chain(waiting).min()
    }

    /// Returns the input that triggers the reminders due at `now`; the caller passes it to [`step`](Self::step).
    #[must_use]
    pub fn reminder_due(&self, now: Timestamp) -> Option<MachineInput> {
        let is_due = self.next_reminder().is_some_and(|at| at <= now);
        is_due.then_some(MachineInput::ReminderDue)
    }

    /// Returns the reminders that are due.
    pub(super) fn remind(&mut self, at: Timestamp) -> Effects {
        let mut effects = Effects::new();
        let silence = self.silence_to_report().filter(|(due, _)| *due <= at);
        if let Some((_, silence)) = silence {
            self.silence_reported = Some(silence.since);
            effects.push(Effect::Remind(Reminder::Silent {
                silent: at.since(silence.since),
                of: silence.until.since(silence.since),
            }));
        }
        let wait = self.wait_to_report().filter(|(due, _)| *due <= at);
        if let Some((_, until)) = wait {
            self.wait_reported = at;
            let left = until.since(at);
            effects.push(Effect::Remind(Reminder::Waiting { until, left }));
        }
        effects
    }

    /// Returns the current idle time and when to report it: once, after two thirds of the idle timeout.
    fn silence_to_report(&self) -> Option<(Timestamp, AgentSilence)> {
        let silence = self.silence()?;
        let allowed = silence.until.since(silence.since);
        let is_new = self.silence_reported != Some(silence.since);
        is_new.then(|| (silence.since + allowed * 2 / 3, silence))
    }

    /// Returns when to report the current wait, and when the wait ends. Time before this process began doesn't count.
    fn wait_to_report(&self) -> Option<(Timestamp, Timestamp)> {
        let head = &self.head;
        let IterationStep::Waiting {
            since,
            until,
            why: WaitCause::RateLimit,
        } = head.step
        else {
            return None;
        };
        let at = self.wait_reported.max(since).max(head.taken_at) + WAITING;
        let is_live = head.end.is_none() && !self.is_frozen();
        (is_live && at < until).then_some((at, until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Head, PhaseRules, Rules, RunEnd, StopReason, TimedInput};

    #[test]
    fn x107c_wait_is_reported_every_ten_minutes() {
        let phase = PhaseRules {
            has_check: true,
            ..PhaseRules::default()
        };
        let rules = Rules {
            phases: vec![phase],
            ..Rules::default()
        };
        let mut head = Head::new(rules).unwrap();
        let minute = |n: u64| Timestamp::from_millis(n * 60_000);
        head.taken_at = minute(12);
        head.counts.processes = 1;
        head.step = IterationStep::Waiting {
            since: minute(5),
            until: minute(52),
            why: WaitCause::RateLimit,
        };
        let mut machine = Machine::from(head.clone());
        let mut reported = Vec::new();
        for now in 12..=52 {
            let at = minute(now);
            if let Some(what) = machine.reminder_due(at) {
                assert_eq!(what, MachineInput::ReminderDue);
                let left = minute(52).since(at);
                let until = minute(52);
                let reminder = Effect::Remind(Reminder::Waiting { until, left });
                assert_eq!(machine.step(TimedInput { at, what }), [reminder]);
                assert_eq!(machine.reminder_due(at), None);
                reported.push(now);
            }
        }
        assert_eq!(reported, [22, 32, 42]);

        // A suspended run reports nothing, and neither does one that has ended.
        let (at, what) = (minute(12), MachineInput::Frozen(true));
        let mut frozen = Machine::from(head.clone());
        frozen.step(TimedInput { at, what });
        assert_eq!(frozen.reminder_due(minute(22)), None);
        let mut ended = head.clone();
        let reason = StopReason::AllIterationsRan;
        ended.end = Some(RunEnd { at, reason });
        assert_eq!(Machine::from(ended).reminder_due(minute(22)), None);

        head.step = IterationStep::Sleeping { until: minute(900) };
        assert_eq!(Machine::from(head).reminder_due(minute(100)), None);
    }
}
