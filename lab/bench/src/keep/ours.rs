//! Saves with our `checkpoint-store`: each save appends the head and the new events.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use checkpoint_store::{Options, PhaseMeta, Writer, reader};

use super::keeper::Keeper;
use crate::harness::Result;
use crate::transcript::{Delta, Event, Head};

/// Number of deltas in each save of the base transcript. Its saves are not measured.
const BATCH: usize = 64;

pub(crate) struct Ours(Writer<Head, Event>);

impl Ours {
    pub(crate) fn begin(dir: &Path, base: &[Delta]) -> Result<Self> {
        Self::begin_in_batches(dir, base, BATCH)
    }

    pub(crate) fn begin_in_batches(dir: &Path, base: &[Delta], batch: usize) -> Result<Self> {
        let (mut writer, _) = Writer::open(dir.join("store"), Options::default())?;
        for some in base.chunks(batch) {
            let events: Vec<Event> = some.iter().flat_map(|delta| delta.events.clone()).collect();
            if let Some(last) = some.last() {
                writer.append(&last.head, &events)?;
            }
        }
        Ok(Self(writer))
    }

    /// Returns the number of events that a resume loads.
    pub(crate) fn load(dir: &Path) -> Result<usize> {
        let loaded = reader::load::<Head, Event>(dir.join("store"))?;
        Ok(std::hint::black_box(loaded).events.len())
    }

    /// Saves a phase and returns its file.
    pub(crate) fn save_phase(&mut self, head: &Head) -> Result<PathBuf> {
        self.0.save_phase("sealed", head, PhaseMeta::default())?;
        let sealed = fs_err::read_dir(self.0.path())?.filter_map(|entry| Some(entry.ok()?.path()));
        let mut sealed = sealed.filter(|path| path.extension().is_some_and(|it| it == "ckpt"));
        sealed.next().ok_or_else(|| "there is no phase file".into())
    }
}

impl Keeper for Ours {
    fn save(&mut self, delta: &Delta) -> Result<Duration> {
        let begun = Instant::now();
        self.0.append(&delta.head, &delta.events)?;
        Ok(begun.elapsed())
    }
}
