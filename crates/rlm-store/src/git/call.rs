//! One git command: its words, its variables, how long it may take, and why it may fail.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

/// The most bytes that git may print.
pub(super) const MAX_ANSWER: u64 = 1 << 20;
pub(super) const TOO_MUCH: &str =
    "more is changed than can be told; let git ignore what is generated";
/// How long git may take for what is only nice to know.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// How long git may take for what somebody has asked for.
pub const LIMIT: Duration = Duration::from_secs(60);
/// By these variables a hook's git tells those it starts which repository is meant. A loop that is begun in one works in its own directory.
pub const POINTERS: [&str; 7] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
];

/// A monitor or a collection that git starts in passing would outlive it.
const NOTHING_IN_PASSING: [&str; 6] = [
    "-c",
    "core.fsmonitor=false",
    "-c",
    "gc.auto=0",
    "-c",
    "maintenance.auto=false",
];
const NO_HOOKS: [&str; 2] = ["-c", "core.hooksPath=/dev/null"];

/// Why git did not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("git did not answer within {0:?}")]
    /// It did not answer within this time, and was ended.
    Silent(Duration),
    #[error("git can't be run: {0}")]
    /// It could not be started.
    NotRun(std::io::Error),
    #[error("the run was stopped")]
    /// Its run is over.
    Stopped,
    /// Its last complaint.
    #[error("{0}")]
    Said(String),
}

impl Refusal {
    pub(super) fn no_tree() -> Self {
        Self::Said("this is no working tree of git".into())
    }
}

/// Whether git runs the hooks of the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hooks {
    Run,
    Off,
}

/// A git command that is to run.
pub(crate) struct Call<'a, S> {
    pub(crate) directory: &'a Path,
    pub(crate) arguments: &'a [S],
    pub(crate) environment: &'a [(&'a str, &'a OsStr)],
    pub(crate) hooks: Hooks,
    /// A command that takes longer is ended.
    pub(crate) patience: Duration,
}

impl<S: AsRef<OsStr>> Call<'_, S> {
    /// Returns all of git's arguments.
    pub(super) fn words(&self) -> Vec<&OsStr> {
        let no_hooks: &[&str] = match self.hooks {
            Hooks::Run => &[],
            Hooks::Off => &NO_HOOKS,
        };
        let before = NOTHING_IN_PASSING.iter().chain(no_hooks);
        let arguments = self.arguments.iter().map(AsRef::as_ref);
        before.map(OsStr::new).chain(arguments).collect()
    }

    /// Returns the variables that git gets beside those of this process.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&str, &OsStr)> {
        let own = [
            // Only looking must not take the index lock that the agent's own git needs.
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_TERMINAL_PROMPT", "0"),
            // `rlm` reads the complaints of git, so they are in English.
            ("LC_ALL", "C"),
        ];
        let own = own.map(|(name, value)| (name, OsStr::new(value)));
        own.into_iter().chain(self.environment.iter().copied())
    }
}

/// Returns what git complained about, or the last line that a hook printed.
pub fn complaint(text: &str) -> String {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_git = |line: &&str| line.starts_with("fatal: ") || line.starts_with("error: ");
    let line = lines().find(is_git);
    let line = line.or_else(|| lines().rfind(|line| !line.starts_with("hint:")));
    let line = line.unwrap_or("it failed and did not say why");
    let line = line.strip_prefix("fatal: ").unwrap_or(line);
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// Returns whether a text is the full name of an object of git, which no option is.
pub(crate) fn is_object_name(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
