//! A run whose saves are replicated: what its journal needs from the replica, and the mark of the directory that it works in.
//!
//! The owner of such a run is decided elsewhere, by an append to the replica. So a directory of the run is only a copy: it belongs to one claim of the
//! run, and no later claim opens it again. Its mark, `fleet.json`, names that claim, so that a local resume refuses the directory.

use std::fmt;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use checkpoint_store::{Record, Replica, ReplicaError, Seq};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::{RunHead, state_dir};

/// The mark of a directory that belongs to a claim.
pub(crate) const CLAIM_FILE: &str = "fleet.json";
/// The largest accepted mark in bytes.
const MAX_MARK: u64 = 4096;

/// A replica of one run, for one claim of the run.
///
/// `Journal::open_replicated` uses it. The journal calls [`prepare`](Self::prepare) before each save, and the store then appends the record of the
/// save. Both block the save. After an error, the journal never saves again.
pub trait RunReplica: Replica {
    /// Returns the epoch of the claim, which is greater than that of every earlier claim of the run.
    fn epoch(&self) -> u64;

    /// Prepares the record of the next save. If that save names a commit that the replica doesn't have, makes the commit reachable first, so that a
    /// successor finds it. Also takes from the head what a list of runs shows about the record.
    ///
    /// # Errors
    ///
    /// [`ReplicaError::Fenced`] if another process owns the run, [`ReplicaError::Unconfirmed`] if it is not certain that the commit is reachable.
    fn prepare(&mut self, head: &RunHead) -> Result<(), ReplicaError>;
}

/// A message of another machine to a run of a fleet: a line of the control socket, without the socket.
#[derive(Debug)]
pub struct RemoteMessage {
    /// The line with a request or a query.
    pub line: Vec<u8>,
    /// The number under which the fleet recorded a request; a query has none. A later request has a higher number.
    pub number: Option<u64>,
    /// The time for which the sender waits for responses.
    pub wait: Duration,
    /// Gets the line of each response. If nobody receives them any more, the request stays in force.
    pub to: mpsc::Sender<Vec<u8>>,
}

/// A replica that the journal and the writer of its store use in turn. After its first error or panic, it does nothing more.
#[derive(Clone)]
pub(crate) struct SharedReplica {
    to: Arc<Mutex<dyn RunReplica>>,
    epoch: u64,
    failed: Arc<AtomicBool>,
}

impl SharedReplica {
    pub(crate) fn new(to: Arc<Mutex<dyn RunReplica>>) -> Self {
        let epoch = to.lock().unwrap_or_else(PoisonError::into_inner).epoch();
        let failed = Arc::default();
        Self { to, epoch, failed }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Calls [`RunReplica::prepare`].
    pub(crate) fn prepare(&self, head: &RunHead) -> Result<(), ReplicaError> {
        self.call(|to| to.prepare(head))
    }

    fn call(
        &self,
        work: impl FnOnce(&mut dyn RunReplica) -> Result<(), ReplicaError>,
    ) -> Result<(), ReplicaError> {
        // Only one call runs at a time. The flag stays set if the call panics.
        if self.failed.swap(true, Ordering::Relaxed) {
            let reason = "an earlier call of the replica failed";
            return Err(ReplicaError::Unconfirmed(reason.into()));
        }
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        let done = work(&mut *to);
        self.failed.store(done.is_err(), Ordering::Relaxed);
        done
    }
}

impl fmt::Debug for SharedReplica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epoch = self.epoch;
        f.debug_struct("SharedReplica")
            .field("epoch", &epoch)
            .finish_non_exhaustive()
    }
}

impl Replica for SharedReplica {
    fn newest(&self) -> Seq {
        let to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        to.newest()
    }

    fn append(&mut self, record: &Record) -> Result<(), ReplicaError> {
        self.call(|to| to.append(record))
    }

    fn put_blob(&mut self, name: &str, bytes: &[u8]) -> Result<(), ReplicaError> {
        self.call(|to| to.put_blob(name, bytes))
    }
}

/// The claim that a directory of a run belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClaimMark {
    /// The epoch of the claim.
    pub(crate) epoch: u64,
}

impl ClaimMark {
    /// Writes the mark durably into a directory that has none.
    pub(crate) fn write(self, run_dir: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(&self).expect("a mark serializes");
        let mut file = state_dir::create_new(&run_dir.join(CLAIM_FILE))?;
        file.write_all(&text)?;
        file.sync_all()?;
        state_dir::sync(run_dir)
    }

    /// Reads the mark of a directory; `None` if it has none. The inner error is a mark that can't be read.
    pub(crate) fn read(run_dir: &Path) -> Option<Result<Self, io::Error>> {
        match state_dir::read(&run_dir.join(CLAIM_FILE), MAX_MARK) {
            Ok(text) => Some(serde_json::from_slice(&text).map_err(Into::into)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => Some(Err(e)),
        }
    }
}
