//! The options of a run, and its outcome.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_duplex::ProcessName;
use cancellable_sleep::SleepGate;
use loop_state::{RuleChange, StopReason, UsageTotal, times};
use rlm_store::{RunHead, RunReplica, Settings, Uncommitted};

use crate::Error;

/// The options of this process for a run. They are not saved.
#[derive(Clone, Debug)]
pub struct RunnerOptions {
    /// The time for a whole stop, all its stages together; 8 s by default.
    pub stop_budget: Duration,
    /// Whether the run can ask a person. If not, permission requests are denied at once, and no phase waits for a review. The default is false.
    pub interactive: bool,
    /// Whether to open a run that was transferred and continues elsewhere; the first save then removes the mark of the transfer. The default is
    /// false.
    pub take_back: bool,
    /// The settings with which [`Runner::open`](crate::Runner::open) continues a run; by default those that were saved. A new run ignores this option.
    pub new_settings: Option<Settings>,
    /// The iteration to which [`Runner::open`](crate::Runner::open) returns; by default it continues where the run stopped. A new run ignores this option.
    pub from_iteration: Option<u32>,
    /// The claim with which [`Runner::open`](crate::Runner::open) opens a run of a fleet; by default the run belongs to no fleet. A new run ignores
    /// this option.
    pub claim: Option<RunClaim>,
    /// The sleep gate of each wait: the sleep between two iterations, a pause, a rate limit, a back-off.
    ///
    /// A shutdown of the gate stops the run like a [`RunControl::Stop`](crate::RunControl::Stop) with
    /// [`StopTiming::Now`](loop_state::StopTiming::Now). The caller that shuts the gate also sends that message, to give the reason. If no message
    /// arrives within a second, the reason is [`StopCause::Terminated`](loop_state::StopCause::Terminated). Nothing new starts in that time.
    pub gate: SleepGate,
}

impl RunnerOptions {
    /// Returns the default options for a run that sleeps under `gate`, which is a child of the program's own sleep gate. A program that stops its
    /// runs only by [`RunControl::Stop`](crate::RunControl::Stop) passes a new gate.
    #[must_use]
    pub fn new(gate: SleepGate) -> Self {
        Self {
            stop_budget: times::STOP_BUDGET,
            interactive: false,
            take_back: false,
            new_settings: None,
            from_iteration: None,
            claim: None,
            gate,
        }
    }
}

/// A worker's claim on a run of a fleet. `Project::unpack_claimed` of `rlm-store` makes the directory that the claim opens.
#[derive(Clone, Debug)]
pub struct RunClaim {
    /// The replica that gets each save before the run continues.
    pub replica: Arc<Mutex<dyn RunReplica>>,
    /// The top of the project on the machine that saved the run last. Paths below it are adapted to this machine, and the first save has the new paths.
    pub root: PathBuf,
    /// Whether no person resumed the run: then a pause and a stop after the iteration stay in force.
    pub taken_over: bool,
    /// The changes of rules with which a person resumed the run. The first save has them.
    pub changes: Vec<RuleChange>,
}

impl RunClaim {
    /// Returns the settings of a run with the changes of this claim; `None` without changes.
    pub(crate) fn changed_settings(&self, saved: &RunHead) -> Result<Option<Settings>, Error> {
        if self.changes.is_empty() {
            return Ok(None);
        }
        let mut rules = saved.machine.rules.clone();
        for change in &self.changes {
            let changed = rules.with(saved.machine.phase, change);
            rules = changed.map_err(rlm_store::Error::rules)?;
        }
        let mut settings = saved.settings.clone();
        settings.apply_rules(&rules);
        Ok(Some(settings))
    }
}

/// The result of this process's work on a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOutcome {
    /// The stop reason.
    pub reason: StopReason,
    /// The processes that the last stop ended.
    pub ended: Vec<ProcessName>,
    /// The processes that could not be ended.
    pub survivors: Vec<ProcessName>,
    /// Whether containment proved that no other process is left; false if only a search found none.
    pub proven: bool,
    /// The total usage of the run in all its processes, as its agents report it.
    pub usage: UsageTotal,
    /// The changes that should have been committed and were not.
    pub uncommitted: Option<Uncommitted>,
}
