//! The exit codes: part of the contract of the command line.

use std::fmt;
use std::process::ExitCode;

use interrupt_stack::Cause;
use loop_runner::RunOutcome;
use loop_state::StopReason;
use rlm_store::RunId;

use crate::hint::with_command;

/// The exit code of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    Done = 0,
    Failed = 1,
    Usage = 2,
    Limit = 3,
    Budget = 4,
    RateLimit = 5,
    Stuck = 6,
    Stopped = 7,
    Survivors = 8,
    Held = 9,
    NotFound = 10,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

impl Code {
    /// Every code with its meaning: the only source for the help, the manual and the guide.
    pub(crate) const ALL: [(Self, &str); 11] = [
        (Self::Done, "done, or all planned iterations ran"),
        (Self::Failed, "failed"),
        (Self::Usage, "wrong usage or configuration"),
        (
            Self::Limit,
            "the iteration limit or the time limit was reached",
        ),
        (Self::Budget, "the budget was used up"),
        (
            Self::RateLimit,
            "a rate limit or an outage beyond --wait-on-limit",
        ),
        (Self::Stuck, "stuck: too many failures in a row"),
        (Self::Stopped, "stopped by you; the state is saved"),
        (Self::Survivors, "a process that rlm started is still alive"),
        (Self::Held, "in use by another process"),
        (Self::NotFound, "not found"),
    ];

    /// Returns the code for the end of a run.
    pub(crate) fn of(reason: &StopReason) -> Self {
        match reason {
            StopReason::Done(_) | StopReason::AlreadyDone | StopReason::AllIterationsRan => {
                Self::Done
            }
            StopReason::IterationLimit(_) | StopReason::TimeLimit(_) => Self::Limit,
            StopReason::BudgetSpent(_) => Self::Budget,
            StopReason::RateLimit { .. } => Self::RateLimit,
            StopReason::InUse(_) => Self::Held,
            StopReason::Stuck { .. } => Self::Stuck,
            StopReason::Stopped(_) => Self::Stopped,
            _ => Self::Failed,
        }
    }

    /// Returns the code after reading saved state.
    pub(crate) fn of_state(damaged: bool) -> Self {
        match damaged {
            true => Self::Failed,
            false => Self::Done,
        }
    }
}

/// The reason why a command failed: one line with the fact, the place and the next command, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
    /// The runs among which a person could choose, if several were possible.
    pub(crate) choices: Vec<RunId>,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            choices: Vec::new(),
        }
    }

    /// Adds the runs among which a person could choose.
    pub(crate) fn with_choices(self, choices: impl IntoIterator<Item = RunId>) -> Self {
        Self {
            choices: choices.into_iter().collect(),
            ..self
        }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(Code::Failed, message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message)
    }

    pub(crate) fn held(message: impl Into<String>) -> Self {
        Self::new(Code::Held, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<loop_runner::Error> for Failure {
    fn from(error: loop_runner::Error) -> Self {
        let code = if error.is_held() {
            Code::Held
        } else if error.is_not_found() {
            Code::NotFound
        } else if error.is_usage() {
            Code::Usage
        } else {
            Code::Failed
        };
        Self::new(code, with_command(&error, error.hint()))
    }
}

impl From<rlm_store::Error> for Failure {
    fn from(error: rlm_store::Error) -> Self {
        loop_runner::Error::from(error).into()
    }
}

/// Returns the signal by which this process must exit, if a signal stopped the run. Survivors have their own exit code, which takes precedence.
pub(crate) fn fatal(outcome: &RunOutcome, cause: Option<Cause>) -> Option<Cause> {
    let cause = cause.filter(|cause| cause.signal().is_some());
    cause.filter(|_| outcome.reason.is_stopped() && outcome.survivors.is_empty())
}

/// Returns the exit code that a shell sees.
pub(crate) fn exit_code(outcome: &RunOutcome, cause: Option<Cause>) -> i32 {
    match fatal(outcome, cause).and_then(Cause::signal) {
        Some(signal) => 128 + signal,
        None if !outcome.survivors.is_empty() => Code::Survivors as i32,
        None => Code::of(&outcome.reason) as i32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loop_state::{SpentBudget, Timestamp};
    use std::time::Duration;

    #[test]
    fn x113e_guide_lists_every_exit_code() {
        let guide = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/guide/exit-codes.md"
        );
        let guide = fs_err::read_to_string(guide).unwrap();
        for (code, meaning) in Code::ALL {
            let row = format!("| {} | {meaning} |", code as u8);
            assert!(guide.contains(&row), "missing: {row}");
        }
    }

    #[test]
    fn x113e_budget_and_rate_limit_have_their_own_exit_codes() {
        let (limit, used) = (5, 6);
        let until = Timestamp::from_millis(1);
        let cap = Duration::ZERO;
        let budget = Code::of(&StopReason::BudgetSpent(SpentBudget::Tokens {
            limit,
            used,
        }));
        let rate = Code::of(&StopReason::RateLimit { until, cap });
        let held = Code::of(&StopReason::InUse("session `s`".into()));
        assert_eq!((budget as u8, rate as u8, held as u8), (4, 5, 9));
    }
}
