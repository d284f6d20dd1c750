//! A control group (v2) of our own, if the system has control groups and permits it.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::harness::{Result, pause};

/// A control group. Dropping it removes it.
pub(super) struct Group(String);

impl Group {
    /// Makes a control group below the one of this process.
    ///
    /// # Errors
    ///
    /// Fails when that is impossible; the error has the reason.
    pub(super) fn make() -> Result<Self> {
        let mounts = fs_err::read_to_string("/proc/self/mounts")?;
        let mut mounts = mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>());
        let mount = mounts
            .find(|mount| mount.get(2) == Some(&"cgroup2"))
            .ok_or("no cgroup v2 is mounted")?;
        let own = fs_err::read_to_string("/proc/self/cgroup")?;
        let own = own
            .lines()
            .find_map(|line| line.strip_prefix("0::"))
            .ok_or("this process is in no cgroup v2")?;
        let path = format!(
            "{}{}/rlm-bench-{}",
            mount[1],
            own.trim_end_matches('/'),
            std::process::id()
        );
        fs_err::create_dir(&path)?;
        let group = Self(path);
        if Path::new(&group.file("cgroup.kill")).exists() {
            Ok(group)
        } else {
            Err("this kernel has no cgroup.kill".into())
        }
    }

    pub(super) fn path(&self) -> &str {
        &self.0
    }

    pub(super) fn kill(&self) -> Result<()> {
        Ok(fs_err::write(self.file("cgroup.kill"), "1")?)
    }

    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        drop(self.kill());
        // The group is busy until the last of its processes is reaped.
        let deadline = Instant::now() + Duration::from_secs(5);
        while fs_err::remove_dir(&self.0).is_err() && Instant::now() < deadline {
            pause(Duration::from_millis(5));
        }
    }
}
