//! The machine that the figures are from, and how noisy it was.

use std::process::{Command, Stdio};

use serde::Serialize;

/// What the report tells of the machine.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Machine {
    kernel: String,
    processor: String,
    cores: usize,
    memory_mib: Option<u64>,
    /// 1, 5 and 15 minutes, before and after the run.
    load_before: String,
    load_after: String,
    profile: &'static str,
    /// What was measured, where git tells.
    revision: String,
}

impl Machine {
    /// Looks at it before the run.
    pub(crate) fn before() -> Self {
        let uname = rustix::system::uname();
        Self {
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
        }
    }

    /// Looks at it again.
    pub(crate) fn after(&mut self) {
        self.load_after = load();
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let memory = self
            .memory_mib
            .map_or_else(|| "unknown".into(), |mib| format!("{mib} MiB"));
        vec![
            format!("kernel {}; {}", self.kernel, self.processor),
            format!(
                "{} cores; memory {memory}; revision {}, profile {}",
                self.cores, self.revision, self.profile
            ),
            format!(
                "load average {} before, {} after; what is near the number of cores is noise, so trust the ratios of pairs",
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
