//! The git status at each save, without delaying the save.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::own_files::is_status_line_of_own_file;
use super::run::{GitError, QUERY_TIMEOUT, run};
use super::{Git, HEAD_COMMIT, query};

/// The time that a save waits for a new status if there is an older one.
const STATUS_WAIT: Duration = Duration::from_millis(50);
/// The time limit of a git status in the background.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// The commit of a working tree, and the number of files that differ from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitStatus {
    pub commit: Option<String>,
    pub changed: Option<u32>,
}

/// The newest status, and whether git is running for another one.
#[derive(Clone, Debug)]
pub(super) struct StatusCache {
    latest: Arc<watch::Sender<Found>>,
    is_running: Arc<AtomicBool>,
    /// Set when the first status has begun.
    has_begun: Arc<AtomicBool>,
    /// Set when counting took too long: later statuses read only the commit.
    is_slow: Arc<AtomicBool>,
}

/// A status, and when git began to find it.
#[derive(Clone, Debug, Default)]
struct Found {
    status: GitStatus,
    begun: Option<Instant>,
}

impl Default for StatusCache {
    fn default() -> Self {
        Self {
            latest: Arc::new(watch::channel(Found::default()).0),
            is_running: Arc::default(),
            has_begun: Arc::default(),
            is_slow: Arc::default(),
        }
    }
}

impl Git {
    /// Returns the newest status.
    pub fn last_status(&self) -> GitStatus {
        self.status_cache.latest.borrow().status.clone()
    }

    /// Returns the commit of the working tree if a status that began at `time` or later found no file that differs from it.
    pub fn clean_commit_since(&self, time: Instant) -> Option<String> {
        let Found { status, begun } = self.status_cache.latest.borrow().clone();
        let is_clean = status.changed == Some(0) && begun.is_some_and(|begun| begun >= time);
        status.commit.filter(|_| is_clean)
    }

    /// Requests a new status, and returns the newest available one. Without `must_wait`, that may be an older one.
    pub async fn status(&self, must_wait: bool) -> GitStatus {
        let Some(top) = self.top.clone() else {
            return GitStatus::default();
        };
        let cache = &self.status_cache;
        let mut newest = cache.latest.subscribe();
        if !cache.is_running.swap(true, Ordering::AcqRel) {
            let (cache, silent) = (cache.clone(), Arc::clone(&self.is_unresponsive));
            let processes = self.processes.clone();
            drop(tokio::task::spawn_blocking(move || {
                let begun = Some(Instant::now());
                let mut status = None;
                if !cache.is_slow.load(Ordering::Relaxed) {
                    match run(&top, STATUS, STATUS_TIMEOUT, processes.as_ref()) {
                        Ok(text) => status = Some(GitStatus::read(&top, &text)),
                        Err(GitError::TimedOut(_)) => cache.is_slow.store(true, Ordering::Relaxed),
                        Err(_) => {}
                    }
                }
                let status = status.unwrap_or_else(|| GitStatus {
                    commit: query(&top, HEAD_COMMIT, &silent, processes.as_ref()),
                    changed: None,
                });
                cache.is_running.store(false, Ordering::Release);
                cache.latest.send_replace(Found { status, begun });
            }));
        }
        let is_first = !cache.has_begun.swap(true, Ordering::Relaxed);
        let limit = if must_wait || is_first {
            QUERY_TIMEOUT
        } else {
            STATUS_WAIT
        };
        // A late status is available for the next save.
        let _late = tokio::time::timeout(limit, newest.changed()).await;
        newest.borrow().status.clone()
    }
}

const STATUS: &[&str] = &[
    "status",
    "--porcelain=v2",
    "--branch",
    "--untracked-files=normal",
    "--ignore-submodules=dirty",
];

impl GitStatus {
    fn read(top: &Path, text: &str) -> Self {
        let commit = text
            .lines()
            .find_map(|line| line.strip_prefix("# branch.oid "));
        let is_changed =
            |line: &&str| !line.starts_with('#') && !is_status_line_of_own_file(top, line);
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
        let seen = GitStatus::read(Path::new("/"), text);
        assert_eq!(
            (seen.commit.as_deref(), seen.changed),
            (Some("01ab"), Some(3))
        );
        let seen = GitStatus::read(Path::new("/"), "# branch.oid (initial)\n# branch.head main");
        assert_eq!((seen.commit, seen.changed), (None, Some(0)));
    }
    #[tokio::test]
    async fn clean_commit_is_known_only_from_a_status_that_began_later() {
        let place = tempfile::tempdir().unwrap();
        let git = |arguments: &[&str]| {
            let name = ["-c", "user.name=a", "-c", "user.email=a@localhost"];
            let mut git = std::process::Command::new("git");
            let git = git.current_dir(place.path()).args(name).args(arguments);
            assert!(git.status().unwrap().success());
        };
        git(&["init", "-q"]);
        git(&["commit", "-q", "--allow-empty", "-m", "a"]);
        let found = Git::find(place.path());
        let begun = Instant::now();
        assert_eq!(found.clean_commit_since(begun), None);
        let status = found.status(true).await;
        assert_eq!(found.clean_commit_since(begun), status.commit);
        assert!(status.commit.is_some());
        assert_eq!(found.clean_commit_since(Instant::now()), None);

        fs_err::write(place.path().join("new"), "").unwrap();
        found.status(true).await;
        assert_eq!(found.clean_commit_since(begun), None);
    }
}
