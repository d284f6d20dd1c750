//! The parts that a run owns; none of them knows the run.

// The modules in reading order; each takes from those above it, and this file from all:
//   attempt      the agent of an attempt: the handles on it, waiting for it
//   commit       the commit of an iteration
//   settling     the end of an attempt, and what agents left running for later ones
//   beginning    with what a run begins or goes on: the texts of the prompts, a look at the configuration
pub(crate) mod attempt;
pub(crate) mod beginning;
pub(crate) mod commit;
pub(crate) mod settling;

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent_duplex::{Driver, Event, ProcessName};
use agent_subprocess::Context;
use rlm_store::PhaseSettings;
use rlm_store::git::looks::OwnLooks;
use rlm_store::transcript::{Room, Tended};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::Error;
use crate::check::{Commands, RunningCheck};
use crate::control::Socket;
use crate::heartbeat::Pulse;
use crate::shutdown::Shutdown;
use crate::view::View;
use attempt::Attempt;
use settling::{Kept, Settling};

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

/// Makes the driver of an attempt: what to run, and the context that its processes must carry.
pub type DriverFactory =
    Box<dyn Fn(&PhaseSettings, Context) -> Result<Box<dyn Driver>, Error> + Send + Sync>;

/// The factory of a run's drivers; none before the run is carried out, when no attempt begins.
#[derive(Default)]
pub(crate) struct Drivers(Option<DriverFactory>);

impl Drivers {
    pub(crate) fn new(factory: DriverFactory) -> Self {
        Self(Some(factory))
    }

    /// Makes the driver of an attempt.
    pub(crate) fn make(
        &self,
        phase: &PhaseSettings,
        context: Context,
    ) -> Result<Box<dyn Driver>, Error> {
        let factory = self.0.as_ref().expect("a run that is carried out has it");
        factory(phase, context)
    }
}

impl fmt::Debug for Drivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Drivers")
    }
}

/// The tending of older transcripts, at most one at a time. Dropping it has that stop at the next piece.
#[derive(Debug)]
pub(crate) struct Tidying {
    /// Not here while it is tended.
    pub(crate) room: Option<Room>,
    pub(crate) work: Option<JoinHandle<(Room, Tended)>>,
    pub(crate) stop: Arc<AtomicBool>,
    /// The attempts that began meanwhile.
    pub(crate) begun: VecDeque<(u32, u32)>,
    /// Whether it was told that something went wrong, and that something was left out: once is enough.
    pub(crate) told: [bool; 2],
}

impl Tidying {
    pub(crate) fn new(run_dir: PathBuf, most: u64, resumed: bool) -> Self {
        Self {
            room: Some(Room::new(run_dir, most, resumed)),
            work: None,
            stop: Arc::default(),
            begun: VecDeque::new(),
            told: [false; 2],
        }
    }
}

impl Drop for Tidying {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
