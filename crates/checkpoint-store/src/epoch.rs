//! Epochs: the number of the writer that owns a store. They only grow.
//!
//! Taking an epoch is creating its marker, which exactly one writer can. The
//! markers of older epochs are then removed, and before each acknowledgement a
//! writer looks whether its own is still there. A new holder removes the old
//! marker *before* it scans what the old writer left, and the old writer looks
//! *after* its bytes are on disk: so whatever the old one acknowledged is seen by
//! the scan, even if both believe that they hold the lock.

use crate::dir::Dir;
use crate::error::{Error, Kind, Result};
use crate::name::FileName;
use crate::sabotage::{self, Sabotage};

/// How often another writer may be first before taking an epoch is given up.
const TRIES: u64 = 64;

/// Takes an epoch higher than `floor` and every other one that was ever taken, durably.
pub(crate) fn take(dir: &Dir, floor: u64) -> Result<u64> {
    for _ in 0..TRIES {
        let before = highest(dir)?.max(floor);
        if before > 0 && sabotage::is_on(Sabotage::ReuseName) {
            return Ok(before);
        }
        let epoch = before.saturating_add(1);
        if dir.create_empty(&FileName::Marker { epoch }.to_string())? {
            dir.sync()?;
            if highest(dir)? > epoch {
                // Others came and went between the look and the creation: theirs count.
                dir.remove(&FileName::Marker { epoch }.to_string())?;
                continue;
            }
            for name in dir.own()? {
                if matches!(name, FileName::Marker { epoch: old } if old < epoch) {
                    dir.remove(&name.to_string())?;
                }
            }
            return Ok(epoch);
        }
    }
    Err(Error::new(
        dir.path(),
        Kind::Locked {
            holder: "several writers at once".into(),
        },
    ))
}

/// Fails unless `epoch` still owns the store.
pub(crate) fn confirm(dir: &Dir, epoch: u64) -> Result<()> {
    if sabotage::is_on(Sabotage::EpochByPresence) {
        let newer = |name| matches!(name, FileName::Progress { epoch: by, .. } if by > epoch);
        if !dir.own()?.into_iter().any(newer) {
            return Ok(());
        }
    } else if dir.exists(&FileName::Marker { epoch }.to_string())? {
        return Ok(());
    }
    Err(lost(dir, epoch)?)
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

/// Takes the epoch after `own`, durably, unless any other writer came meanwhile.
pub(crate) fn succeed(dir: &Dir, own: u64) -> Result<u64> {
    let is_own = |name: &FileName| *name == FileName::Marker { epoch: own };
    let fenced = || -> Result<Error> {
        let by = highest(dir)?;
        Ok(Error::new(dir.path(), Kind::Fenced { own, by }))
    };
    if !dir.own()?.iter().any(is_own) {
        let err = lost(dir, own)?;
        if err.is_fenced() {
            return Err(err);
        }
    }
    if sabotage::is_on(Sabotage::ReuseName) {
        return Ok(own);
    }
    let epoch = own.saturating_add(1);
    let marker = FileName::Marker { epoch }.to_string();
    if !dir.create_empty(&marker)? {
        return Err(fenced()?);
    }
    if highest(dir)? > epoch {
        dir.remove(&marker)?;
        return Err(fenced()?);
    }
    dir.sync().inspect_err(|_| drop(dir.remove(&marker)))?;
    // One that stays says nothing: nobody else has this epoch.
    drop(dir.remove(&FileName::Marker { epoch: own }.to_string()));
    Ok(epoch)
}

pub(crate) fn highest(dir: &Dir) -> Result<u64> {
    Ok(dir
        .own()?
        .into_iter()
        .filter_map(FileName::epoch)
        .max()
        .unwrap_or(0))
}
