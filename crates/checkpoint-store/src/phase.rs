//! Writes a whole state to its own file, a phase, which never changes.

use crate::codec::CompressionEffort;
use crate::compact::JournalWeight;
use crate::dir::{MAX_FILE, read_up_to};
use crate::disk::FileHandle;
use crate::error::{Error, Kind, Result};
use crate::file_builder::{FileBuilder, read_meta, read_phase};
use crate::frame::DELTA;
use crate::id::PhaseId;
use crate::id::Seqs;
use crate::meta::{Base, FileMeta, ParentSave, PhaseMeta};
use crate::name::{self, FileName};
use crate::raw_writer::RawWriter;
use crate::replay::{Events, Needed, Replay, State};
use crate::sabotage::{self, Sabotage};
use crate::saves::{PackedFrame, Saves};

/// The largest number of taken phase numbers that a writer skips. A fenced writer leaves at most one.
pub(crate) const MAX_TAKEN_PHASES: u64 = 64;

impl RawWriter {
    /// Writes `head` and all events to a phase file.
    pub(crate) fn save_phase(
        &mut self,
        phase: &str,
        head: Vec<u8>,
        meta: PhaseMeta,
    ) -> Result<PhaseId> {
        if let Err(reason) = name::check_name(phase) {
            let kind = Kind::Name {
                what: "phase name",
                name: phase.into(),
                reason,
            };
            return Err(Error::new(self.dir.path(), kind));
        }
        self.prepare_save(0)?;
        let state = State {
            head: Some(head),
            events: self.events()?,
            ..State::default()
        };
        self.save_state(phase, state, meta, None)
    }

    /// Writes a whole state to a phase file; from then on, it is the state of the store.
    pub(crate) fn save_state(
        &mut self,
        phase: &str,
        state: State,
        meta: PhaseMeta,
        parent: Option<ParentSave>,
    ) -> Result<PhaseId> {
        // The events are in the records before, so the record of the phase has only the head. The writer of a fork has no replica.
        let head = match self.is_replicated() {
            true => Some(self.packed_head(state.head.clone().unwrap_or_default())?),
            false => None,
        };
        let (metadata, file) = self.save_with_repair(0, |writer| {
            let mut metadata =
                FileMeta::new(&writer.options, writer.epoch.number, writer.dir.disk());
            metadata.phase = Some(phase.into());
            metadata.base = writer.base;
            metadata.parent = parent;
            metadata.meta = meta.clone();
            writer.write_phase(metadata, &state)
        })?;
        if let Some(head) = head {
            let record = self.record(&head, Some(metadata.clone()));
            self.replicate(|replica| replica.append(&record?))?;
        }
        self.continue_phase(&metadata, file, state.event_bytes());
        Ok(metadata.id)
    }

    /// Packs the head of a phase as the frame after the newest save.
    fn packed_head(&self, head: Vec<u8>) -> Result<PackedFrame> {
        let (seq, len) = (self.next_seq()?, head.len());
        PackedFrame::pack(DELTA, seq, len, head, CompressionEffort::Save)
            .map_err(|kind| Error::new(self.dir.path(), kind))
    }

    /// Continues after a phase, which has all saves before it.
    pub(crate) fn continue_phase(
        &mut self,
        metadata: &FileMeta,
        file: Box<dyn FileHandle>,
        event_bytes: u64,
    ) {
        let base = Base {
            id: metadata.id,
            seq: metadata.seq,
        };
        self.event_bytes = event_bytes;
        self.seq = base.seq;
        self.base = Some(base);
        self.base_file = Some(file);
        self.seqs = Seqs::default();
        self.saves = Saves::new(self.dir.disk());
        self.weight = JournalWeight::default();
        self.journal = None;
        self.known_files.files.insert(base.file_name());
    }

    fn write_phase(
        &mut self,
        mut metadata: FileMeta,
        state: &State,
    ) -> Result<(FileMeta, Box<dyn FileHandle>)> {
        metadata.seq = self.free_phase()?;
        let file = self.write_phase_file(&metadata, state)?;
        Ok((metadata, file))
    }

    /// Writes a phase whose metadata is complete.
    pub(crate) fn write_phase_file(
        &self,
        metadata: &FileMeta,
        state: &State,
    ) -> Result<Box<dyn FileHandle>> {
        let name = FileName::Phase { seq: metadata.seq }.to_string();
        let bytes = FileBuilder::new(metadata, 0, self.dir.disk().random())
            .and_then(|image| image.write_phase(state))
            .map_err(|kind| Error::new(self.dir.path().join(&name), kind))?;
        if sabotage::is_on(Sabotage::DropProgressEarly)
            && let Some(journal) = &self.journal
        {
            self.dir.remove(&journal.name)?;
        }
        let file = self.write_file(&name, &bytes)?;
        if !sabotage::is_on(Sabotage::RandomPhaseName) {
            self.epoch.confirm(&self.dir)?;
        }
        self.dir.confirm_named(&name, &*file)?;
        Ok(file)
    }

    /// Removes all phases except the newest `keep` and the one of the current state.
    pub(crate) fn keep_phases(&mut self, keep: usize) -> Result<()> {
        let mut seqs: Vec<u64> = Vec::new();
        for name in self.dir.own()? {
            if let FileName::Phase { seq } = name {
                seqs.push(seq);
            }
        }
        seqs.sort_unstable();
        let old = seqs.len().saturating_sub(keep);
        let base = self.base.map_or(0, |base| base.seq);
        let old = seqs[..old].iter().filter(|seq| **seq != base);
        old.copied().try_for_each(|seq| {
            let name = FileName::Phase { seq }.to_string();
            self.known_files.files.remove(&name);
            self.dir.remove(&name)
        })
    }

    /// Returns the events of the current state: those of the base, read from disk, and those of the saves since then.
    pub(crate) fn events(&self) -> Result<Vec<Events>> {
        if self.event_bytes == 0 {
            return Ok(Vec::new());
        }
        let corrupt = |fault| Error::fault(self.dir.path(), fault);
        let base = match &self.base_file {
            None => State::default(),
            Some(file) => {
                let bytes = read_up_to(&**file, MAX_FILE)
                    .map_err(|err| self.dir.error("", "read the base phase", err))?;
                let meta = read_meta(&bytes).map_err(corrupt)?;
                let state = read_phase(&bytes, Needed::Everything).map_err(corrupt)?;
                let (from, to) = (meta.schema_version, self.options.schema_version);
                let migrations = &self.options.migrations;
                migrations
                    .state(state, from, to)
                    .map_err(|kind| Error::new(self.dir.path(), kind))?
            }
        };
        let mut replay = Replay::new(self.base.map_or(0, |base| base.seq));
        for kept in self.saves.all(&self.dir) {
            let kept = kept?;
            let raw = kept.unpack().map_err(corrupt)?;
            replay.step(&kept.frame, raw).map_err(corrupt)?;
        }
        Ok(base.then(replay.state()).events)
    }

    pub(crate) fn free_phase(&self) -> Result<u64> {
        let mut seq = self.next_seq()?;
        for _ in 0..MAX_TAKEN_PHASES {
            if !self.dir.exists(&FileName::Phase { seq }.to_string())? {
                break;
            }
            seq = seq.saturating_add(1);
        }
        Ok(seq)
    }
}
