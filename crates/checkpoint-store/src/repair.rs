//! Repairs a store after a failed write or sync, or after its files were removed.
//!
//! The kernel's cached pages of the failed file prove nothing: the kernel may have dropped the bytes and may report success for the next sync. But
//! the frames in memory are certain, and so are the bytes that an earlier sync made durable. So the writer takes the next epoch, in a new directory
//! if the old one is gone, and writes all saves since the last phase to a new file there. The writer holds the file of that phase and the journal
//! open, so it can read them even if their names are gone.

use std::collections::BTreeSet;
use std::fmt;

use crate::blob;
use crate::dir::Dir;
use crate::replay::Needed;

use crate::error::{Error, Kind, Result};
use crate::file_builder::read_phase;
use crate::lock::{self, Lock};
use crate::name::FileName;
use crate::raw_writer::RawWriter;
use crate::sabotage::{self, Sabotage};

/// An ignore file of up to this size is restored.
const MAX_IGNORE: u64 = 1 << 16;
pub(crate) const IGNORE: &str = ".gitignore";

/// The report that a writer wrote everything since the last phase to a new file, and why.
///
/// No acknowledged save is lost, but the files in `lost` are.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repaired {
    /// The failure.
    pub what: String,
    /// The epoch that the writer has had since then.
    pub epoch: u64,
    /// Files that existed before and are missing now: older phases, and blobs as `blobs/name`.
    pub lost: Vec<String>,
}

impl fmt::Display for Repaired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "wrote the state to a new file, because {}", self.what)?;
        self.lost
            .iter()
            .try_for_each(|file| writeln!(f, "missing: {file}"))
    }
}

/// The contents of a writer's directory, as the writer remembers them to find and restore missing files.
#[derive(Debug, Default)]
pub(crate) struct KnownFiles {
    /// Names of phases, and of blobs with their directory.
    pub(crate) files: BTreeSet<String>,
    ignore: Option<Vec<u8>>,
}

impl KnownFiles {
    pub(crate) fn of(dir: &Dir) -> Result<Self> {
        let ignore = dir.read_up_to(IGNORE, MAX_IGNORE + 1)?;
        Ok(Self {
            files: files(dir)?,
            ignore: ignore.filter(|text| text.len() as u64 <= MAX_IGNORE),
        })
    }
}

fn files(dir: &Dir) -> Result<BTreeSet<String>> {
    let phases = dir.own()?.into_iter();
    let phases = phases.filter(|name| matches!(name, FileName::Phase { .. }));
    let mut files: BTreeSet<String> = phases.map(|name| name.to_string()).collect();
    files.extend(blob::names(dir)?.iter().map(|name| blob::shown(name)));
    Ok(files)
}

impl RawWriter {
    /// Writes all saves since the last phase to new files. If this fails, the writer has no journal, and the call can be repeated.
    pub(crate) fn repair(&mut self, what: &Error) -> Result<()> {
        self.journal = None;
        let before = self.saves.files();
        if sabotage::is_on(Sabotage::WatermarkAtAck) {
            self.saves.pop();
            self.seq -= 1;
        }
        let confirmed = self.epoch.confirm(&self.dir);
        if self.dir.disk().is_replaced() || confirmed.is_err_and(|err| err.is_vanished()) {
            self.reopen_directory()?;
        }
        if !self.lock.is_current(&self.dir)? {
            self.lock = Lock::take(&self.dir).map_err(|err| self.taken_over(err))?;
        }
        self.epoch.take_next(&self.dir)?;
        if let Some(text) = &self.known_files.ignore
            && !self.dir.exists(IGNORE)?
        {
            self.write_file(IGNORE, text)?;
        }
        // The journal comes first. Until its base is restored too, a load then fails; otherwise it would silently return the older state of the base.
        self.start_journal()?;
        self.restore_base()?;
        self.confirm()?;
        self.drop_older_generations(&before);
        let here = files(&self.dir)?;
        let lost = self.known_files.files.difference(&here).cloned().collect();
        self.known_files.files = here;
        self.last_repair = Some(Repaired {
            what: what.to_string(),
            epoch: self.epoch.number,
            lost,
        });
        Ok(())
    }

    /// Switches to the directory that is at the path now, and makes it if it was removed. Fails if another writer's store is in it.
    fn reopen_directory(&mut self) -> Result<()> {
        let there = self.dir.reopen()?;
        if there.id()? != self.dir.id()? {
            match self.epoch.confirm(&there) {
                Err(err) if !err.is_vanished() => return Err(err),
                _ => self.dir = there,
            }
        }
        Ok(())
    }

    /// Converts the error "another writer has the lock" to "this writer was taken over".
    fn taken_over(&self, err: Error) -> Error {
        if !err.is_locked() {
            return err;
        }
        let by = lock::highest_epoch(&self.dir).unwrap_or_default();
        let own = self.epoch.number;
        Error::new(self.dir.path(), Kind::Fenced { own, by })
    }

    /// Writes the base phase again if its name is gone.
    fn restore_base(&mut self) -> Result<()> {
        let Some((base, file)) = self.base.zip(self.base_file.as_deref()) else {
            return Ok(());
        };
        let name = base.file_name();
        let failed = |err| self.dir.error(&name, "read the removed file", err);
        match self.dir.confirm_named(&name, file) {
            Err(err) if err.is_vanished() => {}
            other => return other,
        }
        let bytes = crate::dir::read_up_to(file, crate::dir::MAX_FILE).map_err(failed)?;
        read_phase(&bytes, Needed::Everything)
            .map_err(|fault| Error::fault(self.dir.path().join(&name), fault))?;
        self.base_file = Some(self.write_file(&name, &bytes)?);
        Ok(())
    }

    /// Removes all journals of this base except the newest one, the one before it, and those in `before`, as opening a store does. `before` has the
    /// journal from which the newest one was made, and all journals that it continues.
    pub(crate) fn drop_older_generations(&self, before: &[String]) {
        let base = self.base.map_or(0, |base| base.seq);
        let same = |name: &FileName| {
            matches!(name, FileName::Progress { base: of, epoch }
                if *of == base && *epoch < self.epoch.number)
        };
        let mut old: Vec<FileName> = self.dir.own().unwrap_or_default();
        old.retain(same);
        old.sort_by_key(|name| name.epoch());
        old.pop();
        let old = old.iter().map(FileName::to_string);
        for name in old.filter(|name| !before.contains(name)) {
            // If this fails, the next writer removes the file when it opens the store.
            drop(self.dir.remove(&name));
        }
    }
}
