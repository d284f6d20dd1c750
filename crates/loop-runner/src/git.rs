//! What git says about the working tree, asked through the `git` command.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Project;

/// The most changed paths that are named in a prompt.
const MAX_CHANGED: usize = 20;
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the top of the working tree that holds `directory`, if git knows one.
pub(crate) fn top_level(directory: &Path) -> Option<PathBuf> {
    let top = PathBuf::from(ask(directory, &["rev-parse", "--show-toplevel"])?);
    top.is_absolute().then_some(top)
}

/// Returns the commit that the working tree is based on.
pub(crate) async fn head_commit(project: &Project) -> Option<String> {
    on_thread(project, &["rev-parse", "--verify", "--quiet", "HEAD"]).await
}

/// Returns the paths that differ from the last commit, the first of them only.
pub(crate) async fn changed(project: &Project) -> Option<Vec<String>> {
    const STATUS: &[&str] = &["status", "--porcelain", "--untracked-files=normal"];
    let status = on_thread(project, STATUS).await?;
    let mut lines: Vec<String> = status
        .lines()
        .take(MAX_CHANGED)
        .map(str::to_owned)
        .collect();
    let more = status.lines().count().saturating_sub(MAX_CHANGED);
    if more > 0 {
        lines.push(format!("… and {more} more"));
    }
    Some(lines)
}

/// A large repository can take its time: what takes too long is given up, and the loop goes on without it.
async fn on_thread(project: &Project, arguments: &'static [&'static str]) -> Option<String> {
    if !project.is_git() {
        return None;
    }
    let directory = project.root().to_owned();
    let answer = tokio::task::spawn_blocking(move || ask(&directory, arguments));
    tokio::time::timeout(PATIENCE, answer).await.ok()?.ok()?
}

/// Asks git, quietly: no answer, no git and no repository are all the same here.
fn ask(directory: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(directory)
        // Only looking must not take the index lock that the agent's own git needs.
        .env("GIT_OPTIONAL_LOCKS", "0")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end().to_owned())
}
