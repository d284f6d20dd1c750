//! The stop of a program: the stages, their times, and the pure decision about the next stage.

use crate::times;
use std::fmt;
use std::time::Duration;

/// The maximum budget. A larger value means "no limit", and would overflow.
const MAX_BUDGET: Duration = Duration::from_secs(366 * 24 * 3600);

/// The times of the stages of a stop. Each time is a maximum, and all are limited by the rest of one `budget`.
///
/// The stages come in this order, and end early as soon as the program is gone: SIGINT to the process group of the program, closing its standard input,
/// SIGTERM to its whole process tree, SIGKILL of the process tree. A stage of zero is skipped. SIGKILL comes one second before the end of the budget
/// at the latest (half the budget if it is below two seconds).
///
/// Use [`without_interrupt`](Self::without_interrupt) for a program that is not busy, or that is interrupted by its own protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopPolicy {
    /// The maximum time of the whole stop (default 8 s, a year at most). The drain of the pipes is bounded too, and does not count. SIGKILL always
    /// gets at least 0.2 s.
    pub budget: Duration,
    /// The time that the program has to end after SIGINT (default 3 s). It lets one-shot programs save their partial text.
    pub interrupt: Duration,
    /// The time that the program has to end after its standard input was closed (default 2 s). This stage is skipped if the input is not open.
    pub close_stdin: Duration,
    /// The time that the process tree has to end after SIGTERM (default 2 s).
    pub terminate: Duration,
}

impl Default for StopPolicy {
    fn default() -> Self {
        StopPolicy {
            budget: times::BUDGET,
            interrupt: times::INTERRUPT,
            close_stdin: times::CLOSED_INPUT,
            terminate: times::TERMINATE,
        }
    }
}

impl StopPolicy {
    /// Returns a policy that skips every stage except SIGKILL.
    pub fn kill() -> Self {
        let zero = Duration::ZERO;
        StopPolicy {
            budget: times::KILL,
            interrupt: zero,
            close_stdin: zero,
            terminate: zero,
        }
    }

    /// Skips SIGINT.
    #[must_use]
    pub fn without_interrupt(self) -> Self {
        StopPolicy {
            interrupt: Duration::ZERO,
            ..self
        }
    }

    /// Returns the same stages with another budget.
    #[must_use]
    pub fn within(self, budget: Duration) -> Self {
        StopPolicy { budget, ..self }
    }

    /// Returns the policy with a bounded budget, which can be added to any time without overflow.
    pub(crate) fn bounded(&self) -> Self {
        self.clone().within(self.budget.min(MAX_BUDGET))
    }

    /// Returns a policy with the shorter of each time.
    pub(crate) fn min_of(&self, other: &Self) -> Self {
        StopPolicy {
            budget: self.budget.min(other.budget),
            interrupt: self.interrupt.min(other.interrupt),
            close_stdin: self.close_stdin.min(other.close_stdin),
            terminate: self.terminate.min(other.terminate),
        }
    }

    /// Returns the new end of a running stage, if this policy applies from `now` on; `until` is its old end. The stage of SIGKILL keeps its end: no
    /// later stage follows.
    pub(crate) fn within_policy(
        &self,
        stage: StopStage,
        now: Duration,
        until: Duration,
    ) -> Duration {
        let time = match stage {
            StopStage::AlreadyEnded => Duration::ZERO,
            StopStage::Interrupt => self.interrupt,
            StopStage::CloseInput => self.close_stdin,
            StopStage::Terminate => self.terminate,
            StopStage::Kill => return until,
        };
        let killed = self.budget.saturating_sub(self.kill_reserve());
        until.min(killed).min(now + time)
    }

    /// Returns the part of the budget that is reserved for SIGKILL and its report.
    pub(crate) fn kill_reserve(&self) -> Duration {
        times::KILL_RESERVE.min(self.budget / 2)
    }

    /// Returns the time at which a guard that has not answered is killed, so that the sweep after it also fits into the budget.
    fn guard_timeout(&self) -> Duration {
        self.budget.saturating_sub(self.kill_reserve() / 4)
    }

    /// Returns how long SIGKILL is repeated before the remaining processes count as survivors; the rest of the reserve is for the report.
    pub(crate) fn kill_time(&self) -> Duration {
        self.kill_reserve().max(times::LEAST_KILL) / 2
    }
}

/// A stage of a stop, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopStage {
    /// No process was left to stop.
    AlreadyEnded,
    /// SIGINT to the process group of the program.
    Interrupt,
    /// The standard input of the program was closed.
    CloseInput,
    /// SIGTERM to the process tree.
    Terminate,
    /// SIGKILL of the process tree.
    Kill,
}

impl fmt::Display for StopStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StopStage::AlreadyEnded => "already gone",
            StopStage::Interrupt => "interrupted",
            StopStage::CloseInput => "ended after its input was closed",
            StopStage::Terminate => "terminated",
            StopStage::Kill => "killed",
        })
    }
}

/// The facts that decide the next stage, besides the policy and the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StopFacts {
    pub(crate) stage: StopStage,
    pub(crate) main_exited: bool,
    pub(crate) stdin_open: bool,
}

/// Returns the stage after `seen.stage`, and its end; both times count from the start of the stop.
///
/// The gentle stages address the main process. If it is gone, the leftovers get SIGTERM immediately.
pub(crate) fn next_stage(
    policy: &StopPolicy,
    now: Duration,
    seen: StopFacts,
) -> (StopStage, Duration) {
    let left = policy
        .budget
        .saturating_sub(policy.kill_reserve())
        .saturating_sub(now);
    let gentle = |applies: bool, time| {
        if applies && !seen.main_exited {
            time
        } else {
            Duration::ZERO
        }
    };
    let stages = [
        (StopStage::Interrupt, gentle(true, policy.interrupt)),
        (
            StopStage::CloseInput,
            gentle(seen.stdin_open, policy.close_stdin),
        ),
        (StopStage::Terminate, policy.terminate),
    ];
    let mut later = stages
        .into_iter()
        .filter(|(stage, time)| *stage > seen.stage && !time.min(&left).is_zero());
    later.next().map_or(
        (
            StopStage::Kill,
            policy.guard_timeout().max(now + times::LEAST_KILL),
        ),
        |(stage, time)| (stage, now + time.min(left)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Simulates a stop in which the main process ends at `exit` and no other process ever ends.
    fn play(
        policy: &StopPolicy,
        exit: Duration,
        stdin_open: bool,
        late: Duration,
    ) -> Vec<(StopStage, Duration)> {
        let (mut now, mut trace) = (Duration::ZERO, Vec::new());
        let mut stage = StopStage::AlreadyEnded;
        while stage != StopStage::Kill {
            let (next, until) = next_stage(
                policy,
                now,
                StopFacts {
                    stage,
                    main_exited: exit <= now,
                    stdin_open,
                },
            );
            trace.push((next, now));
            now = if next < StopStage::Terminate {
                until.min(exit.max(now))
            } else {
                until
            } + late;
            stage = next;
        }
        trace
    }

    proptest! {
        #[test]
        fn l90a_l90b_stages_run_in_order_and_kill_is_within_budget_minus_reserve(
            times in prop::array::uniform4(0_u64..10_000), exit in 0_u64..12_000, stdin_open: bool, late in 0_u64..50,
        ) {
            let [budget, interrupt, close_stdin, terminate] = times.map(Duration::from_millis);
            let policy = StopPolicy { budget, interrupt, close_stdin, terminate };
            let late = Duration::from_millis(late);
            let trace = play(&policy, Duration::from_millis(exit), stdin_open, late);
            prop_assert!(trace.windows(2).all(|pair| pair[0].0 < pair[1].0));
            let (last, at) = *trace.last().expect("a stop has stages");
            prop_assert_eq!(last, StopStage::Kill);
            prop_assert!(at <= budget - policy.kill_reserve() + late);
            let exit = Duration::from_millis(exit);
            prop_assert!(trace.iter().all(|(stage, at)| *stage >= StopStage::Terminate || *at < exit));
            prop_assert!(stdin_open || trace.iter().all(|(stage, _)| *stage != StopStage::CloseInput));
        }
    }

    #[test]
    fn l90a_l90b_the_default_times_fill_the_budget() {
        let trace = play(&StopPolicy::default(), Duration::MAX, true, Duration::ZERO);
        let shown: Vec<String> = trace
            .iter()
            .map(|(stage, at)| format!("{at:?} {stage:?}"))
            .collect();
        insta::assert_snapshot!(shown.join("\n"), @r"
        0ns Interrupt
        3s CloseInput
        5s Terminate
        7s Kill
        ");
    }

    #[test]
    fn l90b_a_guard_is_given_up_within_the_budget() {
        let killed_until = |budget| {
            let policy = StopPolicy::default().within(Duration::from_millis(budget));
            let seen = StopFacts {
                stage: StopStage::Terminate,
                main_exited: false,
                stdin_open: false,
            };
            let (stage, until) = next_stage(&policy, policy.budget - policy.kill_reserve(), seen);
            assert_eq!(stage, StopStage::Kill);
            until.as_millis()
        };
        assert_eq!([8000, 1000, 0].map(killed_until), [7750, 875, 200]);
    }

    #[test]
    fn reserve_is_one_second_or_half_of_a_short_budget() {
        let reserve = |ms| {
            StopPolicy::default()
                .within(Duration::from_millis(ms))
                .kill_reserve()
        };
        assert_eq!(
            [8000, 2000, 500, 0]
                .map(reserve)
                .map(|time| time.as_millis()),
            [1000, 1000, 250, 0]
        );
    }
}
