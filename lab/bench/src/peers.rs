//! Programs of others: where the bench finds them, and their environment.

use std::io::Write;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crate::harness::{Child, Result};

/// The packages that the bench looks for, with their pinned versions.
const REQUIREMENTS: &str = include_str!("../peers/requirements.txt");

/// Returns the name of each package.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let lines = REQUIREMENTS.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| Some(line.split_once("==")?.0))
}

/// Returns a command for a Python script. Its environment is clean, with `home` as its home. It has no network, if the system can block it.
///
/// # Errors
///
/// Fails when `home` cannot be made.
pub(crate) fn python(script: &str, home: &Path) -> Result<Command> {
    let mut words = match has_own_network() {
        // `unshare` replaces itself by Python, so the id of the started process is that of the peer.
        true => vec!["unshare".into(), "--user".into(), "--net".into()],
        false => Vec::new(),
    };
    words.push(std::env::var_os("BENCH_PYTHON").unwrap_or_else(|| "python3".into()));
    fs_err::create_dir_all(home)?;
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .args(["-c", script])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", std::path::absolute(home)?)
        .env("DO_NOT_TRACK", "1")
        // Where the network can't be blocked, requests go to this address, at which no proxy listens.
        .env("HTTPS_PROXY", "http://127.0.0.1:9")
        .env("HTTP_PROXY", "http://127.0.0.1:9");
    Ok(command)
}

/// A script that is ready, and that answers each line with the nanoseconds of its work.
pub(crate) struct Script(Child);

impl Script {
    /// Time limit for a script to get ready, and to answer.
    const LIMIT: Duration = Duration::from_secs(60);

    /// Starts a script and waits until it is ready.
    ///
    /// # Errors
    ///
    /// Fails with the reason that the script prints when it can't work here.
    pub(crate) fn start(command: Command) -> Result<Self> {
        let child = Child::spawn(command).map_err(|error| format!("Python: {error}"))?;
        let mut script = Self(child);
        match script.answer()?.as_str() {
            "ready" => Ok(script),
            why => Err(why.into()),
        }
    }

    /// Sends a line and returns how long the script worked on it.
    pub(crate) fn time(&mut self, line: &[u8]) -> Result<Duration> {
        self.0.input().write_all(line)?;
        Ok(Duration::from_nanos(self.answer()?.parse()?))
    }

    /// Waits for a line of the script.
    pub(crate) fn answer(&mut self) -> Result<String> {
        self.0.read_line(Self::LIMIT)
    }

    pub(crate) fn input(&mut self) -> &mut ChildStdin {
        self.0.input()
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

/// Returns whether a process can have an empty network of its own.
pub(crate) fn has_own_network() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let mut unshare = Command::new("unshare");
        let tried = unshare
            .args(["--user", "--net", "true"])
            .stderr(Stdio::null());
        tried.status().is_ok_and(|status| status.success())
    })
}

/// Returns the versions of the installed programs.
pub(crate) fn versions() -> Vec<String> {
    const SCRIPT: &str = "
import importlib.metadata, platform, sys
print('Python', platform.python_version())
for name in sys.argv[1:]:
    try:
        print(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        pass
";
    let tell = |program: &mut Command| {
        let told = program.stderr(Stdio::null()).output().ok()?;
        String::from_utf8(told.stdout).ok()
    };
    let home = tempfile::tempdir().ok();
    let python = home.and_then(|home| tell(python(SCRIPT, home.path()).ok()?.args(names())));
    let bash = tell(Command::new("bash").args(["-c", "echo bash $BASH_VERSION"]));
    let mut versions: Vec<String> = python
        .into_iter()
        .chain(bash)
        .flat_map(|told| told.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    #[cfg(feature = "sqlite")]
    versions.push(format!("SQLite {}", rusqlite::version()));
    versions.retain(|version| !version.is_empty());
    versions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_is_pinned() {
        let lines = REQUIREMENTS.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(names().count(), lines.count());
        assert!(names().all(|name| !name.contains(['<', '>', '~', ' '])));
    }

    #[test]
    fn peer_gets_a_clean_environment() {
        let home = tempfile::tempdir().unwrap();
        let script = "import os; print(sorted(os.environ), os.environ['HOME'])";
        let Ok(ended) = python(script, &home.path().join("own")).unwrap().output() else {
            return println!("skipped: no Python here");
        };
        let told = String::from_utf8(ended.stdout).unwrap();
        assert!(!told.contains("CARGO"), "{told}");
        assert!(told.trim_end().ends_with("own"), "{told}");
    }
}
