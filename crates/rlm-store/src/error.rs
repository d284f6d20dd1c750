//! The reasons why saved data can't be read, written, transferred or locked: all messages in one place, predicates for the cases that callers handle,
//! and hints.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::RunId;
use crate::state_dir::OtherOwner;

/// The reason why saved data can't be read, written, transferred or locked. The text names the place and the fix. For some fixes, the
/// error also has a [`hint`](Self::hint), so that a program can print its own command.
#[derive(Debug)]
pub struct Error(Box<Kind>);

#[derive(Debug, thiserror::Error)]
enum Kind {
    #[error("{what} `{}`: {}", path.display(), message_without_path(source))]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(
        "processes of run `{run}` are alive: {alive}; end them first, or resume the run, which ends them"
    )]
    ProcessesAlive { run: RunId, alive: String },
    #[error("{holder} is working in `{}`; wait for it or stop it", path.display())]
    Held { path: PathBuf, holder: String },
    #[error("can't lock `{}`: {who} holds a lock on it and is not a run of this project; end it, or ask its user to end it", path.display())]
    LockedByOther { path: PathBuf, who: String },
    #[error(
        "`{0}` is not a run id: use 1 to 64 letters, digits, `.`, `_` or `-`, beginning with a letter or digit"
    )]
    BadRunId(String),
    #[error("no run `{run}` in `{}`; choose an existing run, or another project", path.display())]
    NoSuchRun { run: RunId, path: PathBuf },
    #[error("run `{run}` has no {what}; choose an existing one")]
    NoSuchState { run: RunId, what: String },
    #[error(
        "iteration {iteration} of run `{run}` is in no commit, so its files can't be restored; {hint_text}"
    )]
    NotCommitted {
        run: RunId,
        iteration: u32,
        hint_text: String,
        hint: Option<Hint>,
    },
    #[error("stopped; no files are left behind")]
    Stopped,
    #[error("run `{0}` is live: stop it first")]
    RunInProgress(RunId),
    #[error(
        "run `{run}` was transferred to `{to}` and continues there; to continue it here anyway, take it back"
    )]
    Transferred { run: RunId, to: String },
    #[error(
        "run `{0}` belongs to a fleet, whose workers continue it; this directory has one worker's copy, which can't be continued here"
    )]
    Claimed(RunId),
    #[error(
        "the directory of run `{run}` was not made for claim {epoch} of the run; unpack the run again"
    )]
    OtherClaim { run: RunId, epoch: u64 },
    #[error("run `{run}` can't be rebuilt from its replica: {source}")]
    Rebuild {
        run: RunId,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("run `{run}` can't be saved: {source}")]
    Replica {
        run: RunId,
        source: checkpoint_store::ReplicaError,
    },
    #[error("`{}`: {problem}", path.display())]
    Archive {
        path: PathBuf,
        problem: String,
        hint: Option<Hint>,
    },
    #[error("run `{run}` {problem}")]
    NotTransferable {
        run: RunId,
        problem: String,
        hint: Option<Hint>,
    },
    #[error("run `{0}` already exists; choose another name, or resume it")]
    RunExists(RunId),
    #[error("run `{0}` can't be resumed, because it ended before its first save; start a new run")]
    NothingSaved(RunId),
    #[error(
        "the state of run `{0}` is missing, and only its transcripts are left: it can't be resumed; start a new run under another name"
    )]
    StateGone(RunId),
    #[error("run `{run}` can't be {what}: {}", store_problem(source))]
    Store {
        run: RunId,
        what: &'static str,
        source: checkpoint_store::Error,
    },
    #[error(
        "the state of run `{run}` was deleted during the run (by `git clean -x` or an agent?), and can't be written again: {source}; \
         its changes are in the working tree, but it can't be resumed: start a new run"
    )]
    Vanished {
        run: RunId,
        source: checkpoint_store::Error,
    },
    #[error("the prompt of run `{0}` is missing; give another one with --prompt-file FILE")]
    PromptLost(RunId),
    #[error("can't work in directory `{}`: {}; choose another one with -C", path.display(), message_without_path(source))]
    Directory { path: PathBuf, source: io::Error },
    #[error("`{}`: {problem}", path.display())]
    Git { path: PathBuf, problem: String },
    #[error("{0}")]
    OtherOwner(OtherOwner),
    #[error(
        "git tracks the state in `{}`, so runs of another clone would look like yours; untrack it: git -C {} rm -r -q --cached {}, and commit that",
        .0.join(crate::state_directory()).display(), .0.display(), crate::state_directory()
    )]
    Tracked(PathBuf),
    #[error("invalid phase name `{name}`: {problem}")]
    PhaseName { name: String, problem: &'static str },
    #[error("the prompt file `{}` {problem}", path.display())]
    Prompt { path: PathBuf, problem: String },
    #[error("{0}")]
    Rules(loop_state::RulesError),
    #[error("{0}")]
    Unverified(String),
    #[error("phase `{phase}`: {source}")]
    Unsupported {
        phase: String,
        source: agent_duplex::Error,
    },
}

/// Returns the text of an error without the path, which `fs-err` repeats.
fn message_without_path(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".into(),
        io::ErrorKind::Other => error.to_string(),
        kind => kind.to_string(),
    }
}

/// Returns why a store can't be used. A state of a newer version is not damaged, and the message says so.
pub(crate) fn store_problem(error: &checkpoint_store::Error) -> String {
    match error.is_unsupported_version() {
        true => format!(
            "a newer version of rlm wrote its state; use that version, nothing is damaged ({error})"
        ),
        false => error.to_string(),
    }
}

impl Error {
    /// Creates the error of a system call; `what` begins its text, such as `can't read`.
    pub fn io(what: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        Self(Box::new(Kind::Io { what, path, source }))
    }

    pub(crate) fn directory(path: &Path, source: io::Error) -> Self {
        Self(Box::new(Kind::Directory {
            path: path.into(),
            source,
        }))
    }

    /// Creates the error of a prompt that is not stored anywhere.
    pub fn prompt_lost(run: RunId) -> Self {
        Self(Box::new(Kind::PromptLost(run)))
    }

    pub(crate) fn phase_name(name: &str, problem: &'static str) -> Self {
        let name = name.escape_debug().take(80).collect();
        Self(Box::new(Kind::PhaseName { name, problem }))
    }

    /// Creates the error that a run, or a process that can't be named, holds the lock.
    pub(crate) fn held(path: &Path, holder: Option<impl fmt::Display>) -> Self {
        let path = path.into();
        let holder = holder.map_or_else(|| "another process".into(), |it| it.to_string());
        Self(Box::new(Kind::Held { path, holder }))
    }

    /// Creates the error that a process that is not a run of this project holds the lock.
    pub(crate) fn locked_by_other(path: &Path, who: String) -> Self {
        let path = path.into();
        Self(Box::new(Kind::LockedByOther { path, who }))
    }

    pub(crate) fn processes_alive(run: RunId, alive: &[agent_duplex::ProcessName]) -> Self {
        let name = |it: &agent_duplex::ProcessName| format!("{} (pid {})", it.name, it.pid);
        let names: Vec<_> = alive.iter().take(8).map(name).collect();
        let alive = names.join(", ");
        Self(Box::new(Kind::ProcessesAlive { run, alive }))
    }

    pub(crate) fn bad_run_id(text: &str) -> Self {
        Self(Box::new(Kind::BadRunId(
            text.escape_debug().take(80).collect(),
        )))
    }

    pub(crate) fn no_such_run(run: RunId, path: &Path) -> Self {
        Self(Box::new(Kind::NoSuchRun {
            run,
            path: path.into(),
        }))
    }

    pub(crate) fn no_such_state(run: &RunId, what: String) -> Self {
        let run = run.clone();
        Self(Box::new(Kind::NoSuchState { run, what }))
    }

    pub(crate) fn not_committed(run: &RunId, iteration: u32, hint_text: String) -> Self {
        let run = run.clone();
        Self(Box::new(Kind::NotCommitted {
            run,
            iteration,
            hint_text,
            hint: None,
        }))
    }

    pub(crate) fn run_in_progress(run: &RunId) -> Self {
        Self(Box::new(Kind::RunInProgress(run.clone())))
    }

    /// Creates the error of a run that was transferred and continues elsewhere.
    pub fn transferred(run: &RunId, to: &str) -> Self {
        let (run, to) = (run.clone(), to.to_owned());
        Self(Box::new(Kind::Transferred { run, to }))
    }

    pub(crate) fn claimed(run: &RunId) -> Self {
        Self(Box::new(Kind::Claimed(run.clone())))
    }

    pub(crate) fn other_claim(run: &RunId, epoch: u64) -> Self {
        let run = run.clone();
        Self(Box::new(Kind::OtherClaim { run, epoch }))
    }

    pub(crate) fn rebuild(run: &RunId, source: Box<dyn std::error::Error + Send + Sync>) -> Self {
        let run = run.clone();
        Self(Box::new(Kind::Rebuild { run, source }))
    }

    pub(crate) fn replica(run: &RunId, source: checkpoint_store::ReplicaError) -> Self {
        let run = run.clone();
        Self(Box::new(Kind::Replica { run, source }))
    }

    pub(crate) fn archive(path: &Path, problem: String) -> Self {
        let path = path.into();
        Self(Box::new(Kind::Archive {
            path,
            problem,
            hint: None,
        }))
    }

    pub(crate) fn stopped() -> Self {
        Self(Box::new(Kind::Stopped))
    }

    /// Creates the error ``run `RUN` PROBLEM``; `problem` includes the fix.
    pub(crate) fn not_transferable(run: &RunId, problem: impl Into<String>) -> Self {
        let (run, problem, hint) = (run.clone(), problem.into(), None);
        Self(Box::new(Kind::NotTransferable { run, problem, hint }))
    }

    /// Adds a hint; the text of the error must end with the same fix in words.
    pub(crate) fn with_hint(mut self, new: Hint) -> Self {
        if let Kind::Archive { hint, .. }
        | Kind::NotCommitted { hint, .. }
        | Kind::NotTransferable { hint, .. } = &mut *self.0
        {
            *hint = Some(new);
        }
        self
    }

    /// Creates the error of a name that another run has.
    pub fn run_exists(run: RunId) -> Self {
        Self(Box::new(Kind::RunExists(run)))
    }

    pub(crate) fn nothing_saved(run: RunId) -> Self {
        Self(Box::new(Kind::NothingSaved(run)))
    }

    pub(crate) fn state_gone(run: RunId) -> Self {
        Self(Box::new(Kind::StateGone(run)))
    }

    pub(crate) fn store(run: &RunId, what: &'static str, source: checkpoint_store::Error) -> Self {
        if source.is_vanished() {
            let run = run.clone();
            return Self(Box::new(Kind::Vanished { run, source }));
        }
        Self(Box::new(Kind::Store {
            run: run.clone(),
            what,
            source,
        }))
    }

    /// Creates the error of a prompt file; `problem` includes the fix.
    pub fn prompt(path: &Path, problem: impl Into<String>) -> Self {
        Self(Box::new(Kind::Prompt {
            path: path.into(),
            problem: problem.into(),
        }))
    }

    /// Creates the error of a git repository; `problem` includes the fix.
    pub fn git(path: &Path, problem: String) -> Self {
        let path = path.into();
        Self(Box::new(Kind::Git { path, problem }))
    }

    pub(crate) fn other_owner(foreign: OtherOwner) -> Self {
        Self(Box::new(Kind::OtherOwner(foreign)))
    }

    pub(crate) fn tracked(root: &Path) -> Self {
        Self(Box::new(Kind::Tracked(root.into())))
    }

    /// Creates the error of invalid rules.
    pub fn rules(error: loop_state::RulesError) -> Self {
        Self(Box::new(Kind::Rules(error)))
    }

    /// Creates the error of a process that can't be verified; `why` names the process and the fix.
    pub fn unverified(why: impl Into<String>) -> Self {
        Self(Box::new(Kind::Unverified(why.into())))
    }

    pub(crate) fn no_mcp_servers(phase: &str) -> Self {
        let hint = "pass them in the command's own arguments, or choose an agent with a driver";
        let source = agent_duplex::Error::unsupported("command", "take MCP servers", hint);
        let phase = phase.to_owned();
        Self(Box::new(Kind::Unsupported { phase, source }))
    }

    /// Returns the fix, if a program may have one command for it. The text ends with the fix in words, so that a command can follow: `run x is live:
    /// stop it first`, and the command.
    #[must_use]
    pub fn hint(&self) -> Option<Hint> {
        match &*self.0 {
            Kind::NoSuchRun { .. } => Some(Hint::ChooseRun),
            Kind::NoSuchState { run, .. } => Some(Hint::ChooseState(run.clone())),
            Kind::RunInProgress(run) => Some(Hint::Stop(run.clone())),
            Kind::Transferred { run, .. } => Some(Hint::TakeBack(run.clone())),
            Kind::RunExists(run) => Some(Hint::Resume(run.clone())),
            Kind::Archive { hint, .. }
            | Kind::NotCommitted { hint, .. }
            | Kind::NotTransferable { hint, .. } => hint.clone(),
            _ => None,
        }
    }

    /// Returns whether an agent does not support the settings.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(*self.0, Kind::Unsupported { .. })
    }

    /// Returns whether another process holds the run or its working tree.
    #[must_use]
    pub fn is_held(&self) -> bool {
        match &*self.0 {
            Kind::Held { .. } | Kind::LockedByOther { .. } | Kind::RunInProgress(_) => true,
            Kind::Store { source, .. } => source.is_locked(),
            _ => false,
        }
    }

    /// Returns whether a store had no space; everything that was saved before is intact.
    pub fn is_full(&self) -> bool {
        matches!(&*self.0, Kind::Store { source, .. } if source.is_full())
    }

    /// Returns whether the run was transferred and continues elsewhere.
    #[must_use]
    pub fn is_transferred(&self) -> bool {
        matches!(*self.0, Kind::Transferred { .. })
    }

    /// Returns whether the run, or the requested state of it, does not exist, or nothing is saved in it.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(
            *self.0,
            Kind::NoSuchRun { .. } | Kind::NoSuchState { .. } | Kind::NothingSaved(_)
        )
    }

    /// Returns whether the request is invalid, so that only another request can succeed.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(
            *self.0,
            Kind::BadRunId(_)
                | Kind::RunExists(_)
                | Kind::Directory { .. }
                | Kind::OtherOwner(_)
                | Kind::Git { .. }
                | Kind::Transferred { .. }
                | Kind::Claimed(_)
                | Kind::NotCommitted { .. }
                | Kind::NotTransferable { .. }
                | Kind::PhaseName { .. }
                | Kind::Prompt { .. }
                | Kind::Rules(_)
                | Kind::Tracked(_)
                | Kind::Unsupported { .. }
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// The fix of an [`Error`]. The text of the error ends with the same fix in words, to which a program can add its command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Choose one of the existing runs; see [`Project::runs`](crate::Project::runs).
    ChooseRun,
    /// Choose one of the saved states of the run; see [`Project::checkpoints`](crate::Project::checkpoints).
    ChooseState(RunId),
    /// Show this save of the run; see [`Project::state_at`](crate::Project::state_at).
    ShowState {
        /// The run.
        run: RunId,
        /// The number of the save.
        save: u64,
    },
    /// Show the damage of the run, and the safe next steps; see [`Project::verify`](crate::Project::verify).
    Verify(RunId),
    /// Stop the run, which is live; see `RunControl::Stop` of `loop-runner`.
    Stop(RunId),
    /// Resume the run; see `Runner::open` of `loop-runner`.
    Resume(RunId),
    /// Resume the run although it was transferred; see `RunnerOptions::take_back` of `loop-runner`.
    TakeBack(RunId),
    /// Let the run commit its work from now on; see [`Settings::commit`](field@crate::Settings::commit).
    Commit(RunId),
    /// Fork the run that made the iteration; see [`Project::fork`](crate::Project::fork).
    Fork {
        /// The run.
        run: RunId,
        /// The iteration.
        iteration: u32,
    },
}
