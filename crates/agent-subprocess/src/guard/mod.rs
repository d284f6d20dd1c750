//! The guard: a small process that owns an agent's whole tree, and how a program comes to have one.
//!
//! A program calls [`run_if_guard`] first in `main`; then this crate can start the program's own executable again as a
//! guard. A program that cannot do that, for example a test binary, names a helper with [`guard_program`].
//!
//! A program that may be started as the first process of a container calls [`run_if_init`] after that.

#[cfg(target_os = "linux")]
pub(crate) mod adopt;
#[cfg(target_os = "linux")]
mod init;
#[cfg(target_os = "linux")]
mod serve;
#[cfg(target_os = "linux")]
mod tree;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

static ENTERED: AtomicBool = AtomicBool::new(false);
static PROGRAM: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Runs the guard and ends the process if this process was started as one; returns at once otherwise.
///
/// To be called first in `main`, before any thread is started: the first line under `#[tokio::main]` is too late, since the runtime
/// and its threads are there. Then there is no guard, [`Containment::Auto`](crate::Containment::Auto) falls back to a group and
/// [`Containment::Guard`](crate::Containment::Guard) fails. A process is a guard by its arguments *and* by the
/// socket on its standard input, never by an environment variable, which a nested host would inherit.
///
/// # Platform
/// Does nothing outside Linux.
///
/// # Examples
/// ```
/// agent_subprocess::guard::run_if_guard();
/// // Arguments, runtime and everything else come after.
/// ```
pub fn run_if_guard() {
    #[cfg(target_os = "linux")]
    {
        if std::env::args_os()
            .nth(1)
            .is_some_and(|word| word == crate::marker::GUARD_WORD)
        {
            serve::run_if_connected();
        }
        // A second thread here would be there in the guard as well, and fork and wait would not be its own any more.
        if crate::proc_fs::threads() == 1 {
            ENTERED.store(true, Ordering::Relaxed);
        }
    }
}

/// Becomes the init of its container if this process is the first one there (PID 1), and goes on in a child; returns at
/// once otherwise.
///
/// The first process of a pid namespace has duties that no ordinary program fulfils: whoever loses its parent becomes its
/// child and stays a zombie until it is reaped, and a signal without a handler does not reach it. So this process forks
/// itself. The child returns from here and is the program. The parent stays as the init: it reaps whoever ends, passes
/// on what signals are sent to it (not those of the terminal, which the child gets anyway), and ends as the child does, with
/// its exit code or 128 + the number of the signal that killed it. Who still lives then gets SIGTERM, and at most two
/// seconds, in which a guard ends its tree.
///
/// To be called directly after [`run_if_guard`], before any thread is started; with threads it does nothing. The child
/// has the terminal, the descriptors and the signal mask of the process, and another pid.
///
/// # Platform
/// Does nothing outside Linux.
///
/// # Examples
/// ```
/// use agent_subprocess::guard;
///
/// guard::run_if_guard();
/// guard::run_if_init();
/// // Arguments, runtime and everything else come after.
/// ```
pub fn run_if_init() {
    #[cfg(target_os = "linux")]
    if std::process::id() == 1
        && crate::proc_fs::threads() == 1
        && let Ok(Some((child, signals))) = crate::sys::fork_with_signals()
    {
        init::serve(child, &signals);
    }
}

/// Makes this process the parent of every orphan below it, so that it can end what a guard leaves that an agent has killed.
///
/// Without this, such a tree is swept by its marker, and a process that cleared its environment gets away. With it, the orphans of a killed guard
/// come to this process, which ends them and reaps each by its pid; [`StopReport`](crate::StopReport) counts them.
///
/// **This holds for the whole process** (`PR_SET_CHILD_SUBREAPER`), so only a program should call it, not a library. Every process below that loses its parent
/// becomes a child of this one, whoever started it. A child is left alone if it is in the session of this process, is older than the lost guard, or began
/// while an [`OwnProgram`] was held. A program must hold an [`OwnProgram`] while it runs anything else that may begin a session of its own; such a child
/// is ended otherwise if it still runs. The exit of one that has ended stays for its owner.
///
/// # Errors
/// When the system has no child subreapers.
///
/// # Platform
/// Fails outside Linux.
pub fn adopt_orphans() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    return adopt::start();
    #[cfg(not(target_os = "linux"))]
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Says that a program runs that the host itself has started, such as an editor: what begins meanwhile is not taken for the orphan of an agent.
///
/// To be made before the program is started, and to be dropped when it has been waited for. Without [`adopt_orphans`] it does nothing.
#[derive(Debug)]
#[must_use = "dropping it says that the program has ended"]
pub struct OwnProgram {
    #[cfg(target_os = "linux")]
    _running: Option<adopt::Running>,
}

impl OwnProgram {
    /// Begins the time of such a program.
    #[expect(clippy::new_without_default, reason = "it does something")]
    pub fn new() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            _running: adopt::is_on().then(adopt::Running::begin),
        }
    }
}

/// Names the program to start as a guard, instead of this process's own executable.
///
/// The program must call [`run_if_guard`] first; `agent-guard`, which comes with this crate, is such a program.
pub fn guard_program(path: impl Into<PathBuf>) {
    *PROGRAM
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(path.into());
}

/// The executable to start as a guard, if there is one.
pub(crate) fn executable() -> Option<PathBuf> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let named = PROGRAM
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .clone();
    // Through /proc it works with the file replaced or deleted.
    named.or_else(|| {
        ENTERED
            .load(Ordering::Relaxed)
            .then(|| "/proc/self/exe".into())
    })
}
