//! What git says about the working tree, asked through the `git` command.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use agent_subprocess::childless;
use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::processes::MARKER;
use looks::{Ends, Looks, Owed, Told};
use written::is_line_of_written;

pub(crate) mod bundle;
pub mod commit;
mod contained;
mod glance;
pub mod looks;
pub(crate) mod tree;
pub(crate) mod written;

/// The most changed paths that are named in a prompt.
const MAX_CHANGED: usize = 20;
const MAX_ANSWER: u64 = 1 << 20;
const TOO_MUCH: &str = "more is changed than can be told; let git ignore what is generated";
const HEAD_COMMIT: &[&str] = &["rev-parse", "--verify", "--quiet", "HEAD"];
const PATIENCE: Duration = Duration::from_secs(2);
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
/// Switches off what a command that only reads could start: a check of signatures, and the fetch of what a partial clone lacks.
const READ_ONLY: [&str; 2] = ["-c", "log.showSignature=false"];
const READ_ONLY_VARIABLES: [(&str, &str); 2] =
    [("GIT_NO_LAZY_FETCH", "1"), ("GIT_ALLOW_PROTOCOL", "none")];

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
        let is_name = commit.len() >= 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
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
        is_name.then(|| self.ask(&show))?
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
    fn no_tree() -> Self {
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
    fn words(&self) -> Vec<&OsStr> {
        let no_hooks: &[&str] = match self.hooks {
            Hooks::Run => &[],
            Hooks::Off => &NO_HOOKS,
        };
        let before = NOTHING_IN_PASSING.iter().chain(no_hooks);
        let arguments = self.arguments.iter().map(AsRef::as_ref);
        before.map(OsStr::new).chain(arguments).collect()
    }

    /// Returns the variables that git gets beside those of this process.
    fn variables(&self) -> impl Iterator<Item = (&str, &OsStr)> {
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

/// Runs git to its end on this thread, without hooks: what it printed, or why not; see [`run_with`].
pub(crate) fn run<S: AsRef<OsStr>>(
    directory: &Path,
    arguments: &[S],
    patience: Duration,
    looks: Option<&Looks>,
) -> Result<String, Refusal> {
    let call = Call {
        directory,
        arguments,
        environment: &[],
        hooks: Hooks::Off,
        patience,
    };
    run_with(&call, looks)
}

/// Runs git to its end on this thread: under a guard, or so that it can start no other program. It asks nothing, and what takes too long is ended.
pub(crate) fn run_with<S: AsRef<OsStr>>(
    call: &Call<'_, S>,
    looks: Option<&Looks>,
) -> Result<String, Refusal> {
    // A filter, a wrapper around git, or a system that can't forbid it: from then on a guard is the shorter way.
    static NEEDS_A_GUARD: AtomicBool = AtomicBool::new(false);
    let mut alone = None;
    if contained::only_reads(call.arguments) && !NEEDS_A_GUARD.load(Ordering::Relaxed) {
        alone = run_alone(call, looks)?;
        if alone.is_none() {
            NEEDS_A_GUARD.store(true, Ordering::Relaxed);
        }
    }
    let said = match alone {
        Some(said) => said,
        None => contained::run(call, looks)?,
    };
    let text = String::from_utf8_lossy(&said);
    Ok(text.trim_end_matches('\n').to_owned())
}

/// Runs a git that the kernel kills if it starts another program; nothing is returned if it did, or can't be run so. It is ended with its process group
/// where it has one.
fn run_alone<S: AsRef<OsStr>>(
    call: &Call<'_, S>,
    looks: Option<&Looks>,
) -> Result<Option<Vec<u8>>, Refusal> {
    let patience = call.patience;
    let (tell, told) = mpsc::channel();
    let look = looks
        .map(|looks| looks.begin(Ends::Alone(tell.clone())))
        .transpose()?;
    let mut git = Command::new("git");
    if childless::enforce(&mut git).is_err() {
        return Ok(None);
    }
    POINTERS.iter().for_each(|name| {
        git.env_remove(name);
    });
    if let Some(looks) = looks {
        git.process_group(0);
        looks.marker.iter().for_each(|marker| {
            git.env(MARKER, marker);
        });
    }
    let git = git
        .args(READ_ONLY)
        .args(call.words())
        .current_dir(call.directory)
        .envs(call.variables())
        .envs(READ_ONLY_VARIABLES)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut git) = git else {
        return Ok(None);
    };
    if let Some(look) = &look {
        look.started(git.id());
    }
    let pid = Pid::from_raw(git.id().cast_signed());
    let stdout = git.stdout.take().expect("it was piped");
    std::thread::spawn(move || {
        let said = read(stdout);
        // It stays a zombie until it is waited for, so that its group's number stays its own.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let _gone = pid.map(|pid| retry_on_intr(|| waitid(WaitId::Pid(pid), options)));
        // Nobody waits any longer for an answer that comes too late.
        let _late = tell.send(Told::Over(said));
    });
    let complained = git.stderr.take().map(reading);
    let (said, grace) = match told.recv_timeout(patience) {
        Ok(Told::Over(said)) => (Ok(said), None),
        Ok(Told::End(grace)) => (Err(Refusal::Stopped), Some(grace)),
        Err(_) => (Err(Refusal::Silent(patience)), Some(looks::GRACE)),
    };
    match (&look, grace) {
        (Some(look), Some(grace)) => look.cut(&git, grace, &told),
        (Some(look), None) => look.clear(&git),
        (None, Some(_)) => {
            let _gone_already = git.kill();
        }
        (None, None) => {}
    }
    let status = git.wait().map_err(Refusal::NotRun)?;
    drop(look);
    if childless::was_broken(status) {
        return Ok(None);
    }
    let said = said?;
    if said.len() as u64 >= MAX_ANSWER {
        return Err(Refusal::Said(TOO_MUCH.into()));
    }
    if status.success() {
        return Ok(Some(said));
    }
    // A hook that was left running may hold it open.
    let complained = complained.and_then(|said| said.recv_timeout(PATIENCE).ok());
    let complained = complained.unwrap_or_default();
    Err(Refusal::Said(complaint(&String::from_utf8_lossy(
        &complained,
    ))))
}

/// Reads to the end, on a thread of its own.
fn reading(from: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (answered, answer) = mpsc::channel();
    std::thread::spawn(move || {
        // Nobody waits any longer for an answer that comes too late.
        let _late = answered.send(read(from));
    });
    answer
}

fn read(from: impl Read) -> Vec<u8> {
    let mut text = Vec::new();
    let read = from.take(MAX_ANSWER).read_to_end(&mut text);
    read.map_or(Vec::new(), |_| text)
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
