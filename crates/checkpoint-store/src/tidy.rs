//! What a new writer removes and sets aside.

use crate::error::Result;
use crate::load::{Entry, Loaded};
use crate::name::FileName;
use crate::raw_writer::RawWriter;

pub(crate) const QUARANTINE: &str = "quarantine";

impl RawWriter {
    /// Removes and sets aside what the loaded state no longer needs. Nothing that is
    /// removed here held the only copy of anything.
    pub(crate) fn tidy(&self, loaded: &mut Loaded, entries: &[Entry]) -> Result<()> {
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
}
