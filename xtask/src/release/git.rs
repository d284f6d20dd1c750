//! What git is asked, and the few things that it is told.

use crate::command::{self, Show};

/// Runs git at the root of the workspace and returns its first words, or its complaint.
pub(crate) fn git(arguments: &[&str]) -> Result<String, String> {
    let ended = command::run("git", arguments, Show::Never);
    match ended.success {
        true => Ok(ended.stdout.trim().to_owned()),
        false => Err(format!(
            "git {}: {}",
            arguments.join(" "),
            ended.output.trim()
        )),
    }
}

pub(crate) fn has_tag(tag: &str) -> bool {
    git(&[
        "rev-parse",
        "--quiet",
        "--verify",
        &format!("refs/tags/{tag}"),
    ])
    .is_ok()
}

/// Returns the newest tag of a crate that leads to what is checked out.
pub(crate) fn last_tag(name: &str) -> Option<String> {
    let pattern = format!("{name}-v[0-9]*");
    let tags = git(&[
        "tag",
        "--list",
        "--merged",
        "HEAD",
        "--sort=-version:refname",
        &pattern,
    ]);
    tags.ok()?.lines().next().map(Into::into)
}

/// Lists what is changed and not committed.
pub(crate) fn changes() -> Result<Vec<String>, String> {
    let changes = git(&["status", "--porcelain"])?;
    Ok(changes.lines().map(Into::into).collect())
}
