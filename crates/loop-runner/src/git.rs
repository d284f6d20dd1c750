//! What git says about the working tree, asked through the `git` command.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

/// The most changed paths that are named in a prompt.
const MAX_CHANGED: usize = 20;

/// The state of the project's repository at a save; empty outside git.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GitState {
    pub(crate) commit: Option<String>,
    pub(crate) changed: Option<Vec<String>>,
}

/// Returns the top of the working tree that holds `directory`, if git knows one.
pub(crate) fn top_level(directory: &Path) -> Option<PathBuf> {
    let top = PathBuf::from(ask(directory, &["rev-parse", "--show-toplevel"])?);
    top.is_absolute().then_some(top)
}

pub(crate) fn head_commit(directory: &Path) -> Option<String> {
    ask(directory, &["rev-parse", "--verify", "--quiet", "HEAD"])
}

/// Returns the paths that differ from the last commit, the first of them only.
pub(crate) fn changed(directory: &Path) -> Option<Vec<String>> {
    let status = ask(
        directory,
        &["status", "--porcelain", "--untracked-files=normal"],
    )?;
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
