//! The lock of a store: one writer at a time. The lock decides; the text in the
//! file is for people only.

use std::time::SystemTime;

use crate::dir::{Dir, write_all_at};
use crate::disk::{Handle, Open};
use crate::error::{Error, Kind, Result};

const NAME: &str = "LOCK";
/// Longest text that is read back.
const TEXT: u64 = 200;
/// `is_locked` holds the lock for an instant, so a writer tries this often before it gives up.
const TRIES: u32 = 20;

/// Holds the lock; dropping it, or the end of the process in any way, releases it.
/// Child processes do not inherit it.
#[derive(Debug)]
#[must_use = "dropping it releases the lock"]
pub(crate) struct Lock(Box<dyn Handle>);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a child between its fork and its exec still has a copy of
        // the descriptor. A failure leaves the release to the close.
        drop(self.0.unlock());
    }
}

impl Lock {
    pub(crate) fn take(dir: &Dir) -> Result<Self> {
        for _ in 0..TRIES {
            let Some(file) = dir.open_file(NAME, Open::Make)? else {
                return Err(Error::new(dir.path(), Kind::Vanished));
            };
            let locked = file.try_lock(false);
            if locked.map_err(|err| dir.error(NAME, "lock", err))? {
                let lock = Self(file);
                if lock.is_current(dir)? {
                    let now = utc(dir.disk().now());
                    let text = format!("pid {} since {now}\n", std::process::id());
                    // The lock holds without its text, which a full disk may not take.
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

    /// A lock on a file that was removed meanwhile guards nothing.
    pub(crate) fn is_current(&self, dir: &Dir) -> Result<bool> {
        let failed = |err| dir.error(NAME, "inspect", err);
        match dir.open_file(NAME, Open::Read)? {
            Some(file) => Ok(file.stat().map_err(failed)?.id == self.0.stat().map_err(failed)?.id),
            None => Ok(false),
        }
    }
}

/// Tells whether a writer holds the lock. Asks by holding it for an instant, shared.
pub(crate) fn is_held(dir: &Dir) -> Result<bool> {
    let Some(file) = dir.open_file(NAME, Open::Read)? else {
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

/// Formats a time as `2026-01-31T23:59:59Z`, in UTC whatever the zone is.
fn utc(time: SystemTime) -> String {
    let secs = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    // Days since 1 March of year 0, in eras of 400 years, so that leap days come last.
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
