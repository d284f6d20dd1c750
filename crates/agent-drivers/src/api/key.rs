//! The key of the server. It is read from the environment, and then erased there: no process that this program starts inherits it, and `/proc` doesn't
//! show it. The other agents of this program still get it (see `host_variables`).

use agent_api::Key;
use agent_duplex::Error;

use crate::host_variables;

/// The key of a server, and the variable that holds it.
#[derive(Debug)]
pub(super) struct TakenKey {
    pub(super) key: Key,
    pub(super) variable: String,
    /// Whether the environment of this process doesn't contain it any more.
    pub(super) is_erased: bool,
}

/// Returns whether a variable has a key, or had it before [`take`].
pub(super) fn is_set(variable: &str) -> bool {
    host_variables::value(variable).is_some_and(|value| !value.is_empty())
}

/// Returns the key of a variable, and erases it from the environment. A later call returns the same key.
///
/// # Errors
///
/// [`Error::is_start_failure`] if the variable is not set, or holds no key.
pub(super) fn take(variable: &str) -> Result<TakenKey, Error> {
    let cant = |what: String| Error::start(what, None);
    let value = host_variables::value(variable).filter(|value| !value.is_empty());
    let value = value.ok_or_else(|| {
        cant(format!(
            "the variable {variable} with the key is not set; set it"
        ))
    })?;
    let key = Key::new(&value.to_string_lossy());
    let key = key.map_err(|error| cant(format!("{variable}: {error}")))?;
    Ok(TakenKey {
        key,
        variable: variable.to_owned(),
        is_erased: host_variables::erase(variable).is_ok(),
    })
}
