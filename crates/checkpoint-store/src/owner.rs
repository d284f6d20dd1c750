//! Whose a store may be: the caller's, or anybody's below directories that the caller named.

use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

static ACCEPTED: RwLock<Vec<PathBuf>> = RwLock::new(Vec::new());

/// Accepts stores of other owners below a directory, for the whole process. Without it a store that belongs to another user is refused, also for
/// root. For volumes and user namespaces whose owners are not the caller; `directory` must come from the user, never from the store's surroundings.
pub fn accept_any_owner(directory: PathBuf) {
    let mut accepted = ACCEPTED.write().unwrap_or_else(PoisonError::into_inner);
    accepted.push(directory);
}

/// Returns whether a store at this path may belong to anybody.
pub(crate) fn is_accepted(path: &Path) -> bool {
    let accepted = ACCEPTED.read().unwrap_or_else(PoisonError::into_inner);
    let path = std::path::absolute(path);
    path.is_ok_and(|path| accepted.iter().any(|it| path.starts_with(it)))
}
