//! What may be removed, decided before anything is: old phases of one store, finished
//! stores of a directory of stores, and what was set aside.
//!
//! A plan says what would go and what would stay, and why; [`Plan::apply`] then takes the
//! lock and looks again, so that nothing goes that became needed meanwhile.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::dir::Dir;
use crate::disk::unix;
use crate::error::{Error, Result};
use crate::list::{self, Health};
use crate::load::{self, Index, Want};
use crate::lock::Lock;
use crate::tidy::QUARANTINE;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// How many phases of a store, or finished stores, are kept at most. Default: 5.
    pub keep: usize,
    /// How old they may get. Default: 30 days.
    pub max_age: Duration,
    /// How many bytes damaged files that were set aside may take. Default: 64 MiB.
    pub quarantine_bytes: u64,
    /// The present time. A file of a later time counts as new. Default: when this was made.
    pub now: SystemTime,
    /// Also removes stores that could be resumed, and those that cannot be read.
    /// Default: false.
    pub force: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            keep: 5,
            max_age: 30 * DAY,
            quarantine_bytes: 64 << 20,
            now: SystemTime::now(),
            force: false,
        }
    }
}

impl Policy {
    /// Says why the `index`-th newest thing of some age is not to be kept.
    fn against(&self, index: usize, created: SystemTime) -> Option<String> {
        match index >= self.keep {
            true => Some(format!("only the newest {} are kept", self.keep)),
            false => self.too_old(created),
        }
    }

    /// Says why a store that nobody has open is to be kept whatever its age.
    fn protects(&self, store: &list::Entry) -> Option<&'static str> {
        if self.force {
            None
        } else if matches!(store.health, Health::Unreadable(_)) {
            Some("it cannot be read, and may hold the only copy")
        } else if store.is_resumable() {
            Some("it can be resumed")
        } else {
            None
        }
    }

    fn too_old(&self, created: SystemTime) -> Option<String> {
        let age = self.now.duration_since(created).unwrap_or_default();
        let days = |time: Duration| time.as_secs() / DAY.as_secs();
        (age > self.max_age).then(|| {
            let (age, most) = (days(age), days(self.max_age));
            format!("it is {age} days old, and {most} is the most")
        })
    }
}

/// A file or a store, and why it goes or stays.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Item {
    /// Its name in the directory that the plan is for.
    pub name: String,
    /// How many bytes it takes; of a store that stays, zero.
    pub bytes: u64,
    /// The reason.
    pub why: String,
}

/// What would be removed. Its `Display` is one line for each thing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a plan removes nothing until it is applied"]
pub struct Plan {
    dir: PathBuf,
    policy: Policy,
    is_root: bool,
    /// What goes.
    pub remove: Vec<Item>,
    /// What stays.
    pub keep: Vec<Item>,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (word, items) in [("remove", &self.remove), ("keep", &self.keep)] {
            for Item { name, bytes, why } in items {
                writeln!(f, "{word} {name} ({bytes} bytes): {why}")?;
            }
        }
        Ok(())
    }
}

/// Plans the clean-up of one store: phases and the journals that stand on them, and what
/// was set aside. The newest valid state and all that it needs always stay, and what is no
/// regular file.
///
/// # Errors
/// As [`reader::load`](crate::reader::load): a store that cannot be read loses nothing.
pub fn plan(dir: impl AsRef<Path>, policy: Policy) -> Result<Plan> {
    plan_in(&Dir::open(dir.as_ref())?, policy)
}

pub(crate) fn plan_in(dir: &Dir, policy: Policy) -> Result<Plan> {
    let index = Index::read(dir, Want::Anything)?;
    let mut entries = index.entries.clone();
    let loaded = load::newest(dir, index)?;
    let mut plan = Plan {
        dir: dir.path().to_owned(),
        policy,
        is_root: false,
        remove: Vec::new(),
        keep: Vec::new(),
    };
    let base = loaded.base.map_or(0, |base| base.seq);
    entries.sort_by_key(|entry| {
        (
            std::cmp::Reverse(entry.meta.seq),
            entry.meta.phase.is_none(),
        )
    });
    // Phases by their number; a journal shares the fate of the one that it stands on.
    let mut phases = BTreeSet::new();
    let mut gone = BTreeSet::new();
    for entry in &entries {
        let seq = entry.meta.seq;
        let needed = seq >= base || loaded.report.used.as_ref() == Some(&entry.name);
        let is_phase = entry.meta.phase.is_some();
        let against = plan.policy.against(phases.len(), entry.meta.created());
        if is_phase {
            phases.insert(seq);
        }
        let bytes = len(dir, &entry.name)?;
        let (name, why) = (entry.name.clone(), against.unwrap_or_default());
        let orphan = !is_phase && (gone.contains(&seq) || !phases.contains(&seq) && seq < base);
        if needed {
            let why = "the newest state needs it".into();
            plan.keep.push(Item { name, bytes, why });
        } else if is_phase && !why.is_empty() {
            gone.insert(seq);
            plan.remove.push(Item { name, bytes, why });
        } else if orphan && (gone.contains(&seq) || !why.is_empty()) {
            let why = "the phase that it stands on goes or is gone".into();
            plan.remove.push(Item { name, bytes, why });
        } else {
            let why = "to fall back to, and to go back to".into();
            plan.keep.push(Item { name, bytes, why });
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

/// Plans the clean-up of the stores right below `root`, and of what is left of those whose
/// removal was cut short. Those that a writer has open always stay; without force also those
/// that could be resumed and those that cannot be read.
///
/// # Errors
/// As [`reader::list`](crate::reader::list).
pub fn plan_stores(root: impl AsRef<Path>, policy: Policy) -> Result<Plan> {
    let mut stores = list::list(root.as_ref())?;
    stores.sort_by_key(|store| std::cmp::Reverse(store.modified));
    let mut plan = Plan {
        dir: root.as_ref().to_owned(),
        policy,
        is_root: true,
        remove: Vec::new(),
        keep: Vec::new(),
    };
    plan.remove.extend(half_removed(root.as_ref())?);
    let mut candidates = 0;
    for store in stores {
        let protected = match store.locked {
            true => Some("a writer has it open"),
            false => plan.policy.protects(&store),
        };
        let created = store.modified.unwrap_or(SystemTime::UNIX_EPOCH);
        let name = store.name;
        if let Some(why) = protected {
            let why = why.into();
            plan.keep.push(Item {
                name,
                bytes: 0,
                why,
            });
            continue;
        }
        match plan.policy.against(candidates, created) {
            Some(why) => plan.remove.push(Item {
                name,
                bytes: size(&store.path),
                why,
            }),
            None => plan.keep.push(Item {
                name,
                bytes: 0,
                why: "it is among the newest".into(),
            }),
        }
        candidates += 1;
    }
    Ok(plan)
}

/// What stores are called while they are removed.
const HALF: &str = ".removed-";

/// Returns what a clean-up left that was ended before it was done.
fn half_removed(root: &Path) -> Result<Vec<Item>> {
    let failed = |err| Error::io(root, "list the directory", err);
    let mut items = Vec::new();
    for found in fs_err::read_dir(root).map_err(failed)? {
        let found = found.map_err(failed)?;
        if let Ok(name) = found.file_name().into_string()
            && is_half_removed(&name)
            && found.file_type().map_err(failed)?.is_dir()
        {
            items.push(Item {
                name,
                bytes: size(&found.path()),
                why: "an earlier clean-up did not finish it".into(),
            });
        }
    }
    items.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(items)
}

fn is_half_removed(name: &str) -> bool {
    let number = name.strip_prefix(HALF).unwrap_or_default();
    number.len() == 16 && number.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// How many bytes the files of a store take, as far as that can be told.
fn size(path: &Path) -> u64 {
    let Ok(entries) = fs_err::read_dir(path) else {
        return 0;
    };
    let metas = entries.filter_map(|entry| fs_err::symlink_metadata(entry.ok()?.path()).ok());
    metas.map(|meta| meta.len()).sum()
}

impl Plan {
    /// Adds what was set aside: the newest files up to a size stay, unless they are too old.
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
                self.keep.push(Item { name, bytes, why });
                continue;
            }
            total += bytes;
            let most = self.policy.quarantine_bytes;
            let why = if total > most {
                format!("what was set aside takes more than {most} bytes")
            } else if let Some(why) = self.policy.too_old(modified) {
                why
            } else {
                let why = "it is damaged, and may be of use".into();
                self.keep.push(Item { name, bytes, why });
                continue;
            };
            self.remove.push(Item { name, bytes, why });
        }
        Ok(())
    }

    /// Removes what is planned and still not needed, and returns what was removed.
    ///
    /// # Errors
    /// [`is_locked`](Error::is_locked) if a writer has the store open; of several stores,
    /// those that a writer opened meanwhile are passed over.
    pub fn apply(self) -> Result<Vec<Item>> {
        match self.is_root {
            true => self.apply_stores(),
            false => {
                let dir = Dir::open(&self.dir)?;
                self.apply_in(&dir)
            }
        }
    }

    fn apply_in(self, dir: &Dir) -> Result<Vec<Item>> {
        let _lock = Lock::take(dir)?;
        let mut now = plan_in(dir, self.policy)?;
        let planned = |item: &Item| self.remove.iter().any(|one| one.name == item.name);
        now.remove.retain(planned);
        now.remove_from(dir)
    }

    /// Removes what is planned, under a lock.
    pub(crate) fn remove_from(self, dir: &Dir) -> Result<Vec<Item>> {
        for Item { name, .. } in &self.remove {
            match name.split_once('/') {
                None => dir.remove(name)?,
                Some((sub, name)) => dir.sub(sub, false)?.remove(name)?,
            }
        }
        // It stays if anything is left in it.
        drop(dir.disk().unlink_sub(QUARANTINE));
        Ok(self.remove)
    }

    fn apply_stores(self) -> Result<Vec<Item>> {
        let still = plan_stores(&self.dir, self.policy.clone())?.remove;
        let root = fs_err::canonicalize(&self.dir)
            .map_err(|err| Error::io(&self.dir, "find the directory", err))?;
        let mut removed = Vec::new();
        for item in still {
            let path = root.join(&item.name);
            if !self.remove.iter().any(|planned| planned.name == item.name) {
                continue;
            }
            if is_half_removed(&item.name) {
                match fs_err::remove_dir_all(&path) {
                    // Another clean-up is at it as well.
                    Err(err) if err.kind() == io::ErrorKind::NotFound => {}
                    done => done.map_err(|err| Error::io(&path, "remove", err))?,
                }
                removed.push(item);
                continue;
            }
            let dir = Dir::open(&path)?;
            let lock = match Lock::take(&dir) {
                Err(err) if err.is_locked() => continue,
                lock => lock?,
            };
            // A writer may have come and gone between the look and the lock.
            let now = list::entry(path.clone())?;
            if now.is_some_and(|store| self.policy.protects(&store).is_some()) {
                continue;
            }
            // Under another name first, so that no half of it is ever taken for a store.
            let hidden = root.join(format!("{HALF}{:016x}", dir.disk().random()));
            unix::rename_new(&path, &hidden)
                .and_then(|()| fs_err::remove_dir_all(&hidden))
                .map_err(|err| Error::io(&path, "remove", err))?;
            drop(lock);
            removed.push(item);
        }
        Ok(removed)
    }
}

/// [`plan`] for a directory of any disk; messages call it `dir`. Applies it as well.
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub fn clean_on(
    disk: Box<dyn crate::disk::Directory>,
    dir: &Path,
    policy: Policy,
) -> Result<Vec<Item>> {
    let dir = Dir::on(disk, dir)?;
    plan_in(&dir, policy)?.apply_in(&dir)
}
