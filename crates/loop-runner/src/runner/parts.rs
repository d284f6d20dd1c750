//! The parts that a run owns; none of them uses `Runner`.

// The modules in reading order; each uses those above it, and this file uses all:
//   attempt       the handles on the agent of an attempt, and its events
//   commit        the commit of an iteration
//   changes       the files that an iteration changed
//   cleanup       the cleanup after an attempt, and the retained leftovers
//   first_input   the first machine input of a run, its prompts, and the source of configuration changes
pub(crate) mod attempt;
pub(crate) mod changes;
pub(crate) mod cleanup;
pub(crate) mod commit;
pub(crate) mod first_input;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent_duplex::{Driver, Event, ProcessName};
use agent_subprocess::{ProcessContext, WarmGuard};
use rlm_store::git::processes::OwnedGitProcesses;
use rlm_store::transcript::{PruneResult, TranscriptQuota};
use rlm_store::{PhaseSettings, RemoteMessage};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::Error;
use crate::check::{FakeCommands, RunningCheck};
use crate::control::ControlSocket;
use crate::heartbeat::LastTick;
use crate::keep_awake::SleepInhibitor;
use crate::stop_progress::StopProgress;
use crate::view::View;
use attempt::AttemptHandles;
use cleanup::{AttemptCleanup, RetainedLeftovers};

/// The processes of the run: the agent, the commands of the loop, and their leftovers.
#[derive(Debug)]
pub(super) struct RunProcesses {
    pub(super) drivers: Drivers,
    pub(super) attempt: Option<AttemptHandles>,
    /// The last message of the agent in the current attempt.
    pub(super) message: Option<String>,
    /// Whether the agent of the current attempt was not started because a stop is coming.
    pub(super) withheld: bool,
    pub(super) check: Option<RunningCheck>,
    /// A stand-in for the required checks and the check, in a test.
    pub(super) commands: Option<FakeCommands>,
    pub(super) cleanup: Option<AttemptCleanup>,
    pub(super) retained: RetainedLeftovers,
    pub(super) git_processes: OwnedGitProcesses,
    /// The place of the guard that starts ahead of the next agent or command.
    pub(super) warm_guard: WarmGuard,
    /// The program that keeps the computer awake, if one runs.
    pub(super) inhibitor: Option<SleepInhibitor>,
    /// The time of the last git status, if nothing of the run has worked in the working tree since.
    pub(super) unchanged_since: Option<Instant>,
}

/// The live view of the run.
#[derive(Debug)]
pub(super) struct LiveView {
    pub(super) view: watch::Sender<Arc<View>>,
    /// The items that the program saved in the current iteration.
    pub(super) items: watch::Sender<Arc<BTreeMap<String, Value>>>,
    /// The progress of the stop, for viewers.
    pub(super) shutdown: watch::Sender<Option<StopProgress>>,
    pub(super) socket: Option<ControlSocket>,
    /// The messages of other machines to a run of a fleet, until the run has begun.
    pub(super) remote: Option<mpsc::Receiver<RemoteMessage>>,
    pub(super) last_tick: LastTick,
}

/// Reports that must not be repeated.
#[derive(Debug, Default)]
pub(super) struct Reported {
    /// The index of the last reported phase.
    pub(super) phase: Option<u32>,
    /// The last agent's own description of itself.
    pub(super) identified: Option<Event>,
    /// Whether the agent reported the position of its session in the current turn.
    pub(super) session_saved: bool,
    /// Whether the start of the run in this process was reported.
    pub(super) begun: bool,
}

/// The processes that the run ended or could not end.
#[derive(Debug)]
pub(super) struct EndedProcesses {
    /// The processes that the last stop ended.
    pub(super) ended: Vec<ProcessName>,
    pub(super) survivors: Vec<ProcessName>,
    pub(super) proven: bool,
}

/// A function that creates the driver of an attempt. It gets the settings of the phase, and the context that the processes of the agent must carry.
pub type DriverFactory =
    Box<dyn Fn(&PhaseSettings, ProcessContext) -> Result<Box<dyn Driver>, Error> + Send + Sync>;

/// Returns a factory of the drivers that the settings of each phase name, with their permissions and MCP servers.
#[must_use]
pub fn drivers() -> DriverFactory {
    Box::new(|phase, context| {
        let mut choices = agent_drivers::Choices::default();
        choices.permissions = phase.permissions;
        choices.mcp_servers = phase.mcp_servers.clone();
        Ok(phase.agent.driver(choices, context))
    })
}

/// The factory of a run's drivers; `None` before the run starts, when no attempt can begin.
#[derive(Default)]
pub(crate) struct Drivers(Option<DriverFactory>);

impl Drivers {
    pub(crate) fn new(factory: DriverFactory) -> Self {
        Self(Some(factory))
    }

    /// Creates the driver of an attempt.
    pub(crate) fn make(
        &self,
        phase: &PhaseSettings,
        context: ProcessContext,
    ) -> Result<Box<dyn Driver>, Error> {
        let factory = self.0.as_ref().expect("a started run has a factory");
        factory(phase, context)
    }
}

impl fmt::Debug for Drivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Drivers")
    }
}

/// The background pruning of older transcripts. Dropping this value stops the pruning soon.
#[derive(Debug)]
pub(crate) struct TranscriptPruning {
    /// The record of the run's transcripts; `None` while `work` has it.
    pub(crate) quota: Option<TranscriptQuota>,
    pub(crate) work: Option<JoinHandle<(TranscriptQuota, PruneResult)>>,
    pub(crate) stop: Arc<AtomicBool>,
    /// The attempts that began during the pruning.
    pub(crate) begun: VecDeque<(u32, u32)>,
    /// Whether a failure, and a reduction of transcripts, were reported; each is reported once.
    pub(crate) reported: [bool; 2],
}

impl TranscriptPruning {
    pub(crate) fn new(run_dir: PathBuf, most: u64, resumed: bool) -> Self {
        Self {
            quota: Some(TranscriptQuota::new(run_dir, most, resumed)),
            work: None,
            stop: Arc::default(),
            begun: VecDeque::new(),
            reported: [false; 2],
        }
    }
}

impl Drop for TranscriptPruning {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
