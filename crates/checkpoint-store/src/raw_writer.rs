//! The writer without types: heads and events are encoded bytes. `Writer` and
//! `Store` put types around it.

use std::path::Path;

use crate::blob;
use crate::dir::{Dir, MAX_FILE, write_all_at};
use crate::disk::Handle;
use crate::epoch;
use crate::error::{Error, Kind, Result};
use crate::frame::{DELTA, Frame, TRUNCATE};
use crate::id::PhaseId;
use crate::image::{Image, encode_frame};
use crate::load::{self, Entry, Index, Loaded};
use crate::lock::Lock;
use crate::meta::{Base, FileMeta, Meta};
use crate::name::{self, FileName};
use crate::options::Options;
use crate::replay::{MAX_STATE, State};
use crate::sabotage::{self, Sabotage};

const QUARANTINE: &str = "quarantine";
/// How many taken phase numbers are passed over. A fenced writer leaves at most one behind.
const TAKEN: u64 = 64;

/// Holds the lock and an epoch of a store. Dropping it releases the lock; there is
/// nothing to flush, because every acknowledged save is on disk.
#[derive(Debug)]
pub(crate) struct RawWriter {
    dir: Dir,
    _lock: Lock,
    options: Options,
    epoch: u64,
    seq: u64,
    base: Option<Base>,
    /// The saves after the base that can be returned to.
    seqs: Vec<u64>,
    /// Made with the first save after an open or a seal, so that idle stores stay small.
    journal: Option<Journal>,
    /// At least the size of the events that a load would return.
    event_bytes: u64,
    broken: Option<Broken>,
}

#[derive(Debug)]
struct Journal {
    file: Box<dyn Handle>,
    name: String,
    salt: u64,
    end: u64,
}

/// Why no later call can succeed.
#[derive(Debug, Clone)]
enum Broken {
    Failed(String),
    Fenced { by: u64 },
    Vanished,
}

impl RawWriter {
    pub(crate) fn open(path: &Path, options: Options) -> Result<(Self, Loaded)> {
        let dir = if options.create {
            Dir::create(path)
        } else {
            Dir::open(path)
        }?;
        Self::open_on(dir, options)
    }

    pub(crate) fn open_on(dir: Dir, options: Options) -> Result<(Self, Loaded)> {
        let lock = Lock::take(&dir)?;
        // A store that this program cannot read is left as it is.
        let before = Index::read(&dir, Some(&options))?;
        let epoch = epoch::take(&dir, before.highest_epoch())?;
        // From here on an older writer acknowledges nothing more, so the scan sees all it did.
        let index = match sabotage::is_on(Sabotage::ScanBeforeCreate) {
            true => before,
            false => Index::read(&dir, Some(&options))?,
        };
        let entries = index.entries.clone();
        let mut loaded = load::newest(&dir, index)?;
        let mut writer = Self {
            _lock: lock,
            options,
            epoch,
            seq: loaded.seq,
            base: loaded.base,
            seqs: loaded.seqs.clone(),
            journal: None,
            event_bytes: loaded.state.event_bytes(),
            broken: None,
            dir,
        };
        if let Some((_, bytes, frames)) = &loaded.journal
            && !frames.is_empty()
        {
            // The good frames go to a file of this epoch. The old one is never
            // appended to, so no torn tail ever stands before an acknowledged save.
            writer.journal = Some(writer.start_journal(bytes, frames)?);
        }
        writer.tidy(&mut loaded, &entries)?;
        Ok((writer, loaded))
    }

    /// Removes and sets aside what the loaded state no longer needs. Nothing that is
    /// removed here held the only copy of anything.
    fn tidy(&self, loaded: &mut Loaded, entries: &[Entry]) -> Result<()> {
        for skipped in &loaded.report.skipped {
            let aside = self.dir.sub(QUARANTINE, true)?;
            let name = format!("{}.{:08x}", skipped.file, self.epoch);
            if self.dir.rename_new(&skipped.file, &aside, &name)? {
                loaded.report.set_aside.push(format!("{QUARANTINE}/{name}"));
            }
        }
        for name in self.dir.own()? {
            if matches!(name, FileName::Temp { epoch, .. } if epoch < self.epoch) {
                self.dir.remove(&name.to_string())?;
                loaded.report.removed_temps += 1;
            }
        }
        // The journal that was carried over stays as the good generation before; those
        // before it say nothing that both of these do not.
        if let Some((used, ..)) = &loaded.journal
            && self.journal.is_some()
            && loaded.report.is_sound()
        {
            for old in entries {
                if old.meta.phase.is_none()
                    && old.meta.base == used.meta.base
                    && old.meta.epoch < used.meta.epoch
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
        self.epoch
    }

    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// Saves a head and events in one frame: one write, one sync.
    pub(crate) fn append(&mut self, raw: Vec<u8>, head_len: usize) -> Result<u64> {
        self.usable()?;
        let events = (raw.len() - head_len) as u64;
        let limit = MAX_STATE - crate::frame::MAX_RAW as u64;
        let bytes = self.event_bytes + events;
        if bytes > limit {
            let kind = Kind::TooLarge {
                what: "the history",
                bytes,
                limit,
            };
            return Err(Error::new(self.dir.path(), kind));
        }
        let seq = self.write(DELTA, head_len, raw)?;
        self.event_bytes += events;
        Ok(seq)
    }

    /// Returns to the state of an earlier save, by a frame that says so.
    pub(crate) fn truncate_to(&mut self, seq: u64) -> Result<u64> {
        self.usable()?;
        let base = self.base.map_or(0, |base| base.seq);
        if seq != base && self.seqs.binary_search(&seq).is_err() {
            return Err(Error::new(self.dir.path(), Kind::UnknownSeq { asked: seq }));
        }
        let mut raw = Vec::new();
        crate::codec::encode(&mut raw, &seq)
            .map_err(|err| Error::new(self.dir.path(), Kind::Encode(err)))?;
        let new = self.write(TRUNCATE, 0, raw)?;
        self.seqs.retain(|&kept| kept <= seq || kept == new);
        Ok(new)
    }

    fn write(&mut self, kind: u8, head_len: usize, raw: Vec<u8>) -> Result<u64> {
        let seq = self.put(kind, head_len, raw)?;
        self.acknowledge(seq)
    }

    /// Puts a frame on disk. It counts only when it is acknowledged.
    fn put(&mut self, kind: u8, head_len: usize, raw: Vec<u8>) -> Result<u64> {
        let seq = self.next_seq()?;
        let journal = match self.journal.take() {
            Some(journal) => journal,
            None => self
                .start_journal(&[], &[])
                .map_err(|err| self.broke(err))?,
        };
        let journal = self.journal.insert(journal);
        let path = || self.dir.path().join(&journal.name);
        let mut frame = Vec::new();
        encode_frame(&mut frame, journal.salt, kind, seq, head_len, raw)
            .map_err(|kind| Error::new(path(), kind))?;
        let end = journal.end + frame.len() as u64;
        if end > MAX_FILE {
            let kind = Kind::TooLarge {
                what: "the journal",
                bytes: end,
                limit: MAX_FILE,
            };
            return Err(Error::new(path(), kind));
        }
        let written = write_all_at(&*journal.file, &frame, journal.end)
            .map_err(|err| Error::io(path(), "write", err))
            .and_then(|()| sync_data(&*journal.file).map_err(|err| Error::io(path(), "sync", err)));
        journal.end = end;
        written.map(|()| seq).map_err(|err| self.broke(err))
    }

    fn acknowledge(&mut self, seq: u64) -> Result<u64> {
        self.confirm().map_err(|err| self.broke(err))?;
        self.seq = seq;
        self.seqs.push(seq);
        Ok(seq)
    }

    /// Seals the state with `head` and all its events in a file of its own.
    pub(crate) fn save_phase(&mut self, phase: &str, head: Vec<u8>, meta: Meta) -> Result<PhaseId> {
        self.usable()?;
        if let Some(reason) = name::reject(phase) {
            let kind = Kind::Name {
                what: "phase name",
                name: phase.into(),
                reason,
            };
            return Err(Error::new(self.dir.path(), kind));
        }
        // What can fail without a trace comes first; later failures stop this writer.
        let state = State {
            head: Some(head),
            events: self.events()?,
        };
        let event_bytes = state.event_bytes();
        let seq = self.free_phase()?;
        let mut provenance = FileMeta::new(&self.options, self.epoch, self.dir.disk());
        provenance.phase = Some(phase.into());
        provenance.seq = seq;
        provenance.base = self.base;
        provenance.meta = meta;
        let base = Base {
            id: provenance.id,
            seq,
        };
        let file_name = FileName::Phase { seq }.to_string();
        let bytes = Image::new(&provenance, 0, self.dir.disk().random())
            .and_then(|image| image.seal(state))
            .map_err(|kind| Error::new(self.dir.path().join(&file_name), kind))?;
        if sabotage::is_on(Sabotage::DropProgressEarly)
            && let Some(journal) = &self.journal
        {
            self.dir.remove(&journal.name)?;
        }
        self.commit(&file_name, &bytes)
            .map_err(|err| self.broke(err))?;
        self.confirm().map_err(|err| self.broke(err))?;
        self.seq = seq;
        self.base = Some(base);
        self.seqs.clear();
        self.journal = None;
        self.event_bytes = event_bytes;
        Ok(base.id)
    }

    /// Removes all phases but the newest `keep`.
    pub(crate) fn keep_phases(&self, keep: usize) -> Result<()> {
        let mut seqs: Vec<u64> = Vec::new();
        for name in self.dir.own()? {
            if let FileName::Phase { seq } = name {
                seqs.push(seq);
            }
        }
        seqs.sort_unstable();
        let old = seqs.len().saturating_sub(keep);
        seqs[..old]
            .iter()
            .try_for_each(|&seq| self.dir.remove(&FileName::Phase { seq }.to_string()))
    }

    pub(crate) fn put_blob(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.usable()?;
        epoch::confirm(&self.dir, self.epoch)?;
        blob::put(&self.dir, self.epoch, name, bytes)?;
        epoch::confirm(&self.dir, self.epoch)
    }

    /// Returns the events of the current state, read back from disk.
    fn events(&self) -> Result<Vec<Vec<u8>>> {
        if self.event_bytes == 0 {
            return Ok(Vec::new());
        }
        epoch::confirm(&self.dir, self.epoch)?;
        let index = Index::read(&self.dir, Some(&self.options))?;
        let loaded = load::newest(&self.dir, index)?;
        if loaded.seq == self.seq && loaded.base == self.base {
            return Ok(loaded.state.events);
        }
        let reason = match loaded.report.skipped.first() {
            Some(skipped) => skipped.to_string(),
            None => format!("save {} is no longer found", self.seq),
        };
        Err(Error::new(self.dir.path(), Kind::Corrupt { reason }))
    }

    fn free_phase(&self) -> Result<u64> {
        let mut seq = self.next_seq()?;
        for _ in 0..TAKEN {
            if !self.dir.exists(&FileName::Phase { seq }.to_string())? {
                break;
            }
            seq = seq.saturating_add(1);
        }
        Ok(seq)
    }

    fn next_seq(&self) -> Result<u64> {
        self.seq.checked_add(1).ok_or_else(|| {
            let kind = Kind::TooLarge {
                what: "the history",
                bytes: u64::MAX,
                limit: u64::MAX,
            };
            Error::new(self.dir.path(), kind)
        })
    }

    /// Creates this epoch's journal with the frames of the one before.
    fn start_journal(&self, file: &[u8], frames: &[Frame]) -> Result<Journal> {
        let mut provenance = FileMeta::new(&self.options, self.epoch, self.dir.disk());
        provenance.seq = self.base.map_or(0, |base| base.seq);
        provenance.base = self.base;
        provenance.carried = frames.last().map_or(0, |frame| frame.seq);
        let name = FileName::Progress {
            epoch: self.epoch,
            base: provenance.seq,
        }
        .to_string();
        let mut image = Image::new(&provenance, provenance.seq, self.dir.disk().random())
            .map_err(|kind| Error::new(self.dir.path().join(&name), kind))?;
        for frame in frames {
            image.carry(frame, file);
        }
        let file = self.commit(&name, &image.bytes)?;
        Ok(Journal {
            file,
            name,
            salt: image.salt,
            end: image.bytes.len() as u64,
        })
    }

    /// Gives a whole file its name: temporary file, sync, rename, sync of the directory.
    fn commit(&self, name: &str, bytes: &[u8]) -> Result<Box<dyn Handle>> {
        let limit = MAX_FILE;
        let len = bytes.len() as u64;
        if len > limit {
            let kind = Kind::TooLarge {
                what: "the file",
                bytes: len,
                limit,
            };
            return Err(Error::new(self.dir.path().join(name), kind));
        }
        let temp = self.dir.write_temp(self.epoch, bytes)?;
        temp.sync()?;
        self.confirm_epoch(name)?;
        if sabotage::is_on(Sabotage::ReuseName) || sabotage::is_on(Sabotage::RandomPhaseName) {
            self.dir.remove(name)?;
        }
        temp.persist(&self.dir, name)?.ok_or_else(|| {
            // Only a writer that this one does not know of can have made it.
            Error::new(
                self.dir.path(),
                Kind::Fenced {
                    own: self.epoch,
                    by: self.epoch,
                },
            )
        })
    }

    fn confirm_epoch(&self, name: &str) -> Result<()> {
        if sabotage::is_on(Sabotage::RandomPhaseName) && name.starts_with("phase-") {
            return Ok(());
        }
        epoch::confirm(&self.dir, self.epoch)
    }

    /// Looks whether what was written may be acknowledged: the file still has a name
    /// and the store still belongs to this epoch.
    fn confirm(&self) -> Result<()> {
        epoch::confirm(&self.dir, self.epoch)?;
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        let stat = journal.file.stat();
        match stat
            .map_err(|err| self.dir.error(&journal.name, "inspect", err))?
            .links
        {
            0 if !sabotage::is_on(Sabotage::SkipLinkCheck) => Err(Error::new(
                self.dir.path().join(&journal.name),
                Kind::Vanished,
            )),
            _ => Ok(()),
        }
    }

    /// Makes a failure final: after a failed sync nobody knows what is on disk, and a
    /// second try on the same file would lie.
    fn broke(&mut self, err: Error) -> Error {
        self.broken = Some(match err.kind() {
            Kind::Fenced { by, .. } => Broken::Fenced { by: *by },
            Kind::Vanished => Broken::Vanished,
            _ => Broken::Failed(err.to_string()),
        });
        err
    }

    fn usable(&self) -> Result<()> {
        let kind = match self.broken.clone() {
            None => return Ok(()),
            Some(Broken::Failed(first)) => Kind::Poisoned { first },
            Some(Broken::Fenced { by }) => Kind::Fenced {
                own: self.epoch,
                by,
            },
            Some(Broken::Vanished) => Kind::Vanished,
        };
        Err(Error::new(self.dir.path(), kind))
    }
}

fn sync_data(file: &dyn Handle) -> std::io::Result<()> {
    match file.sync_data() {
        Err(_) if sabotage::is_on(Sabotage::RetrySync) => file.sync_data(),
        synced => synced,
    }
}

#[cfg(test)]
#[path = "raw_writer_tests.rs"]
mod tests;
