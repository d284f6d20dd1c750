//! A guard that answers nothing, so that a start hangs as on a broken disk.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use agent_subprocess::guard;

/// The guard of this process from now on.
pub(crate) struct HungGuard {
    link: PathBuf,
    /// The pids of the guards that started: another one starts if the first does not answer.
    pids: PathBuf,
}

impl HungGuard {
    /// Makes this process use such a guard, whose files are in `folder`.
    pub(crate) fn install(folder: &Path) -> Self {
        let [link, pids, script] = ["guard-link", "guard-pids", "guard"].map(|it| folder.join(it));
        let text = format!("#!/bin/sh\necho $$ >> {}\nexec sleep 600\n", pids.display());
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        symlink(&script, &link).unwrap();
        guard::guard_program(&link);
        Self { link, pids }
    }

    /// Returns the process ids of the guards that run, which is none if no start hangs.
    fn running(&self) -> Vec<String> {
        let pids = fs::read_to_string(&self.pids).unwrap_or_default();
        let runs = |pid: &&str| {
            let line = fs::read(format!("/proc/{pid}/cmdline"));
            line.is_ok_and(|line| line == b"sleep\x00600\x00")
        };
        pids.lines().filter(runs).map(ToOwned::to_owned).collect()
    }

    /// Returns whether a start hangs.
    pub(crate) fn hangs(&self) -> bool {
        !self.running().is_empty()
    }

    /// Ends the guards, which still run because only the caller of the start gave up.
    pub(crate) fn end(self) {
        // Without it, the start can't try again.
        fs::remove_file(&self.link).unwrap();
        let pids = self.running();
        assert!(!pids.is_empty(), "the start still hangs");
        let mut kill = Command::new("kill");
        assert!(kill.arg("-9").args(pids).status().unwrap().success());
        fs::remove_file(&self.pids).unwrap();
    }
}
