//! Runs one git command to its end: under a guard, because git starts filters, hooks, drivers and other programs that the repository names.
//!
//! An agent may write the configuration and the attributes of its repository at any time, so no look at them beforehand tells what git is going to start.
//! Therefore every git runs under a guard, which ends what git left running and proves that nothing is left. A git that [`only_reads`] runs without one
//! first, and the kernel kills it if it starts a program; then it runs again, under a guard.

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
    Agent, AgentCommand, Containment, Exit, Marker, Output, StopPolicy, Stream, childless,
};
use loop_state::times;
use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::runtime::{Builder, Handle};
use tokio::time::{Instant, timeout};

use super::looks::{Ends, Left, Look, Looks, Told};
use crate::deadline::{Hurried, Hurry, left};
use crate::processes::{MARKER, names};

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

/// Switches off what a command that only reads could start: a check of signatures, and the fetch of what a partial clone lacks.
const READ_ONLY: [&str; 2] = ["-c", "log.showSignature=false"];
const READ_ONLY_VARIABLES: [(&str, &str); 2] =
    [("GIT_NO_LAZY_FETCH", "1"), ("GIT_ALLOW_PROTOCOL", "none")];

/// How much of what git complains about is read.
const MAX_COMPLAINT: usize = 16 << 10;
/// The commands that only read, so that a kill at any time leaves nothing half done.
///
/// `status` reads because `GIT_OPTIONAL_LOCKS` is off; it runs the filters of files that may have changed.
const READS: [&str; 10] = [
    "check-ignore",
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

/// Returns whether git writes nothing for these words.
fn only_reads<S: AsRef<OsStr>>(words: &[S]) -> bool {
    let mut words = words.iter().filter_map(|word| word.as_ref().to_str());
    let mut command = words.next();
    while command == Some("-c") {
        command = words.nth(1);
    }
    match command {
        Some("worktree") => words.next() == Some("list"),
        // With a second name it writes one, of which a hook is told.
        Some("symbolic-ref") => words.filter(|word| !word.starts_with('-')).count() == 1,
        Some(command) => READS.contains(&command),
        None => false,
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
    if only_reads(call.arguments) && !NEEDS_A_GUARD.load(Ordering::Relaxed) {
        alone = run_alone(call, looks)?;
        if alone.is_none() {
            NEEDS_A_GUARD.store(true, Ordering::Relaxed);
        }
    }
    let said = match alone {
        Some(said) => said,
        None => run_contained(call, looks)?,
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
        // The caller no longer waits for a late answer.
        let _late = tell.send(Told::Over(said));
    });
    let complained = git.stderr.take().map(reading);
    let (said, grace) = match told.recv_timeout(patience) {
        Ok(Told::Over(said)) => (Ok(said), None),
        Ok(Told::End(grace)) => (Err(Refusal::Stopped), Some(grace)),
        Err(_) => (Err(Refusal::Silent(patience)), Some(times::GIT_ENDING)),
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
        // The caller no longer waits for a late answer.
        let _late = answered.send(read(from));
    });
    answer
}

fn read(from: impl Read) -> Vec<u8> {
    let mut text = Vec::new();
    let read = from.take(MAX_ANSWER).read_to_end(&mut text);
    read.map_or(Vec::new(), |_| text)
}

/// Runs git to its end under a guard, and returns what it printed. Blocks.
fn run_contained<S: AsRef<OsStr>>(
    call: &Call<'_, S>,
    looks: Option<&Looks>,
) -> Result<Vec<u8>, Refusal> {
    let hurry = Hurry::default();
    let hurried = hurry.hurried();
    let look = { looks.map(|looks| looks.begin(Ends::Contained(hurry.clone()))) }.transpose()?;
    let command = command(call, looks);
    let patience = call.patience;
    let (tell, told) = mpsc::channel();
    runtime()?.spawn(async move {
        let end = contained(command, patience, hurried, look.as_ref()).await;
        drop(look);
        // The caller waits for it.
        let _waits = tell.send(end);
        drop(hurry);
    });
    told.recv().map_err(|_| Refusal::Stopped)?
}

/// Returns the runtime of these git commands, which has a thread of its own: their callers may be within a runtime, and may be without one.
fn runtime() -> Result<&'static Handle, Refusal> {
    static RUNTIME: OnceLock<io::Result<Handle>> = OnceLock::new();
    let start = || {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let thread = std::thread::Builder::new().name("git".into());
        thread.spawn(move || runtime.block_on(std::future::pending::<()>()))?;
        Ok(handle)
    };
    let started = RUNTIME.get_or_init(start).as_ref();
    started.map_err(|e| Refusal::NotRun(io::Error::new(e.kind(), e.to_string())))
}

fn command<S: AsRef<OsStr>>(call: &Call<'_, S>, looks: Option<&Looks>) -> AgentCommand {
    let mut command = AgentCommand::new("git").args(call.words());
    for name in POINTERS {
        command = command.env_remove(name);
    }
    for (name, value) in call.variables() {
        command = command.env(name, OsString::from(value));
    }
    let marker = looks.and_then(|looks| looks.marker.as_deref()?.split_once('.'));
    if let Some((scope, member)) = marker {
        command = command.marker(Marker {
            variable: MARKER.into(),
            scope: scope.into(),
            member: member.into(),
        });
    }
    command.current_dir(call.directory)
}

/// What git printed until it ended.
#[derive(Debug, Default)]
struct Heard {
    printed: Vec<u8>,
    complained: Vec<u8>,
    /// Whether both streams are at their end.
    silent: bool,
}

impl Heard {
    /// Waits for git's end, and keeps what it prints until then.
    async fn until_end(&mut self, git: &mut Agent) -> Result<Exit, Refusal> {
        while !self.silent {
            match git.next_output().await {
                None => self.silent = true,
                Some(Output {
                    stream: Stream::Stdout,
                    line,
                }) => {
                    self.printed.extend_from_slice(&line.bytes);
                    self.printed.push(b'\n');
                    if self.printed.len() as u64 >= MAX_ANSWER {
                        return Err(Refusal::Said(TOO_MUCH.into()));
                    }
                }
                Some(output) => {
                    let room = MAX_COMPLAINT.saturating_sub(self.complained.len());
                    let line = &output.line.bytes;
                    self.complained
                        .extend_from_slice(&line[..line.len().min(room)]);
                    self.complained.push(b'\n');
                    self.complained.truncate(MAX_COMPLAINT);
                }
            }
        }
        Ok(git.wait().await)
    }

    /// Returns why git failed.
    fn why(&self, exit: impl fmt::Display) -> Refusal {
        let said = String::from_utf8_lossy(&self.complained);
        Refusal::Said(match said.trim().is_empty() {
            true => format!("it failed without a message ({exit})"),
            false => complaint(&said),
        })
    }
}

async fn contained(
    command: AgentCommand,
    patience: Duration,
    mut hurried: Hurried,
    look: Option<&Look>,
) -> Result<Vec<u8>, Refusal> {
    let spawned = command.spawn().await;
    let mut git = spawned.map_err(|e| Refusal::NotRun(io::Error::other(e)))?;
    if let Some(look) = look {
        look.started(git.pid());
    }
    let mut heard = Heard::default();
    let (ended, mut by) = tokio::select! {
        biased;
        by = hurried.told() => (Err(Refusal::Stopped), by.unwrap_or_else(Instant::now)),
        ended = timeout(patience, heard.until_end(&mut git)) => match ended {
            Ok(ended) => (ended, Instant::now()),
            Err(_) => (Err(Refusal::Silent(patience)), Instant::now() + times::GIT_ENDING),
        },
    };
    let report = loop {
        // What is left behind by a git that is over gets no grace.
        let policy = StopPolicy {
            terminate: left(by),
            budget: left(by) + times::GIT_KILL,
            ..StopPolicy::kill()
        };
        tokio::select! {
            biased;
            sooner = hurried.sooner(by) => by = sooner,
            report = git.stop(&policy) => break report,
        }
    };
    if let Some(look) = look {
        look.leaves(Left {
            proven: report.containment == Containment::Guard && !report.guard_lost,
            ended: names(report.ended),
            survivors: names(report.survivors),
        });
    }
    match ended? {
        exit if exit.success() => Ok(heard.printed),
        exit => Err(heard.why(exit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h7_only_a_command_that_reads_may_be_killed_at_any_time() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for line in [
            "rev-parse --show-toplevel",
            "-c fetch.fsckObjects=true ls-tree HEAD",
            "worktree list --porcelain",
            "symbolic-ref --quiet HEAD",
            "status --porcelain",
        ] {
            assert!(only_reads(&words(line)), "{line}");
        }
        for line in [
            "add --all",
            "-c core.bare=false reset --hard",
            "worktree add there",
            "worktree remove there",
            "symbolic-ref HEAD refs/heads/main",
            "update-ref refs/heads/main 0123",
            "an-alias",
            "-c",
            "",
        ] {
            assert!(!only_reads(&words(line)), "{line}");
        }
    }
}
