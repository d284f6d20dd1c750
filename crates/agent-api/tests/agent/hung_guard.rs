//! A guard that answers nothing, so that a start hangs as on a broken disk.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use agent_subprocess::guard;

/// The guard of this process from now on.
pub(crate) struct HungGuard {
    link: PathBuf,
    pid: PathBuf,
}

impl HungGuard {
    /// Makes this process use such a guard, whose files are in `folder`.
    pub(crate) fn install(folder: &Path) -> Self {
        let [link, pid, script] = ["guard-link", "guard-pid", "guard"].map(|it| folder.join(it));
        let text = format!(
            "#!/bin/sh\necho $$ > {0}.new; mv {0}.new {0}\nexec sleep 600\n",
            pid.display()
        );
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        symlink(&script, &link).unwrap();
        guard::guard_program(&link);
        Self { link, pid }
    }

    /// Returns the guard's process id if a start hangs.
    pub(crate) fn hangs(&self) -> Option<String> {
        let pid = fs::read_to_string(&self.pid).unwrap_or_default();
        let line = fs::read(format!("/proc/{}/cmdline", pid.trim()));
        line.is_ok_and(|line| line == b"sleep\x00600\x00")
            .then_some(pid)
    }

    /// Ends the guard, which still runs because only the caller of the start gave up.
    pub(crate) fn end(self) {
        // Without it, the start can't try again.
        fs::remove_file(&self.link).unwrap();
        let pid = self.hangs().expect("the start still hangs");
        let mut kill = Command::new("kill");
        assert!(kill.args(["-9", pid.trim()]).status().unwrap().success());
        fs::remove_file(&self.pid).unwrap();
    }
}
