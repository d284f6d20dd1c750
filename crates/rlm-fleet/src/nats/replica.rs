//! The saves of a claimed run, as a [`RunReplica`]. It has a connection and a thread of its own, because a save may block the thread of the run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::mpsc as sync;
use std::thread;
use std::time::Duration;

use cancellable_sleep::{CancellationToken, SleepGate};
use checkpoint_store::{Record, Replica, ReplicaError, Seq};
use rlm_store::{RemoteMessage, RunHead, RunId, RunReplica};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::clock::now;
use super::error::{Error, Kind};
use super::fleet::{Fleet, FleetAddress};
use super::journal::{RunJournal, RunRecord, append_error};
use super::objects::ObjectId;
use super::record::{Code, Meta, RunSummary, StoredRecord, completed, progress};
use super::requests::{RemoteMessages, ResponseTasks, RunRequests};
use crate::append::{AppendEnd, Appender};
use crate::sabotage::{self, Sabotage};
use crate::times::LAST_RESPONSES;
use crate::{Progress, RecordKind};

/// Writes a git bundle with the commits of the first commit that are not in the history of the second; `None` if there are none. Blocks.
///
/// The second commit is empty if the fleet has no code of the run.
pub type BundleCode = Box<
    dyn FnMut(&str, &str) -> Result<Option<Vec<u8>>, Box<dyn std::error::Error + Send + Sync>>
        + Send
        + Sync,
>;

/// The facts that a process needs to save a claimed run. The worker that claimed the run passes it to that process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplicaStart {
    /// The fleet. Its address can have a password.
    pub fleet: FleetAddress,
    /// The run.
    pub run: RunId,
    /// The epoch of the claim.
    pub epoch: u64,
    /// The sequence number of the claim.
    pub claim: u64,
    /// The number of the newest save.
    pub newest: u64,
    /// The commit with which the run began; `None` if the fleet has no code of the run.
    pub base_commit: Option<String>,
    /// The objects of the blobs that the fleet has.
    pub stored_blobs: BTreeMap<String, ObjectId>,
    /// The number of the last request that the run applied.
    pub applied: u64,
    /// The number of the last request before a person resumed the run; a stop up to it is over.
    pub resumed_at: u64,
    /// The time in which a save must be confirmed. The lease is long enough: a worker that loses its connection kills the process earlier.
    pub give_up: Duration,
}

/// The saves of a claimed run go to the fleet. Each is an append directly after the last record of this claim.
///
/// After the first error it does nothing more: the fleet may have the save, or not.
pub struct NatsReplica {
    epoch: u64,
    newest: Seq,
    calls: Option<mpsc::Sender<Call>>,
    thread: Option<thread::JoinHandle<()>>,
    /// Ends the waits of the thread when this is dropped.
    over: CancellationToken,
    code: BundleCode,
    /// The last commit that the fleet has.
    commit: Option<String>,
    base_commit: Option<String>,
    /// The number of complete iterations at the last save.
    completed: Option<u32>,
    stored_blobs: BTreeMap<String, ObjectId>,
}

impl fmt::Debug for NatsReplica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsReplica")
            .field("epoch", &self.epoch)
            .field("newest", &self.newest)
            .finish_non_exhaustive()
    }
}

/// The number of messages of other machines that can wait for the run.
const MESSAGES: usize = 64;

/// A call of the thread. Each is answered before the next one is sent.
struct Call {
    work: Work,
    answer: sync::SyncSender<Result<Option<ObjectId>, Failure>>,
}

enum Work {
    /// Sets what the next records say about the run, and its code if that changed.
    Describe {
        summary: Box<RunSummary>,
        progress: Progress,
        code: Option<(String, Vec<u8>)>,
    },
    Save {
        number: Seq,
        bytes: Vec<u8>,
    },
    Blob {
        name: String,
        bytes: Vec<u8>,
    },
}

/// Why a call failed.
enum Failure {
    Fenced { by: u64 },
    Other(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl From<Failure> for ReplicaError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Fenced { by } => Self::Fenced { by },
            Failure::Other(error) => Self::Unconfirmed(Box::new(error)),
        }
    }
}

impl NatsReplica {
    /// Connects to the fleet, for the saves of a claim. `code` makes the bundles of new commits. Also returns the messages of other machines to the
    /// run. Blocks until the fleet confirmed that the claim is still the last record of the run.
    ///
    /// # Errors
    /// [`Error::is_fenced`] if another worker owns the run, [`Error::is_unavailable`] if the server does not answer.
    pub fn open(
        start: ReplicaStart,
        code: BundleCode,
    ) -> Result<(Self, mpsc::Receiver<RemoteMessage>), Error> {
        let failed = |cause: std::io::Error| Error::unavailable("start the thread of saves", cause);
        let (calls, receiver) = mpsc::channel(1);
        let (opened, opening) = sync::sync_channel(1);
        let (to_run, messages) = mpsc::channel(MESSAGES);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let (its, over) = (start.clone(), CancellationToken::new());
        let gate = SleepGate::from_token(over.clone());
        let thread = thread::Builder::new()
            .name("fleet saves".into())
            .spawn(move || runtime.block_on(serve(its, gate, opened, receiver, to_run)))
            .map_err(failed)?;
        let ended = || Error::unavailable("open the run", "the thread of saves ended");
        let commit = opening.recv().map_err(|_| ended())??;
        let this = Self {
            epoch: start.epoch,
            newest: Seq::new(start.newest),
            calls: Some(calls),
            thread: Some(thread),
            over,
            code,
            commit,
            base_commit: start.base_commit,
            completed: None,
            stored_blobs: start.stored_blobs,
        };
        Ok((this, messages))
    }

    fn call(&self, work: Work) -> Result<Option<ObjectId>, ReplicaError> {
        let ended = || ReplicaError::Unconfirmed("the thread of saves ended".into());
        let (answer, answered) = sync::sync_channel(1);
        let calls = self.calls.as_ref().ok_or_else(ended)?;
        // Each call is answered before the next one, so the channel has room. A send that waits would panic in async code.
        let sent = calls.try_send(Call { work, answer });
        sent.map_err(|_| ended())?;
        answered
            .recv()
            .map_err(|_| ended())?
            .map_err(ReplicaError::from)
    }
}

impl Drop for NatsReplica {
    fn drop(&mut self) {
        self.calls = None;
        self.over.cancel();
        if let Some(thread) = self.thread.take() {
            // Its last call was answered, so it ends at once.
            let _ended = thread.join();
        }
    }
}

impl Replica for NatsReplica {
    fn newest(&self) -> Seq {
        self.newest
    }

    fn append(&mut self, record: &Record) -> Result<(), ReplicaError> {
        let (number, bytes) = (record.seq(), record.as_bytes().to_vec());
        self.call(Work::Save { number, bytes })?;
        self.newest = number;
        Ok(())
    }

    fn put_blob(&mut self, name: &str, bytes: &[u8]) -> Result<(), ReplicaError> {
        if self.stored_blobs.get(name) == Some(&ObjectId::of(bytes)) {
            return Ok(());
        }
        let work = Work::Blob {
            name: name.into(),
            bytes: bytes.to_vec(),
        };
        self.call(work)?;
        self.stored_blobs.insert(name.into(), ObjectId::of(bytes));
        Ok(())
    }
}

impl RunReplica for NatsReplica {
    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn prepare(&mut self, head: &RunHead) -> Result<(), ReplicaError> {
        if let Some(uncommitted) = &head.uncommitted {
            // The save would promise an iteration that no other machine has.
            let reason = &uncommitted.reason;
            return Err(ReplicaError::Unconfirmed(
                format!("the iteration is not committed: {reason}").into(),
            ));
        }
        let before = self.completed.unwrap_or_else(|| completed(&head.machine));
        let progress = progress(&head.machine, before);
        self.completed = Some(completed(&head.machine));
        let newest = head.committed.as_ref().map(|it| &it.commit);
        let newest = newest.or(head.git_commit.as_ref());
        let mut code = None;
        if let (Some(base), Some(commit)) = (&self.base_commit, newest)
            && self.commit.as_ref() != Some(commit)
            && !sabotage::is_on(Sabotage::SaveWithoutCommits)
        {
            let bundle = (self.code)(commit, base).map_err(ReplicaError::Unconfirmed)?;
            code = bundle.map(|bundle| (commit.clone(), bundle));
        }
        let commit = code.as_ref().map(|(commit, _)| commit.clone());
        self.call(Work::Describe {
            summary: Box::new(RunSummary::of(head)),
            progress,
            code,
        })?;
        if commit.is_some() {
            self.commit = commit;
        }
        Ok(())
    }
}

/// The thread's side: the appender of the claim, and what the next record says about the run.
struct Saves {
    journal: RunJournal,
    appender: Appender,
    last: StoredRecord,
    give_up: Duration,
    progress: Progress,
}

async fn serve(
    start: ReplicaStart,
    gate: SleepGate,
    opened: sync::SyncSender<Result<Option<String>, Error>>,
    mut calls: mpsc::Receiver<Call>,
    to_run: mpsc::Sender<RemoteMessage>,
) {
    let (responses, mut responded) = ResponseTasks::new();
    let opening = async {
        let saves = Saves::open(&start, gate).await?;
        let (fleet, run) = (&saves.journal.fleet, &start.run);
        let requests = RunRequests::new(fleet, run, start.applied, start.resumed_at).await?;
        let interval = start.give_up / 4;
        let messages = RemoteMessages::new(requests, run, interval, to_run, responses).await?;
        Ok((saves, messages))
    };
    let (mut saves, messages) = match opening.await {
        Ok(both) => both,
        // A caller that is gone needs no answer, here and below.
        Err(e) => return drop(opened.send(Err(e))),
    };
    let messages = tokio::spawn(messages.serve());
    let commit = saves.last.meta.code.as_ref();
    let _gone = opened.send(Ok(commit.map(|code| code.commit.clone())));
    while let Some(Call { work, answer }) = calls.recv().await {
        let done = saves.execute(work).await;
        let is_over = done.is_err();
        let _gone = answer.send(done);
        if is_over {
            break;
        }
    }
    // The end of the run was reported a moment ago, and is sent before this process ends.
    messages.abort();
    let sent = async {
        while responded.recv().await.is_some() {}
        let _lost = saves.journal.fleet.client.flush().await;
    };
    let _late = tokio::time::timeout(LAST_RESPONSES, sent).await;
}

impl Saves {
    async fn open(start: &ReplicaStart, gate: SleepGate) -> Result<Self, Error> {
        let fleet = Fleet::connect(&start.fleet, gate).await?;
        let journal = RunJournal::new(&fleet, &start.run).await?;
        let run = || start.run.to_string();
        let last = { journal.last().await? }.ok_or_else(|| Kind::NoRun { run: run() })?;
        if last.facts.seq != start.claim || last.facts.epoch != start.epoch {
            let (run, by) = (run(), last.facts.epoch);
            return Err(Kind::Fenced { run, by }.into());
        }
        Ok(Self {
            journal,
            appender: Appender::new(start.claim, start.epoch),
            last,
            give_up: start.give_up,
            progress: Progress::Working,
        })
    }

    async fn execute(&mut self, work: Work) -> Result<Option<ObjectId>, Failure> {
        match work {
            Work::Describe {
                summary,
                progress,
                code,
            } => {
                self.progress = progress;
                self.last.meta.set_summary(&summary);
                if let Some((commit, bundle)) = code {
                    let bundle = self.put(&bundle).await?;
                    self.last.meta.code = Some(Code { commit, bundle });
                }
                Ok(None)
            }
            Work::Save { number, bytes } => {
                self.append(bytes, |meta| meta.set_save(number)).await?;
                Ok(None)
            }
            Work::Blob { name, bytes } => {
                self.append(bytes, |meta| meta.blob = Some(name)).await?;
                Ok(None)
            }
        }
    }

    /// Stores an object, and tries until the time of a save is over.
    async fn put(&self, bytes: &[u8]) -> Result<ObjectId, Failure> {
        let fleet = &self.journal.fleet;
        let until = now() + self.give_up;
        loop {
            match fleet.put_object(bytes).await {
                Err(e) if e.is_unavailable() && now() < until => {}
                done => return Ok(done?),
            }
            fleet
                .sleep_until((now() + crate::times::RECONNECT).min(until))
                .await;
        }
    }

    async fn append(&mut self, body: Vec<u8>, add: impl FnOnce(&mut Meta)) -> Result<(), Failure> {
        let epoch = self.appender.epoch();
        let kind = RecordKind::Save(self.progress);
        let stalled = kind.stalled(self.last.facts.stalled);
        let mut record = RunRecord::after(&self.last, epoch, kind, stalled);
        record.body = body;
        add(&mut record.meta);
        let until = now() + self.give_up;
        let appended = self.journal.append(&mut self.appender, record, until).await;
        match appended {
            Ok(seq) => {
                self.last.facts.seq = seq;
                self.last.facts.stalled = stalled;
                if kind.ends_failed_claims() {
                    self.last.meta.set_failed(&[]);
                }
                Ok(())
            }
            Err(AppendEnd::Fenced { by }) => Err(Failure::Fenced { by }),
            Err(end) => Err(append_error(&self.journal.run, end, self.give_up).into()),
        }
    }
}
