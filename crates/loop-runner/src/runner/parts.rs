//! The parts that a run owns; none of them knows the run.

// The modules in reading order; each takes from those above it, and this file from all:
//   drivers               the drivers of the agents
//   attempt, wake         the agent of an attempt: the handles on it, waiting for it
//   kept                  what agents left running for later attempts
//   commit, settling      the commit of an iteration, the end of an attempt
//   tidying               older transcripts
//   prompts, beginning    the texts of the prompts, and with what a saved run goes on
//   reload                a look at the configuration
pub(crate) mod attempt;
pub(crate) mod beginning;
pub(crate) mod commit;
pub(crate) mod drivers;
pub(crate) mod kept;
pub(crate) mod prompts;
pub(crate) mod reload;
pub(crate) mod settling;
pub(crate) mod tidying;
pub(crate) mod wake;

use std::sync::Arc;

use agent_duplex::{Event, ProcessName};
use rlm_store::git::looks::OwnLooks;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::check::{Commands, RunningCheck};
use crate::control::Socket;
use crate::heartbeat::Pulse;
use crate::shutdown::Shutdown;
use crate::view::View;
use attempt::Attempt;
use drivers::Drivers;
use kept::Kept;
use settling::Settling;

/// The processes of the run: the agent, the commands of the loop, and the processes that they left.
#[derive(Debug)]
pub(super) struct AgentIo {
    pub(super) drivers: Drivers,
    pub(super) attempt: Option<Attempt>,
    /// Whether the agent of the present attempt was not started because a stop is on its way.
    pub(super) withheld: bool,
    pub(super) check: Option<RunningCheck>,
    /// A stand-in for gates and check, in a test.
    pub(super) commands: Option<Commands>,
    pub(super) settling: Option<Settling>,
    pub(super) kept: Kept,
    pub(super) looks: OwnLooks,
    /// When the working tree was looked at, if nothing of the run has worked in it since.
    pub(super) idle_look: Option<Instant>,
}

/// The view of the live run that others get.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) view: watch::Sender<Arc<View>>,
    /// The stop of the run, for those who watch it.
    pub(super) shutdown: watch::Sender<Option<Shutdown>>,
    pub(super) socket: Option<Socket>,
    pub(super) pulse: Pulse,
}

/// The reports that were made and are not repeated.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The index of the phase that was reported last.
    pub(super) phase: Option<u32>,
    /// The last agent's own description of itself.
    pub(super) identified: Option<Event>,
    /// Whether it was reported that this process has the run.
    pub(super) begun: bool,
}

/// The ends of the processes that the run had started.
#[derive(Debug)]
pub(super) struct Ends {
    /// The processes that the last stop ended.
    pub(super) ended: Vec<ProcessName>,
    pub(super) survivors: Vec<ProcessName>,
    pub(super) proven: bool,
}
