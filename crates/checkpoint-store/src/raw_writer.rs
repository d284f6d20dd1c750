//! The writer without types: heads and events are encoded bytes. `Writer` and `Store` add the types.

use std::path::Path;

use crate::blob;
use crate::chain::{self, Part};
use crate::codec::{self, CompressionEffort};
use crate::compact::JournalWeight;
use crate::dir::{Dir, MAX_FILE, Temp};
use crate::disk::{FileHandle, OpenMode};
use crate::error::{Error, Kind, Result, within};
use crate::frame::{DELTA, TRUNCATE};
use crate::id::Seqs;
use crate::journal::Journal;
use crate::load::{self, Entry, Index, LoadPurpose, Loaded};
use crate::lock::Epoch;
use crate::lock::Lock;
use crate::meta::{Base, FileMeta};
use crate::name::{FileName, QUARANTINE};
use crate::options::Options;
use crate::repair::{KnownFiles, Repaired};
use crate::replay::{MAX_STATE, Needed};
use crate::replica::{Record, Replica, ReplicaError};
use crate::retention::{self, RetainedFile, RetentionPolicy};
use crate::sabotage::{self, Sabotage};
use crate::saves::PackedFrame;
use crate::saves::Saves;

/// Number of repeated repairs if files disappear again and again.
const MAX_REPAIRS: u32 = 64;

/// Holds the lock and an epoch of a store. Dropping it releases the lock. There is nothing to flush, because every acknowledged save is on disk.
#[derive(Debug)]
pub(crate) struct RawWriter {
    pub(crate) dir: Dir,
    pub(crate) lock: Lock,
    pub(crate) options: Options,
    pub(crate) epoch: Epoch,
    pub(crate) seq: u64,
    pub(crate) base: Option<Base>,
    /// The base's file. It stays readable after its name was removed.
    pub(crate) base_file: Option<Box<dyn FileHandle>>,
    /// The saves after the base to which a caller can return.
    pub(crate) seqs: Seqs,
    /// All saves since the base, to be written again if a file fails.
    pub(crate) saves: Saves,
    /// Made by the first save after an open or a phase, so that idle stores stay small.
    pub(crate) journal: Option<Journal>,
    /// An upper limit for the size of the events that a load would return.
    pub(crate) event_bytes: u64,
    /// The share of old heads in the journal.
    pub(crate) weight: JournalWeight,
    health: WriterHealth,
    /// Gets each save before its acknowledgement.
    replica: Option<Box<dyn Replica>>,
    pub(crate) known_files: KnownFiles,
    pub(crate) last_repair: Option<Repaired>,
}

/// A store that a writer took over, and the files that it had before.
#[derive(Debug)]
pub(crate) struct TakenStore {
    pub(crate) loaded: Loaded,
    entries: Vec<Entry>,
}

impl TakenStore {
    /// Returns whether the next journal may continue the loaded ones without a copy.
    pub(crate) fn may_link(&self) -> bool {
        self.loaded.report.is_undamaged()
    }
}

/// Whether saves can succeed.
#[derive(Debug)]
enum WriterHealth {
    Sound,
    /// There was no room to write everything to a new file; the next save tries that first.
    Unrepaired(Error),
    Failed(String),
    Fenced {
        by: u64,
    },
    /// The replica may lack a save that the files have.
    Unreplicated(String),
    ReplicaFenced {
        by: u64,
    },
}

impl RawWriter {
    pub(crate) fn open(path: &Path, options: Options) -> Result<(Self, Loaded)> {
        Self::open_on(Self::directory(path, &options)?, options)
    }

    /// Opens the store as [`open`](Self::open) does, but unpacks no events if it can know the state without them.
    pub(crate) fn open_head(path: &Path, options: Options) -> Result<(Self, Loaded)> {
        let dir = Self::directory(path, &options)?;
        Self::open_as(dir, options, Needed::NewestHead)
    }

    /// Opens the directory of a store, and makes it if the options permit this.
    pub(crate) fn directory(path: &Path, options: &Options) -> Result<Dir> {
        match options.create {
            true => Dir::create(path),
            false => Dir::open(path),
        }
    }

    pub(crate) fn open_on(dir: Dir, options: Options) -> Result<(Self, Loaded)> {
        Self::open_as(dir, options, Needed::Everything)
    }

    fn open_as(dir: Dir, options: Options, needed: Needed) -> Result<(Self, Loaded)> {
        let (mut writer, mut taken) = Self::take_over(dir, options, needed)?;
        writer.continue_journal(&taken.loaded.journal, taken.may_link(), Vec::new())?;
        writer.remove_unneeded(&mut taken)?;
        writer.known_files = KnownFiles::of(&writer.dir)?;
        Ok((writer, taken.loaded))
    }

    /// Takes the lock and the next epoch, and loads the newest state. The writer has no journal yet.
    pub(crate) fn take_over(
        dir: Dir,
        options: Options,
        needed: Needed,
    ) -> Result<(Self, TakenStore)> {
        let lock = Lock::take(&dir)?;
        // This fails for a store that this program cannot read, and leaves the store unchanged.
        let before = Index::read(&dir, LoadPurpose::Writer(&options))?;
        let epoch = Epoch::take(&dir, before.highest_epoch())?;
        // From here on an older writer acknowledges nothing more, so the scan sees all its saves.
        let index = match sabotage::is_on(Sabotage::ScanBeforeCreate) {
            true => before,
            false => Index::read(&dir, LoadPurpose::Writer(&options))?,
        };
        let entries = index.entries.clone();
        let loaded = load::newest_as(&dir, index, needed)?;
        let mut writer = Self {
            lock,
            options,
            epoch,
            seq: loaded.seq,
            base: loaded.base,
            base_file: None,
            seqs: loaded.seqs.iter().copied().collect(),
            saves: Saves::new(dir.disk()),
            journal: None,
            event_bytes: loaded.state.event_bytes(),
            weight: JournalWeight::default(),
            health: WriterHealth::Sound,
            replica: None,
            known_files: KnownFiles::default(),
            last_repair: None,
            dir,
        };
        if let Some(base) = writer.base {
            let file = writer.dir.open_file(&base.file_name(), OpenMode::Read)?;
            // Without the base, the next phase would lack the older events.
            let vanished = || Error::new(writer.dir.path(), Kind::Vanished);
            writer.base_file = Some(file.ok_or_else(vanished)?);
        }
        Ok((writer, TakenStore { loaded, entries }))
    }

    /// Starts this epoch's journal with the saves of the journals `parts`, which it continues, and the saves `more` after them. Makes no journal if
    /// there are no saves.
    pub(crate) fn continue_journal(
        &mut self,
        parts: &[Part],
        may_link: bool,
        more: Vec<PackedFrame>,
    ) -> Result<()> {
        if more.is_empty() && parts.iter().all(|part| part.frames.is_empty()) {
            return Ok(());
        }
        // The last good frames go to a file of this epoch, which continues the old file. The old file is never appended to, so no acknowledged save
        // ever follows a torn tail.
        let used = parts.last();
        let to = self.options.schema_version;
        let from = used.map_or(to, |used| used.meta.schema_version);
        let (continued, copied) = chain::plan(&self.dir, parts, may_link && from == to)?;
        let copied = copied.map(|kept| {
            let kept = self.options.migrations.save(kept, from, to);
            kept.map_err(|kind| Error::new(self.dir.path(), kind))
        });
        let torn = match used {
            Some(used) if sabotage::is_on(Sabotage::SkipTailCut) => {
                &used.bytes[used.frames.last().map_or(0, |frame| frame.end())..]
            }
            _ => &[],
        };
        let saves = copied.chain(more.into_iter().map(Ok));
        let started = self.start_journal_with(self.seq, saves, continued, torn)?;
        self.weight = self.use_journal(started);
        Ok(())
    }

    /// Removes or sets aside the files that the loaded state does not need. No removed file has the only copy of anything.
    pub(crate) fn remove_unneeded(&self, taken: &mut TakenStore) -> Result<()> {
        let TakenStore { loaded, entries } = taken;
        for skipped in &loaded.report.skipped {
            let aside = self.dir.sub(QUARANTINE, true)?;
            let name = format!("{}.{:08x}", skipped.file, self.epoch.number);
            if self.dir.rename_new(&skipped.file, &aside, &name)? {
                loaded.report.set_aside.push(format!("{QUARANTINE}/{name}"));
            }
        }
        for name in self.dir.own()? {
            if matches!(name, FileName::Temp { epoch, .. } if epoch < self.epoch.number) {
                self.dir.remove(&name.to_string())?;
                loaded.report.removed_temps += 1;
            }
        }
        // The loaded journal stays, with the journals that it continues, as the good generation before this one. Everything in the other older journals
        // is in both generations.
        if let Some(used) = loaded.journal.last()
            && self.journal.is_some()
            && loaded.report.is_undamaged()
        {
            for old in entries.iter() {
                if old.meta.phase.is_none()
                    && old.meta.base == used.meta.base
                    && old.meta.epoch < used.meta.epoch
                    && loaded.journal.iter().all(|part| part.name != old.name)
                {
                    self.dir.remove(&old.name)?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn dir(&self) -> &Dir {
        &self.dir
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.number
    }

    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    pub(crate) fn last_repair(&self) -> Option<&Repaired> {
        self.last_repair.as_ref()
    }

    /// Fails if no later save can ever succeed.
    fn check_usable(&self) -> Result<()> {
        let kind = match &self.health {
            WriterHealth::Sound | WriterHealth::Unrepaired(_) => return Ok(()),
            WriterHealth::Failed(first) => Kind::Poisoned {
                first: first.clone(),
            },
            WriterHealth::Fenced { by } => Kind::Fenced {
                own: self.epoch.number,
                by: *by,
            },
            WriterHealth::Unreplicated(reason) => Kind::Unreplicated {
                reason: reason.clone(),
            },
            WriterHealth::ReplicaFenced { by } => Kind::ReplicaFenced { by: *by },
        };
        Err(Error::new(self.dir.path(), kind))
    }

    /// Sends all later saves to a replica, and first all blobs of the store.
    pub(crate) fn set_replica(&mut self, replica: Box<dyn Replica>) -> Result<()> {
        self.check_usable()?;
        let (own, newest) = (self.seq, replica.newest().get());
        self.replica = Some(replica);
        // If a step fails, the writer must not save without this replica.
        let reason = "the replica was not accepted".to_owned();
        let health = std::mem::replace(&mut self.health, WriterHealth::Unreplicated(reason));
        if own != newest {
            let replica = newest;
            return Err(Error::new(
                self.dir.path(),
                Kind::OtherSaves { own, replica },
            ));
        }
        for name in blob::names(&self.dir)? {
            let bytes = blob::get(&self.dir, &name)?;
            self.replicate(|replica| replica.put_blob(&name, &bytes))?;
        }
        self.health = health;
        Ok(())
    }

    pub(crate) fn is_replicated(&self) -> bool {
        self.replica.is_some()
    }

    /// Sends something that is durable to the replica, if there is one. If the replica does not confirm it, the writer never saves again.
    pub(crate) fn replicate(
        &mut self,
        send: impl FnOnce(&mut dyn Replica) -> Result<(), ReplicaError>,
    ) -> Result<()> {
        let Some(replica) = &mut self.replica else {
            return Ok(());
        };
        // This is the health if the replica panics.
        let reason = "the replica gave no answer".to_owned();
        let health = std::mem::replace(&mut self.health, WriterHealth::Unreplicated(reason));
        let Err(refused) = send(&mut **replica) else {
            self.health = health;
            return Ok(());
        };
        self.health = match refused {
            ReplicaError::Fenced { by } => WriterHealth::ReplicaFenced { by },
            ReplicaError::Unconfirmed(err) => WriterHealth::Unreplicated(err.to_string()),
        };
        let refused = self.check_usable();
        if sabotage::is_on(Sabotage::ContinueAfterRefusal) {
            self.health = health;
        } else if sabotage::is_on(Sabotage::AcknowledgeBeforeReplica) {
            self.health = health;
            return Ok(());
        }
        refused
    }

    /// Encodes a save for the replica; `metadata` belongs to a phase.
    pub(crate) fn record(
        &self,
        kept: &PackedFrame,
        metadata: Option<FileMeta>,
    ) -> Result<Record, ReplicaError> {
        let metadata = metadata.unwrap_or_else(|| {
            let mut metadata = FileMeta::new(&self.options, self.epoch.number, self.dir.disk());
            metadata.seq = kept.frame.seq;
            metadata.base = self.base;
            metadata.oldest = self.seqs.first();
            metadata
        });
        Record::new(metadata, kept, self.dir.disk().random())
            .map_err(|kind| ReplicaError::Unconfirmed(kind.into()))
    }

    pub(crate) fn is_unrepaired(&self) -> bool {
        matches!(self.health, WriterHealth::Unrepaired(_))
    }

    /// Fails if no save can succeed. Otherwise, repairs the store if an earlier repair is still to do; `len` is the size of the save that follows.
    pub(crate) fn prepare_save(&mut self, len: u64) -> Result<()> {
        self.check_usable()?;
        match std::mem::replace(&mut self.health, WriterHealth::Sound) {
            WriterHealth::Unrepaired(first) => self.repair_and_retry(first, len, |_| Ok(())),
            _ => Ok(()),
        }
    }

    /// Runs a save of `len` bytes (0 if the size is unknown). If the files fail, writes everything to new files and runs the save once more.
    pub(crate) fn save_with_repair<T>(
        &mut self,
        len: u64,
        mut save: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<T> {
        self.prepare_save(len)?;
        match save(self) {
            Err(first) if self.is_untouched_by(&first) => Err(first),
            Err(first) if first.is_about_files() || first.is_about_removal() => {
                self.repair_and_retry(first, len, save)
            }
            Err(err) => Err(self.fence(err)),
            result => result,
        }
    }

    /// Writes everything to new files after a failure, and then runs the save.
    fn repair_and_retry<T>(
        &mut self,
        first: Error,
        len: u64,
        mut save: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let mut tries = 0..MAX_REPAIRS;
        loop {
            let repaired = self.repair(&first);
            let is_repaired = repaired.is_ok();
            match repaired.and_then(|()| save(self)) {
                // A program that removes a directory does it file by file, and may not have finished.
                Err(then) if then.is_about_removal() && tries.next().is_some() => {
                    self.dir.disk().pause();
                }
                Err(then) if is_repaired && self.is_untouched_by(&then) => return Err(then),
                Err(then) if then.is_full() => {
                    // The next try writes everything to a new file again, and then the save.
                    let rest = if is_repaired { self.saves.len() } else { len };
                    return Err(self.give_up(first, then.with_needed_bytes(rest)));
                }
                Err(then) if !is_repaired || then.is_about_files() || then.is_fenced() => {
                    return Err(self.give_up(first, then));
                }
                result => return result,
            }
        }
    }

    /// Returns whether the error is only that a new file, a blob or a phase did not fit. That file has no name yet. The journal still takes saves: a
    /// failed write of its own would have closed it.
    fn is_untouched_by(&self, err: &Error) -> bool {
        matches!(err.kind(), Kind::Full { .. }) && self.journal.is_some()
    }

    /// Makes the writer fenced for ever if a newer writer took the store over.
    fn fence(&mut self, err: Error) -> Error {
        if let Kind::Fenced { by, .. } = err.kind() {
            self.health = WriterHealth::Fenced { by: *by };
        }
        err
    }

    /// Sets the writer's health after all tries failed.
    fn give_up(&mut self, first: Error, then: Error) -> Error {
        self.journal = None;
        if then.is_fenced() {
            return self.fence(then);
        }
        if then.is_full() {
            self.health = WriterHealth::Unrepaired(first);
            return then;
        }
        self.health = WriterHealth::Failed(first.to_string());
        let vanished = first.is_vanished() || then.is_vanished();
        let (first, then) = (first.to_string(), then.to_string());
        let kind = Kind::Lost {
            first,
            then,
            vanished,
        };
        Error::new(self.dir.path(), kind)
    }

    /// Saves a head and events in one frame: one write, one sync.
    pub(crate) fn append(&mut self, raw: Vec<u8>, head_len: usize) -> Result<u64> {
        let events = (raw.len() - head_len) as u64;
        let event_bytes = self
            .event_bytes_with(events)
            .map_err(|kind| Error::new(self.dir.path(), kind))?;
        // An undo does not compact: it may return to a save whose head a compaction would drop.
        self.compact()?;
        let seq = self.write(DELTA, head_len, raw)?;
        self.event_bytes = event_bytes;
        Ok(seq)
    }

    /// Returns the number of bytes of all events together with `more` bytes; refuses a state that could not be loaded.
    pub(crate) fn event_bytes_with(&self, more: u64) -> Result<u64, Kind> {
        let limit = MAX_STATE - u64::from(crate::frame::MAX_RAW);
        let bytes = self.event_bytes + more;
        within("the history", bytes as usize, limit as usize)?;
        Ok(bytes)
    }

    /// Returns to the state of an earlier save, by an undo frame.
    pub(crate) fn truncate_to(&mut self, seq: u64) -> Result<u64> {
        if !self.can_return_to(seq) {
            return Err(Error::new(
                self.dir.path(),
                Kind::UnknownSeq { requested: seq },
            ));
        }
        let mut raw = Vec::new();
        codec::encode(&mut raw, &seq)
            .map_err(|err| Error::new(self.dir.path(), Kind::Encode(err)))?;
        let new = self.write(TRUNCATE, 0, raw)?;
        self.seqs.truncate_after(seq);
        self.seqs.push(new);
        Ok(new)
    }

    pub(crate) fn can_return_to(&self, seq: u64) -> bool {
        seq == self.base.map_or(0, |base| base.seq) || self.seqs.contains(seq)
    }

    fn write(&mut self, kind: u8, head_len: usize, raw: Vec<u8>) -> Result<u64> {
        let seq = self.next_seq()?;
        let pack = |kind, seq, head_len, raw| {
            PackedFrame::pack(kind, seq, head_len, raw, CompressionEffort::Save)
                .map_err(|kind| Error::new(self.dir.path(), kind))
        };
        let mut frames = Vec::new();
        if sabotage::is_on(Sabotage::TwoFrames) && 0 < head_len && head_len < raw.len() {
            frames.push(pack(kind, seq, 0, raw[head_len..].to_vec())?);
            frames.push(pack(kind, seq + 1, head_len, raw[..head_len].to_vec())?);
        } else {
            frames.push(pack(kind, seq, head_len, raw)?);
        }
        let len = frames.iter().map(PackedFrame::len).sum();
        let is_early = sabotage::is_on(Sabotage::ReplicateBeforeDisk);
        if is_early {
            self.replicate_saves(&frames)?;
        }
        self.save_with_repair(len, |writer| {
            writer.put(&frames)?;
            writer.confirm()
        })?;
        if !is_early {
            self.replicate_saves(&frames)?;
        }
        Ok(self.acknowledge(frames))
    }

    /// Sends frames that are on disk to the replica, if there is one.
    fn replicate_saves(&mut self, frames: &[PackedFrame]) -> Result<()> {
        if !self.is_replicated() {
            return Ok(());
        }
        for kept in frames {
            let record = self.record(kept, None);
            self.replicate(|replica| replica.append(&record?))?;
        }
        Ok(())
    }

    /// Writes frames to disk. They count only after `confirm` and `acknowledge`.
    fn put(&mut self, frames: &[PackedFrame]) -> Result<()> {
        let journal = match self.journal.take() {
            Some(journal) => journal,
            None => {
                self.start_journal()?;
                return self.put(frames);
            }
        };
        for kept in frames {
            if let Err(err) = journal.check_room(&self.dir, kept) {
                self.journal = Some(journal);
                return Err(err);
            }
        }
        self.journal = Some(journal.put(&self.dir, frames)?);
        Ok(())
    }

    fn acknowledge(&mut self, frames: Vec<PackedFrame>) -> u64 {
        for kept in frames {
            self.seq = kept.frame.seq;
            self.seqs.push(self.seq);
            self.weight.add(&kept);
            self.saves.push(kept);
        }
        self.seq
    }

    /// Removes the files that are not needed. It does not repair first, because it may free the room for the repair.
    pub(crate) fn clean(&mut self, policy: RetentionPolicy) -> Result<Vec<RetainedFile>> {
        self.check_usable()?;
        self.epoch
            .confirm(&self.dir)
            .map_err(|err| self.fence(err))?;
        // A phase that could not be made durable may look like the newest state, but the acknowledged saves continue this base.
        let base = self.base.map_or(0, |base| base.seq);
        let plan = retention::plan_in(&self.dir, policy, base)?;
        let removed = plan.remove_from(&self.dir)?;
        for item in &removed {
            self.known_files.files.remove(&item.name);
        }
        Ok(removed)
    }

    pub(crate) fn put_blob(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.save_with_repair(bytes.len() as u64, |writer| {
            writer.epoch.confirm(&writer.dir)?;
            blob::put(&writer.dir, writer.epoch.number, name, bytes)?;
            writer.epoch.confirm(&writer.dir)
        })?;
        self.known_files.files.insert(blob::shown(name));
        self.replicate(|replica| replica.put_blob(name, bytes))
    }

    pub(crate) fn next_seq(&self) -> Result<u64> {
        self.seq.checked_add(1).ok_or_else(|| {
            let kind = Kind::TooLarge {
                what: "the history",
                bytes: u64::MAX,
                limit: u64::MAX,
            };
            Error::new(self.dir.path(), kind)
        })
    }

    /// Makes a whole file: temporary file, sync, rename, sync of the directory.
    pub(crate) fn write_file(&self, name: &str, bytes: &[u8]) -> Result<Box<dyn FileHandle>> {
        within("the file", bytes.len(), MAX_FILE as usize)
            .map_err(|kind| Error::new(self.dir.path().join(name), kind))?;
        let temp = self.dir.write_temp(self.epoch.number, bytes)?;
        temp.sync()?;
        self.give_name(temp, name)
    }

    /// Gives a durable file its name, and makes the name durable.
    pub(crate) fn give_name(&self, temp: Temp<'_>, name: &str) -> Result<Box<dyn FileHandle>> {
        let is_phase = name.starts_with("phase-");
        if !(is_phase && sabotage::is_on(Sabotage::RandomPhaseName)) {
            self.epoch.confirm(&self.dir)?;
        }
        if sabotage::is_on(Sabotage::ReuseName)
            || is_phase && sabotage::is_on(Sabotage::RandomPhaseName)
        {
            self.dir.remove(name)?;
        }
        temp.persist(&self.dir, name)?.ok_or_else(|| {
            // Another writer, which this writer did not know about, made the file.
            Error::new(
                self.dir.path(),
                Kind::Fenced {
                    own: self.epoch.number,
                    by: self.epoch.number,
                },
            )
        })
    }

    /// Fails if the written bytes must not be acknowledged: if a file has lost its name, or the store no longer belongs to this epoch.
    pub(crate) fn confirm(&self) -> Result<()> {
        if self.dir.disk().is_replaced() {
            return Err(Error::new(self.dir.path(), Kind::Replaced));
        }
        self.epoch.confirm(&self.dir)?;
        if let Some(journal) = &self.journal {
            self.dir.confirm_named(&journal.name, &*journal.file)?;
            for linked in self.saves.linked() {
                self.dir.confirm_named(&linked.name, &*linked.file)?;
            }
        }
        match self.base.zip(self.base_file.as_deref()) {
            Some((base, file)) => self.dir.confirm_named(&base.file_name(), file),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "raw_writer_tests.rs"]
mod tests;
