//! The consecutive journals of a writer. Each begins with all saves since the last phase, or with the needed part of them; no journal is held in
//! memory as a whole.

use std::sync::Arc;

use crate::chain::Continued;
use crate::compact::{Compaction, JournalWeight, KEPT_HEADS};
use crate::dir::{MAX_FILE, Temp};
use crate::disk::FileHandle;
use crate::error::{Error, Kind, Result, within};
use crate::file_builder::FileBuilder;
use crate::journal::Journal;
use crate::meta::FileMeta;
use crate::name::FileName;
use crate::raw_writer::RawWriter;
use crate::sabotage::{self, Sabotage};
use crate::saves::PackedFrame;
use crate::saves::{JournalLocation, Saves};

/// Number of bytes to write at once.
const CHUNK: usize = 64 << 10;

impl RawWriter {
    /// Replaces the journal by one without old heads, once the old heads outweigh the rest.
    pub(crate) fn compact(&mut self) -> Result<()> {
        // A repair that is still to do runs together with the save, so that an error about missing room counts the bytes of both.
        if !self.weight.is_due(self.dir.disk().stride()) || self.is_unrepaired() {
            return Ok(());
        }
        if let Some(first) = self.seqs.before_last(KEPT_HEADS - 1) {
            self.save_with_repair(0, |writer| match writer.replace_journal(first) {
                // The new journal has no name yet, and the old one still takes saves.
                Err(err) if matches!(err.kind(), Kind::Full { .. }) => Ok(()),
                replaced => replaced,
            })?;
        }
        self.weight = self.weight.compacted();
        Ok(())
    }

    /// Continues in a new journal that has no heads before the save `first`.
    fn replace_journal(&mut self, first: u64) -> Result<()> {
        let path = self.dir.path();
        let mut compact = Compaction::plan_compaction(self.saves.all(&self.dir), first, path)?;
        match self.epoch.take_next(&self.dir) {
            // The current journal may still have room.
            Err(err) if err.is_full() => return Ok(()),
            taken => taken?,
        }
        let before = self.saves.files();
        let saves = self.saves.all(&self.dir);
        let saves = saves.map(|kept| compact.next(kept?, self.dir.path()));
        let started = self.start_journal_with(self.seq, saves, None, &[])?;
        self.weight = self.use_journal(started);
        self.seqs.truncate_before(first);
        self.confirm()?;
        self.drop_older_generations(&before);
        Ok(())
    }

    /// Continues in a new journal that also has the saves `more`.
    pub(crate) fn extend_journal(&mut self, more: Vec<PackedFrame>) -> Result<()> {
        if more.is_empty() {
            return Ok(());
        }
        if self.journal.is_some() {
            self.epoch.take_next(&self.dir)?;
        }
        let before = self.saves.files();
        let saves = self.saves.all(&self.dir);
        let saves = saves.chain(more.into_iter().map(Ok));
        let started = self.start_journal_with(self.seq, saves, None, &[])?;
        self.weight = self.use_journal(started);
        self.drop_older_generations(&before);
        Ok(())
    }

    /// Continues in a journal without the heads before the save `first`, if they outweigh the rest.
    pub(crate) fn drop_heads_before(&mut self, first: u64) -> Result<()> {
        if self.weight.is_due(self.dir.disk().stride()) && self.seqs.contains(first) {
            self.replace_journal(first)?;
            self.weight = self.weight.compacted();
        }
        Ok(())
    }

    /// Creates this epoch's journal with all saves since the base.
    pub(crate) fn start_journal(&mut self) -> Result<()> {
        let saves = self.saves.all(&self.dir);
        let started = self.start_journal_with(self.saves.last().unwrap_or(0), saves, None, &[])?;
        self.use_journal(started);
        Ok(())
    }

    /// Uses another journal from now on; returns the weight of its contents.
    pub(crate) fn use_journal(
        &mut self,
        (journal, saves, weight): (Journal, Saves, JournalWeight),
    ) -> JournalWeight {
        (self.journal, self.saves) = (Some(journal), saves);
        weight
    }

    /// Creates this epoch's journal with the saves up to `carried`. Those in `continued` stay in their files.
    pub(crate) fn start_journal_with(
        &self,
        carried: u64,
        all: impl Iterator<Item = Result<PackedFrame>>,
        continued: Option<Continued>,
        torn: &[u8],
    ) -> Result<(Journal, Saves, JournalWeight)> {
        let mut meta = FileMeta::new(&self.options, self.epoch.number, self.dir.disk());
        meta.seq = self.base.map_or(0, |base| base.seq);
        meta.base = self.base;
        meta.carried = carried;
        let name = FileName::Progress {
            epoch: self.epoch.number,
            base: meta.seq,
        }
        .to_string();
        let refused = |kind| Error::new(self.dir.path().join(&name), kind);
        // A link has the number of the last linked save, and the metadata the number before that.
        let link = continued.as_ref().map(|it| &it.link);
        let first = link.map_or(meta.seq, |link| link.frame.seq.saturating_sub(1));
        let mut image =
            FileBuilder::new(&meta, first, self.dir.disk().random()).map_err(refused)?;
        if let Some(link) = link {
            image.push_stored(link);
        }
        let from = image.bytes.len() as u64;
        let mut weight = continued.as_ref().map(|it| it.weight).unwrap_or_default();
        let linked = continued.as_ref().map_or(0, |it| it.bytes);
        let mut saves = Saves::new(self.dir.disk());
        let mut temp: Option<Temp<'_>> = None;
        let mut flush = |bytes: &[u8]| match &mut temp {
            Some(temp) => temp.write(bytes),
            None => {
                temp = Some(self.dir.write_temp(self.epoch.number, bytes)?);
                Ok(())
            }
        };
        let (mut end, mut all) = (0, all);
        while let Some(kept) = all.next() {
            let kept = kept?;
            image.push_stored(&kept);
            weight.add(&kept);
            saves.push(kept);
            if image.bytes.len() > CHUNK {
                end += image.bytes.len() as u64;
                // The error has the total number of missing bytes, so that the user makes room only once.
                flush(&image.bytes).map_err(|err| {
                    let rest = all.by_ref().flatten().map(|kept| kept.len());
                    err.with_needed_bytes(rest.sum())
                })?;
                image.bytes.clear();
            }
        }
        image.bytes.extend_from_slice(torn);
        end += image.bytes.len() as u64;
        within("the file", (linked + end) as usize, MAX_FILE as usize).map_err(refused)?;
        flush(&image.bytes)?;
        let temp = temp.expect("`flush` made the file");
        if saves.last().is_none() || !sabotage::is_on(Sabotage::CutWithoutSync) {
            temp.sync()?;
        }
        let file: Arc<dyn FileHandle> = self.give_name(temp, &name)?.into();
        let salt = image.salt;
        let location = JournalLocation {
            file: file.clone(),
            name: name.clone(),
            salt,
            from,
        };
        let mut journal = Journal::new(file, name, salt, end, &self.dir);
        journal.linked = linked;
        let continued = continued.map(|it| it.saves).unwrap_or_default();
        Ok((journal, saves.at(location, continued), weight))
    }
}
