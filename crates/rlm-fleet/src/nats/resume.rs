//! Ends a run that no worker owns, and lets workers claim an ended or parked run again. Both are appends to the records of the run, like a claim.

use async_nats::jetstream::AckKind;
use loop_state::{RuleChange, StopCause, StopReason};
use rlm_store::RunId;

use super::claim::Claimed;
use super::clock::now;
use super::error::{Error, Kind};
use super::fleet::Fleet;
use super::journal::{RunJournal, RunRecord, append_error};
use super::lease::acknowledge;
use super::record::StoredRecord;
use super::requests::RunRequests;
use crate::append::{AppendEnd, Appender};
use crate::times::SUBMIT;
use crate::{Progress, RecordKind};

/// The result of [`Fleet::stop_queued`].
#[derive(Debug)]
pub enum QueuedStop {
    /// The run has ended for the whole fleet.
    Ended(Box<StoredRecord>),
    /// A worker claimed the run, or the run had ended. This is its last record.
    NotQueued(Box<StoredRecord>),
}

/// Returns the record that a person ended a run between two claims.
fn stopped(last: &StoredRecord, epoch: u64) -> RunRecord {
    let kind = RecordKind::Save(Progress::RunEnded);
    let mut record = RunRecord::after(last, epoch, kind, kind.stalled(last.facts.stalled));
    if let Some(mut summary) = last.summary.clone() {
        summary.reason = Some(StopReason::Stopped(StopCause::Person));
        record.meta.set_summary(&summary);
    }
    record
}

impl Fleet {
    /// Ends a run that waits for a worker, as a person's stop does. A run that a worker claims at the same moment is not ended.
    ///
    /// # Errors
    /// [`Error::is_not_found`] if the fleet has no such run, [`Error::is_unavailable`] if the server did not confirm the end.
    ///
    /// # Cancel safety
    /// After a dropped future the run has ended, or not.
    pub async fn stop_queued(&self, run: &RunId) -> Result<QueuedStop, Error> {
        let journal = RunJournal::new(self, run).await?;
        let last = self.last(run).await?;
        if !last.is_queued() {
            return Ok(QueuedStop::NotQueued(Box::new(last)));
        }
        let epoch = last.facts.epoch.saturating_add(1);
        let mut appender = Appender::new(last.facts.seq, epoch);
        let record = stopped(&last, epoch);
        let appended = journal.append(&mut appender, record, now() + SUBMIT).await;
        let newest = Box::new(self.last(run).await?);
        match appended {
            Ok(_) => Ok(QueuedStop::Ended(newest)),
            Err(AppendEnd::Fenced { .. }) => Ok(QueuedStop::NotQueued(newest)),
            Err(end) => Err(append_error(run, end, SUBMIT)),
        }
    }

    /// Lets the workers of its pool claim an ended or parked run again, with changes of its rules. A stop that a person requested earlier has no effect
    /// any more; other requests that the run has not applied stay.
    ///
    /// # Errors
    /// [`Error::is_not_found`] if the fleet has no such run; [`Error::is_newer`] if a newer version saved it; [`Error::is_usage`] if the run has not ended,
    /// or is done and has nothing to resume; [`Error::is_unavailable`] if the server did not confirm it: a repeated call continues.
    ///
    /// # Cancel safety
    /// After a dropped future the run is resumed, or not. To resume it again is safe.
    pub async fn resume(&self, run: &RunId, changes: &[RuleChange]) -> Result<(), Error> {
        let journal = RunJournal::new(self, run).await?;
        let last = self.last_known(run).await?;
        let name = || run.to_string();
        if last.facts.kind == RecordKind::Unpark && changes.is_empty() {
            // An earlier call may have ended between its two steps.
            return self.queue(&last, run).await;
        }
        let reason = last.summary.as_ref().and_then(|it| it.reason.as_ref());
        match reason {
            _ if last.facts.kind == RecordKind::Export => {
                let to = last.worker().unwrap_or("another machine").to_owned();
                return Err(Kind::Exported { run: name(), to }.into());
            }
            _ if !last.is_over() => return Err(Kind::NotEnded { run: name() }.into()),
            Some(reason) if reason.is_final() => {
                let (run, reason) = (name(), reason.to_string());
                return Err(Kind::Done { run, reason }.into());
            }
            _ => {}
        }
        self.expect_queue(&last, run).await?;
        let epoch = last.facts.epoch.saturating_add(1);
        let kind = RecordKind::Unpark;
        let mut record = RunRecord::after(&last, epoch, kind, kind.stalled(last.facts.stalled));
        record.meta.resumed_at = self.last_request(run).await?;
        record.meta.set_changes(changes);
        let mut appender = Appender::new(last.facts.seq, epoch);
        let appended = journal.append(&mut appender, record, now() + SUBMIT).await;
        appended.map_err(|end| append_error(run, end, SUBMIT))?;
        self.queue(&last, run).await
    }
}

impl Claimed {
    /// Returns whether a person requested a stop that the run has not applied. `applied` is the number of the last request that it applied.
    ///
    /// # Errors
    /// [`Error::is_unavailable`] if the server does not answer.
    pub async fn has_stop(&self, applied: u64, resumed_at: u64) -> Result<bool, Error> {
        let fleet = &self.journal.fleet;
        let requests = RunRequests::new(fleet, &self.journal.run, applied, resumed_at).await?;
        requests.has_stop().await
    }

    /// Ends the run instead of starting it, as a person requested, and acknowledges the delivery. Returns the last record.
    ///
    /// # Errors
    /// [`Error::is_fenced`] if another worker owns the run, [`Error::is_unavailable`] if the server did not confirm the end within the lease.
    pub async fn end_stopped(self) -> Result<StoredRecord, Error> {
        let (journal, run) = (&self.journal, &self.journal.run);
        let claim = journal.fleet.last(run).await?;
        let mut appender = Appender::new(self.seq, self.epoch);
        let record = stopped(&claim, self.epoch);
        let until = now() + self.time;
        let appended = journal.append(&mut appender, record, until).await;
        appended.map_err(|end| append_error(run, end, self.time))?;
        // If this is lost, the next worker finds the end, and acknowledges it.
        let _lost = acknowledge(&journal.fleet, &self.message, AckKind::Ack).await;
        journal.fleet.last(run).await
    }
}
