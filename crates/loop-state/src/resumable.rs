//! Which runs can be resumed, by whom, and from which iteration. The machine uses this to resume a run, and programs use it to explain a refusal.

use std::fmt;

use crate::{
    Head, IterationStep, Request, ResumeOptions, RuleChange, Rules, SpentBudget, StopCause,
    StopReason,
};

/// Why a run can't be resumed as requested.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResumeRefusal {
    /// The run ended for good, and the resume adds no work.
    Over(StopReason),
    /// The run is between two phases, so no iteration of the next phase can be discarded.
    BetweenPhases,
    /// The run has not reached the requested iteration.
    Ahead {
        /// The last iteration that the run can start at.
        last: u32,
    },
}

impl fmt::Display for ResumeRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Over(reason) => write!(f, "the run has ended: {reason}"),
            Self::BetweenPhases => f.write_str("the run is between two phases"),
            Self::Ahead { last } => write!(f, "the run has only reached iteration {last}"),
        }
    }
}

impl std::error::Error for ResumeRefusal {}

impl Head {
    /// Checks whether the run can be resumed with these options.
    ///
    /// A run that ended for good needs [`ResumeOptions::from_iteration`], or rules with another number of iterations or another number of phases.
    ///
    /// # Errors
    ///
    /// Returns the reason. A [`Machine`](crate::Machine) that gets such a resume anyway ends again if the run has ended for good, and otherwise
    /// ignores the requested iteration.
    pub fn may_resume(&self, resume: &ResumeOptions) -> Result<(), ResumeRefusal> {
        let (from, reached) = (resume.from_iteration, resume.last_begun_iteration);
        let rules = resume.rules.as_ref();
        let adds_work = from.is_some() || rules.is_some_and(|it| self.changes_amount_of_work(it));
        match &self.end {
            Some(end) if end.reason.is_final() && !adds_work => {
                return Err(ResumeRefusal::Over(end.reason.clone()));
            }
            _ => {}
        }
        let last = self.resume_point().iteration.max(reached.unwrap_or(0));
        match from {
            Some(_) if self.iteration == 0 && self.step.is_resting() && reached.is_none() => {
                Err(ResumeRefusal::BetweenPhases)
            }
            Some(from) if from > last => Err(ResumeRefusal::Ahead { last }),
            _ => Ok(()),
        }
    }

    /// Returns whether these rules have another number of iterations for the current phase, or another number of phases.
    fn changes_amount_of_work(&self, rules: &Rules) -> bool {
        let most = |rules: &Rules| {
            let phase = rules.phases.get(self.phase as usize);
            phase.map(|phase| phase.limits.max_iterations)
        };
        rules.phases.len() != self.rules.phases.len() || most(rules) != most(&self.rules)
    }

    /// Returns whether a scheduler may resume the run without a person, with these changes of its rules.
    ///
    /// A rate limit ends with time, another process may have released the session, and a failure may have been fixed. A run that
    /// reached a limit needs a change that raises it. A run that is done or stuck needs a person, and so does a run that [a person
    /// stopped](Self::was_stopped_by_a_person), which the caller checks.
    #[must_use]
    pub fn continues_unattended(&self, changes: &[RuleChange]) -> bool {
        let Some(end) = &self.end else {
            return true;
        };
        let acts_on = |change: &RuleChange| match &end.reason {
            StopReason::AllIterationsRan
            | StopReason::LastIterationFailed { .. }
            | StopReason::IterationLimit(_) => {
                matches!(change, RuleChange::MaxIterations(_))
            }
            StopReason::TimeLimit(_) => matches!(change, RuleChange::MaxDuration(_)),
            StopReason::BudgetSpent(SpentBudget::Tokens { .. }) => {
                matches!(change, RuleChange::MaxTokens(_))
            }
            StopReason::BudgetSpent(SpentBudget::Cost { .. }) => {
                matches!(change, RuleChange::MaxCost(_))
            }
            _ => false,
        };
        match &end.reason {
            StopReason::Stopped(_)
            | StopReason::RateLimit { .. }
            | StopReason::InUse(_)
            | StopReason::Failed(_) => true,
            _ => changes
                .iter()
                .any(|change| acts_on(change) && self.rules.is_raised_by(self.phase, change)),
        }
    }

    /// Returns whether a person stopped the run or is stopping it, so that only a person may continue it.
    #[must_use]
    pub fn was_stopped_by_a_person(&self) -> bool {
        let by = match (&self.end, self.stopping) {
            (Some(end), _) => match end.reason {
                StopReason::Stopped(by) => Some(by),
                _ => None,
            },
            (None, stopping) => stopping.map(|request| request.by),
        };
        [by, self.stop_cut_short].contains(&Some(StopCause::Person))
    }

    /// Returns whether the run has not ended, or was only stopped, so that work is left.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        self.end.as_ref().is_none_or(|end| end.reason.is_stopped())
    }

    /// Returns the request that continues a waiting live run. The run waits for a person, now or after this iteration, or for the service of its
    /// agent.
    #[must_use]
    pub fn woken_by(&self) -> Option<Request> {
        match self.step {
            _ if self.awaits_person() || self.pausing => Some(Request::Continue),
            IterationStep::Waiting { .. } => Some(Request::Skip),
            _ => None,
        }
    }
}
