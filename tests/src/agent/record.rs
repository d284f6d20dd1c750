//! The records of a fake agent for the test: one file per start, one per child, and a log of signals.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, process};

use fs_err as fs;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::script::{ChildKind, SIGNALS};
use crate::survivors::stat;

/// One start of the fake agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AgentStart {
    /// The number of this start, from 1.
    pub start: u32,
    /// The arguments, including the program's name.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// The working directory.
    pub cwd: String,
    /// The whole stdin; `None` until its end.
    pub stdin: Option<String>,
    /// The process id.
    pub pid: i32,
    /// The session id.
    pub sid: i32,
    /// The parent at the start.
    pub ppid: i32,
    /// Open descriptors with their targets in `/proc/self/fd`.
    pub fds: BTreeMap<i32, String>,
    /// Names of the signals that were ignored at the start, without PIPE.
    pub ignored: Vec<String>,
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// When the kernel started the process, in its ticks.
    started: u64,
    /// Those of the four starts before whose processes were alive when this start was recorded.
    pub beside: Vec<u32>,
}

/// The number of earlier starts of which a start notices whether they are alive.
const NOTICED: u32 = 4;

/// The record of one child of a fake agent. The child writes this record when it is ready.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Child {
    /// The number of the agent's start.
    pub start: u32,
    /// The process id.
    pub pid: i32,
    /// The kind of the child.
    pub kind: ChildKind,
}

/// One signal that the fake agent or one of its children received.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Received {
    /// The number of the agent's start.
    pub start: u32,
    /// The process id of the receiver.
    pub pid: i32,
    /// Its name, without `SIG`.
    pub signal: String,
    /// Milliseconds since the epoch.
    pub at_ms: u64,
}

impl AgentStart {
    /// Records the state of this process. Must run before any file is opened.
    pub(super) fn prepare() -> io::Result<Self> {
        let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        let me = stat(process::id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self {
            start: 0,
            argv: env::args_os().map(text).collect(),
            env: env::vars_os()
                .map(|(name, value)| (text(name), text(value)))
                .collect(),
            cwd: env::current_dir()?.display().to_string(),
            stdin: None,
            pid: me.pid,
            sid: me.sid,
            ppid: me.ppid,
            fds: open_fds(),
            ignored: ignored_signals(),
            at_ms: now_ms(),
            started: me.started,
            beside: Vec::new(),
        })
    }

    /// Takes the next free number in `dir` and writes the record under it.
    pub(super) fn claim(&mut self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)?;
        let temporary = dir.join(format!(".start-{}", self.pid));
        loop {
            self.start += 1;
            let before = self.start.saturating_sub(NOTICED).max(1)..self.start;
            self.beside = before.filter(|number| is_alive(dir, *number)).collect();
            fs::write(&temporary, serde_json::to_vec_pretty(self)?)?;
            // A link fails if the name exists, so two parallel agents get two numbers, and no reader sees an incomplete record.
            match fs::hard_link(&temporary, self.path(dir)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => {
                    fs::remove_file(&temporary)?;
                    return other;
                }
            }
        }
    }

    /// Writes the record again, with the content of stdin.
    pub(super) fn complete(&mut self, dir: &Path, stdin: &[u8]) -> io::Result<()> {
        self.stdin = Some(String::from_utf8_lossy(stdin).into_owned());
        write_whole(&self.path(dir), self)
    }

    fn path(&self, dir: &Path) -> PathBuf {
        path_of(dir, self.start)
    }
}

fn path_of(dir: &Path, start: u32) -> PathBuf {
    dir.join(format!("start-{start:06}.json"))
}

/// Returns whether the process of a start is alive. A process that its parent has not reaped yet is not.
fn is_alive(dir: &Path, start: u32) -> bool {
    let text = fs::read(path_of(dir, start)).unwrap_or_default();
    let Ok(it) = serde_json::from_slice::<AgentStart>(&text) else {
        return false;
    };
    let process = stat(it.pid).filter(|process| process.started == it.started);
    process.is_some_and(|process| !matches!(process.state, 'Z' | 'X'))
}

/// Writes `value` so that a reader sees all of it or nothing.
pub(super) fn write_whole(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let temporary = path.with_extension(format!("tmp-{}", process::id()));
    fs::write(&temporary, serde_json::to_vec_pretty(value)?)?;
    fs::rename(&temporary, path)
}

/// Appends one line to the log of signals.
pub(super) fn log_signal(dir: &Path, start: u32, signal: i32) -> io::Result<()> {
    let name = SIGNALS
        .iter()
        .find(|known| known.1 == signal)
        .map_or_else(|| signal.to_string(), |known| known.0.into());
    let entry = Received {
        start,
        pid: process::id().cast_signed(),
        signal: name,
        at_ms: now_ms(),
    };
    let mut file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(dir.join("signals.ndjson"))?;
    file.write_all(format!("{}\n", serde_json::to_string(&entry)?).as_bytes())
}

/// Reads all records in `dir` whose name starts with `prefix`, in the order of their names.
pub(super) fn read_all<T: DeserializeOwned>(dir: &Path, prefix: &str) -> Vec<T> {
    let mut paths: Vec<_> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(prefix) && name.ends_with(".json")
        })
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| serde_json::from_slice(&fs::read(path).unwrap()).unwrap())
        .collect()
}

/// Reads the log of signals, oldest first.
pub(super) fn read_signals(dir: &Path) -> Vec<Received> {
    let text = fs::read_to_string(dir.join("signals.ndjson")).unwrap_or_default();
    let end = text.rfind('\n').map_or(0, |at| at + 1); // skip an incomplete last line
    text[..end]
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

pub(super) fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
}

fn open_fds() -> BTreeMap<i32, String> {
    let listing = format!("/proc/{}/fd", process::id());
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return BTreeMap::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let target = std::fs::read_link(entry.path()).ok()?.display().to_string();
            Some((entry.file_name().to_str()?.parse().ok()?, target))
        })
        .filter(|(_, target)| *target != listing)
        .collect()
}

fn ignored_signals() -> Vec<String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    // PIPE is excluded: Rust's runtime ignores it in every program.
    let ignored = |known: &&(&str, i32)| known.0 != "PIPE" && mask >> (known.1 - 1) & 1 == 1;
    SIGNALS
        .iter()
        .filter(ignored)
        .map(|known| known.0.to_owned())
        .collect()
}
