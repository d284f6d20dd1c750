//! The executable to start as a guard. It is separate from the guard, so that the host's side needs nothing of the guard's code.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

static IS_OWN_GUARD: AtomicBool = AtomicBool::new(false);
static NAMED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Records that this process's own executable can be started as a guard.
#[cfg(target_os = "linux")]
pub(crate) fn allow_own() {
    IS_OWN_GUARD.store(true, Ordering::Relaxed);
}

/// Names another executable.
pub(crate) fn set(path: PathBuf) {
    *NAMED.lock().unwrap_or_else(PoisonError::into_inner) = Some(path);
}

/// Returns the executable to start as a guard, if there is one.
pub(crate) fn executable() -> Option<PathBuf> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let named = NAMED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // `/proc/self/exe` works even if the file was replaced or deleted.
    named.or_else(|| {
        IS_OWN_GUARD
            .load(Ordering::Relaxed)
            .then(|| "/proc/self/exe".into())
    })
}
