//! Plans which files of a store may be removed: old phases, and damaged files that were set aside.
//!
//! A plan lists the files to remove and the files to keep, each with the reason. [`RetentionPlan::apply`] then takes the lock and plans again, so
//! that it removes no file that became necessary since.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::dir::Dir;
use crate::error::Result;
use crate::load::{self, Index, LoadPurpose};
use crate::lock::Lock;
use crate::name::QUARANTINE;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The rules for keeping files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// The largest number of phases. Default: 5.
    pub keep: usize,
    /// The largest age of a phase or of a file that was set aside. Default: 30 days.
    pub max_age: Duration,
    /// The largest size of all damaged files that were set aside. Default: 64 MiB.
    pub quarantine_bytes: u64,
    /// The current time. A file with a later time counts as new. Default: the time when this value was made.
    pub now: SystemTime,
}

impl Default for RetentionPolicy {
    fn default() -> Self {
        Self {
            keep: 5,
            max_age: 30 * DAY,
            quarantine_bytes: 64 << 20,
            now: SystemTime::now(),
        }
    }
}

impl RetentionPolicy {
    /// Returns the reason to remove a phase that has `index` newer ones; `None` to keep it.
    fn reason_to_remove(&self, index: usize, created: SystemTime) -> Option<String> {
        match index >= self.keep {
            true => Some(format!("only the newest {} stay", self.keep)),
            false => self.too_old(created),
        }
    }

    fn too_old(&self, created: SystemTime) -> Option<String> {
        let age = self.now.duration_since(created).unwrap_or_default();
        let days = |time: Duration| time.as_secs() / DAY.as_secs();
        (age > self.max_age).then(|| {
            let (age, most) = (days(age), days(self.max_age));
            format!("it is {age} days old, and the limit is {most} days")
        })
    }
}

/// A file, and the reason why it is removed or stays.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetainedFile {
    /// The name in the store.
    pub name: String,
    /// The size in bytes.
    pub bytes: u64,
    /// The reason.
    pub reason: String,
}

/// The result of planning. Its `Display` prints one line for each file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a plan removes nothing until it is applied"]
#[non_exhaustive]
pub struct RetentionPlan {
    dir: PathBuf,
    policy: RetentionPolicy,
    /// The files to remove.
    pub remove: Vec<RetainedFile>,
    /// The files to keep.
    pub keep: Vec<RetainedFile>,
}

impl fmt::Display for RetentionPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (word, items) in [("remove", &self.remove), ("keep", &self.keep)] {
            for RetainedFile {
                name,
                bytes,
                reason: why,
            } in items
            {
                writeln!(f, "{word} {name} ({bytes} bytes): {why}")?;
            }
        }
        Ok(())
    }
}

/// Plans the cleanup of one store: phases, the journals that continue them, and damaged files that were set aside. The newest valid state and all
/// files that it needs always stay, and so does everything that is not a regular file.
///
/// # Errors
/// As [`reader::load`](crate::reader::load): nothing is removed from a store that cannot be read.
pub fn plan(dir: impl AsRef<Path>, policy: RetentionPolicy) -> Result<RetentionPlan> {
    plan_in(&Dir::open(dir.as_ref())?, policy, u64::MAX)
}

/// Does the same as [`plan`]; files that are as new as the phase `base` stay too.
pub(crate) fn plan_in(dir: &Dir, policy: RetentionPolicy, base: u64) -> Result<RetentionPlan> {
    let index = Index::read(dir, LoadPurpose::Anything)?;
    let mut entries = index.entries.clone();
    let loaded = load::newest(dir, index)?;
    let mut plan = RetentionPlan {
        dir: dir.path().to_owned(),
        policy,
        remove: Vec::new(),
        keep: Vec::new(),
    };
    let base = loaded.base.map_or(0, |base| base.seq).min(base);
    entries.sort_by_key(|entry| {
        (
            std::cmp::Reverse(entry.meta.seq),
            entry.meta.phase.is_none(),
        )
    });
    // A journal is removed together with the phase that it continues.
    let mut phases = BTreeSet::new();
    let mut gone = BTreeSet::new();
    for entry in &entries {
        let seq = entry.meta.seq;
        let needed = seq >= base || loaded.report.used.as_ref() == Some(&entry.name);
        let is_phase = entry.meta.phase.is_some();
        let against = plan
            .policy
            .reason_to_remove(phases.len(), entry.meta.created());
        if is_phase {
            phases.insert(seq);
        }
        let bytes = len(dir, &entry.name)?;
        let (name, why) = (entry.name.clone(), against.unwrap_or_default());
        let orphan = !is_phase && (gone.contains(&seq) || !phases.contains(&seq) && seq < base);
        if needed {
            let why = "the newest state needs it".into();
            plan.keep.push(RetainedFile {
                name,
                bytes,
                reason: why,
            });
        } else if is_phase && !why.is_empty() {
            gone.insert(seq);
            plan.remove.push(RetainedFile {
                name,
                bytes,
                reason: why,
            });
        } else if orphan && (gone.contains(&seq) || !why.is_empty()) {
            let why = "the phase that it continues is removed or missing".into();
            plan.remove.push(RetainedFile {
                name,
                bytes,
                reason: why,
            });
        } else {
            let why = "it has earlier states, to which a load or an undo may have to return".into();
            plan.keep.push(RetainedFile {
                name,
                bytes,
                reason: why,
            });
        }
    }
    plan.quarantine(dir)?;
    Ok(plan)
}

fn len(dir: &Dir, name: &str) -> Result<u64> {
    match dir.disk().stat(name) {
        Ok(stat) => Ok(stat.len),
        Err(err) => Err(dir.error(name, "inspect", err)),
    }
}

impl RetentionPlan {
    /// Adds the files that were set aside: the newest ones up to a total size stay, unless they are too old.
    fn quarantine(&mut self, dir: &Dir) -> Result<()> {
        let aside = match dir.sub(QUARANTINE, false) {
            Err(err) if err.is_not_found() => return Ok(()),
            aside => aside?,
        };
        let mut files = Vec::new();
        for name in aside.names()? {
            let stat = aside.disk().stat(&name);
            let stat = stat.map_err(|err| aside.error(&name, "inspect", err))?;
            files.push((stat.modified, stat.len, name, stat.is_file));
        }
        files.sort();
        let mut total = 0;
        for (modified, bytes, name, is_file) in files.into_iter().rev() {
            let name = format!("{QUARANTINE}/{name}");
            if !is_file {
                let why = "it is not a regular file, so the store did not make it".into();
                self.keep.push(RetainedFile {
                    name,
                    bytes,
                    reason: why,
                });
                continue;
            }
            total += bytes;
            let most = self.policy.quarantine_bytes;
            let why = if total > most {
                format!("the files that were set aside take more than {most} bytes")
            } else if let Some(why) = self.policy.too_old(modified) {
                why
            } else {
                let why = "it is damaged, but a repair by hand may need it".into();
                self.keep.push(RetainedFile {
                    name,
                    bytes,
                    reason: why,
                });
                continue;
            };
            self.remove.push(RetainedFile {
                name,
                bytes,
                reason: why,
            });
        }
        Ok(())
    }

    /// Removes the planned files that are still not needed, and returns them.
    ///
    /// # Errors
    /// [`is_locked`](crate::Error::is_locked) if a writer has the store open.
    pub fn apply(self) -> Result<Vec<RetainedFile>> {
        let dir = Dir::open(&self.dir)?;
        self.apply_in(&dir)
    }

    fn apply_in(self, dir: &Dir) -> Result<Vec<RetainedFile>> {
        let _lock = Lock::take(dir)?;
        let mut now = plan_in(dir, self.policy, u64::MAX)?;
        let planned = |item: &RetainedFile| self.remove.iter().any(|one| one.name == item.name);
        now.remove.retain(planned);
        now.remove_from(dir)
    }

    /// Removes the planned files; the caller holds a lock.
    pub(crate) fn remove_from(self, dir: &Dir) -> Result<Vec<RetainedFile>> {
        for RetainedFile { name, .. } in &self.remove {
            match name.split_once('/') {
                None => dir.remove(name)?,
                Some((sub, name)) => dir.sub(sub, false)?.remove(name)?,
            }
        }
        // The directory stays if it is not empty.
        drop(dir.disk().unlink_sub(QUARANTINE));
        Ok(self.remove)
    }
}

/// Plans and applies a cleanup for a directory of any disk; error messages show `dir`.
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub fn clean_on(
    disk: Box<dyn crate::disk::Directory>,
    dir: &Path,
    policy: RetentionPolicy,
) -> Result<Vec<RetainedFile>> {
    let dir = Dir::on(disk, dir)?;
    plan_in(&dir, policy, u64::MAX)?.apply_in(&dir)
}
