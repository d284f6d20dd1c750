//! The environment of one test: directories, a repository, a marker, and the end of every process with the marker.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use fs_err as fs;
use tempfile::TempDir;

use crate::rlm::Rlm;
use crate::survivors::{MARKER_VARIABLE, Survivors, owned_output};
use crate::wait::poll_until;

const END: Duration = Duration::from_secs(10);

/// A temporary directory with a git repository of one commit, a home, and a random marker.
///
/// Dropping it ends every process with its marker, then removes the directory; also if the test panics.
#[derive(Debug)]
#[must_use]
pub struct Sandbox {
    folder: TempDir,
    /// The search path for programs.
    search_path: String,
    survivors: Survivors,
}

impl Sandbox {
    /// Creates a sandbox, and makes this process a child subreaper.
    ///
    /// # Panics
    ///
    /// If a directory can't be created or git fails.
    #[expect(
        clippy::new_without_default,
        reason = "it creates directories and runs git"
    )]
    pub fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("rlm-test-")
            .tempdir()
            .expect("a temporary directory");
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".into());
        let this = Self {
            search_path: without_agents(&path, &folder.path().join("path")),
            folder,
            survivors: Survivors::new(),
        };
        for part in ["home/.config", "tmp", "run"] {
            fs::create_dir_all(this.path().join(part)).unwrap();
        }
        let template = Path::new(concat!(env!("OUT_DIR"), "/repo"));
        if !template.exists() {
            this.make_repository();
            this.keep_as(template);
        } else {
            copy_tree(template, &this.repo());
            // The index has the times of the template's files.
            this.git(&["update-index", "--refresh"]);
        }
        this
    }

    /// Creates the repository with its commit.
    fn make_repository(&self) {
        fs::create_dir(self.repo()).unwrap();
        fs::write(self.repo().join("README.md"), "A repository for a test.\n").unwrap();
        // git's own templates are sample hooks: many small files, which no test reads.
        self.git(&["init", "-q", "-b", "main", "--template="]);
        self.git(&["add", "."]);
        self.git(&["commit", "-q", "-m", "start"]);
    }

    /// Keeps the repository as the template of the other tests, unless another test was first.
    fn keep_as(&self, template: &Path) {
        let beside = tempfile::tempdir_in(env!("OUT_DIR")).unwrap();
        let copy = beside.path().join("repo");
        copy_tree(&self.repo(), &copy);
        // The template of another test is as good.
        let _exists = fs::rename(&copy, template);
    }

    /// Returns the directory that contains all others.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the repository, which is the default working directory of programs started here.
    #[must_use]
    pub fn repo(&self) -> PathBuf {
        self.path().join("repo")
    }

    /// Returns the home directory.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.path().join("home")
    }

    /// Returns the scanner for the processes of this sandbox.
    #[must_use]
    pub fn survivors(&self) -> &Survivors {
        &self.survivors
    }

    /// Prepares the start of `program` (mostly `env!("CARGO_BIN_EXE_rlm-under-test")`) in the repository.
    pub fn rlm(&self, program: impl AsRef<Path>) -> Rlm<'_> {
        Rlm::new(self, program.as_ref())
    }

    /// Prepares an interactive shell with job control, for a terminal; its prompt is `$ `.
    pub fn shell(&self) -> Rlm<'_> {
        let shell = Rlm::new(self, Path::new("/bin/bash")).args(["--norc", "--noprofile", "-i"]);
        shell.env("PS1", "$ ").env("HISTFILE", "/dev/null")
    }

    /// Runs git in the repository and returns its output, trimmed.
    ///
    /// # Panics
    ///
    /// If git fails.
    #[track_caller]
    pub fn git(&self, arguments: &[&str]) -> String {
        let identity = [
            "-c",
            "user.name=rlm-tests",
            "-c",
            "user.email=rlm-tests@localhost",
            // A commit starts no process that outlives it.
            "-c",
            "maintenance.auto=false",
        ];
        let mut command = Command::new("git");
        command
            .args(identity)
            .args(arguments)
            .current_dir(self.repo())
            .stdin(Stdio::null());
        command.env_clear().envs(self.environment());
        let output = owned_output(&mut command);
        assert!(
            output.status.success(),
            "git {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Returns the whole environment of programs started here.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let path = |part: &str| self.path().join(part).display().to_string();
        let pairs = [
            ("PATH", self.search_path.clone()),
            ("LANG", "C.UTF-8".into()),
            ("TERM", "xterm-256color".into()),
            ("HOME", path("home")),
            ("XDG_CONFIG_HOME", path("home/.config")),
            ("XDG_STATE_HOME", path("home/.local/state")),
            ("XDG_DATA_HOME", path("home/.local/share")),
            ("XDG_CACHE_HOME", path("home/.cache")),
            ("XDG_RUNTIME_DIR", path("run")),
            ("TMPDIR", path("tmp")),
            ("GIT_CONFIG_NOSYSTEM", "1".into()),
            // Most checks of the tests pass at once. The tests of the first check set this to nothing.
            ("RLM_NO_FIRST_CHECK", "true".into()),
            (MARKER_VARIABLE, self.survivors.marker().into()),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // Several rounds, because a dying process may still start others.
        let empty = poll_until(END, || {
            let left = self.survivors.scan();
            for process in &left {
                process.kill();
            }
            left.is_empty().then_some(())
        });
        if empty.is_none() && !std::thread::panicking() {
            panic!("can't end {:?}", self.survivors.scan());
        }
    }
}

/// The agents that may be installed on this machine.
const AGENTS: [&str; 4] = ["claude", "codex", "gemini", "opencode"];

/// Returns a search path without a real agent, so that no test can find, start and pay for one. Replaces each directory with an agent by a directory
/// below `place` with links to all its other files.
fn without_agents(path: &str, place: &Path) -> String {
    let folders = path.split(':').enumerate().map(|(number, folder)| {
        let has_agent = AGENTS.map(|agent| Path::new(folder).join(agent).exists());
        match has_agent.contains(&true) {
            true => links_to_others(Path::new(folder), &place.join(number.to_string())),
            false => folder.to_owned(),
        }
    });
    folders.collect::<Vec<_>>().join(":")
}

fn links_to_others(folder: &Path, links: &Path) -> String {
    fs::create_dir_all(links).unwrap();
    let folder = fs::canonicalize(folder).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        if AGENTS.iter().all(|agent| name != *agent) {
            symlink(entry.path(), links.join(&name)).unwrap();
        }
    }
    links.display().to_string()
}

/// Copies a directory with all files in it.
fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let copy = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy_tree(&path, &copy),
            false => drop(fs::copy(&path, &copy).unwrap()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_path_excludes_directories_with_an_agent() {
        let place = tempfile::tempdir().unwrap();
        let (bin, other) = (place.path().join("bin"), place.path().join("other"));
        for folder in [&bin, &other] {
            fs::create_dir(folder).unwrap();
        }
        for name in ["claude", "sh", "claude-like"] {
            fs::write(bin.join(name), name).unwrap();
        }
        let path = format!("{}:{}", bin.display(), other.display());
        let found = without_agents(&path, &place.path().join("path"));
        let (links, rest) = found.split_once(':').unwrap();
        assert_eq!(rest, other.display().to_string());
        let links = Path::new(links);
        assert!(!links.join("claude").exists());
        assert_eq!(fs::read_to_string(links.join("sh")).unwrap(), "sh");
        assert!(links.join("claude-like").exists());
    }
}
