//! The files and processes that some ways add to a run: a filter of git, a child without an environment, or a child that became root.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fs_err as fs;
use rlm_tests::{MARKER_VARIABLE, Sandbox};

use crate::StopMethod;

/// The user and the group of [`StopMethod::SetuidChild`], which is `nobody` on almost all systems.
const USER: u32 = 65534;
/// Sets the user and the group of a program; each word is its own argument.
const SET_USER: [&str; 5] = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
const LIFE: &str = "exec sleep 600";
/// Changes a file of the repository but not its size, so that git has to read it.
const CHANGE: &str = r#"cd "$(git rev-parse --show-toplevel)" && echo 'README.md filter=d' >>.gitattributes
tr a-z b-za <README.md >x; cat x >README.md; rm x; exit 0"#;

/// The files that a way adds beside the repository.
pub(crate) struct AddedFiles {
    way: StopMethod,
    folder: PathBuf,
    mark: String,
}

impl AddedFiles {
    pub(crate) fn new(way: StopMethod, sandbox: &Sandbox) -> Self {
        let this = Self {
            way,
            folder: sandbox.path().join("extra"),
            mark: sandbox.survivors().marker().to_owned(),
        };
        fs::create_dir_all(&this.folder).expect("a directory can be made");
        let filter = format!("{}echo $$ >>{}\n{LIFE}\n", this.cleared(), this.pids_file());
        fs::write(this.folder.join("filter"), filter).expect("a file can be written");
        this
    }

    fn pids_file(&self) -> String {
        self.folder.join("pids").display().to_string()
    }

    /// Returns a shell line that starts a process in its own session. The environment of the process has only the marker of this harness.
    fn cleared(&self) -> String {
        let (mark, pids) = (&self.mark, self.pids_file());
        format!(
            "setsid env -i {MARKER_VARIABLE}={mark} sh -c 'echo $$ >>{pids}; {LIFE}' </dev/null >/dev/null 2>&1 &\n"
        )
    }

    /// Returns the shell lines that the agent's program runs before it becomes the agent.
    pub(crate) fn before_agent(&self) -> String {
        let folder = self.folder.display();
        match self.way {
            // The first turn ends at once. If the tool runs git at all, git reads the changed file between two turns.
            StopMethod::GitFilter => format!(
                "if mkdir {folder}/is-set 2>/dev/null; then\ngit config filter.d.clean 'sh {folder}/filter'\n{CHANGE}\nfi\n"
            ),
            StopMethod::KilledGuard => self.cleared(),
            StopMethod::SetuidChild => format!(
                "{folder}/becomes-root --reuid 0 --regid 0 --clear-groups sh -c 'echo $$ >>{}; {LIFE}' </dev/null >/dev/null 2>&1 &\n",
                self.pids_file()
            ),
            _ => String::new(),
        }
    }

    /// Returns the number of processes that this way adds.
    pub(crate) fn count(&self) -> usize {
        match self.way {
            StopMethod::GitFilter => 2,
            StopMethod::KilledGuard | StopMethod::SetuidChild => 1,
            _ => 0,
        }
    }

    /// Returns the processes that this way has added so far.
    pub(crate) fn pids(&self) -> Vec<i32> {
        let text = fs::read_to_string(self.folder.join("pids")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Returns the words before the tool's command; they change the user.
    pub(crate) fn before_tool(&self) -> Vec<&'static str> {
        match self.way {
            StopMethod::SetuidChild => [&["setpriv"], &SET_USER[..]].concat(),
            _ => Vec::new(),
        }
    }

    /// Changes the owner of everything in the sandbox to the other user.
    ///
    /// # Errors
    /// The reason why this machine doesn't allow this way.
    pub(crate) fn hand_over(&self, sandbox: &Sandbox, programs: &[&Path]) -> Result<(), String> {
        if self.way != StopMethod::SetuidChild {
            return Ok(());
        }
        if !rustix::process::geteuid().is_root() {
            return Err("only root can start a tool as another user".into());
        }
        let becomes_root = self.folder.join("becomes-root");
        let found = Command::new("sh")
            .args(["-c", "command -v setpriv"])
            .output();
        let found = found.map_err(|error| error.to_string())?.stdout;
        let setpriv = String::from_utf8_lossy(&found).trim().to_owned();
        fs::copy(&setpriv, &becomes_root).map_err(|_| "setpriv is not installed")?;
        give(sandbox.path())
            .and_then(|()| chown(&becomes_root, Some(0), Some(0)))
            .and_then(|()| fs::set_permissions(&becomes_root, PermissionsExt::from_mode(0o4755)))
            .map_err(|error| error.to_string())?;
        let works = |words: &[&str]| {
            let mut command = Command::new("setpriv");
            command.args(SET_USER).args(words).stdin(Stdio::null());
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        for program in programs {
            if !works(&["test", "-x", &program.to_string_lossy()]) {
                return Err(format!("another user can't run {}", program.display()));
            }
        }
        let becomes_root = becomes_root.to_string_lossy();
        let probe = ["--reuid", "0", "--regid", "0", "--clear-groups", "true"];
        match works(&[&[&*becomes_root], &probe[..]].concat()) {
            true => Ok(()),
            false => Err("programs can't set their user here (nosuid)".into()),
        }
    }
}

/// Changes the owner of a directory and everything in it to the other user; links are not followed.
fn give(path: &Path) -> std::io::Result<()> {
    std::os::unix::fs::lchown(path, Some(USER), Some(USER))?;
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path())?;
        }
    }
    Ok(())
}

/// Returns whether `text` contains this pid as a separate number.
pub(crate) fn names(text: &str, pid: i32) -> bool {
    let numbers = text.split(|character: char| !character.is_ascii_digit());
    numbers.into_iter().any(|number| number == pid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pid_inside_a_longer_number_does_not_match() {
        assert!(names("still alive: sleep (42)", 42));
        assert!(!names("still alive: sleep (142), 421", 42));
    }
}
