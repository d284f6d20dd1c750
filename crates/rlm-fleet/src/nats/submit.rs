//! New runs, and the list of all runs.

use std::time::Duration;

use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use futures_core::Stream as _;
use rlm_store::RunId;
use serde_json::json;
use tokio::task::{JoinError, JoinSet};

use super::clock::now;
use super::error::{Error, Kind};
use super::fleet::Fleet;
use super::journal::{RunJournal, RunRecord, append_error};
use super::names::{Pool, run_of};
use super::record::{Code, RunSummary, StoredRecord};
use crate::append::{AppendEnd, Appender};
use crate::times::SUBMIT;
use crate::{Progress, RecordKind};

/// A new run for [`Fleet::submit`].
#[derive(Debug)]
pub struct NewRun {
    /// The name of the run.
    pub run: RunId,
    /// The pool whose workers can claim the run.
    pub pool: Pool,
    /// The archive that `Project::pack_state` wrote.
    pub base: Vec<u8>,
    /// The git bundle with the code, and its commit; `None` for a run without a repository.
    pub code: Option<(String, Vec<u8>)>,
    /// The facts that a list of runs shows.
    pub summary: RunSummary,
}

/// The result of [`Fleet::submit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// The run is new, and waits for a worker.
    New,
    /// The fleet already had a run of this name, which stays as it is.
    Exists,
}

/// One run in a list.
#[derive(Clone, Debug)]
pub struct RunRow {
    /// The name of the run.
    pub run: RunId,
    /// The last record of the run.
    pub last: StoredRecord,
}

impl Fleet {
    /// Submits a run, so that a worker of its pool claims it. To submit the same name twice is one run.
    ///
    /// # Errors
    /// [`Error::is_usage`] for a name with a dot or an unknown pool; [`Error::is_unavailable`] if the fleet did not confirm the run within 30 seconds:
    /// then submit it again.
    ///
    /// # Cancel safety
    /// After a dropped future the run is in the fleet, or not. To submit it again is safe.
    pub async fn submit(&self, new: NewRun) -> Result<Submitted, Error> {
        self.lease_of(&new.pool).await?;
        self.expect_queue_in(&new.pool, &new.run).await?;
        let journal = RunJournal::new(self, &new.run).await?;
        let last = journal.last().await?;
        if let Some(last) = last {
            // An earlier submit may have ended between its two steps.
            self.queue_again(&last, &new.run).await?;
            return Ok(Submitted::Exists);
        }
        let mut base = RunRecord::new(0, RecordKind::Base, 0);
        base.meta.object = Some(self.put_object(&new.base).await?);
        if let Some((commit, bundle)) = &new.code {
            let (commit, bundle) = (commit.clone(), self.put_object(bundle).await?);
            base.meta.code = Some(Code { commit, bundle });
        }
        base.meta.pool = Some(new.pool.to_string());
        base.meta.set_summary(&new.summary);
        let mut appender = Appender::new(0, 0);
        let appended = journal.append(&mut appender, base, now() + SUBMIT).await;
        match appended {
            Ok(_) => {
                // Another process can have removed the last run with this object since then.
                if let Some((_, bundle)) = &new.code {
                    self.put_object(bundle).await?;
                }
                self.publish_work(&new.pool, &new.run).await?;
                Ok(Submitted::New)
            }
            Err(AppendEnd::Fenced { .. }) => {
                if let Some(last) = journal.last().await? {
                    self.queue_again(&last, &new.run).await?;
                }
                Ok(Submitted::Exists)
            }
            Err(end) => Err(append_error(&new.run, end, SUBMIT)),
        }
    }

    /// Adds the message of an existing run to the queue of its own pool. A message in another pool would have a lease of its own.
    async fn queue_again(&self, last: &StoredRecord, run: &RunId) -> Result<(), Error> {
        match last.is_over() {
            true => Ok(()),
            false => self.queue(last, run).await,
        }
    }

    /// Adds the message of a run to the queue of the pool that a record of the run names.
    pub(super) async fn queue(&self, record: &StoredRecord, run: &RunId) -> Result<(), Error> {
        match &record.meta.pool {
            Some(pool) => self.publish_work(&pool.parse()?, run).await,
            None => Ok(()),
        }
    }

    /// Fails if the server does not let this user queue a run with this record.
    pub(super) async fn expect_queue(
        &self,
        record: &StoredRecord,
        run: &RunId,
    ) -> Result<(), Error> {
        match &record.meta.pool {
            Some(pool) => self.expect_queue_in(&pool.parse()?, run).await,
            None => Ok(()),
        }
    }

    /// Fails if the server does not let this user queue a run. So no user adds a record that asks for a worker, and can't queue the run then.
    async fn expect_queue_in(&self, pool: &Pool, run: &RunId) -> Result<(), Error> {
        let subject = self.names.work_of(pool, run)?;
        // No queue has so many messages, so the server refuses this one after it has checked the user.
        let publish = PublishMessage::build().expected_last_sequence(u64::MAX >> 2);
        let answered = self.publish(subject, publish).await;
        match answered {
            Err(e) if e.kind() == PublishErrorKind::WrongLastSequence => Ok(()),
            // The queue has the run already.
            Err(e) if e.to_string().contains(TOO_MANY) => Ok(()),
            Err(e) => Err(Error::unavailable("queue the run", e)),
            Ok(_) => Err(Error::unavailable(
                "queue the run",
                "the queue took an empty message",
            )),
        }
    }

    /// Adds the message of a run to the queue of its pool. Tries again for as long as a submit may take.
    async fn publish_work(&self, pool: &Pool, run: &RunId) -> Result<(), Error> {
        let until = now() + SUBMIT;
        loop {
            match self.try_publish_work(pool, run).await {
                Err(e) if e.is_unavailable() && now() < until && !self.gate.is_shutdown() => {
                    let _woken = self.gate.sleep(WAIT_INTERVAL).await;
                }
                done => return done,
            }
        }
    }

    /// Adds the message of a run to the queue of its pool. If the queue has it already, the server refuses the second.
    async fn try_publish_work(&self, pool: &Pool, run: &RunId) -> Result<(), Error> {
        let subject = self.names.work_of(pool, run)?;
        let text = json!({"v": 1, "run": run}).to_string();
        let publish = PublishMessage::build().payload(text.into());
        let answered = self.publish(subject, publish).await;
        match answered {
            Ok(_) => Ok(()),
            Err(e) => match e.kind() {
                PublishErrorKind::Other if e.to_string().contains(TOO_MANY) => Ok(()),
                _ => Err(Error::unavailable("queue the run", e)),
            },
        }
    }

    /// Returns the last record of a run.
    ///
    /// # Errors
    /// [`Error::is_not_found`] if the fleet has no such run.
    pub async fn last(&self, run: &RunId) -> Result<StoredRecord, Error> {
        let last = RunJournal::new(self, run).await?.last().await?;
        last.ok_or_else(|| {
            let run = run.to_string();
            Kind::NoRun { run }.into()
        })
    }

    /// Returns the last record of a run, for an operation that must know its form.
    pub(super) async fn last_known(&self, run: &RunId) -> Result<StoredRecord, Error> {
        let last = self.last(run).await?;
        match last.facts.kind {
            RecordKind::Unknown => {
                let run = run.to_string();
                Err(Kind::Newer { run }.into())
            }
            _ => Ok(last),
        }
    }

    /// Waits until no worker claims the run any more, and returns its last record. A lost connection does not end the wait.
    ///
    /// # Errors
    /// [`Error::is_not_found`] if the fleet has no such run, [`Error::is_newer`] if a newer version saved it, [`Error::is_unavailable`] if the gate of the
    /// connection shuts down.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait(&self, run: &RunId) -> Result<StoredRecord, Error> {
        loop {
            match self.last_known(run).await {
                Ok(last) if last.is_over() => return Ok(last),
                Err(e) if !e.is_unavailable() => return Err(e),
                _ if self.gate.is_shutdown() => {
                    return Err(Error::unavailable("wait", "this process shuts down"));
                }
                _ => {}
            }
            let _woken = self.gate.sleep(WAIT_INTERVAL).await;
        }
    }

    /// Returns all runs, each with its last record. Reads no other record.
    ///
    /// # Errors
    /// [`Error::is_unavailable`] if the server does not answer.
    pub async fn runs(&self) -> Result<Vec<RunRow>, Error> {
        let stream = self.stream(self.names.runs()).await?;
        let failed = |cause: async_nats::Error| Error::unavailable("list the runs", cause);
        let infos = stream.info_with_subjects(self.names.all_runs()).await;
        let mut infos = Box::pin(infos.map_err(|e| failed(e.into()))?);
        let (mut rows, mut reads) = (Vec::new(), JoinSet::new());
        while let Some(info) = std::future::poll_fn(|cx| infos.as_mut().poll_next(cx)).await {
            let (subject, _) = info.map_err(|e| failed(e.into()))?;
            if let Some(run) = run_of(&subject) {
                if reads.len() == READS {
                    rows.extend(joined(reads.join_next().await)?);
                }
                let journal = RunJournal::new(self, &run).await?;
                reads.spawn(async move {
                    let last = journal.last().await?;
                    Ok(last.map(|last| RunRow { run, last }))
                });
            }
        }
        while !reads.is_empty() {
            rows.extend(joined(reads.join_next().await)?);
        }
        rows.sort_by(|one, other| one.run.cmp(&other.run));
        Ok(rows)
    }
}

/// The number of reads for a list that are under way at a time. One after the other, each would wait for the answer to the one before.
const READS: usize = 32;

/// Returns the row that a read returned.
fn joined(
    read: Option<Result<Result<Option<RunRow>, Error>, JoinError>>,
) -> Result<Option<RunRow>, Error> {
    match read {
        Some(Ok(row)) => row,
        Some(Err(e)) => Err(Error::unavailable("list the runs", e)),
        None => Ok(None),
    }
}

/// The words of the server's refusal of a second message of a run.
pub(super) const TOO_MANY: &str = "maximum messages per subject exceeded";
/// The interval in which a waiting process reads the last record of its run.
const WAIT_INTERVAL: Duration = Duration::from_millis(250);

impl RunRow {
    /// Returns why the run waits for a person or a budget; `None` if it doesn't.
    #[must_use]
    pub fn paused(&self) -> Option<&str> {
        let summary = self.last.summary.as_ref();
        summary.and_then(|summary| summary.paused.as_deref())
    }

    /// Returns the state of the run in one word.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match self.last.facts.kind {
            _ if self.last.is_queued() => "queued",
            RecordKind::Save(Progress::RunEnded) => "ended",
            RecordKind::Park => "parked",
            RecordKind::Remove => "removed",
            RecordKind::Export => "exported",
            RecordKind::Unknown => "unknown",
            _ if self.paused().is_some() => "paused",
            _ => "running",
        }
    }
}
