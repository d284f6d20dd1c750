//! Why something saved can't be read, written, moved or taken: all messages in one place, predicates for what callers branch on, and what would mend it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::RunId;
use crate::state_dir::Foreign;

/// Why something saved can't be read, written, moved or taken. Its text names the place and what to do, which for some is a [`mend`](Self::mend) that a program
/// may have a command for.
#[derive(Debug)]
pub struct Error(Box<Kind>);

#[derive(Debug, thiserror::Error)]
enum Kind {
    #[error("{what} `{}`: {}", path.display(), bare(source))]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(
        "what run `{run}` started is alive: {alive}; end it first, or resume the run, which does"
    )]
    Alive { run: RunId, alive: String },
    #[error("{holder} is working in `{}`; wait for it or stop it", path.display())]
    Held { path: PathBuf, holder: String },
    #[error("{who} holds a lock on `{}`, and no run of this project does; end it, or ask its user to", path.display())]
    Blocked { path: PathBuf, who: String },
    #[error(
        "`{0}` is not a run id: use 1 to 64 letters, digits, `.`, `_` or `-`, beginning with a letter or digit"
    )]
    BadRunId(String),
    #[error("no run `{run}` in `{}`; choose one that is there, or another project", path.display())]
    NoSuchRun { run: RunId, path: PathBuf },
    #[error("run `{run}` has no {what} on record; choose from what it has")]
    NoSuchState { run: RunId, what: String },
    #[error(
        "iteration {iteration} of run `{run}` is in no commit, so that its files can't be had again; {mend}"
    )]
    NotCommitted {
        run: RunId,
        iteration: u32,
        mend: String,
        by: Option<Mend>,
    },
    #[error("it was stopped, and nothing of it is left")]
    Stopped,
    #[error("run `{0}` is at work: stop it first")]
    AtWork(RunId),
    #[error(
        "run `{run}` was moved to `{to}` and goes on there; to go on here all the same, take it back"
    )]
    Moved { run: RunId, to: String },
    #[error("`{}`: {problem}", path.display())]
    Archive {
        path: PathBuf,
        problem: String,
        by: Option<Mend>,
    },
    #[error("run `{run}` {problem}")]
    Unfit {
        run: RunId,
        problem: String,
        by: Option<Mend>,
    },
    #[error("run `{0}` exists already; choose another name, or go on with it")]
    RunExists(RunId),
    #[error(
        "run `{0}` has nothing saved to continue from: it ended before its first save; start a new one"
    )]
    NothingSaved(RunId),
    #[error(
        "the state of run `{0}` is gone, and only transcripts are left of it: it can't be gone on with; start a new run under another name"
    )]
    StateGone(RunId),
    #[error("run `{run}` can't be {what}: {source}")]
    Store {
        run: RunId,
        what: &'static str,
        source: checkpoint_store::Error,
    },
    #[error(
        "the state of run `{run}` was removed while it ran (`git clean -x`? an agent?), and could not be written again: {source}; \
         what it did is in the working tree, but it can't be resumed: start a new run"
    )]
    Vanished {
        run: RunId,
        source: checkpoint_store::Error,
    },
    #[error("the prompt of run `{0}` is lost; give another one with --prompt-file FILE")]
    PromptLost(RunId),
    #[error("`{}` is no directory to work in: {}; name another one with -C", path.display(), bare(source))]
    Directory { path: PathBuf, source: io::Error },
    #[error("`{}`: {problem}", path.display())]
    Git { path: PathBuf, problem: String },
    #[error("{0}")]
    Foreign(Foreign),
    #[error(
        "git tracks the state in `{}`, so that another clone's runs would be taken for yours: git -C {} rm -r -q --cached .rlm, and commit that",
        .0.join(".rlm").display(), .0.display()
    )]
    Tracked(PathBuf),
    #[error("`{name}` can't be the name of a phase: {problem}")]
    PhaseName { name: String, problem: &'static str },
    #[error("the prompt file `{}` {problem}", path.display())]
    Prompt { path: PathBuf, problem: String },
    #[error("{0}")]
    Rules(loop_state::RulesError),
    #[error("{0}")]
    Unproven(String),
    #[error("phase `{phase}`: {source}")]
    Unsupported {
        phase: String,
        source: agent_duplex::Error,
    },
}

/// What went wrong, without the path that `fs-err` repeats.
fn bare(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it is not there".into(),
        io::ErrorKind::Other => error.to_string(),
        kind => kind.to_string(),
    }
}

impl Error {
    /// Makes the error of a call to the system; `what` begins its text, such as `can't read`.
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

    /// Makes the error of a prompt that is kept nowhere.
    pub fn prompt_lost(run: RunId) -> Self {
        Self(Box::new(Kind::PromptLost(run)))
    }

    pub(crate) fn phase_name(name: &str, problem: &'static str) -> Self {
        let name = name.escape_debug().take(80).collect();
        Self(Box::new(Kind::PhaseName { name, problem }))
    }

    /// Says that a run, or a process that can't be named, has the lock.
    pub(crate) fn held(path: &Path, holder: Option<impl fmt::Display>) -> Self {
        let path = path.into();
        let holder = holder.map_or_else(|| "another process".into(), |it| it.to_string());
        Self(Box::new(Kind::Held { path, holder }))
    }

    /// Says that a process that no run of this project is has the lock.
    pub(crate) fn blocked(path: &Path, who: String) -> Self {
        let path = path.into();
        Self(Box::new(Kind::Blocked { path, who }))
    }

    pub(crate) fn alive(run: RunId, alive: &[agent_duplex::ProcessName]) -> Self {
        let name = |it: &agent_duplex::ProcessName| format!("{} (pid {})", it.name, it.pid);
        let names: Vec<_> = alive.iter().take(8).map(name).collect();
        let alive = names.join(", ");
        Self(Box::new(Kind::Alive { run, alive }))
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

    pub(crate) fn not_committed(run: &RunId, iteration: u32, mend: String) -> Self {
        let run = run.clone();
        Self(Box::new(Kind::NotCommitted {
            run,
            iteration,
            mend,
            by: None,
        }))
    }

    pub(crate) fn at_work(run: &RunId) -> Self {
        Self(Box::new(Kind::AtWork(run.clone())))
    }

    /// Makes the error of a run that was exported and continues elsewhere.
    pub fn moved(run: &RunId, to: &str) -> Self {
        let (run, to) = (run.clone(), to.to_owned());
        Self(Box::new(Kind::Moved { run, to }))
    }

    pub(crate) fn archive(path: &Path, problem: String) -> Self {
        let (path, by) = (path.into(), None);
        Self(Box::new(Kind::Archive { path, problem, by }))
    }

    pub(crate) fn stopped() -> Self {
        Self(Box::new(Kind::Stopped))
    }

    /// `problem` says what to do.
    pub(crate) fn unfit(run: &RunId, problem: impl Into<String>) -> Self {
        let (run, problem, by) = (run.clone(), problem.into(), None);
        Self(Box::new(Kind::Unfit { run, problem, by }))
    }

    /// Says what mends a problem whose text ends with that.
    pub(crate) fn mended_by(mut self, mend: Mend) -> Self {
        if let Kind::Archive { by, .. } | Kind::NotCommitted { by, .. } | Kind::Unfit { by, .. } =
            &mut *self.0
        {
            *by = Some(mend);
        }
        self
    }

    /// Makes the error of a name that another run has.
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

    /// Makes the error of a prompt file; `problem` says what to do.
    pub fn prompt(path: &Path, problem: impl Into<String>) -> Self {
        Self(Box::new(Kind::Prompt {
            path: path.into(),
            problem: problem.into(),
        }))
    }

    /// `problem` says what to do.
    pub fn git(path: &Path, problem: String) -> Self {
        let path = path.into();
        Self(Box::new(Kind::Git { path, problem }))
    }

    pub(crate) fn foreign(foreign: Foreign) -> Self {
        Self(Box::new(Kind::Foreign(foreign)))
    }

    pub(crate) fn tracked(root: &Path) -> Self {
        Self(Box::new(Kind::Tracked(root.into())))
    }

    /// Makes the error of rules by which no run can be made.
    pub fn rules(error: loop_state::RulesError) -> Self {
        Self(Box::new(Kind::Rules(error)))
    }

    /// `why` says what can't be proven of which process, and what to do.
    pub fn unproven(why: impl Into<String>) -> Self {
        Self(Box::new(Kind::Unproven(why.into())))
    }

    pub(crate) fn no_mcp_servers(phase: &str) -> Self {
        let mend = "say them in its own arguments, or choose an agent that has a driver";
        let source = agent_duplex::Error::unsupported("command", "take MCP servers", mend);
        let phase = phase.to_owned();
        Self(Box::new(Kind::Unsupported { phase, source }))
    }

    /// Returns what would mend it, where that is one thing that a program may have a command for. The text ends with it, so that a command can be put
    /// behind: `run x is at work: stop it first`, and how.
    #[must_use]
    pub fn mend(&self) -> Option<Mend> {
        match &*self.0 {
            Kind::NoSuchRun { .. } => Some(Mend::ChooseRun),
            Kind::NoSuchState { run, .. } => Some(Mend::ChooseState(run.clone())),
            Kind::AtWork(run) => Some(Mend::Stop(run.clone())),
            Kind::Moved { run, .. } => Some(Mend::TakeBack(run.clone())),
            Kind::RunExists(run) => Some(Mend::Resume(run.clone())),
            Kind::Archive { by, .. } | Kind::NotCommitted { by, .. } | Kind::Unfit { by, .. } => {
                by.clone()
            }
            _ => None,
        }
    }

    /// Returns whether an agent can't do what the settings ask of it.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(*self.0, Kind::Unsupported { .. })
    }

    /// Returns whether another process holds the run or its working tree.
    #[must_use]
    pub fn is_held(&self) -> bool {
        match &*self.0 {
            Kind::Held { .. } | Kind::Blocked { .. } | Kind::AtWork(_) => true,
            Kind::Store { source, .. } => source.is_locked(),
            _ => false,
        }
    }

    /// Returns whether a store had no room, so that what was saved in it before is intact.
    pub fn is_full(&self) -> bool {
        matches!(&*self.0, Kind::Store { source, .. } if source.is_full())
    }

    /// Returns whether the run goes on elsewhere.
    #[must_use]
    pub fn is_moved(&self) -> bool {
        matches!(*self.0, Kind::Moved { .. })
    }

    /// Returns whether there is no such run, no such state of it, or nothing saved in it.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(
            *self.0,
            Kind::NoSuchRun { .. } | Kind::NoSuchState { .. } | Kind::NothingSaved(_)
        )
    }

    /// Returns whether what was asked for makes no sense, so that asking differently is the mend.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(
            *self.0,
            Kind::BadRunId(_)
                | Kind::RunExists(_)
                | Kind::Directory { .. }
                | Kind::Foreign(_)
                | Kind::Git { .. }
                | Kind::Moved { .. }
                | Kind::NotCommitted { .. }
                | Kind::Unfit { .. }
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

/// What would mend an [`Error`]. Its text says it in words to which a program can add its command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mend {
    /// To choose one of the runs that are there; see [`Project::runs`](crate::Project::runs).
    ChooseRun,
    /// To choose from what is on record of the run; see [`Project::checkpoints`](crate::Project::checkpoints).
    ChooseState(RunId),
    /// To look at this save of the run; see [`Project::state_at`](crate::Project::state_at).
    Look {
        /// The run.
        run: RunId,
        /// The number of the save.
        save: u64,
    },
    /// To see what is damaged of the run, and what is safe to do; see [`Project::verify`](crate::Project::verify).
    Verify(RunId),
    /// To stop the run, which is at work; see `Control::Stop` of `loop-runner`.
    Stop(RunId),
    /// To take up the run; see `Runner::open` of `loop-runner`.
    Resume(RunId),
    /// To take up the run, though it goes on elsewhere; see `Options::take_back` of `loop-runner`.
    TakeBack(RunId),
    /// To have the run commit what it does from now on; see [`Settings::commit`](field@crate::Settings::commit).
    Commit(RunId),
    /// To fork the run that made the iteration; see [`Project::fork`](crate::Project::fork).
    Fork {
        /// The run.
        run: RunId,
        /// The iteration.
        iteration: u32,
    },
}
