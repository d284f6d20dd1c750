//! The key of the server. It is read from the environment, and then erased there: no process that this program starts inherits it, and `/proc` doesn't
//! show it. The other agents of this program still get it (see `host_variables`).

use agent_api::Key;
use agent_duplex::Error;

use crate::host_variables;

/// Returns whether a variable has a key, or had it before [`take`].
pub(super) fn is_set(variable: &str) -> bool {
    host_variables::value(variable).is_some_and(|value| !value.is_empty())
}

/// Returns whether the environment still contains the value of a variable, because [`take`] can't erase it.
pub(super) fn is_visible(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

/// Returns the key of a variable, and erases it from the environment if possible. A later call returns the same key.
///
/// # Errors
///
/// [`Error::is_start_failure`] if the variable is not set, or holds no key.
pub(super) fn take(variable: &str) -> Result<Key, Error> {
    let cant = |what: String| Error::start(what, None);
    let value = host_variables::value(variable).filter(|value| !value.is_empty());
    let value = value.ok_or_else(|| {
        cant(format!(
            "the variable {variable} with the key is not set; set it"
        ))
    })?;
    let key = Key::new(&value.to_string_lossy());
    let key = key.map_err(|error| cant(format!("{variable}: {error}")))?;
    // If this fails, the key works, and `is_visible` returns true.
    let _erased_or_visible = host_variables::erase(variable);
    Ok(key)
}
