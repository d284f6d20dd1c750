//! The code of a run of a fleet, as git bundles: those of its project, and a working tree from them. It is separate from export and import because
//! there is no manifest, and a bundle can continue another one.

use std::io::Write as _;
use std::path::Path;

use uuid::Uuid;

use crate::git::{Git, bundle, is_object_name};
use crate::{Error, Project, state_dir};

/// The largest bundle in bytes.
const MAX_BUNDLE: u64 = 1 << 30;

impl Project {
    /// Returns a git bundle with the history of a commit, without the commits in the history of `since`; `None` if that leaves none. Blocks.
    ///
    /// # Errors
    ///
    /// An error if the commits don't exist, the repository is a shallow clone, or the bundle has more than 1 GiB.
    pub fn bundle_commit(
        &self,
        commit: &str,
        since: Option<&str>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let wrong = |why: String| Error::git(self.tree(), why);
        if !is_object_name(commit) || !since.is_none_or(is_object_name) {
            return Err(wrong("not the id of a commit".into()));
        }
        self.prepare()?;
        let scratch = self.state_dir().join(format!("bundle-{}", new_name()));
        let made = self.git().bundle_since(commit, since, &scratch);
        let read = made.map_err(wrong).and_then(|is_made| {
            let read = is_made.then(|| state_dir::read(&scratch, MAX_BUNDLE));
            let read = read.transpose();
            read.map_err(|e| Error::io("can't read", &scratch, e))
        });
        // If git made no bundle, there is no file.
        let _absent = state_dir::remove_file(&scratch);
        read
    }

    /// Makes a working tree in a new directory, on the branch `branch` at the last of `commits`. Each commit has its bundle, which can need the bundles
    /// before it. The bundles may come from an attacker. Blocks.
    ///
    /// # Errors
    ///
    /// An error if the directory exists, git rejects a bundle, or a commit has files of the state directory.
    pub fn check_out_bundles(
        directory: &Path,
        branch: &str,
        commits: &[(&str, &[u8])],
    ) -> Result<(), Error> {
        let wrong = |why: String| Error::git(directory, why);
        if state_dir::exists(directory) {
            return Err(wrong("the directory exists already".into()));
        }
        let made = state_dir::make_private_directory(directory);
        made.map_err(|e| Error::io("can't create", directory, e))?;
        let processes = Git::at(directory);
        bundle::init(directory, branch, processes.processes()).map_err(wrong)?;
        let git = processes.in_tree(directory);
        let mut refs = Vec::new();
        for (commit, bytes) in commits {
            refs.push(unbundle(&git, directory, commit, bytes)?);
        }
        let Some((commit, _)) = commits.last() else {
            return Err(wrong("there is no commit".into()));
        };
        super::place_files::refuse_state_in(&git, commit).map_err(wrong)?;
        let reset = git.run_untrusted(&["reset", "--quiet", "--hard", commit]);
        reset.map(drop).map_err(wrong)
    }

    /// Adds the commits of bundles to the repository of this project, and lets the branch `branch` lead to the last of them. The working tree stays as
    /// it is. The bundles may come from an attacker. Blocks.
    ///
    /// # Errors
    ///
    /// An error if git rejects a bundle, or the branch exists and has commits that the last one doesn't have.
    pub fn fetch_bundles(&self, branch: &str, commits: &[(&str, &[u8])]) -> Result<(), Error> {
        let wrong = |why: String| Error::git(self.tree(), why);
        self.prepare()?;
        let git = self.git();
        bundle::check_branch(self.tree(), branch, git.processes()).map_err(wrong)?;
        let mut refs = Vec::new();
        for (commit, bytes) in commits {
            refs.push(unbundle(git, &self.state_dir(), commit, bytes)?);
        }
        let Some((commit, _)) = commits.last() else {
            return Err(wrong("there is no commit".into()));
        };
        let name = format!("refs/heads/{branch}");
        let before = git.commit_of(&name);
        if { before.as_deref() }.is_some_and(|before| !git.is_ancestor(before, commit)) {
            let why = format!("branch {branch} exists here with other commits: rename it");
            return Err(wrong(why));
        }
        let updated = git.run_untrusted(&["update-ref", &name, commit]);
        updated.map(drop).map_err(wrong)
    }
}

/// Adds the commits of one bundle to a repository. Git keeps them while the returned refs exist.
fn unbundle(
    git: &Git,
    scratch: &Path,
    commit: &str,
    bytes: &[u8],
) -> Result<bundle::TemporaryRefs, Error> {
    let name = new_name();
    let file = scratch.join(format!("bundle-{name}"));
    let fail = |e| Error::io("can't write", &file, e);
    state_dir::create_new(&file)
        .and_then(|mut open| open.write_all(bytes))
        .map_err(fail)?;
    let added = match is_object_name(commit) {
        true => git.unbundle(&file, commit, &name, commit, None),
        false => Err("not the id of a commit".into()),
    };
    let _stays = state_dir::remove_file(&file);
    added.map_err(|why| Error::git(scratch, why))
}

fn new_name() -> String {
    Uuid::new_v4().simple().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(directory: &Path, words: &[&str]) -> String {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@t"];
        let ended = std::process::Command::new("git")
            .args(identity)
            .args(words)
            .current_dir(directory)
            .output()
            .unwrap();
        assert!(ended.status.success(), "{words:?}: {ended:?}");
        String::from_utf8(ended.stdout).unwrap().trim().to_owned()
    }

    fn commit(directory: &Path, text: &str) -> String {
        fs_err::write(directory.join("file"), text).unwrap();
        git(directory, &["add", "."]);
        git(directory, &["commit", "--quiet", "-m", text]);
        git(directory, &["rev-parse", "HEAD"])
    }

    #[test]
    fn commits_travel_in_bundles_that_continue_each_other() {
        let place = tempfile::tempdir().unwrap();
        let here = place.path().join("here");
        fs_err::create_dir(&here).unwrap();
        git(&here, &["init", "--quiet"]);
        let one = commit(&here, "one");
        let project = Project::find(&here).unwrap();
        let first = project.bundle_commit(&one, None).unwrap().unwrap();
        assert_eq!(project.bundle_commit(&one, Some(&one)).unwrap(), None);
        let two = commit(&here, "two");
        let second = project.bundle_commit(&two, Some(&one)).unwrap().unwrap();
        assert!(git(&here, &["for-each-ref", "refs/rlm"]).is_empty());
        let commits = [(one.as_str(), &first[..]), (two.as_str(), &second[..])];
        let there = place.path().join("there");
        Project::check_out_bundles(&there, "rlm/r1", &commits).unwrap();
        let text = fs_err::read_to_string(there.join("file")).unwrap();
        assert_eq!(
            (text.as_str(), git(&there, &["status", "--porcelain"])),
            ("two", String::new())
        );
        assert_eq!(git(&there, &["symbolic-ref", "--short", "HEAD"]), "rlm/r1");
        // A bundle without the one that it continues is refused.
        let lost = place.path().join("lost");
        Project::check_out_bundles(&lost, "rlm/r1", &commits[1..]).unwrap_err();
        // The other direction: a repository that has the first commit gets the second.
        git(&here, &["reset", "--quiet", "--hard", &one]);
        project.fetch_bundles("rlm/r1", &commits).unwrap();
        assert_eq!(git(&here, &["rev-parse", "rlm/r1"]), two);
        project.fetch_bundles("rlm/r1", &commits[..1]).unwrap_err();
    }
}
