//! The git status at each save, without delaying the save.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::run::run;
use super::run::{PATIENCE, Refusal};
use super::written::is_line_of_written;
use super::{Git, HEAD_COMMIT, ask};

/// The time that a save waits for a new status if there is an older one.
const BRIEF: Duration = Duration::from_millis(50);
/// The time limit of a git status in the background.
const LONG: Duration = Duration::from_secs(10);

/// The commit of a working tree, and the number of files that differ from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Glance {
    pub commit: Option<String>,
    pub changed: Option<u32>,
}

/// The newest status, and whether git is running for another one.
#[derive(Clone, Debug)]
pub(super) struct Glances {
    newest: Arc<watch::Sender<Glance>>,
    looking: Arc<AtomicBool>,
    /// Set when the first status has begun.
    begun: Arc<AtomicBool>,
    /// Set when counting took too long: later statuses read only the commit.
    slow: Arc<AtomicBool>,
}

impl Default for Glances {
    fn default() -> Self {
        Self {
            newest: Arc::new(watch::channel(Glance::default()).0),
            looking: Arc::default(),
            begun: Arc::default(),
            slow: Arc::default(),
        }
    }
}

impl Git {
    /// Returns the newest status.
    pub fn last_glance(&self) -> Glance {
        self.glances.newest.borrow().clone()
    }

    /// Requests a new status, and returns the newest available one. Without `patient`, that may be an older one.
    pub async fn glance(&self, patient: bool) -> Glance {
        let Some(top) = self.top.clone() else {
            return Glance::default();
        };
        let glances = &self.glances;
        let mut newest = glances.newest.subscribe();
        if !glances.looking.swap(true, Ordering::AcqRel) {
            let (glances, silent) = (glances.clone(), Arc::clone(&self.silent));
            let looks = self.looks.clone();
            drop(tokio::task::spawn_blocking(move || {
                let mut glance = None;
                if !glances.slow.load(Ordering::Relaxed) {
                    match run(&top, STATUS, LONG, looks.as_ref()) {
                        Ok(text) => glance = Some(Glance::read(&top, &text)),
                        Err(Refusal::Silent(_)) => glances.slow.store(true, Ordering::Relaxed),
                        Err(_) => {}
                    }
                }
                let glance = glance.unwrap_or_else(|| Glance {
                    commit: ask(&top, HEAD_COMMIT, &silent, looks.as_ref()),
                    changed: None,
                });
                glances.looking.store(false, Ordering::Release);
                glances.newest.send_replace(glance);
            }));
        }
        let is_first = !glances.begun.swap(true, Ordering::Relaxed);
        let patience = if patient || is_first { PATIENCE } else { BRIEF };
        // A late status is available for the next save.
        let _late = tokio::time::timeout(patience, newest.changed()).await;
        newest.borrow().clone()
    }
}

const STATUS: &[&str] = &[
    "status",
    "--porcelain=v2",
    "--branch",
    "--untracked-files=normal",
    "--ignore-submodules=dirty",
];

impl Glance {
    fn read(top: &Path, text: &str) -> Self {
        let commit = text
            .lines()
            .find_map(|line| line.strip_prefix("# branch.oid "));
        let is_changed = |line: &&str| !line.starts_with('#') && !is_line_of_written(top, line);
        let changed = text.lines().filter(is_changed).count();
        Self {
            commit: commit.filter(|it| *it != "(initial)").map(Into::into),
            changed: u32::try_from(changed).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s22a_s22b_git_status_is_the_commit_and_a_count() {
        let text = "# branch.oid 01ab\n# branch.head main\n1 .M N... 100644 100644 100644 a b README.md\n? new\n? \"#odd\\n\"";
        let seen = Glance::read(Path::new("/"), text);
        assert_eq!(
            (seen.commit.as_deref(), seen.changed),
            (Some("01ab"), Some(3))
        );
        let seen = Glance::read(Path::new("/"), "# branch.oid (initial)\n# branch.head main");
        assert_eq!((seen.commit, seen.changed), (None, Some(0)));
    }
}
