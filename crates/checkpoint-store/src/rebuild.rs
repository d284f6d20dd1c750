//! Makes a store from the records of a replica, or adds records to one.
//!
//! Each step makes a whole file: the saves between two phases become one journal, and each phase its own file. So after a crash or an error, the store
//! has the first records, up to one of these files. The files have the epoch and the schema version of the program that rebuilds; the numbers, the ids
//! and the times are those of the records.

use std::path::{Path, PathBuf};

use crate::dir::Dir;
use crate::error::{Error, Kind, Result};
use crate::frame::TRUNCATE;
use crate::id::Seq;
use crate::load::{LoadPurpose, check_schema};
use crate::meta::FileMeta;
use crate::name;
use crate::options::Options;
use crate::phase::MAX_TAKEN_PHASES;
use crate::raw_writer::{RawWriter, TakenStore};
use crate::replay::{Needed, State};
use crate::replica::Record;
use crate::sabotage::{self, Sabotage};
use crate::saves::PackedFrame;

/// A rebuild writes a journal when the saves for it take this many times the stride of the disk, which is 1 MiB on a real disk.
const MAX_PENDING: u64 = 64;

/// Adds records to the store in `dir`, or makes it, and returns the number of its newest save. Later loads return the state, the phases and the earlier
/// saves of the writer that made the records, each with its number.
///
/// The first record must be the one after the newest save of the store: for a new store, the first record of all. Add records only to a store that
/// was rebuilt from the same replica, or to a copy of the store with which the replica began. Blobs are no records: store them with
/// [`Writer::put_blob`](crate::Writer::put_blob).
///
/// Takes the lock and the next epoch of the store. The cost is proportional to the store, to the records, and to the states of their phases. The
/// records between two phases are in memory, up to about 64 MiB of them at a time.
///
/// # Errors
/// As [`Writer::open`](crate::Writer::open) for `dir`; also if the store is damaged, and its files then stay as they are. An error of `records` is
/// passed on. If a record is missing or repeated, of another schema, or impossible after the records before it, the error names the record;
/// [`is_corrupt`](Error::is_corrupt) and [`is_unsupported_version`](Error::is_unsupported_version) as for [`Record::parse`].
///
/// After an error, and after a crash, the store has none of the records, or only the first ones. Its number from
/// [`reader::load`](crate::reader::load) shows which record is the next one.
///
/// # Examples
/// ```
/// # let root = tempfile::tempdir()?;
/// # let dir = root.path().join("store");
/// use checkpoint_store::{Options, Record, Seq, rebuild};
///
/// let log: Vec<Vec<u8>> = Vec::new(); // read from a file or a server
/// let records = log.into_iter().map(|bytes| Record::parse(bytes, "log"));
/// assert_eq!(rebuild(dir, &Options::default(), records)?, Seq::ZERO);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn rebuild<E: From<Error>>(
    dir: impl AsRef<Path>,
    options: &Options,
    records: impl IntoIterator<Item = Result<Record, E>>,
) -> Result<Seq, E> {
    add(
        RawWriter::directory(dir.as_ref(), options)?,
        options,
        records,
    )
}

/// Does the same as [`rebuild`], in a directory of any disk; error messages show `dir`.
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub fn rebuild_on<E: From<Error>>(
    disk: Box<dyn crate::disk::Directory>,
    dir: &Path,
    options: &Options,
    records: impl IntoIterator<Item = Result<Record, E>>,
) -> Result<Seq, E> {
    add(Dir::on(disk, dir)?, options, records)
}

fn add<E: From<Error>>(
    dir: Dir,
    options: &Options,
    records: impl IntoIterator<Item = Result<Record, E>>,
) -> Result<Seq, E> {
    // A damaged store would continue from an older state.
    let options = Options {
        strict: true,
        ..options.clone()
    };
    let (mut writer, taken) = RawWriter::take_over(dir, options, Needed::Everything)?;
    let mut pending = Pending {
        taken: Some(taken),
        ..Pending::default()
    };
    for record in records {
        let record = record?;
        let kept = writer.accept(&record)?;
        match &record.meta.phase {
            None => pending.push(kept, &record, &mut writer)?,
            Some(_) => {
                pending.write(&mut writer)?;
                writer.add_phase(&record, &kept)?;
            }
        }
    }
    pending.write(&mut writer)?;
    Ok(Seq::new(writer.seq))
}

/// The saves since the last phase that are not in a journal yet.
#[derive(Debug, Default)]
struct Pending {
    /// The store before the first record, until its journal is continued.
    taken: Option<TakenStore>,
    saves: Vec<PackedFrame>,
    bytes: u64,
}

impl Pending {
    fn push(&mut self, kept: PackedFrame, record: &Record, writer: &mut RawWriter) -> Result<()> {
        self.bytes += kept.len();
        self.saves.push(kept);
        if self.bytes > MAX_PENDING * writer.dir.disk().stride() {
            self.write(writer)?;
            if let Some(oldest) = record.meta.oldest {
                // The writer of the records dropped these heads too.
                writer.drop_heads_before(oldest)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, writer: &mut RawWriter) -> Result<()> {
        self.bytes = 0;
        let saves = std::mem::take(&mut self.saves);
        match self.taken.take() {
            None => writer.extend_journal(saves),
            Some(mut taken) => {
                let may_link = taken.may_link();
                writer.continue_journal(&taken.loaded.journal, may_link, saves)?;
                writer.remove_unneeded(&mut taken)
            }
        }
    }
}

/// Returns the name of a record in errors.
fn name_of(record: &Record) -> PathBuf {
    format!("record {}", record.seq()).into()
}

impl RawWriter {
    /// Counts a record as the newest save, if it can follow the saves before it. Returns its save in the schema version of this program. A phase is
    /// counted by `add_phase`.
    fn accept(&mut self, record: &Record) -> Result<PackedFrame> {
        let wrong = |kind| Error::new(name_of(record), kind);
        let bad = |reason: &str| {
            let reason = reason.into();
            Err(wrong(Kind::BadRecord { reason }))
        };
        check_schema(&record.meta, LoadPurpose::Writer(&self.options)).map_err(wrong)?;
        let (previous, newest) = (record.previous, self.seq);
        if previous != newest && !sabotage::is_on(Sabotage::RebuildSkipsGap) {
            return Err(wrong(Kind::OutOfOrder { previous, newest }));
        }
        if record.meta.base != self.base {
            return bad("it continues another phase than the records before it");
        }
        let (from, to) = (record.meta.schema_version, self.options.schema_version);
        let migrations = &self.options.migrations;
        let kept = migrations.save(record.packed(), from, to).map_err(wrong)?;
        if record.meta.phase.is_some() {
            return Ok(kept);
        }
        if kept.frame.kind == TRUNCATE {
            let to = kept
                .undo_to()
                .map_err(|fault| Error::record(&name_of(record), fault))?;
            if !self.can_return_to(to) {
                return bad("it is an undo to an unknown save");
            }
            self.seqs.truncate_after(to);
        } else {
            let events = kept.frame.raw_len - kept.frame.head_len;
            self.event_bytes = self.event_bytes_with(events.into()).map_err(wrong)?;
        }
        self.seq = kept.frame.seq;
        self.seqs.push(self.seq);
        Ok(kept)
    }

    /// Writes the phase of a record whose head is `kept`. All saves before it must be in the journal.
    fn add_phase(&mut self, record: &Record, kept: &PackedFrame) -> Result<()> {
        let fault = |fault| Error::record(&name_of(record), fault);
        let bad = |reason: &str| {
            let reason = reason.into();
            Err(Error::new(name_of(record), Kind::BadRecord { reason }))
        };
        let phase = record.meta.phase.as_deref().unwrap_or_default();
        if let Err(reason) = name::check_name(phase) {
            return bad(&format!("the name of its phase is not allowed: {reason}"));
        }
        if record.meta.seq - kept.frame.seq > MAX_TAKEN_PHASES {
            return bad("its phase skips more numbers than any writer does");
        }
        let metadata = FileMeta {
            epoch: self.epoch.number,
            oldest: None,
            schema_version: self.options.schema_version,
            min_reader: self.options.min_reader_version,
            ..record.meta.clone()
        };
        let state = State {
            head: Some(kept.unpack().map_err(fault)?),
            events: self.events()?,
            ..State::default()
        };
        let file = self.write_phase_file(&metadata, &state)?;
        self.continue_phase(&metadata, file, state.event_bytes());
        Ok(())
    }
}

#[cfg(test)]
#[path = "rebuild_tests.rs"]
mod tests;
