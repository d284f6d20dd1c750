//! The other actions of a program on its store, and the actions of other programs on it.

use std::path::Path;
use std::time::{Duration, SystemTime};

use checkpoint_store::retention::{RetentionPolicy, clean_on};
use checkpoint_store::verify::{NextAction, verify_on};
use checkpoint_store::{Error, Options, Seq, fork_on, reader};

use super::{DIR, Session};
use crate::disk::{Disk, ROOT};
use crate::reference::{BrokenPromise, CheckResult, Event, Head, State, broken, text};
use crate::sim_disk::Shared;

/// Letters of a blob.
pub(super) const BLOB: usize = 700;

impl Session {
    /// Checks whether all acknowledged blobs are there.
    pub(super) fn blobs(&self) -> Result<(), Result<BrokenPromise, Error>> {
        for &number in &self.reference.blobs {
            let (disk, name) = (self.shared.directory(DIR), format!("b{number}"));
            match reader::blob_on(disk, Path::new(DIR), &name) {
                Ok(bytes) if bytes == text(number, BLOB).as_bytes() => {}
                Ok(_) => return broken('A', format!("blob {name} has other bytes")).map_err(Ok),
                Err(err) if err.is_not_found() => {
                    return broken('D', format!("blob {name} was acknowledged, but is missing"))
                        .map_err(Ok);
                }
                Err(err) => return Err(Err(err)),
            }
        }
        Ok(())
    }

    /// Loads every save to which the writer can return.
    pub(super) fn look_back(&mut self) -> CheckResult {
        for (seq, state) in self.marks.clone() {
            if seq == Seq::ZERO {
                continue;
            }
            let disk = self.shared.directory(DIR);
            let options = Options::default();
            match reader::load_at_on::<Head, Event>(disk, Path::new(DIR), seq, &options) {
                Ok(found) if State::loaded(&found)? == state => {}
                Ok(_) => return broken('A', format!("a load of save {seq} returns another state")),
                Err(err) => self.failure(&err)?,
            }
        }
        Ok(())
    }

    pub(super) fn verify(&mut self) -> CheckResult {
        match verify_on(self.shared.directory(DIR), Path::new(DIR)) {
            Ok(found) if self.shared.pc().harmed => drop(found),
            Ok(found) if matches!(found.next, NextAction::Start | NextAction::Resume { .. }) => {}
            // `verify` cannot know whether the writer is in the middle of a save.
            Ok(found) if found.next == NextAction::Wait && self.open.is_some() => {}
            Ok(found) => {
                return broken(
                    'L',
                    format!("verify reports damage without a fault: {found}"),
                );
            }
            Err(err) => self.failure(&err)?,
        }
        Ok(())
    }

    /// Removes the files that retention may remove, and checks whether the current state is still there.
    pub(super) fn clean(&mut self) -> CheckResult {
        self.close();
        if let Err(err) = clean_on(self.shared.directory(DIR), Path::new(DIR), strict()) {
            self.failure(&err)?;
        }
        self.open()
    }

    /// Forks a new store from the current state.
    pub(super) fn fork(&mut self) -> CheckResult {
        let newest = self.marks.last().filter(|(seq, _)| *seq != Seq::ZERO);
        let Some((seq, state)) = newest.cloned() else {
            return Ok(());
        };
        let name = fork_name(self.reference.forks.len());
        let from = (self.shared.directory(DIR), Path::new(DIR));
        let to = (self.shared.make_directory(&name), Path::new(&name));
        match fork_on(from, seq, to, &Options::default()) {
            Ok(_) => {
                self.reference.forks.push(state);
                self.reached();
            }
            Err(err) => self.failure(&err)?,
        }
        self.forks()
    }

    /// Checks whether all acknowledged forks are there.
    pub(super) fn forks(&mut self) -> CheckResult {
        for (index, state) in self.reference.forks.clone().iter().enumerate() {
            let name = fork_name(index);
            match reader::load_on::<Head, Event>(self.shared.directory(&name), Path::new(&name)) {
                Ok(found) if State::loaded(&found)? == *state => {}
                Ok(found) => {
                    let found = State::loaded(&found)?;
                    return broken(
                        'D',
                        format!("{name} has the state {state:?}, but {found:?} is loaded"),
                    );
                }
                Err(err) => self.failure(&err)?,
            }
        }
        Ok(())
    }

    /// Removes files while the writer has them open, as a careless command does.
    pub(super) fn lose(&mut self, all: bool) {
        self.shared.pc().harmed = true;
        self.reference.void();
        self.reached();
        lose(&self.shared, DIR, all);
    }
}

/// Removes the journals of a store, or its whole directory.
pub(crate) fn lose(shared: &Shared, store: &str, all: bool) {
    let mut pc = shared.pc();
    let Some(dir) = pc.disk.lookup(ROOT, store) else {
        return;
    };
    pc.harmed = true;
    let names = pc
        .disk
        .names(dir)
        .map(|names| names.map(str::to_owned).collect::<Vec<_>>());
    for name in names.unwrap_or_default() {
        if (all || name.starts_with("progress-")) && pc.disk.lookup(dir, &name).is_some() {
            remove(&mut pc.disk, dir, &name);
        }
    }
    if all {
        remove(&mut pc.disk, ROOT, store);
    }
}

/// Returns a policy that keeps only the files that are needed.
pub(crate) fn strict() -> RetentionPolicy {
    RetentionPolicy {
        keep: 1,
        max_age: Duration::ZERO,
        now: SystemTime::UNIX_EPOCH + Duration::from_secs(4_000_000_000),
        ..RetentionPolicy::default()
    }
}

fn fork_name(index: usize) -> String {
    format!("fork{index}")
}

fn remove(disk: &mut Disk, dir: usize, name: &str) {
    if let Some(ino) = disk.lookup(dir, name).filter(|&ino| disk.is_dir(ino)) {
        let inside: Vec<String> = disk
            .names(ino)
            .map(|names| names.map(str::to_owned).collect())
            .unwrap_or_default();
        inside.iter().for_each(|name| remove(disk, ino, name));
    }
    disk.unlink(dir, name)
        .expect("the entry exists and is empty");
}
