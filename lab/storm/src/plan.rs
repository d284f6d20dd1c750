//! The faults of a storm, their order, and its numbers.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::judge::Finding;
use crate::random::Random;

/// The variable with the mistakes of `storm-subject`.
pub const MISTAKES: &str = "STORM_MISTAKES";

/// A fault that the storm causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// SIGKILL to a worker that has a run.
    KillWorker,
    /// SIGSTOP to a worker that has a run, for longer than its lease; then SIGCONT.
    FreezeWorker,
    /// SIGTERM to a worker that has a run.
    TerminateWorker,
    /// All connections of a worker that has a run are closed, and new ones are refused for a while.
    CutOffWorker,
    /// SIGKILL to a server, and its restart.
    KillServer,
}

impl Fault {
    /// All faults, in the order of the table.
    pub const ALL: [Self; 5] = [
        Self::KillWorker,
        Self::FreezeWorker,
        Self::TerminateWorker,
        Self::CutOffWorker,
        Self::KillServer,
    ];

    /// Returns the words of the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::KillWorker => "worker killed",
            Self::FreezeWorker => "worker frozen",
            Self::TerminateWorker => "worker terminated",
            Self::CutOffWorker => "worker cut off",
            Self::KillServer => "server killed",
        }
    }
}

/// The numbers of a storm on one fleet.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The program `rlm`.
    pub rlm: PathBuf,
    /// The program `storm-agent`.
    pub agent: PathBuf,
    /// The NATS server.
    pub nats_server: PathBuf,
    /// Mistakes of `storm-subject` to switch on, separated by commas.
    pub mistakes: String,
    /// A storm with mistakes ends at the first finding of this kind. Its runs can't be expected to end.
    pub ends_at: fn(&Finding) -> bool,
    /// The number of servers: 1 or 3.
    pub servers: usize,
    /// The number of times that each fault must land.
    pub faults: Vec<(Fault, usize)>,
    /// The lease of a worker.
    pub lease: Duration,
    /// The number of runs at a time. There are as many workers, with two slots each.
    pub runs: usize,
    /// The number of iterations of each run.
    pub iterations: u32,
    /// The shortest and the longest time that an agent works.
    pub agent_works: (Duration, Duration),
    /// The seed of all choices.
    pub seed: u64,
    /// The time after which a storm without any line of an agent has stalled.
    pub patience: Duration,
}

impl Plan {
    /// Returns the number of times that each fault must land in a storm with this number of kills.
    #[must_use]
    pub fn faults(kills: usize) -> Vec<(Fault, usize)> {
        let part = |of: usize| (kills / of).max(1);
        vec![
            (Fault::KillWorker, kills),
            (Fault::FreezeWorker, part(20)),
            (Fault::TerminateWorker, part(20)),
            (Fault::CutOffWorker, part(10)),
            (Fault::KillServer, part(25)),
        ]
    }

    /// Returns all faults in a random order.
    pub(crate) fn order(&self, random: &mut Random) -> Vec<Fault> {
        let all = self.faults.iter();
        let mut order: Vec<Fault> = all
            .flat_map(|(fault, count)| std::iter::repeat_n(*fault, *count))
            .collect();
        for last in (1..order.len()).rev() {
            order.swap(last, random.index(last + 1));
        }
        order
    }
}
