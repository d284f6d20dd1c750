//! The context of a tool call: the state that all tools of a session share.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use agent_subprocess::{ProcessId, ProcessName, ProcessStat, StopReport};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Access, WorkingDirectory};

/// The maximum number of files whose last read is remembered; then all are forgotten.
const MAX_FILES: usize = 10_000;
/// The maximum number of processes that a report names.
const MAX_NAMES: usize = 4_096;

/// The context of a tool call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolContext {
    /// The directory in which the agent works.
    pub directory: WorkingDirectory,
    /// Cancelled when the call must end.
    pub cancel: CancellationToken,
    /// Whether a person has frozen the agent, so its processes must be suspended.
    pub frozen: watch::Receiver<bool>,
    /// The access that was judged for this call; `None` if it was not judged.
    pub(crate) judged: Option<Access>,
    /// The files that the model has read.
    pub(crate) files: Arc<SeenFiles>,
    /// The ends of all processes that tools started.
    pub(crate) stops: Arc<Stops>,
}

impl ToolContext {
    /// Creates the context of a first call. A session makes its own; this is for tests of tools.
    #[must_use]
    pub fn new(directory: WorkingDirectory) -> Self {
        Self::frozen_by(directory, watch::channel(false).1)
    }

    pub(crate) fn frozen_by(directory: WorkingDirectory, frozen: watch::Receiver<bool>) -> Self {
        Self {
            directory,
            cancel: CancellationToken::new(),
            frozen,
            judged: None,
            files: Arc::default(),
            stops: Arc::default(),
        }
    }

    /// Returns the same context for the next call, which isn't cancelled, and not judged yet.
    pub(crate) fn for_next_call(&self) -> Self {
        Self {
            cancel: CancellationToken::new(),
            judged: None,
            ..self.clone()
        }
    }
}

/// The files that the model has read or written, with the state in which it knows them.
#[derive(Debug, Default)]
pub(crate) struct SeenFiles(Mutex<HashMap<PathBuf, FileStamp>>);

/// The metadata that a change of the file changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl SeenFiles {
    /// Records that the model knows the file in this state.
    pub(crate) fn record(&self, path: &Path, stamp: FileStamp) {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if files.len() >= MAX_FILES {
            files.clear();
        }
        files.insert(path.to_owned(), stamp);
    }

    /// Returns the state in which the model knows the file.
    pub(crate) fn stamp(&self, path: &Path) -> Option<FileStamp> {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.get(path).copied()
    }
}

/// The ends of the processes that tools started, for the report of a stop.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    recorded: Mutex<Vec<RecordedStop>>,
    /// The number of processes that may run although no report names them: their starts did not return.
    unproven: AtomicUsize,
}

/// The end of one process tree.
#[derive(Debug)]
struct RecordedStop {
    report: StopReport,
    /// The identities of the survivors; `None` for a process that can't be identified.
    survivors: Vec<Option<ProcessId>>,
}

impl RecordedStop {
    fn new(report: StopReport) -> Self {
        let id = |name: &ProcessName| ProcessStat::read(name.pid).map(|stat| stat.process);
        let survivors = report.survivors.iter().map(id).collect();
        Self { report, survivors }
    }
}

impl Stops {
    /// Records the end of a process tree. If the call ended by itself, only its survivors matter later.
    pub(crate) fn record(&self, report: StopReport, was_cancelled: bool) {
        let mut stops = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        stops.retain(|stop| !stop.report.survivors.is_empty());
        let matters = was_cancelled || !report.survivors.is_empty();
        if matters && stops.len() < MAX_NAMES {
            stops.push(RecordedStop::new(report));
        }
    }

    /// Records that a process may run although no report names it: its start did not return.
    pub(crate) fn record_unproven(&self) {
        self.unproven.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes one record of [`record_unproven`](Self::record_unproven): its start returned. Record the end of the process first.
    pub(crate) fn remove_unproven(&self) {
        self.unproven.fetch_sub(1, Ordering::Release);
    }

    /// Returns whether a process may run although no report names it.
    pub(crate) fn is_unproven(&self) -> bool {
        self.unproven.load(Ordering::Acquire) > 0
    }

    /// Records the end of a process tree that belongs to no call, besides the other reports.
    pub(crate) fn record_also(&self, report: StopReport) {
        let mut stops = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        if stops.len() < MAX_NAMES {
            stops.push(RecordedStop::new(report));
        }
    }

    /// Returns the report of the last call, those that belong to no call, and all reports with survivors. A survivor that has ended since is not
    /// named, but the report is no better proof: the survivor may have started other processes.
    ///
    /// The second value is whether the stop was proven.
    pub(crate) fn reports(&self) -> Vec<(StopReport, bool)> {
        let stops = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        let reports = stops.iter().map(|stop| {
            let mut report = stop.report.clone();
            let is_proven = report.is_proven();
            let mut ids = stop.survivors.iter();
            let is_left = |_: &ProcessName| {
                let id = ids.next().copied().flatten();
                id.is_none_or(|id| id.is_alive())
            };
            report.survivors.retain(is_left);
            (report, is_proven)
        });
        reports.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use agent_subprocess::{Containment, StopPolicy, TreeCommand};

    use super::*;

    #[tokio::test]
    async fn a4_survivor_that_has_ended_is_not_named_by_a_later_stop() {
        let mut tree = TreeCommand::new("true")
            .containment(Containment::Group)
            .spawn()
            .await
            .unwrap();
        let mut report = tree.stop(&StopPolicy::kill()).await;
        // A guard would have proven the end of all others.
        report.containment = Containment::Guard;
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        report.survivors.push(ProcessName {
            pid: child.id(),
            name: "cat".to_owned(),
        });
        let stops = Stops::default();
        stops.record(report, false);
        let survivors = || stops.reports()[0].0.survivors.len();
        assert_eq!(survivors(), 1);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(survivors(), 0);
        assert!(!stops.reports()[0].1, "its own processes are unknown");
    }
}
