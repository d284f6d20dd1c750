//! What git says about the working tree, asked through the `git` command.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use looks::{Looks, Owed};
use run::PATIENCE;
use written::is_line_of_written;

pub(crate) mod bundle;
pub mod commit;
mod glance;
pub mod looks;
mod run;
pub(crate) mod tree;
pub mod written;

pub(crate) use run::{Call, Hooks, is_object_name};
pub use run::{LIMIT, POINTERS, Refusal, complaint};
pub(crate) use run::{run, run_with};

/// The most changed paths that are named in a prompt.
const MAX_CHANGED: usize = 20;
const HEAD_COMMIT: &[&str] = &["rev-parse", "--verify", "--quiet", "HEAD"];
/// All files of a working tree but the state of runs, which is ignored by a file that an agent may just have removed. It is left out by patterns: git
/// fails on an ignored path that is named, though it is named to be left out.
pub(crate) const ALL_FILES: [&str; 3] =
    [":(top)", ":(top,exclude).rl[m]", ":(top,exclude).rl[m]/*"];

/// The repository of a working tree, if it has one.
#[derive(Clone, Debug)]
pub struct Git {
    top: Option<PathBuf>,
    /// The repository that is there, but that git does not touch.
    foreign: Option<PathBuf>,
    /// Set when git did not answer in time: it is not waited for again.
    silent: Arc<AtomicBool>,
    glances: glance::Glances,
    /// Where what it runs is known; nowhere in a command that only reads, where git is in the command's own process group.
    pub(crate) looks: Option<Looks>,
}

impl Git {
    /// Looks for the repository that holds `directory`.
    pub(crate) fn find(directory: &Path) -> Self {
        let looks = Looks::watched();
        let top = match may_be_in_repository(directory) {
            true => run(
                directory,
                &["rev-parse", "--show-toplevel"],
                PATIENCE,
                looks.as_ref(),
            ),
            false => Err(Refusal::no_tree()),
        };
        let foreign = match &top {
            Err(Refusal::Said(why)) if why.contains("dubious ownership") => {
                let place = why.split('\'').nth(1).map(PathBuf::from);
                Some(place.unwrap_or_else(|| directory.to_owned()))
            }
            _ => None,
        };
        let silent = matches!(top, Err(Refusal::Silent(_)));
        let top = top.ok().map(PathBuf::from);
        Self {
            top: top.filter(|top| top.is_absolute()),
            foreign,
            silent: Arc::new(AtomicBool::new(silent)),
            glances: glance::Glances::default(),
            looks,
        }
    }

    /// Says what to do where there is a repository that git does not touch because it is somebody else's, as on a volume of a container.
    pub(crate) fn refusal(&self) -> Option<String> {
        let place = self.foreign.as_ref()?.display();
        Some(format!(
            "it belongs to another user, so git does not touch it: git config --global --add safe.directory {place}, or chown it"
        ))
    }

    /// Lets what it runs from now on be known there.
    pub fn known_to(&mut self, looks: Looks) {
        self.looks = Some(looks);
    }

    /// Returns the same for another working tree, whose top this is.
    pub(crate) fn at(&self, top: &Path) -> Self {
        Self {
            top: Some(top.to_owned()),
            foreign: None,
            silent: Arc::default(),
            glances: glance::Glances::default(),
            looks: self.looks.clone(),
        }
    }

    /// Returns the same for taking back what was made, also when that was ended.
    pub(crate) fn taking_back(&self, owed: &Owed) -> Self {
        Self {
            looks: owed.looks(),
            ..self.clone()
        }
    }

    /// Returns where what it runs is known.
    pub(crate) fn looks(&self) -> Option<&Looks> {
        self.looks.as_ref()
    }

    /// Returns the top of the working tree.
    pub fn top(&self) -> Option<&Path> {
        self.top.as_deref()
    }

    /// Returns the commit that the working tree is based on.
    pub async fn head_commit(&self) -> Option<String> {
        self.on_thread(HEAD_COMMIT).await
    }

    /// The same, on this thread.
    pub(crate) fn head_commit_now(&self) -> Option<String> {
        self.ask(HEAD_COMMIT)
    }

    /// Returns the paths that differ from the last commit, the first of them only.
    pub async fn changed(&self) -> Option<Vec<String>> {
        let status = self
            .on_thread(&["status", "--porcelain", "--untracked-files=normal"])
            .await?;
        let top = self.top()?;
        let all = status.lines().filter(|line| !is_line_of_written(top, line));
        let mut lines: Vec<String> = all.clone().take(MAX_CHANGED).map(str::to_owned).collect();
        let more = all.count().saturating_sub(MAX_CHANGED);
        if more > 0 {
            lines.push(format!("… and {more} more"));
        }
        Some(lines)
    }

    /// Asks on this thread, with little patience.
    pub fn ask(&self, arguments: &[&str]) -> Option<String> {
        ask(self.top()?, arguments, &self.silent, self.looks.as_ref())
    }

    /// Counts the files that differ from the last commit, on this thread.
    pub(crate) fn change_count(&self) -> Option<usize> {
        let status = self.ask(&["status", "--porcelain", "--untracked-files=normal"])?;
        let (top, lines) = (self.top()?, status.lines());
        Some(lines.filter(|line| !is_line_of_written(top, line)).count())
    }

    /// Says which files a commit changed and by how many lines, on this thread.
    pub(crate) fn stat(&self, commit: &str) -> Option<String> {
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
        is_object_name(commit).then(|| self.ask(&show))?
    }

    /// Asks on this thread, with patience.
    pub(crate) fn answer(&self, arguments: &[&str]) -> Result<String, Refusal> {
        let top = self.top().ok_or_else(Refusal::no_tree)?;
        run(top, arguments, LIMIT, self.looks.as_ref())
    }

    /// Returns the commit that `name` stands for, if it is here. Blocks.
    pub(crate) fn commit_of(&self, name: &str) -> Option<String> {
        let commit = format!("{name}^{{commit}}");
        self.answer(&["rev-parse", "--verify", "--quiet", &commit])
            .ok()
    }

    async fn on_thread(&self, arguments: &'static [&'static str]) -> Option<String> {
        let (top, silent) = (self.top.clone()?, Arc::clone(&self.silent));
        let looks = self.looks.clone();
        let answer =
            tokio::task::spawn_blocking(move || ask(&top, arguments, &silent, looks.as_ref()));
        answer.await.ok()?
    }
}

/// Returns whether a directory or one above it has a `.git`; without one, git finds no working tree, because [`POINTERS`] are not handed on.
fn may_be_in_repository(directory: &Path) -> bool {
    let mut above = directory.ancestors();
    !directory.is_absolute() || above.any(|it| it.join(".git").try_exists().unwrap_or(true))
}

/// Asks git, quietly: no answer, no git and no repository are all the same here.
///
/// A large repository can take its time, and a network file system for ever: what takes too long is killed, and the loop goes on without it.
fn ask(
    directory: &Path,
    arguments: &[&str],
    silent: &AtomicBool,
    looks: Option<&Looks>,
) -> Option<String> {
    if silent.load(Ordering::Relaxed) {
        return None;
    }
    match run(directory, arguments, PATIENCE, looks) {
        Ok(text) => Some(text),
        Err(Refusal::Silent(_)) => {
            silent.store(true, Ordering::Relaxed);
            None
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_is_asked_only_where_a_directory_above_has_a_repository() {
        let place = tempfile::tempdir().unwrap();
        let below = place.path().join("a/b");
        fs_err::create_dir_all(&below).unwrap();
        assert!(!may_be_in_repository(&below));
        // Of another working tree, or of a submodule.
        fs_err::write(place.path().join("a/.git"), "gitdir: elsewhere").unwrap();
        assert!(may_be_in_repository(&below));
        assert!(may_be_in_repository(Path::new("relative")));
    }
}
