//! Epochs: the number of the writer that owns a store. They only grow.
//!
//! Taking an epoch is creating its marker, which exactly one writer can. The
//! markers of older epochs are then removed, and before each acknowledgement a
//! writer looks whether its own is still there. A new holder removes the old
//! marker *before* it scans what the old writer left, and the old writer looks
//! *after* its bytes are on disk: so whatever the old one acknowledged is seen by
//! the scan, even if both believe that they hold the lock.
//!
//! Where all files were removed, numbers begin anew. So the marker itself tells a writer's
//! own epoch, and not its name: the file is held open, so that no other can pass for it.

use crate::dir::Dir;
use crate::disk::{Handle, Open};
use crate::error::{Error, Kind, Result};
use crate::name::FileName;
use crate::sabotage::{self, Sabotage};

/// How often another writer may be first before taking an epoch is given up.
const TRIES: u64 = 64;

/// An epoch that a writer took.
#[derive(Debug)]
pub(crate) struct Epoch {
    pub(crate) number: u64,
    /// Identifies the marker for as long as that is held open.
    id: (u64, u64),
    _marker: Box<dyn Handle>,
}

impl Epoch {
    /// Takes an epoch higher than `floor` and every other one that was ever taken, durably.
    pub(crate) fn take(dir: &Dir, floor: u64) -> Result<Self> {
        for _ in 0..TRIES {
            let before = highest(dir)?.max(floor);
            if before > 0 && sabotage::is_on(Sabotage::ReuseName) {
                let marker = dir.open_file(&marker(before), Open::Make)?;
                let vanished = || Error::new(dir.path(), Kind::Vanished);
                return Self::of(dir, before, marker.ok_or_else(vanished)?);
            }
            let Some(epoch) = Self::create(dir, after(dir, before)?)? else {
                continue;
            };
            if highest(dir)? > epoch.number {
                // Others came and went between the look and the creation: theirs count.
                dir.remove(&marker(epoch.number))?;
                continue;
            }
            for name in dir.own()? {
                if matches!(name, FileName::Marker { epoch: old } if old < epoch.number) {
                    dir.remove(&name.to_string())?;
                }
            }
            return Ok(epoch);
        }
        let holder = "several writers at once".into();
        Err(Error::new(dir.path(), Kind::Locked { holder }))
    }

    /// Takes the epoch after this one, durably, unless any other writer came meanwhile.
    pub(crate) fn succeed(&mut self, dir: &Dir) -> Result<()> {
        let own = self.number;
        let fenced = || -> Result<Error> {
            let by = highest(dir)?;
            Ok(Error::new(dir.path(), Kind::Fenced { own, by }))
        };
        if !self.is_marked(dir)? {
            let err = lost(dir, own)?;
            if err.is_fenced() {
                return Err(err);
            }
        }
        if sabotage::is_on(Sabotage::ReuseName) {
            return Ok(());
        }
        let Some(next) = Self::create(dir, after(dir, own)?)? else {
            return Err(fenced()?);
        };
        if highest(dir)? > next.number {
            dir.remove(&marker(next.number))?;
            return Err(fenced()?);
        }
        *self = next;
        // One that stays says nothing: nobody else has this epoch.
        drop(dir.remove(&marker(own)));
        Ok(())
    }

    /// Creates a marker durably; none if there is one of that number.
    fn create(dir: &Dir, number: u64) -> Result<Option<Self>> {
        let name = marker(number);
        let Some(file) = dir.create_empty(&name)? else {
            return Ok(None);
        };
        let created = Self::of(dir, number, file).and_then(|epoch| dir.sync().map(|()| epoch));
        created.inspect_err(|_| drop(dir.remove(&name))).map(Some)
    }

    fn of(dir: &Dir, number: u64, marker_file: Box<dyn Handle>) -> Result<Self> {
        let stat = marker_file.stat();
        let id = stat
            .map_err(|err| dir.error(&marker(number), "inspect", err))?
            .id;
        Ok(Self {
            number,
            id,
            _marker: marker_file,
        })
    }

    /// Fails unless this epoch still owns the store.
    pub(crate) fn confirm(&self, dir: &Dir) -> Result<()> {
        if sabotage::is_on(Sabotage::EpochByPresence) {
            let own = self.number;
            let newer = |name| matches!(name, FileName::Progress { epoch, .. } if epoch > own);
            if !dir.own()?.into_iter().any(newer) {
                return Ok(());
            }
        } else if self.is_marked(dir)? {
            return Ok(());
        }
        Err(lost(dir, self.number)?)
    }

    fn is_marked(&self, dir: &Dir) -> Result<bool> {
        dir.leads_to(&marker(self.number), self.id)
    }
}

fn after(dir: &Dir, number: u64) -> Result<u64> {
    let next = number.checked_add(1);
    next.ok_or_else(|| Error::new(dir.path(), Kind::NoEpoch))
}

fn marker(epoch: u64) -> String {
    FileName::Marker { epoch }.to_string()
}

/// Says why a writer's own marker is gone. Older markers are removed when an epoch is
/// taken, so one that is there now was made by another writer since.
fn lost(dir: &Dir, own: u64) -> Result<Error> {
    let marked = |name: &FileName| matches!(name, FileName::Marker { .. });
    let by = highest(dir)?;
    let kind = if by > own || dir.own()?.iter().any(marked) {
        Kind::Fenced { own, by }
    } else {
        Kind::Vanished
    };
    Ok(Error::new(dir.path(), kind))
}

pub(crate) fn highest(dir: &Dir) -> Result<u64> {
    Ok(dir
        .own()?
        .into_iter()
        .filter_map(FileName::epoch)
        .max()
        .unwrap_or(0))
}
