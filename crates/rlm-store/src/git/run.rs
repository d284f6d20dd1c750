//! Runs one git command to its end under a guard, because git starts filters, hooks, drivers and other programs that the repository configures.
//!
//! An agent may change the configuration and the attributes of its repository at any time, so no check before a command can tell which programs git
//! will start. Every git therefore runs under a guard, which ends git's leftovers and proves that nothing is left. As an exception, a command that
//! [`is_killable`] runs without a guard first. The kernel kills such a git if it starts a program; then the command runs again, under a guard.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use agent_subprocess::{
    Containment, Exit, Marker, Output, ProcessTree, StopPolicy, Stream, TreeCommand, childless,
};
use loop_state::times;
use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::runtime::{Builder, Handle};
use tokio::time::{Instant, timeout};

use super::processes::{GitLeftovers, GitProcess, GitProcesses, GitSignal, Terminator};
use crate::deadline::{Deadline, DeadlineReceiver, remaining};
use crate::processes::names;

/// The largest number of bytes of git's output.
pub(super) const MAX_STDOUT: u64 = 1 << 20;
pub(super) const TOO_MUCH: &str = "too many changed files; add generated files to .gitignore";
/// The time limit for information that the run can do without.
pub(super) const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
/// The time limit for a command that the user requested.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// The variables by which git passes its repository to a hook. They are removed, because a loop that begins in a hook works in its own directory.
pub const REPOSITORY_VARIABLES: [&str; 7] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
];

/// The options against a file-system monitor and a garbage collection, which git could start and which would outlive the command.
const NO_BACKGROUND_WORK: [&str; 6] = [
    "-c",
    "core.fsmonitor=false",
    "-c",
    "gc.auto=0",
    "-c",
    "maintenance.auto=false",
];
const NO_HOOKS: [&str; 2] = ["-c", "core.hooksPath=/dev/null"];

/// Why a git command failed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("git did not respond within {0:?}")]
    /// It did not end within this time, and was killed.
    TimedOut(Duration),
    #[error("can't run git: {0}")]
    /// It could not be started.
    NotRun(std::io::Error),
    #[error("the run was stopped")]
    /// The run has ended.
    Stopped,
    /// Git failed, with this message.
    #[error("{0}")]
    Failed(String),
}

impl GitError {
    pub(super) fn not_a_repository() -> Self {
        Self::Failed("not a git working tree".into())
    }
}

/// Whether git runs the hooks of the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hooks {
    Run,
    Off,
}

/// A git command to run.
pub(crate) struct GitCall<'a, S> {
    pub(crate) directory: &'a Path,
    pub(crate) arguments: &'a [S],
    pub(crate) environment: &'a [(&'a str, &'a OsStr)],
    pub(crate) hooks: Hooks,
    /// The time limit of the command.
    pub(crate) timeout: Duration,
}

impl<S: AsRef<OsStr>> GitCall<'_, S> {
    /// Returns all arguments of git.
    pub(super) fn arguments(&self) -> Vec<&OsStr> {
        let no_hooks: &[&str] = match self.hooks {
            Hooks::Run => &[],
            Hooks::Off => &NO_HOOKS,
        };
        let before = NO_BACKGROUND_WORK.iter().chain(no_hooks);
        let arguments = self.arguments.iter().map(AsRef::as_ref);
        before.map(OsStr::new).chain(arguments).collect()
    }

    /// Returns the variables that git gets in addition to those of this process.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&str, &OsStr)> {
        let own = [
            // A read must not take the index lock that the agent's own git needs.
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_TERMINAL_PROMPT", "0"),
            // `rlm` parses the error messages of git, so they must be in English.
            ("LC_ALL", "C"),
        ];
        let own = own.map(|(name, value)| (name, OsStr::new(value)));
        own.into_iter().chain(self.environment.iter().copied())
    }
}

/// Returns git's error message, or the last line of a hook's output.
pub fn error_text(text: &str) -> String {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_git = |line: &&str| line.starts_with("fatal: ") || line.starts_with("error: ");
    let line = lines().find(is_git);
    let line = line.or_else(|| lines().rfind(|line| !line.starts_with("hint:")));
    let line = line.unwrap_or("git failed without an error message");
    let line = line.strip_prefix("fatal: ").unwrap_or(line);
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// Returns whether a text is the full name of a git object. Git can't mistake such a text for an option.
pub(crate) fn is_object_name(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The options against the programs that a reading command could start: the verification of signatures, and the fetch of missing objects of a partial
/// clone.
const READ_ONLY: [&str; 2] = ["-c", "log.showSignature=false"];
const READ_ONLY_VARIABLES: [(&str, &str); 2] =
    [("GIT_NO_LAZY_FETCH", "1"), ("GIT_ALLOW_PROTOCOL", "none")];

/// The variable that gives a command an index of its own, which the repository and its other commands don't use.
pub(super) const INDEX: &str = "GIT_INDEX_FILE";

/// The largest number of bytes of git's error messages.
const MAX_STDERR: usize = 16 << 10;
/// The commands that only read, so that a kill at any time leaves no partial change.
///
/// `status` writes nothing, because `GIT_OPTIONAL_LOCKS` is off. But it runs the filters of files that may have changed.
const READS: [&str; 11] = [
    "check-ignore",
    "diff-tree",
    "log",
    "ls-files",
    "ls-tree",
    "merge-base",
    "rev-list",
    "rev-parse",
    "show",
    "status",
    "var",
];

/// Returns whether git can be killed at any time.
fn is_killable<S: AsRef<OsStr>>(call: &GitCall<'_, S>) -> bool {
    let mut words = call
        .arguments
        .iter()
        .filter_map(|word| word.as_ref().to_str());
    let mut command = words.next();
    while command == Some("-c") {
        command = words.nth(1);
    }
    match command {
        Some("worktree") => words.next() == Some("list"),
        // With a second name, git writes a ref and runs a hook.
        Some("symbolic-ref") => words.filter(|word| !word.starts_with('-')).count() == 1,
        // It locks the index, and starts no program.
        Some("write-tree") => call.environment.iter().any(|(name, _)| *name == INDEX),
        Some(command) => READS.contains(&command),
        None => false,
    }
}

/// The output of git as text.
#[derive(Debug)]
pub(crate) struct GitText {
    /// The text without the newlines at its end.
    pub(crate) text: String,
    /// Whether this is only the beginning of the output, because the whole is too long.
    pub(crate) is_cut: bool,
}

impl GitText {
    /// Returns the text, or an error if it is not the whole output.
    pub(crate) fn whole(self) -> Result<String, GitError> {
        match self.is_cut {
            true => Err(GitError::Failed(TOO_MUCH.into())),
            false => Ok(self.text),
        }
    }
}

/// The bytes that git wrote.
struct GitBytes {
    bytes: Vec<u8>,
    /// Whether git wrote too much, so that these are only the first bytes.
    is_cut: bool,
}

/// Runs git to its end on this thread, without hooks; see [`run_with`].
pub(crate) fn run<S: AsRef<OsStr>>(
    directory: &Path,
    arguments: &[S],
    limit: Duration,
    processes: Option<&GitProcesses>,
) -> Result<String, GitError> {
    let call = GitCall {
        directory,
        arguments,
        environment: &[],
        hooks: Hooks::Off,
        timeout: limit,
    };
    run_with(&call, processes)
}

/// Runs git to its end on this thread, and returns its output or an error. Git runs under a guard, or in a way in which it can't start other
/// programs. Git gets no input, and is killed at the time limit, or if its output is too long.
pub(crate) fn run_with<S: AsRef<OsStr>>(
    call: &GitCall<'_, S>,
    processes: Option<&GitProcesses>,
) -> Result<String, GitError> {
    run_up_to_limit(call, processes)?.whole()
}

/// Runs git as [`run_with`] does, but returns the beginning of an output that is too long.
pub(crate) fn run_up_to_limit<S: AsRef<OsStr>>(
    call: &GitCall<'_, S>,
    processes: Option<&GitProcesses>,
) -> Result<GitText, GitError> {
    // Set if git starts a filter, if `git` is a wrapper, or if the system can't forbid the start of programs. From then on, it is faster to run git
    // under a guard at once.
    static NEEDS_A_GUARD: AtomicBool = AtomicBool::new(false);
    let mut alone = None;
    if is_killable(call) && !NEEDS_A_GUARD.load(Ordering::Relaxed) {
        alone = run_alone(call, processes)?;
        if alone.is_none() {
            NEEDS_A_GUARD.store(true, Ordering::Relaxed);
        }
    }
    let output = match alone {
        Some(output) => output,
        None => run_contained(call, processes)?,
    };
    let text = String::from_utf8_lossy(&output.bytes);
    Ok(GitText {
        text: text.trim_end_matches('\n').to_owned(),
        is_cut: output.is_cut,
    })
}

/// Runs a git that the kernel kills if it starts another program. Returns `None` if that happened, or the system does not support it. Ends git with
/// its process group if it has one.
fn run_alone<S: AsRef<OsStr>>(
    call: &GitCall<'_, S>,
    processes: Option<&GitProcesses>,
) -> Result<Option<GitBytes>, GitError> {
    let limit = call.timeout;
    let (sender, signals) = mpsc::channel();
    let process = processes
        .map(|processes| processes.begin(Terminator::Alone(sender.clone())))
        .transpose()?;
    let mut git = Command::new("git");
    if childless::enforce(&mut git).is_err() {
        return Ok(None);
    }
    REPOSITORY_VARIABLES.iter().for_each(|name| {
        git.env_remove(name);
    });
    if let Some(processes) = processes {
        git.process_group(0);
        processes.marker.iter().for_each(|marker| {
            git.env(crate::marker_variable(), marker);
        });
    }
    let git = git
        .args(READ_ONLY)
        .args(call.arguments())
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
    if let Some(process) = &process {
        process.started(git.id());
    }
    let pid = Pid::from_raw(git.id().cast_signed());
    let stdout = git.stdout.take().expect("it was piped");
    std::thread::spawn(move || {
        let output = read(stdout);
        // Git stays a zombie until it is reaped, so its group id is not reused.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let _gone = pid.map(|pid| retry_on_intr(|| waitid(WaitId::Pid(pid), options)));
        // The caller no longer waits for a late result.
        let _late = sender.send(GitSignal::Over(output));
    });
    let complained = git.stderr.take().map(reading);
    let (output, grace) = match signals.recv_timeout(limit) {
        Ok(GitSignal::Over(output)) => (Ok(output), None),
        Ok(GitSignal::End(grace)) => (Err(GitError::Stopped), Some(grace)),
        Err(_) => (Err(GitError::TimedOut(limit)), Some(times::GIT_ENDING)),
    };
    match (&process, grace) {
        (Some(process), Some(grace)) => process.terminate(&git, grace, &signals),
        (Some(process), None) => process.kill_group(&git),
        (None, Some(_)) => {
            let _gone_already = git.kill();
        }
        (None, None) => {}
    }
    let status = git.wait().map_err(GitError::NotRun)?;
    drop(process);
    if childless::was_killed_for_spawn(status) {
        return Ok(None);
    }
    let bytes = output?;
    let is_cut = bytes.len() as u64 >= MAX_STDOUT;
    if is_cut || status.success() {
        return Ok(Some(GitBytes { bytes, is_cut }));
    }
    // A leftover of a hook may hold the stream open.
    let complained = complained.and_then(|output| output.recv_timeout(QUERY_TIMEOUT).ok());
    let complained = complained.unwrap_or_default();
    Err(GitError::Failed(error_text(&String::from_utf8_lossy(
        &complained,
    ))))
}

/// Reads to the end on a separate thread.
fn reading(from: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (answered, answer) = mpsc::channel();
    std::thread::spawn(move || {
        // The caller no longer waits for a late result.
        let _late = answered.send(read(from));
    });
    answer
}

fn read(from: impl Read) -> Vec<u8> {
    let mut text = Vec::new();
    let read = from.take(MAX_STDOUT).read_to_end(&mut text);
    read.map_or(Vec::new(), |_| text)
}

/// Runs git to its end under a guard, and returns its output. Blocks.
fn run_contained<S: AsRef<OsStr>>(
    call: &GitCall<'_, S>,
    processes: Option<&GitProcesses>,
) -> Result<GitBytes, GitError> {
    let deadline = Deadline::default();
    let deadline_changes = deadline.subscribe();
    let process =
        { processes.map(|processes| processes.begin(Terminator::Contained(deadline.clone()))) }
            .transpose()?;
    let command = command(call, processes);
    let limit = call.timeout;
    let (sender, signals) = mpsc::channel();
    runtime()?.spawn(async move {
        let end = contained(command, limit, deadline_changes, process.as_ref()).await;
        drop(process);
        // This can't fail, because the caller waits for the result.
        let _waits = sender.send(end);
        drop(deadline);
    });
    signals.recv().map_err(|_| GitError::Stopped)?
}

/// Returns the runtime of these git commands. It has its own thread, because callers may be inside or outside a runtime.
fn runtime() -> Result<&'static Handle, GitError> {
    static RUNTIME: OnceLock<io::Result<Handle>> = OnceLock::new();
    let start = || {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let thread = std::thread::Builder::new().name("git".into());
        thread.spawn(move || runtime.block_on(std::future::pending::<()>()))?;
        Ok(handle)
    };
    let started = RUNTIME.get_or_init(start).as_ref();
    started.map_err(|e| GitError::NotRun(io::Error::new(e.kind(), e.to_string())))
}

fn command<S: AsRef<OsStr>>(
    call: &GitCall<'_, S>,
    processes: Option<&GitProcesses>,
) -> TreeCommand {
    let mut command = TreeCommand::new("git").args(call.arguments());
    for name in REPOSITORY_VARIABLES {
        command = command.env_remove(name);
    }
    for (name, value) in call.variables() {
        command = command.env(name, OsString::from(value));
    }
    let marker = processes.and_then(|processes| processes.marker.as_deref()?.split_once('.'));
    if let Some((scope, member)) = marker {
        command = command.marker(Marker {
            variable: crate::marker_variable().into(),
            scope: scope.into(),
            member: member.into(),
        });
    }
    command
        .containment(Containment::Auto)
        .current_dir(call.directory)
}

/// The output of git until its end.
#[derive(Debug, Default)]
struct GitOutput {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// Whether both streams have ended.
    has_ended: bool,
}

impl GitOutput {
    /// Waits for the end of git, and stores its output. Returns `None` if git wrote too much.
    async fn run_to_end(&mut self, git: &mut ProcessTree) -> Result<Option<Exit>, GitError> {
        while !self.has_ended {
            match git.next_output().await {
                None => self.has_ended = true,
                Some(Output {
                    stream: Stream::Stdout,
                    line,
                }) => {
                    self.stdout.extend_from_slice(&line.bytes);
                    self.stdout.push(b'\n');
                    if self.stdout.len() as u64 >= MAX_STDOUT {
                        return Ok(None);
                    }
                }
                Some(output) => {
                    let room = MAX_STDERR.saturating_sub(self.stderr.len());
                    let line = &output.line.bytes;
                    self.stderr.extend_from_slice(&line[..line.len().min(room)]);
                    self.stderr.push(b'\n');
                    self.stderr.truncate(MAX_STDERR);
                }
            }
        }
        Ok(Some(git.wait().await))
    }

    /// Returns why git failed.
    fn why(&self, exit: impl fmt::Display) -> GitError {
        let text = String::from_utf8_lossy(&self.stderr);
        GitError::Failed(match text.trim().is_empty() {
            true => format!("git failed without an error message ({exit})"),
            false => error_text(&text),
        })
    }
}

async fn contained(
    command: TreeCommand,
    limit: Duration,
    mut deadline_changes: DeadlineReceiver,
    process: Option<&GitProcess>,
) -> Result<GitBytes, GitError> {
    let mut git = match command.spawn().await {
        Ok(git) => git,
        Err(e) => {
            if let (Some(process), Some(lost)) = (process, e.lost_processes().cloned()) {
                process.record_leftovers(GitLeftovers {
                    proven: false,
                    ended: names(lost.ended),
                    survivors: names(lost.survivors),
                });
            }
            return Err(GitError::NotRun(io::Error::other(e)));
        }
    };
    if let Some(process) = process {
        process.started(git.pid());
    }
    let mut output = GitOutput::default();
    let (ended, mut by) = tokio::select! {
        biased;
        by = deadline_changes.wait_for_deadline() => (Err(GitError::Stopped), by.unwrap_or_else(Instant::now)),
        ended = timeout(limit, output.run_to_end(&mut git)) => match ended {
            Ok(ended) => (ended, Instant::now()),
            Err(_) => (Err(GitError::TimedOut(limit)), Instant::now() + times::GIT_ENDING),
        },
    };
    let report = loop {
        // Leftovers of an ended git get no grace.
        let policy = StopPolicy {
            terminate: remaining(by),
            budget: remaining(by) + times::GIT_KILL,
            ..StopPolicy::kill()
        };
        tokio::select! {
            biased;
            sooner = deadline_changes.earlier_than(by) => by = sooner,
            report = git.stop(&policy) => break report,
        }
    };
    if let Some(process) = process {
        process.record_leftovers(GitLeftovers {
            proven: report.containment == Containment::Guard && !report.guard_lost,
            ended: names(report.ended),
            survivors: names(report.survivors),
        });
    }
    let is_cut = match ended? {
        None => true,
        Some(exit) if exit.success() => false,
        Some(exit) => return Err(output.why(exit)),
    };
    let bytes = output.stdout;
    Ok(GitBytes { bytes, is_cut })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h7_only_commands_without_partial_changes_can_be_killed_at_any_time() {
        let is_killable = |line: &str, environment: &[(&str, &OsStr)]| {
            let arguments: Vec<&str> = line.split(' ').collect();
            is_killable(&GitCall {
                directory: Path::new("."),
                arguments: &arguments,
                environment,
                hooks: Hooks::Off,
                timeout: Duration::ZERO,
            })
        };
        for line in [
            "rev-parse --show-toplevel",
            "-c fetch.fsckObjects=true ls-tree HEAD",
            "worktree list --porcelain",
            "symbolic-ref --quiet HEAD",
            "status --porcelain",
        ] {
            assert!(is_killable(line, &[]), "{line}");
        }
        for line in [
            "add --all",
            "-c core.bare=false reset --hard",
            "worktree add there",
            "worktree remove there",
            "symbolic-ref HEAD refs/heads/main",
            "update-ref refs/heads/main 0123",
            "write-tree",
            "an-alias",
            "-c",
            "",
        ] {
            assert!(!is_killable(line, &[]), "{line}");
        }
        let own_index = [(INDEX, OsStr::new("elsewhere"))];
        assert!(is_killable(
            "-c core.sharedRepository=0600 write-tree",
            &own_index
        ));
        assert!(!is_killable("add --all", &own_index));
    }
}
