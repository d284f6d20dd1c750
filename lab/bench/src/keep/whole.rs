//! The whole state as CBOR, in a temporary file that replaces the previous one.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fs_err::File;

use super::keeper::{Keeper, cbor};
use crate::harness::Result;
use crate::transcript::{Delta, Event};

pub(crate) struct Whole {
    dir: PathBuf,
    events: Vec<Event>,
}

impl Whole {
    pub(crate) fn begin(dir: &Path, base: &[Delta]) -> Result<Self> {
        Ok(Self {
            dir: dir.to_owned(),
            events: base.iter().flat_map(|delta| delta.events.clone()).collect(),
        })
    }
}

impl Keeper for Whole {
    fn save(&mut self, delta: &Delta) -> Result<Duration> {
        self.events.extend(delta.events.iter().cloned());
        let (new, state) = (self.dir.join("state.new"), self.dir.join("state"));
        let begun = Instant::now();
        let bytes = cbor(&(&delta.head, &self.events))?;
        let mut file = File::create(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs_err::rename(&new, &state)?;
        File::open(&self.dir)?.sync_all()?;
        Ok(begun.elapsed())
    }
}
