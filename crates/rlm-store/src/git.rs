//! The git status, history and commits of a working tree, read and written by the `git` command.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use own_files::is_status_line_of_own_file;
use places::Places;
use processes::{GitProcesses, Rollback};
use run::QUERY_TIMEOUT;

pub(crate) mod bundle;
pub mod changes;
pub mod commit;
pub mod own_files;
mod places;
pub mod processes;
mod run;
mod snapshot;
mod status;
pub(crate) mod worktree;

pub use run::{COMMAND_TIMEOUT, GitError, REPOSITORY_VARIABLES, error_text};
pub(crate) use run::{GitCall, Hooks, is_object_name};
pub(crate) use run::{run, run_with};

/// The largest number of changed paths in a prompt.
const MAX_CHANGED: usize = 20;
const HEAD_COMMIT: &[&str] = &["rev-parse", "--verify", "--quiet", "HEAD"];
/// All files of a working tree except the state of runs, whose ignore file an agent may have just removed. The exclusions are the pattern `.rl[m]`,
/// because git fails on the literal path of an ignored file, even in an exclusion.
pub(crate) const ALL_FILES: [&str; 3] =
    [":(top)", ":(top,exclude).rl[m]", ":(top,exclude).rl[m]/*"];

/// The repository of a working tree, if there is one.
#[derive(Clone, Debug)]
pub struct Git {
    top: Option<PathBuf>,
    /// Set when git was asked for them.
    places: Arc<OnceLock<Places>>,
    /// The repository that exists but belongs to another user, so that git refuses to use it.
    foreign: Option<PathBuf>,
    /// Set when git did not respond in time; later calls don't wait for it.
    is_unresponsive: Arc<AtomicBool>,
    status_cache: status::StatusCache,
    /// The registry of the git processes; `None` in a command that only reads, whose git processes are in its own process group.
    pub(crate) processes: Option<GitProcesses>,
}

impl Git {
    /// Finds the repository that contains `directory`.
    pub(crate) fn find(directory: &Path) -> Self {
        let processes = GitProcesses::of_process();
        let found = match may_be_in_repository(directory) {
            true => Places::find(directory, QUERY_TIMEOUT, processes.as_ref()),
            false => Err(GitError::not_a_repository()),
        };
        let foreign = match &found {
            Err(GitError::Failed(why)) if why.contains("dubious ownership") => {
                let place = why.split('\'').nth(1).map(PathBuf::from);
                Some(place.unwrap_or_else(|| directory.to_owned()))
            }
            _ => None,
        };
        let is_unresponsive = matches!(found, Err(GitError::TimedOut(_)));
        let found = found.ok().filter(|found| found.top.is_absolute());
        Self {
            top: found.as_ref().map(|found| found.top.clone()),
            places: Arc::new(found.map_or_else(OnceLock::new, OnceLock::from)),
            foreign,
            is_unresponsive: Arc::new(AtomicBool::new(is_unresponsive)),
            status_cache: status::StatusCache::default(),
            processes,
        }
    }

    /// Returns the repository of a known top; doesn't run git.
    pub(crate) fn at(top: &Path) -> Self {
        Self {
            top: may_be_in_repository(top).then(|| top.to_owned()),
            places: Arc::default(),
            foreign: None,
            is_unresponsive: Arc::default(),
            status_cache: status::StatusCache::default(),
            processes: GitProcesses::of_process(),
        }
    }

    /// Returns why git refuses to use the repository, with the fix: it belongs to another user, as on a volume of a container.
    pub(crate) fn unusable_reason(&self) -> Option<String> {
        let place = self.foreign.as_ref()?.display();
        Some(format!(
            "git refuses this repository because it belongs to another user: git config --global --add safe.directory {place}, or chown it"
        ))
    }

    /// Registers in `processes` the git processes that this value starts from now on.
    pub fn track_processes_in(&mut self, processes: GitProcesses) {
        self.processes = Some(processes);
    }

    /// Returns git for another working tree with this top.
    pub(crate) fn in_tree(&self, top: &Path) -> Self {
        Self {
            top: Some(top.to_owned()),
            places: Arc::default(),
            foreign: None,
            is_unresponsive: Arc::default(),
            status_cache: status::StatusCache::default(),
            processes: self.processes.clone(),
        }
    }

    /// Returns git for a rollback, which works even after a stop.
    pub(crate) fn for_rollback(&self, rollback: &Rollback) -> Self {
        Self {
            processes: rollback.processes(),
            ..self.clone()
        }
    }

    /// Returns the registry of its processes.
    pub(crate) fn processes(&self) -> Option<&GitProcesses> {
        self.processes.as_ref()
    }

    /// Returns the top of the working tree.
    pub fn top(&self) -> Option<&Path> {
        self.top.as_deref()
    }

    /// Returns where the parts of the repository are. Blocks.
    fn places(&self) -> Result<&Places, GitError> {
        if let Some(known) = self.places.get() {
            return Ok(known);
        }
        let top = self.top().ok_or_else(GitError::not_a_repository)?;
        let found = Places::find(top, COMMAND_TIMEOUT, self.processes.as_ref())?;
        Ok(self.places.get_or_init(|| found))
    }

    /// Returns the commit that the working tree is based on.
    pub async fn head_commit(&self) -> Option<String> {
        self.on_thread(HEAD_COMMIT).await
    }

    /// Returns the same commit, on this thread.
    pub(crate) fn head_commit_now(&self) -> Option<String> {
        self.query(HEAD_COMMIT)
    }

    /// Returns the first paths that differ from the last commit.
    pub async fn changed(&self) -> Option<Vec<String>> {
        let status = self
            .on_thread(&["status", "--porcelain", "--untracked-files=normal"])
            .await?;
        let top = self.top()?;
        let all = status
            .lines()
            .filter(|line| !is_status_line_of_own_file(top, line));
        let mut lines: Vec<String> = all.clone().take(MAX_CHANGED).map(str::to_owned).collect();
        let more = all.count().saturating_sub(MAX_CHANGED);
        if more > 0 {
            lines.push(format!("… and {more} more"));
        }
        Some(lines)
    }

    /// Runs git on this thread, with a short time limit.
    pub fn query(&self, arguments: &[&str]) -> Option<String> {
        query(
            self.top()?,
            arguments,
            &self.is_unresponsive,
            self.processes.as_ref(),
        )
    }

    /// Counts the files that differ from the last commit, on this thread.
    pub(crate) fn change_count(&self) -> Option<usize> {
        let status = self.query(&["status", "--porcelain", "--untracked-files=normal"])?;
        let (top, lines) = (self.top()?, status.lines());
        Some(
            lines
                .filter(|line| !is_status_line_of_own_file(top, line))
                .count(),
        )
    }

    /// Returns the changed files of a commit with their numbers of lines, on this thread.
    pub(crate) fn diff_stat(&self, commit: &str) -> Option<String> {
        let show = [
            "show",
            "--stat=100,70",
            "--stat-count=200",
            "--format=",
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
            "--no-show-signature",
            commit,
            "--",
        ];
        is_object_name(commit).then(|| self.query(&show))?
    }

    /// Runs git on this thread, with a long time limit.
    pub(crate) fn output(&self, arguments: &[&str]) -> Result<String, GitError> {
        let top = self.top().ok_or_else(GitError::not_a_repository)?;
        run(top, arguments, COMMAND_TIMEOUT, self.processes.as_ref())
    }

    /// Returns the commit that `name` stands for, if the repository has it. Blocks.
    pub(crate) fn commit_of(&self, name: &str) -> Option<String> {
        let commit = format!("{name}^{{commit}}");
        self.output(&["rev-parse", "--verify", "--quiet", &commit])
            .ok()
    }

    async fn on_thread(&self, arguments: &'static [&'static str]) -> Option<String> {
        let (top, is_unresponsive) = (self.top.clone()?, Arc::clone(&self.is_unresponsive));
        let processes = self.processes.clone();
        let answer = tokio::task::spawn_blocking(move || {
            query(&top, arguments, &is_unresponsive, processes.as_ref())
        });
        answer.await.ok()?
    }
}

/// Returns whether a directory or a directory above it has a `.git`. Without one, git finds no working tree, because [`REPOSITORY_VARIABLES`] are not
/// passed on.
fn may_be_in_repository(directory: &Path) -> bool {
    let mut above = directory.ancestors();
    !directory.is_absolute() || above.any(|it| it.join(".git").try_exists().unwrap_or(true))
}

/// Runs git. Returns `None` if git does not respond, git is not installed, or there is no repository.
///
/// Git may be slow in a large repository, and hang on a network file system: it is killed at the time limit, and the loop continues without its
/// output.
fn query(
    directory: &Path,
    arguments: &[&str],
    is_unresponsive: &AtomicBool,
    processes: Option<&GitProcesses>,
) -> Option<String> {
    if is_unresponsive.load(Ordering::Relaxed) {
        return None;
    }
    match run(directory, arguments, QUERY_TIMEOUT, processes) {
        Ok(text) => Some(text),
        Err(GitError::TimedOut(_)) => {
            is_unresponsive.store(true, Ordering::Relaxed);
            None
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_runs_only_inside_a_repository() {
        let place = tempfile::tempdir().unwrap();
        let below = place.path().join("a/b");
        fs_err::create_dir_all(&below).unwrap();
        assert!(!may_be_in_repository(&below));
        // A `.git` file is that of another working tree, or of a submodule.
        fs_err::write(place.path().join("a/.git"), "gitdir: elsewhere").unwrap();
        assert!(may_be_in_repository(&below));
        assert!(may_be_in_repository(Path::new("relative")));
    }
}
