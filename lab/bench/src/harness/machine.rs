//! The machine on which the figures were measured, and its load.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::Serialize;

/// The facts about the machine in the report.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Machine {
    date: String,
    kernel: String,
    /// The file system to which the benches write.
    file_system: String,
    processor: String,
    cores: usize,
    memory_mib: Option<u64>,
    /// The load averages of 1, 5 and 15 minutes, before and after the run.
    load_before: String,
    load_after: String,
    profile: &'static str,
    /// The revision that was measured, if git is available.
    revision: String,
    /// The measured programs of others, with their versions.
    pub(crate) peers: Vec<String>,
}

impl Machine {
    /// Collects the facts before a run that writes below `out`.
    pub(crate) fn before(out: &Path) -> Self {
        let uname = rustix::system::uname();
        Self {
            date: jiff::Timestamp::now().strftime("%F").to_string(),
            file_system: file_system(out),
            kernel: format!(
                "{} {}",
                uname.sysname().to_string_lossy(),
                uname.release().to_string_lossy()
            ),
            processor: value_of("/proc/cpuinfo", "model name")
                .unwrap_or_else(|| uname.machine().to_string_lossy().into_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: value_of("/proc/meminfo", "MemTotal")
                .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
                .map(|kib| kib / 1024),
            load_before: load(),
            load_after: String::new(),
            profile: if cfg!(debug_assertions) {
                "debug (its figures mean nothing)"
            } else {
                "release"
            },
            revision: revision().unwrap_or_else(|| "unknown".into()),
            peers: Vec::new(),
        }
    }

    /// Adds the load after the run.
    pub(crate) fn after(&mut self) {
        self.load_after = load();
    }

    /// Returns the day of the run, in UTC.
    pub(crate) fn date(&self) -> &str {
        &self.date
    }

    /// Returns the properties that machines must have in common for figures of different days to be comparable.
    pub(crate) fn kind(&self) -> String {
        let (os, processor) = (std::env::consts::OS, std::env::consts::ARCH);
        format!("{os} {processor}, {} cores", self.cores)
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let memory = self
            .memory_mib
            .map_or_else(|| "unknown".into(), |mib| format!("{mib} MiB"));
        vec![
            format!(
                "{}; revision {}, profile {}",
                self.date, self.revision, self.profile
            ),
            format!(
                "{}; {}; memory {memory}; kernel {}; {}",
                self.kind(),
                self.processor,
                self.kernel,
                self.file_system
            ),
            format!("peers: {}", self.peers.join(", ")),
            format!(
                "load average {} before, {} after; if it is near the number of cores, trust only the ratios of pairs, not the times",
                self.load_before, self.load_after
            ),
        ]
    }
}

fn revision() -> Option<String> {
    let git = Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .stderr(Stdio::null())
        .output();
    let told = String::from_utf8(git.ok()?.stdout).ok()?;
    Some(told.trim().to_owned()).filter(|told| !told.is_empty())
}

/// Names the file system to which the benches write.
#[cfg(target_os = "linux")]
fn file_system(dir: &Path) -> String {
    match rustix::fs::statfs(dir).map(|found| found.f_type) {
        Ok(0xef53) => "ext4".into(),
        Ok(0x5846_5342) => "XFS".into(),
        Ok(0x9123_683e) => "btrfs".into(),
        Ok(0x0102_1994) => "tmpfs, whose syncs cost nothing: the figures mean nothing".into(),
        Ok(kind) => format!("a file system of type {kind:#x}"),
        Err(error) => format!("an unknown file system ({error})"),
    }
}

#[cfg(not(target_os = "linux"))]
fn file_system(_: &Path) -> String {
    "an unknown file system".into()
}

fn value_of(path: &str, key: &str) -> Option<String> {
    let text = fs_err::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn load() -> String {
    let text = fs_err::read_to_string("/proc/loadavg").unwrap_or_default();
    let three: Vec<&str> = text.split(' ').take(3).collect();
    if three.len() < 3 {
        "unknown".into()
    } else {
        three.join(" ")
    }
}
