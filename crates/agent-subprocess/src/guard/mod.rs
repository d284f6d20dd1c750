//! The guard: a small process that owns a process tree. This module has the functions that a host calls to have guards.
//!
//! A host calls [`run_if_guard`] first in `main`. Then this crate can start the host's own executable again as a guard. A host that cannot do that, for
//! example a test binary, uses [`guard_before_main!`](crate::guard_before_main), or names a helper with [`guard_program`].
//!
//! A host that can run as the first process of a container also calls [`run_if_init`] directly after that.

#[cfg(target_os = "linux")]
mod init;
#[cfg(target_os = "linux")]
mod serve;
#[cfg(target_os = "linux")]
mod tree;

use crate::guard_executable;
#[cfg(target_os = "linux")]
use crate::orphans;
use std::path::PathBuf;

/// Runs the guard and ends the process if this process was started as a guard; otherwise returns immediately.
///
/// Call it first in `main`, before any thread starts. The first line under `#[tokio::main]` is too late, because the threads of the runtime already
/// run. Then there is no guard: a spawn fails, or falls back to a group with [`Containment::Auto`](crate::Containment::Auto).
/// [`guard_before_main!`](crate::guard_before_main) does the same before `main`, also in tests. A process is a guard if it has the arguments of a guard *and* a socket as its standard
/// input. An environment variable doesn't decide this, because a nested host would inherit it.
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
        let word = std::env::args_os().nth(1);
        enter(word.is_some_and(|word| word == crate::marker::GUARD_ARGUMENT));
    }
}

/// Makes a program its own guard without a call in `main`: also below `#[tokio::main]`, and in tests.
///
/// Write it once, outside of any function, in `main.rs` or in a file of tests. It calls [`guard::run_if_guard`](crate::guard::run_if_guard) before
/// `main`. So it does nothing in a library that another program loads later.
///
/// # Platform
/// Does nothing outside Linux.
///
/// # Examples
/// ```no_run
/// agent_subprocess::guard_before_main!();
///
/// #[tokio::main]
/// async fn main() -> Result<(), agent_subprocess::Error> {
///     let mut tree = agent_subprocess::TreeCommand::new("make").spawn().await?;
///     println!("{}", tree.wait().await);
///     Ok(())
/// }
/// ```
#[cfg(target_os = "linux")]
#[macro_export]
macro_rules! guard_before_main {
    () => {
        $crate::call_before_main!($crate::guard::run_if_guard_before_main);
    };
}

/// Does nothing on this platform, which has no guards.
#[cfg(not(target_os = "linux"))]
#[macro_export]
macro_rules! guard_before_main {
    () => {};
}

/// Does the same as [`run_if_guard`], for [`guard_before_main!`](crate::guard_before_main).
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub extern "C" fn run_if_guard_before_main() {
    let word = crate::proc_fs::own_argument(1);
    enter(word.is_some_and(|word| word == crate::marker::GUARD_ARGUMENT.as_bytes()));
}

/// Runs the guard if this process was started as one. Otherwise remembers that it can be its own guard.
#[cfg(target_os = "linux")]
fn enter(has_argument_of_guard: bool) {
    if has_argument_of_guard {
        serve::run_if_connected();
    }
    // A second thread here would also exist in the guard, which must be single-threaded to fork and to wait for its children.
    if crate::proc_fs::threads() == 1 {
        guard_executable::allow_own();
    }
}

/// Becomes the init of its container if this process is the first one there (PID 1), and continues in a child. Otherwise returns immediately.
///
/// The first process of a pid namespace has duties that no ordinary program fulfils. Each orphan becomes its child and stays a zombie until it is
/// reaped. A signal without a handler does not reach it. So this process forks itself. The child returns from here and is the program. The parent
/// stays as the init. It reaps every orphan that ends and forwards the signals that it gets (not those of the terminal, which the child gets anyway).
/// It ends as the child does, with the same exit code or 128 + the number of the signal that killed the child. Before that it sends SIGTERM to the
/// other processes and waits at most two seconds for them; in that time a guard ends its process tree.
///
/// Call it directly after [`run_if_guard`], before any thread starts; with threads it does nothing. The child has the terminal, the descriptors and
/// the signal mask of the process, and another pid.
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

/// Makes this process the parent of every orphan below it, so that it can end the processes that are left when a program kills its guard.
///
/// Without this call, such a process tree is swept by its marker, and a process that cleared its environment escapes. With it, the orphans of a
/// killed guard become children of this process. This process ends them and reaps each by its pid; [`StopReport`](crate::StopReport) counts them.
///
/// **The effect is global for the process** (`PR_SET_CHILD_SUBREAPER`), so only a program should call it, not a library. Every process below that
/// loses its parent becomes a child of this process, no matter which process started it. A child is ignored if it is in the session of this process,
/// is older than the lost guard, or started while an [`OwnProgramScope`] was held. A program must hold an [`OwnProgramScope`] while it runs another
/// program that can start a session of its own; otherwise such a child is ended if it still runs. If such a child has ended, its exit stays for its
/// owner.
///
/// # Errors
/// Fails if the system has no child subreapers.
///
/// # Platform
/// Fails outside Linux.
pub fn adopt_orphans() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    return orphans::start();
    #[cfg(not(target_os = "linux"))]
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Marks the time in which the host runs a program of its own, such as an editor. A process that starts while this value is held doesn't count as the
/// orphan of a program.
///
/// Create it before the program starts, and drop it after waiting for the program. Without [`adopt_orphans`] it does nothing.
#[derive(Debug)]
#[must_use = "dropping it means that the program has ended"]
pub struct OwnProgramScope {
    #[cfg(target_os = "linux")]
    _running: Option<orphans::Running>,
}

impl OwnProgramScope {
    /// Begins the time in which the host runs such a program.
    #[expect(clippy::new_without_default, reason = "creating it has an effect")]
    pub fn new() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            _running: orphans::is_on().then(orphans::Running::begin),
        }
    }
}

/// Names the program to start as a guard, instead of this process's own executable.
///
/// The program must call [`run_if_guard`] first. `agent-guard`, which comes with this crate, is such a program.
pub fn guard_program(path: impl Into<PathBuf>) {
    guard_executable::set(path.into());
}
