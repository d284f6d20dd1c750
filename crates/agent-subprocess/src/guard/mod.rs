//! The guard: a small process that owns an agent's whole tree, and how a program comes to have one.
//!
//! A program calls [`run_if_guard`] first in `main`; then this crate can start the program's own executable again as a
//! guard. A program that cannot do that, for example a test binary, names a helper with [`guard_program`].

#[cfg(target_os = "linux")]
mod enter;
#[cfg(target_os = "linux")]
mod serve;
#[cfg(target_os = "linux")]
mod tree;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The name of a guard, as its `argv[0]` and as its command name. It does not hold the name of any host program:
/// `pkill -9 host` would otherwise take host and guard together.
pub(crate) const NAME: &str = "agent-guard";
/// The first argument of a guard.
pub(crate) const WORD: &str = "--agent-guard";

static ENTERED: AtomicBool = AtomicBool::new(false);
static PROGRAM: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Runs the guard and ends the process if this process was started as one; returns at once otherwise.
///
/// To be called first in `main`, before any thread is started. A process is a guard by its arguments *and* by the
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
        if std::env::args_os().nth(1).is_some_and(|word| word == WORD) {
            enter::run_if_connected();
        }
        // A second thread here would be there in the guard as well, and fork and wait would not be its own any more.
        if crate::proc_fs::threads() == 1 {
            ENTERED.store(true, Ordering::Relaxed);
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
