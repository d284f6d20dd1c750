//! The parts from which a worker makes the directory of a run: its base, its records, its blobs and its code.

use std::collections::BTreeMap;

use checkpoint_store::{Record, Seq};
use loop_state::RuleChange;
use rlm_store::RunId;

use super::error::{Error, Kind};
use super::fleet::Fleet;
use super::journal::RunJournal;
use super::objects::ObjectId;
use super::record::{Code, StoredRecord};
use crate::RecordKind;

/// The records that a rebuild reads at most. A worker reads about 3,000 in a second.
const MAX_RECORDS: u64 = 1_000_000;
/// The bytes of the bodies that a rebuild has in memory at most.
const MAX_BYTES: u64 = 2 << 30;

/// The code of a run as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunCode {
    /// The commit with which the run began.
    pub base: String,
    /// The commit of the last save.
    pub commit: String,
    /// The git bundles, to be fetched in this order.
    pub bundles: Vec<Vec<u8>>,
}

impl RunCode {
    /// Returns each commit with its bundle, in the order in which they are fetched.
    #[must_use]
    pub fn commits(&self) -> Vec<(&str, &[u8])> {
        let commits = [self.base.as_str(), self.commit.as_str()];
        let bundles = self.bundles.iter().map(Vec::as_slice);
        commits.into_iter().zip(bundles).collect()
    }
}

/// The parts of a run, for `Project::unpack_claimed` of `rlm-store`.
#[derive(Clone, Debug)]
pub struct RunParts {
    /// The archive of the base.
    pub base: Vec<u8>,
    /// The records of the saves after the base, in order.
    pub records: Vec<Record>,
    /// The blobs, with their names.
    pub blobs: Vec<(String, Vec<u8>)>,
    /// The code; `None` for a run without a repository.
    pub code: Option<RunCode>,
    /// The objects of the blobs, with which [`NatsReplica`](super::NatsReplica) avoids to store them again.
    pub stored_blobs: BTreeMap<String, ObjectId>,
    /// The number of the newest save.
    pub newest: Seq,
    /// Whether no person resumed the run since that save.
    pub taken_over: bool,
    /// The changes of rules with which a person resumed the run since that save.
    pub changes: Vec<RuleChange>,
    /// The number of the last request before a person resumed the run; a stop up to it is over.
    pub resumed_at: u64,
}

/// The size of the parts of a run. It is known before an object is read.
#[derive(Debug, Default)]
struct Needed {
    records: u64,
    bytes: u64,
}

impl Needed {
    /// Adds a record, and fails if the run is too large for a worker.
    fn add(&mut self, run: &str, record: &StoredRecord) -> Result<(), Error> {
        let in_message = record.body.len() as u64;
        let bytes = record
            .meta
            .object
            .as_ref()
            .map_or(in_message, ObjectId::size);
        self.records += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        let most = match () {
            () if self.records > MAX_RECORDS => "1,000,000 records",
            () if self.bytes > MAX_BYTES => "2 GiB of saves and files",
            () => return Ok(()),
        };
        let run = run.to_owned();
        Err(Kind::TooLarge { run, most }.into())
    }
}

impl Fleet {
    /// Reads the parts of a run as the last record leaves it. Changes nothing, and works while a worker owns the run.
    ///
    /// # Errors
    /// [`Error::is_not_found`] if the fleet has no such run. [`Error::is_unavailable`] if the server does not answer. Another error if a record is missing,
    /// damaged or newer than this program.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn parts(&self, run: &RunId) -> Result<RunParts, Error> {
        let last = self.last_known(run).await?;
        let journal = RunJournal::new(self, run).await?;
        journal.parts(last.facts.seq).await
    }
}

impl RunJournal {
    /// Reads all records of the run up to the one with the number `last`.
    ///
    /// # Errors
    /// [`Error::is_unavailable`] if the server does not answer; another error if a record is missing, damaged or newer than this program.
    pub(super) async fn parts(&self, last: u64) -> Result<RunParts, Error> {
        let run = self.run.as_str();
        let damaged = |why: &str| Error::damaged(run, why);
        let first = self.next(1).await?;
        let first = first.filter(|first| first.facts.kind == RecordKind::Base);
        let first = first.ok_or_else(|| damaged("its first record is not its base"))?;
        let mut base_code = first.meta.code.clone();
        let mut seq = first.facts.seq;
        let mut needed = Needed::default();
        needed.add(run, &first)?;
        let mut base = self.body(first).await?;
        let (mut records, mut blobs) = (Vec::new(), BTreeMap::new());
        let (mut code, mut newest) = (base_code.clone(), Seq::ZERO);
        let (mut taken_over, mut changes, mut resumed_at) = (true, Vec::new(), 0);
        while seq < last {
            let next = self.next(seq + 1).await?;
            let record = next.ok_or_else(|| damaged("a record is missing"))?;
            seq = record.facts.seq;
            needed.add(run, &record)?;
            let (kind, blob, save) = (
                record.facts.kind,
                record.meta.blob.clone(),
                record.meta.save,
            );
            code.clone_from(&record.meta.code);
            resumed_at = record.meta.resumed_at;
            match kind {
                RecordKind::Unknown => {
                    let run = run.to_owned();
                    return Err(Kind::Newer { run }.into());
                }
                RecordKind::Base => {
                    // The run was away, and returned with its whole state.
                    base_code = record.meta.code.clone();
                    base = self.body(record).await?;
                    (records, blobs, newest) = (Vec::new(), BTreeMap::new(), Seq::ZERO);
                    (taken_over, changes) = (false, Vec::new());
                }
                RecordKind::Unpark => {
                    taken_over = false;
                    let run = run.to_owned();
                    let known = record.meta.changes();
                    changes.extend(known.ok_or(Error::from(Kind::Newer { run }))?);
                }
                _ if blob.is_none() && save.is_none() => {}
                _ => {
                    let body = self.body(record).await?;
                    match blob {
                        Some(name) => drop(blobs.insert(name, body)),
                        None => {
                            let from = format!("record {seq} of run {run}");
                            let record = Record::parse(body, from);
                            let record = record.map_err(|e| damaged(&e.to_string()))?;
                            newest = record.seq();
                            (taken_over, changes) = (true, Vec::new());
                            records.push(record);
                        }
                    }
                }
            }
        }
        let code = self.code(base_code, code).await?;
        Ok(RunParts {
            base,
            records,
            stored_blobs: { blobs.iter() }
                .map(|(name, bytes)| (name.clone(), ObjectId::of(bytes)))
                .collect(),
            blobs: blobs.into_iter().collect(),
            code,
            newest,
            taken_over,
            changes,
            resumed_at,
        })
    }

    /// Reads the bundles of the code of the base and of a later record.
    async fn code(&self, base: Option<Code>, last: Option<Code>) -> Result<Option<RunCode>, Error> {
        let (Some(base), Some(last)) = (base, last) else {
            return Ok(None);
        };
        let run = self.run.as_str();
        let mut bundles = vec![self.fleet.get_object(run, &base.bundle).await?];
        if last.bundle != base.bundle {
            bundles.push(self.fleet.get_object(run, &last.bundle).await?);
        }
        Ok(Some(RunCode {
            base: base.commit,
            commit: last.commit,
            bundles,
        }))
    }
}

impl Fleet {
    /// Reads the code of the last save of a run; `None` if the fleet has none.
    ///
    /// # Errors
    /// [`Error::is_not_found`] if the fleet has no such run, [`Error::is_newer`] if a newer version saved it, [`Error::is_unavailable`] if the server does
    /// not answer.
    pub async fn code(&self, run: &RunId) -> Result<Option<RunCode>, Error> {
        let journal = RunJournal::new(self, run).await?;
        let (first, last) = (journal.next(1).await?, self.last_known(run).await?);
        let first = first.and_then(|first| first.meta.code);
        journal
            .code(last.meta.base_code.clone().or(first), last.meta.code)
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nats::record::{Meta, decode, encode};
    use crate::{Progress, RecordId};

    /// Returns a record with a body of this size, which is an object.
    fn record(bytes: usize) -> StoredRecord {
        let kind = RecordKind::Save(Progress::Working);
        let mut meta = Meta::new(RecordId::new(1), 1, kind, 0);
        let object = serde_json::json!({"sha256": "00", "size": bytes});
        meta.object = Some(serde_json::from_value(object).unwrap());
        decode(1, 0, &encode(&meta, &[])).unwrap()
    }

    #[test]
    fn rebuild_refuses_a_run_that_is_too_large() {
        let mut needed = Needed::default();
        let half = record(1 << 30);
        needed.add("r1", &half).unwrap();
        needed.add("r1", &half).unwrap();
        let refused = needed.add("r1", &record(1)).unwrap_err().to_string();
        assert!(refused.contains("2 GiB of saves"), "{refused}");
        let mut needed = Needed {
            records: MAX_RECORDS - 1,
            bytes: 0,
        };
        needed.add("r1", &record(1)).unwrap();
        let refused = needed.add("r1", &record(1)).unwrap_err().to_string();
        assert!(refused.contains("records"), "{refused}");
    }
}
