//! The git commands of a release.

use std::path::Path;
use std::process::Command;

use crate::command::{self, Show};

/// Runs git in the root of the workspace. Returns its trimmed output, or its error.
pub(crate) fn git(arguments: &[&str]) -> Result<String, String> {
    git_in(Path::new("."), arguments)
}

/// Does the same in another directory.
pub(crate) fn git_in(folder: &Path, arguments: &[&str]) -> Result<String, String> {
    let mut git = Command::new("git");
    let ended = command::finish(git.current_dir(folder).args(arguments), Show::Never);
    match ended.success {
        true => Ok(ended.stdout.trim().to_owned()),
        false => Err(format!(
            "git {}: {}",
            arguments.join(" "),
            ended.output.trim()
        )),
    }
}

pub(crate) fn has_tag(root: &Path, tag: &str) -> bool {
    let name = format!("refs/tags/{tag}");
    git_in(root, &["rev-parse", "--quiet", "--verify", &name]).is_ok()
}

/// Returns the newest tag of a crate that is an ancestor of the checked-out commit.
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

/// Returns an error for a clone that lacks commits, and therefore tags: every crate would look new.
pub(crate) fn whole(root: &Path) -> Result<(), String> {
    match git_in(root, &["rev-parse", "--is-shallow-repository"])?.as_str() {
        "false" => Ok(()),
        _ => Err("this clone is shallow: run `git fetch --unshallow --tags` first".into()),
    }
}

/// Lists the uncommitted changes.
pub(crate) fn changes() -> Result<Vec<String>, String> {
    let changes = git(&["status", "--porcelain"])?;
    Ok(changes.lines().map(Into::into).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shallow_clone_gets_a_hint_to_fetch_commits() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let (whole_one, shallow) = (path("whole"), path("shallow"));
        git(&["init", "--quiet", &whole_one]).unwrap();
        for subject in ["one", "two"] {
            let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
            let commit = ["commit", "--quiet", "--allow-empty", "--message", subject];
            git(&[&["-C", &whole_one], &who[..], &commit].concat()).unwrap();
        }
        let from = format!("file://{whole_one}");
        git(&["clone", "--quiet", "--depth=1", &from, &shallow]).unwrap();
        assert_eq!(whole(Path::new(&whole_one)), Ok(()));
        let why = whole(Path::new(&shallow)).unwrap_err();
        assert!(why.contains("git fetch --unshallow --tags"), "{why}");
    }
}
