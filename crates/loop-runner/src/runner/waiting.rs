//! Telling of a long wait again and again, for those who only see lines.

use std::time::Duration;

use loop_state::{Head, Step, Timestamp, Wait};

use crate::news::News;
use crate::runner::Runner;

/// How often.
const TELL: Duration = Duration::from_secs(600);

impl Runner {
    /// Says that the run still waits, if that was not said for a while.
    pub(super) fn tell_waiting(&mut self, now: Timestamp) {
        if let Some(until) = due(self.machine.head(), self.told.waiting, now) {
            self.told.waiting = now;
            self.tell(News::StillWaiting {
                until,
                left: until.since(now),
            });
        }
    }
}

/// Returns the end of the wait that is to be told of again; what the process did not live to see began with it.
fn due(head: &Head, told: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let Step::Waiting {
        since,
        until,
        why: Wait::Limit,
    } = head.step
    else {
        return None;
    };
    let told = told.max(since).max(head.taken_at);
    (head.end.is_none() && until > now && now.since(told) >= TELL).then_some(until)
}

#[cfg(test)]
mod tests {
    use super::*;
    use loop_state::{PhaseRules, Rules};

    #[test]
    fn x107c_a_wait_is_told_of_each_ten_minutes_and_not_when_it_is_over() {
        let phase = PhaseRules {
            until: true,
            ..PhaseRules::default()
        };
        let rules = Rules {
            phases: vec![phase],
            ..Rules::default()
        };
        let mut head = Head::new(rules).unwrap();
        let minute = |n: u64| Timestamp(n * 60_000);
        let (mut told, mut at) = (Timestamp(0), Vec::new());
        head.taken_at = minute(12);
        head.step = Step::Waiting {
            since: minute(5),
            until: minute(50),
            why: Wait::Limit,
        };
        for now in 12..60 {
            if due(&head, told, minute(now)).is_some() {
                told = minute(now);
                at.push(now);
            }
        }
        assert_eq!(at, [22, 32, 42]);
        head.step = Step::Sleeping { until: minute(900) };
        assert_eq!(due(&head, told, minute(100)), None);
    }
}
