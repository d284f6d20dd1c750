//! One writer at a time: the lock and the epochs. An epoch is the number of a writer that owned the store; epochs only grow.
//!
//! The lock decides who may write; the text in its file is for people only. To take an epoch is to create its marker file; only one writer can do
//! that. The writer then removes the markers of older epochs. Before each acknowledgement, a writer checks whether its own marker still exists. A new
//! writer removes the old marker *before* it scans the files of the old writer, and the old writer checks *after* its bytes are on disk. So the scan
//! sees every save that the old writer acknowledged, even if both believe that they hold the lock.
//!
//! If all files were removed, the numbers start again from the beginning. So a writer recognises its own epoch by the marker file itself, not by the
//! file's name: the writer holds the file open, so no other file can have its identity.

use std::time::SystemTime;

use crate::dir::{Dir, write_all_at};
use crate::disk::{FileHandle, OpenMode};
use crate::error::{Error, Kind, Result};
use crate::name::FileName;
use crate::sabotage::{self, Sabotage};

const NAME: &str = "LOCK";
/// Longest text that is read back.
const TEXT: u64 = 200;
/// Number of tries before a writer gives up; `is_locked` of another process holds the lock for a moment.
const TRIES: u32 = 20;

/// Holds the lock. Dropping it releases the lock, and so does every end of the process. Child processes do not inherit it.
#[derive(Debug)]
#[must_use = "dropping it releases the lock"]
pub(crate) struct Lock(Box<dyn FileHandle>);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: between its fork and its exec, a child has a copy of the descriptor. If this unlock fails, closing releases the
        // lock.
        drop(self.0.unlock());
    }
}

impl Lock {
    pub(crate) fn take(dir: &Dir) -> Result<Self> {
        for _ in 0..TRIES {
            let Some(file) = dir.open_file(NAME, OpenMode::Make)? else {
                return Err(Error::new(dir.path(), Kind::Vanished));
            };
            let locked = file.try_lock(false);
            if locked.map_err(|err| dir.error(NAME, "lock", err))? {
                let lock = Self(file);
                if lock.is_current(dir)? {
                    let now = utc(dir.disk().now());
                    let text = format!("pid {} since {now}\n", std::process::id());
                    // The lock also holds without this text, which a full disk may refuse.
                    drop(
                        lock.0
                            .set_len(0)
                            .and_then(|()| write_all_at(&*lock.0, text.as_bytes(), 0)),
                    );
                    return Ok(lock);
                }
            } else {
                dir.disk().pause();
            }
        }
        Err(Error::new(
            dir.path(),
            Kind::Locked {
                holder: holder(dir)?,
            },
        ))
    }

    /// Returns whether the lock's file is still the one at its path. A lock on a removed file protects nothing.
    pub(crate) fn is_current(&self, dir: &Dir) -> Result<bool> {
        let failed = |err| dir.error(NAME, "inspect", err);
        match dir.open_file(NAME, OpenMode::Read)? {
            Some(file) => Ok(file.stat().map_err(failed)?.id == self.0.stat().map_err(failed)?.id),
            None => Ok(false),
        }
    }
}

/// Returns whether a writer holds the lock. For this, it takes a shared lock for a moment.
pub(crate) fn is_held(dir: &Dir) -> Result<bool> {
    let Some(file) = dir.open_file(NAME, OpenMode::Read)? else {
        return Ok(false);
    };
    let free = file
        .try_lock(true)
        .map_err(|err| dir.error(NAME, "lock", err))?;
    if free {
        file.unlock()
            .map_err(|err| dir.error(NAME, "unlock", err))?;
    }
    Ok(!free)
}

fn holder(dir: &Dir) -> Result<String> {
    let bytes = dir.read_up_to(NAME, TEXT)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let text: String = text.trim().chars().filter(|c| !c.is_control()).collect();
    Ok(if text.is_empty() {
        "unknown".into()
    } else {
        text
    })
}

/// Formats a time as `2026-01-31T23:59:59Z`, in UTC.
fn utc(time: SystemTime) -> String {
    let secs = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    // Days since 1 March of year 0, in eras of 400 years. Leap days then come last in their year.
    let days = secs / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, (month + 2) % 12 + 1);
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (secs / 3_600 % 24, secs / 60 % 60, secs % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Number of tries to take an epoch before giving up, if other writers are faster.
const EPOCH_TRIES: u64 = 64;

/// An epoch that a writer took.
#[derive(Debug)]
pub(crate) struct Epoch {
    pub(crate) number: u64,
    /// The identity of the marker file. The file stays open, so that no other file gets this identity.
    id: (u64, u64),
    _marker: Box<dyn FileHandle>,
}

impl Epoch {
    /// Takes an epoch higher than `floor` and than every epoch that was ever taken, durably.
    pub(crate) fn take(dir: &Dir, floor: u64) -> Result<Self> {
        for _ in 0..EPOCH_TRIES {
            let before = highest_epoch(dir)?.max(floor);
            if before > 0 && sabotage::is_on(Sabotage::ReuseName) {
                let marker = dir.open_file(&marker(before), OpenMode::Make)?;
                let vanished = || Error::new(dir.path(), Kind::Vanished);
                return Self::of(dir, before, marker.ok_or_else(vanished)?);
            }
            let Some(epoch) = Self::create(dir, after(dir, before)?)? else {
                continue;
            };
            if highest_epoch(dir)? > epoch.number {
                // Other writers took epochs between the check and the creation: theirs are valid.
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

    /// Takes the epoch after this one, durably. Fails if another writer took the store over.
    pub(crate) fn take_next(&mut self, dir: &Dir) -> Result<()> {
        let own = self.number;
        let fenced = || -> Result<Error> {
            let by = highest_epoch(dir)?;
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
        if highest_epoch(dir)? > next.number {
            dir.remove(&marker(next.number))?;
            return Err(fenced()?);
        }
        *self = next;
        // A marker that stays does no harm: no other writer has this epoch.
        drop(dir.remove(&marker(own)));
        Ok(())
    }

    /// Creates a marker durably; returns `None` if a marker of that number exists.
    fn create(dir: &Dir, number: u64) -> Result<Option<Self>> {
        let name = marker(number);
        let Some(file) = dir.create_empty(&name)? else {
            return Ok(None);
        };
        let created = Self::of(dir, number, file).and_then(|epoch| dir.sync().map(|()| epoch));
        created.inspect_err(|_| drop(dir.remove(&name))).map(Some)
    }

    fn of(dir: &Dir, number: u64, marker_file: Box<dyn FileHandle>) -> Result<Self> {
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
        dir.resolves_to(&marker(self.number), self.id)
    }
}

fn after(dir: &Dir, number: u64) -> Result<u64> {
    let next = number.checked_add(1);
    next.ok_or_else(|| Error::new(dir.path(), Kind::NoEpoch))
}

fn marker(epoch: u64) -> String {
    FileName::Marker { epoch }.to_string()
}

/// Returns the reason why a writer's own marker is gone. A writer that takes an epoch removes older markers, so another writer has made any marker
/// that exists now.
fn lost(dir: &Dir, own: u64) -> Result<Error> {
    let marked = |name: &FileName| matches!(name, FileName::Marker { .. });
    let by = highest_epoch(dir)?;
    let kind = if by > own || dir.own()?.iter().any(marked) {
        Kind::Fenced { own, by }
    } else {
        Kind::Vanished
    };
    Ok(Error::new(dir.path(), kind))
}

pub(crate) fn highest_epoch(dir: &Dir) -> Result<u64> {
    Ok(dir
        .own()?
        .into_iter()
        .filter_map(FileName::epoch)
        .max()
        .unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn s21b_stamps_are_utc() {
        let at = |secs| utc(SystemTime::UNIX_EPOCH + Duration::from_secs(secs));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_767_225_599), "2025-12-31T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
