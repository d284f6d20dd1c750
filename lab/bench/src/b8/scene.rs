//! One process tree: how the bench makes it, detects its start and end, and removes all its processes.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agent_subprocess::{Marker, sweep};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use super::HANGS;
use super::group::Group;
use crate::harness::{Plan, Result, readable_by};
use crate::scripted_agent::words;

const VARIABLE: &str = "RLM_BENCH_TREE";
/// Time limit for the start of a process tree of a thousand processes.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A process tree to make. Dropping it ends the survivors, which it finds by their marker.
pub(super) struct Scene {
    shape: &'static str,
    count: usize,
    pub(super) marker: Marker,
    dir: TempDir,
    /// Every process holds the other end open, so this file ends when the last process has ended.
    alive: File,
}

impl Scene {
    pub(super) fn new(plan: &Plan, shape: &'static str, count: usize) -> Result<Self> {
        let dir = tempfile::tempdir_in(&plan.scratch)?;
        let fifo = dir.path().join("alive");
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0)?;
        let alive = rustix::fs::open(
            &fifo,
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let name = dir.path().file_name().unwrap_or_default().to_string_lossy();
        let name = name.replace('.', "");
        let marker = Marker {
            variable: VARIABLE.to_owned(),
            scope: format!("{}{name}", std::process::id()),
            member: "1".to_owned(),
        };
        let alive = alive.into();
        Ok(Self {
            shape,
            count,
            marker,
            dir,
            alive,
        })
    }

    /// Returns the command of the main process.
    pub(super) fn words(&self, group: Option<&Group>) -> Result<Vec<OsString>> {
        let fifo = self.dir.path().join("alive");
        let fifo = std::path::absolute(fifo)?;
        let fifo = fifo.to_str().ok_or("a path that is not text")?;
        let group = group.map_or("", Group::path);
        words(&["tree", self.shape, &self.count.to_string(), fifo, group])
    }

    /// Waits for one byte of each process.
    pub(super) fn wait_until_started(&self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        let mut buffer = [0; 4096];
        let mut there = 0;
        while there < self.count {
            if Instant::now() >= deadline {
                return Err(format!("only {there} of {} processes started", self.count).into());
            }
            // If no process has opened the other end yet, a read also returns zero.
            let soon = Instant::now() + Duration::from_millis(1);
            readable_by(&self.alive, deadline.min(soon))?;
            match (&self.alive).read(&mut buffer) {
                Ok(0) => crate::harness::pause(Duration::from_micros(100)),
                Ok(came) => there += came,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits for the end of the last process.
    pub(super) fn is_gone_within(&self, limit: Duration) -> Result<bool> {
        let deadline = Instant::now() + limit;
        loop {
            match (&self.alive).read(&mut [0; 64]) {
                Ok(0) => return Ok(true),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if !readable_by(&self.alive, deadline)? {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Makes the process tree, ends it without our crates (by a signal to its process group, or through its control group), and returns the ms
    /// until all processes are gone.
    pub(super) fn stop_plainly(&self, group: Option<&Group>) -> Result<Option<f64>> {
        let words = self.words(group)?;
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .env(
                VARIABLE,
                format!("{}.{}", self.marker.scope, self.marker.member),
            )
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0);
        let mut main = command.spawn()?;
        let stands = self.wait_until_started();
        let begun = Instant::now();
        match group {
            Some(group) => group.kill()?,
            None => {
                let pid = Pid::from_raw(main.id().cast_signed()).ok_or("a child has an id")?;
                kill_process_group(pid, Signal::KILL)?;
            }
        }
        main.wait()?;
        let gone = self.is_gone_within(HANGS)?;
        let took = begun.elapsed();
        stands?;
        Ok(gone.then_some(took.as_secs_f64() * 1e3))
    }

    /// Counts the survivors.
    pub(super) fn survivors(&self) -> usize {
        sweep::find(VARIABLE, &self.marker.scope).len()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let found = sweep::find(VARIABLE, &self.marker.scope);
        if !found.is_empty() {
            drop(sweep::end(found, Duration::from_secs(20)));
        }
    }
}
