//! A run leaves the fleet and returns: while it is out, no worker claims it. Both steps are appends to its records, like a claim.

use rlm_store::{RunHead, RunId};

use super::clock::now;
use super::error::{Error, Kind};
use super::fleet::Fleet;
use super::journal::{RunJournal, RunRecord, append_error};
use super::rebuild::RunParts;
use super::record::{Code, RunSummary, progress};
use crate::append::Appender;
use crate::times::SUBMIT;
use crate::{Progress, RecordKind};

/// A run that left the fleet.
#[derive(Debug)]
pub struct ExportedRun {
    /// The epoch of the export, with which the run returns.
    pub epoch: u64,
    /// The parts of the run.
    pub parts: RunParts,
}

/// A run that returns to the fleet, for [`Fleet::import`].
#[derive(Debug)]
pub struct ReturnedRun<'a> {
    /// The saved head of the run.
    pub head: &'a RunHead,
    /// The epoch of the export.
    pub epoch: u64,
    /// The archive that `Project::pack_state` wrote.
    pub base: Vec<u8>,
    /// The git bundle with the whole history of a commit, and the commit; `None` for a run without a repository.
    pub code: Option<(String, Vec<u8>)>,
}

impl Fleet {
    /// Takes a run that no worker owns out of the fleet: no worker claims it until it returns. `to` is the name of this machine, for people. To export
    /// a run again to the same machine is the same export.
    ///
    /// # Errors
    /// [`Error::is_not_found`] if the fleet has no such run, [`Error::is_newer`] if a newer version saved it, [`Error::is_usage`] if a worker owns it or it
    /// is exported to another machine, [`Error::is_unavailable`] if the server did not confirm the export.
    ///
    /// # Cancel safety
    /// After a dropped future the run is exported, or not. To export it again is safe.
    pub async fn export(&self, run: &RunId, to: &str) -> Result<ExportedRun, Error> {
        let journal = RunJournal::new(self, run).await?;
        let last = self.last_known(run).await?;
        let name = || run.to_string();
        let (seq, epoch) = match last.facts.kind {
            RecordKind::Export if last.worker() == Some(to) => (last.facts.seq, last.facts.epoch),
            RecordKind::Export => {
                let to = last.worker().unwrap_or("another machine").to_owned();
                return Err(Kind::Exported { run: name(), to }.into());
            }
            _ if !last.is_queued() && !last.is_over() => {
                return Err(Kind::Owned { run: name() }.into());
            }
            _ => {
                let epoch = last.facts.epoch.saturating_add(1);
                let stalled = RecordKind::Export.stalled(last.facts.stalled);
                let mut record = RunRecord::after(&last, epoch, RecordKind::Export, stalled);
                record.meta.worker = Some(to.into());
                let mut appender = Appender::new(last.facts.seq, epoch);
                let appended = journal.append(&mut appender, record, now() + SUBMIT).await;
                (
                    appended.map_err(|end| append_error(run, end, SUBMIT))?,
                    epoch,
                )
            }
        };
        let parts = journal.parts(seq).await?;
        Ok(ExportedRun { epoch, parts })
    }

    /// Checks that [`import`](Self::import) can return this export of a run, and changes nothing.
    ///
    /// # Errors
    /// [`Error::is_usage`] if the run is not out of the fleet with this export, or as [`import`](Self::import).
    pub async fn expects(&self, run: &RunId, epoch: u64) -> Result<(), Error> {
        let last = self.last_known(run).await?;
        let is_out = last.facts.kind == RecordKind::Export && last.facts.epoch == epoch;
        // An earlier import may have ended between its steps.
        let is_next = last.facts.epoch == epoch.saturating_add(1);
        let is_in = is_next && (last.facts.kind == RecordKind::Base || last.is_over());
        match is_out || is_in {
            true => Ok(()),
            false => {
                let run = run.to_string();
                Err(Kind::NotExported { run }.into())
            }
        }
    }

    /// Returns an exported run to the fleet, with all that it did meanwhile. A worker of its pool continues it, unless it has ended.
    ///
    /// # Errors
    /// [`Error::is_usage`] if the run is not out of the fleet with this export, [`Error::is_unavailable`] if the server did not confirm it: a repeated
    /// call continues.
    ///
    /// # Cancel safety
    /// After a dropped future the run has returned, or not. To return it again is safe.
    pub async fn import(&self, run: &RunId, returned: ReturnedRun<'_>) -> Result<(), Error> {
        let ReturnedRun {
            head,
            epoch,
            base,
            code,
        } = returned;
        let journal = RunJournal::new(self, run).await?;
        let mut last = self.last_known(run).await?;
        let is_ended = progress(&head.machine, u32::MAX) == Progress::RunEnded;
        let next = epoch.saturating_add(1);
        // An earlier call may have ended between its steps.
        let is_in = last.facts.kind == RecordKind::Base && last.facts.epoch == next;
        if is_ended && last.is_over() && last.facts.epoch == next {
            return Ok(());
        }
        if !is_in {
            if last.facts.kind != RecordKind::Export || last.facts.epoch != epoch {
                let run = run.to_string();
                return Err(Kind::NotExported { run }.into());
            }
            self.expect_queue(&last, run).await?;
            let mut record = RunRecord::after(&last, next, RecordKind::Base, 0);
            record.meta.object = Some(self.put_object(&base).await?);
            record.meta.code = match code {
                Some((commit, bundle)) => {
                    let bundle = self.put_object(&bundle).await?;
                    Some(Code { commit, bundle })
                }
                None => None,
            };
            record.meta.base_code.clone_from(&record.meta.code);
            record.meta.worker = None;
            record.meta.set_summary(&RunSummary::of(head));
            let mut appender = Appender::new(last.facts.seq, next);
            let appended = journal.append(&mut appender, record, now() + SUBMIT).await;
            appended.map_err(|end| append_error(run, end, SUBMIT))?;
            last = self.last(run).await?;
        }
        if !is_ended {
            return self.queue(&last, run).await;
        }
        let end = RecordKind::Save(Progress::RunEnded);
        let record = RunRecord::after(&last, next, end, 0);
        let mut appender = Appender::new(last.facts.seq, next);
        let appended = journal.append(&mut appender, record, now() + SUBMIT).await;
        appended.map_err(|end| append_error(run, end, SUBMIT))?;
        Ok(())
    }
}
