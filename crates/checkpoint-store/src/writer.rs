//! The writer with types: it encodes and decodes, and `raw_writer.rs` does everything else.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec;
#[cfg(any(test, feature = "test-util"))]
use crate::dir::Dir;
use crate::error::{Error, Kind, Result};
use crate::fold::Folded;
use crate::id::{PhaseId, Seq};
use crate::load;
use crate::meta::PhaseMeta;
use crate::options::Options;
use crate::raw_writer::RawWriter;
use crate::repair::Repaired;
use crate::replay::{self, Events};
use crate::replica::Replica;
use crate::report::LoadReport;
use crate::retention::{RetainedFile, RetentionPolicy};

/// A saved state, and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loaded<H, E> {
    /// The head of the newest save; `None` before the first save.
    pub head: Option<H>,
    /// All events that were saved and not undone, oldest first, of all phases.
    pub events: Vec<E>,
    /// The number of the newest save.
    pub seq: Seq,
    /// The origin of the state, and the damage.
    pub report: LoadReport,
}

impl<H: DeserializeOwned, E: DeserializeOwned + Send> Loaded<H, E> {
    pub(crate) fn decode(path: &Path, raw: load::Loaded) -> Result<Self> {
        let failed = |what| {
            let path = path.join(raw.report.used.as_deref().unwrap_or_default());
            move |reason| Error::new(path, Kind::Decode { what, reason })
        };
        let head = raw.state.head.as_deref().map(codec::decode).transpose();
        let bytes = raw.state.event_bytes() as usize;
        let parts = replay::in_parts(&raw.state.events, bytes, |part| {
            let mut events: Vec<E> = Vec::new();
            for mut row in part.iter().map(Events::bytes) {
                while !row.is_empty() {
                    codec::decode_each(&mut row, |event| events.push(event))?;
                }
            }
            Ok::<_, String>(events)
        });
        let parts = parts.into_iter().collect::<Result<VecDeque<_>, _>>();
        let mut parts = parts.map_err(failed("an event"))?;
        let mut events = parts.pop_front().unwrap_or_default();
        parts.into_iter().for_each(|part| events.extend(part));
        let head = head.map_err(failed("the head"))?;
        Ok(Self {
            head,
            events,
            seq: Seq::new(raw.seq),
            report: raw.report,
        })
    }
}

/// Saves heads and events of one store. A store has at most one writer at a time.
///
/// A *head* is small, and each save writes the whole head. *Events* are only added, so the cost of a save depends on the new data, not on the
/// existing data. When a call returns, its save is on disk, and a crash at any later moment does not lose it.
///
/// If a write or a sync fails, or the files were removed, the writer repairs the store before the call returns: it takes the next epoch and writes
/// everything since the last phase to a new file. [`last_repair`](Self::last_repair) reports this. For a repair, the writer keeps the newest saves,
/// about 64 KiB, in memory, and reads the older ones from their journal, which it holds open. If the repair fails too, the call and every later call
/// fail. On a full disk the call fails, all earlier saves are intact, and the same save succeeds once there is room. A writer stays fenced once
/// another writer took its store over: open the store again to continue from the saves on disk.
///
/// On file systems where written zeros reserve room, the writer extends its journal by 128 KiB to 1 MiB of zeros at a time. So a number of saves
/// still succeed after other programs filled the disk.
///
/// Dropping the writer releases the lock and writes nothing.
#[derive(Debug)]
pub struct Writer<H, E> {
    raw: RawWriter,
    types: PhantomData<fn(&H, &E)>,
}

impl<H: Serialize + DeserializeOwned, E: Serialize + DeserializeOwned + Send> Writer<H, E> {
    /// Opens the store in the directory `dir` for writing, and loads its state.
    ///
    /// Takes the lock and the next epoch, which fences every older writer, even one that holds a lock on a deleted lock file. Moves damaged files to
    /// `quarantine/` and loads the state before the damage; check the report before you continue.
    ///
    /// # Errors
    /// [`is_locked`](Error::is_locked) if another writer is live, [`is_not_found`](Error::is_not_found) if the directory is missing and `create` is
    /// not set, [`is_unsupported_version`](Error::is_unsupported_version) if a newer program wrote it, [`is_corrupt`](Error::is_corrupt) if there are
    /// files but no valid state, and other errors if the directory is unsafe or the store holds other types.
    ///
    /// # Platform
    /// On Unix the directory must belong to the user, and no other user may write to it.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<(Self, Loaded<H, E>)> {
        Self::opened(RawWriter::open(dir.as_ref(), options)?)
    }

    /// Opens the store in a directory of any disk; error messages show `dir`.
    #[cfg(any(test, feature = "test-util"))]
    #[doc(hidden)]
    pub fn open_on(
        disk: Box<dyn crate::disk::Directory>,
        dir: &Path,
        options: Options,
    ) -> Result<(Self, Loaded<H, E>)> {
        Self::opened(RawWriter::open_on(Dir::on(disk, dir)?, options)?)
    }

    /// Opens the store like [`open`](Self::open), but does not decode its events. It unpacks them only to migrate the store, or if the store is damaged.
    ///
    /// So it does not notice an event whose checksum is right, and which nevertheless cannot be unpacked. A later phase does.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_head(dir: impl AsRef<Path>, options: Options) -> Result<(Self, Folded<H, ()>)> {
        let (raw, loaded) = RawWriter::open_head(dir.as_ref(), options)?;
        let head = Folded::without_events(raw.dir().path(), loaded)?;
        let types = PhantomData;
        Ok((Self { raw, types }, head))
    }

    /// Opens the store like [`open`](Self::open), and passes its events to `each` one at a time, as [`reader::fold`](crate::reader::fold) does.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_folded<S>(
        dir: impl AsRef<Path>,
        options: Options,
        start: S,
        each: impl FnMut(S, E) -> S,
    ) -> Result<(Self, Folded<H, S>)> {
        let (raw, loaded) = RawWriter::open(dir.as_ref(), options)?;
        let folded = Folded::decode(raw.dir().path(), loaded, start, each)?;
        let types = PhantomData;
        Ok((Self { raw, types }, folded))
    }

    fn opened((raw, loaded): (RawWriter, load::Loaded)) -> Result<(Self, Loaded<H, E>)> {
        let loaded = Loaded::decode(raw.dir().path(), loaded)?;
        let types = PhantomData;
        Ok((Self { raw, types }, loaded))
    }

    /// Saves `head` and the events since the last save: one write, one sync.
    ///
    /// # Errors
    /// A value that cannot be encoded, or is too large, fails before anything is written, and the writer stays usable.
    /// [`is_fenced`](Error::is_fenced) if a newer writer took over, [`is_full`](Error::is_full) if the disk has no room for it,
    /// [`is_poisoned`](Error::is_poisoned) if the save could not be written to a new file either,
    /// [`is_unreplicated`](Error::is_unreplicated) if the replica did not confirm it.
    pub fn append(&mut self, head: &H, events: &[E]) -> Result<Seq> {
        let (raw, head_len) = encode_save(self.path(), head, events)?;
        self.raw.append(raw, head_len).map(Seq::new)
    }

    /// Returns to the state of the save `seq`. Later saves stay on disk, but are no part of the state any more. The undo is itself a save with its
    /// own number.
    ///
    /// A caller can return at most to the last finished phase, or to [`Seq::ZERO`] if there is none.
    ///
    /// # Errors
    /// As [`append`](Self::append); also if there is no such save.
    pub fn truncate_to(&mut self, seq: Seq) -> Result<Seq> {
        self.raw.truncate_to(seq.get()).map(Seq::new)
    }

    /// Writes `head` and all events so far as a finished phase, in a file that never changes. The cost is proportional to the whole state.
    ///
    /// The journal with the earlier saves stays on disk, as a fallback if the phase is damaged. Several phases may have the same name; the older ones
    /// stay readable.
    ///
    /// # Errors
    /// As [`append`](Self::append); also for a name that is not 1 to 64 letters, digits, `.`, `_` and `-`, and if the history on disk was damaged
    /// since it was loaded.
    pub fn save_phase(&mut self, phase: &str, head: &H, meta: PhaseMeta) -> Result<PhaseId> {
        let (head, _) = encode_save::<H, E>(self.path(), head, &[])?;
        self.raw.save_phase(phase, head, meta)
    }

    /// Stores bytes permanently under a name in `blobs/`. To store the same bytes again is no error.
    ///
    /// # Errors
    /// If a blob with this name has other bytes, or if the name is not allowed. The rules are the same as for the name of a phase. If the replica did
    /// not confirm the blob, as for [`append`](Self::append).
    pub fn put_blob(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.raw.put_blob(name, bytes)
    }

    /// Sends every later save, undo, phase and blob to `replica` before it is acknowledged. First sends all blobs of the store.
    ///
    /// The replica must end at the newest save of this store. There are three ways to begin: with an empty store and an empty replica; with a store
    /// that [`rebuild`](crate::rebuild()) made from the replica; or with a replica that has a copy of the store's directory, for example of a fork.
    ///
    /// The store may have one save more than its replica if the program was killed during a save, or if the replica refused the save. Only the
    /// numbers are compared. So never set a replica in a directory whose last save another writer has replaced in the replica.
    ///
    /// # Errors
    /// [`is_unreplicated`](Error::is_unreplicated) if the replica ends at another save, or did not confirm a blob, and
    /// [`is_fenced`](Error::is_fenced) if another writer continues it. After an error, the writer never saves again.
    pub fn set_replica(&mut self, replica: Box<dyn Replica>) -> Result<()> {
        self.raw.set_replica(replica)
    }

    /// Removes old phases and damaged files that were set aside, and returns them. The newest valid state and all files that it needs stay. See
    /// [`plan`](crate::retention::plan) for a preview.
    ///
    /// This needs no room on disk, so it can free the room that a writer needs after [`is_full`](Error::is_full).
    ///
    /// # Errors
    /// As [`reader::load`](crate::reader::load); if a file cannot be removed; and
    /// [`is_fenced`](Error::is_fenced) and [`is_poisoned`](Error::is_poisoned) as for
    /// [`append`](Self::append).
    pub fn clean(&mut self, policy: RetentionPolicy) -> Result<Vec<RetainedFile>> {
        self.raw.clean(policy)
    }

    /// Returns the last repair of this writer, if there was one.
    pub fn last_repair(&self) -> Option<&Repaired> {
        self.raw.last_repair()
    }

    /// Returns the fencing token of this writer: its epoch, which is lower than that of every later writer of the store. Another system can refuse
    /// requests with a lower token than the last one. A repair raises it.
    pub fn fencing_token(&self) -> u64 {
        self.raw.epoch()
    }

    /// Returns the number of the newest acknowledged save.
    pub fn seq(&self) -> Seq {
        Seq::new(self.raw.seq())
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        self.raw.dir().path()
    }
}

/// Encodes a save; also returns the length of its head.
pub(crate) fn encode_save<H: Serialize, E: Serialize>(
    path: &Path,
    head: &H,
    events: &[E],
) -> Result<(Vec<u8>, usize)> {
    let cannot = |err| Error::new(path, Kind::Encode(err));
    let mut raw = Vec::new();
    codec::encode(&mut raw, head).map_err(cannot)?;
    let head_len = raw.len();
    if !events.is_empty() {
        codec::encode(&mut raw, events).map_err(cannot)?;
    }
    Ok((raw, head_len))
}
