//! A replica on a modelled computer: a server that keeps records, and the connection of one writer to it. Each call of the server may have a fault.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use checkpoint_store::{Record, Replica, ReplicaError, Seq};

use crate::computer::Progress;
use crate::sim_disk::Shared;

/// A fault of one call of the replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplicaFault {
    /// Another writer claims the replica before the call.
    Refuse,
    /// The replica does not get the call.
    LoseRequest,
    /// The replica gets the call, and its answer is lost.
    LoseAnswer,
    /// The replica gets neither this call nor any later one of this writer.
    Die,
}

impl ReplicaFault {
    pub(super) const ALL: [(char, Self); 4] = [
        ('r', Self::Refuse),
        ('q', Self::LoseRequest),
        ('a', Self::LoseAnswer),
        ('d', Self::Die),
    ];
}

/// The records and blobs of the replica, and its fault.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) records: Vec<Record>,
    pub(super) blobs: BTreeMap<String, Vec<u8>>,
    /// The number of the writer that claimed it last.
    pub(super) owner: u64,
    pub(super) calls: usize,
    pub(super) fault: Option<(usize, ReplicaFault)>,
}

/// The connection of one writer to the server.
#[derive(Debug)]
pub(super) struct SimReplica {
    pub(super) server: Arc<Mutex<Server>>,
    pub(super) shared: Shared,
    pub(super) own: u64,
    /// The number of records that this writer knows.
    pub(super) known: usize,
    pub(super) is_dead: bool,
}

impl SimReplica {
    fn call(&mut self, store: impl FnOnce(&mut Server)) -> Result<(), ReplicaError> {
        let unconfirmed = |why: &str| Err(ReplicaError::Unconfirmed(why.into()));
        let mut server = locked(&self.server);
        let fault = server.fault.filter(|(at, _)| *at == server.calls);
        let fault = fault.map(|(_, fault)| fault);
        server.calls += 1;
        self.is_dead |= fault == Some(ReplicaFault::Die);
        if self.is_dead || fault == Some(ReplicaFault::LoseRequest) {
            return unconfirmed("the request was lost");
        }
        if fault == Some(ReplicaFault::Refuse) {
            server.owner += 1;
        }
        if server.owner != self.own || server.records.len() != self.known {
            return Err(ReplicaError::Fenced { by: server.owner });
        }
        store(&mut server);
        let replicated = server.records.len();
        drop(server);
        let mut pc = self.shared.pc();
        let progress = Progress {
            replicated,
            ..pc.progress
        };
        pc.reached(progress);
        if fault == Some(ReplicaFault::LoseAnswer) {
            return unconfirmed("the answer was lost");
        }
        self.known = replicated;
        Ok(())
    }
}

impl Replica for SimReplica {
    fn newest(&self) -> Seq {
        newest(&locked(&self.server).records)
    }

    fn append(&mut self, record: &Record) -> Result<(), ReplicaError> {
        self.call(|server| server.records.push(record.clone()))
    }

    fn put_blob(&mut self, name: &str, bytes: &[u8]) -> Result<(), ReplicaError> {
        self.call(|server| drop(server.blobs.insert(name.into(), bytes.into())))
    }
}

pub(super) fn locked(server: &Mutex<Server>) -> MutexGuard<'_, Server> {
    server.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn newest(records: &[Record]) -> Seq {
    records.last().map_or(Seq::ZERO, Record::seq)
}
