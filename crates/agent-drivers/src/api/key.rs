//! The key of the server. It is read from the environment once, and then removed from it: no process that this program starts inherits it, and `/proc`
//! doesn't show it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use agent_api::Key;
use agent_duplex::Error;

/// The keys that are not in the environment any more, by variable. The environment is that of the whole process, and so are they.
static TAKEN: Mutex<BTreeMap<String, Key>> = Mutex::new(BTreeMap::new());

/// Returns whether a variable has a key, or had it before [`take`].
pub(super) fn is_set(variable: &str) -> bool {
    let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    taken.contains_key(variable) || std::env::var_os(variable).is_some_and(|it| !it.is_empty())
}

/// Returns the key of a variable, and erases it from the environment. A later call returns the same key.
///
/// # Errors
///
/// [`Error::is_start_failure`] if the variable is not set, or holds no key.
pub(super) fn take(variable: &str) -> Result<Key, Error> {
    let cant = |what: String| Error::start(what, None);
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let value = std::env::var(variable).unwrap_or_default();
    if value.is_empty() {
        let what = format!("the variable {variable} with the key is not set; set it");
        return taken.get(variable).cloned().ok_or_else(|| cant(what));
    }
    let key = Key::new(&value).map_err(|error| cant(format!("{variable}: {error}")))?;
    // Where this fails, the tools of the agent still don't inherit the variable.
    #[cfg(target_os = "linux")]
    let _visible = erase(variable);
    taken.insert(variable.to_owned(), key.clone());
    Ok(key)
}

/// Overwrites the value of a variable with zeros, in the memory that the system gave to this process with its environment. The variable is empty then.
///
/// A file is the way to this memory: the bytes are changed as by a debugger, while no code of this program holds a reference to them. A thread that
/// copies the environment at this moment gets a shorter value.
#[cfg(target_os = "linux")]
fn erase(variable: &str) -> std::io::Result<()> {
    use std::os::unix::fs::FileExt as _;

    /// The position of `env_start` among the fields after the name of the program, which can contain spaces: field 50, and the first one is 3.
    const ENV_START: usize = 50 - 3;

    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let start = { fields.split(' ').nth(ENV_START) }.and_then(|start| start.parse::<u64>().ok());
    let start = start.ok_or(std::io::ErrorKind::InvalidData)?;
    let block = std::fs::read("/proc/self/environ")?;
    let name = format!("{variable}=");
    let memory = std::fs::OpenOptions::new()
        .write(true)
        .open("/proc/self/mem")?;
    let mut at = start;
    for entry in block.split(|byte| *byte == 0) {
        if let Some(value) = entry.strip_prefix(name.as_bytes()) {
            memory.write_all_at(&vec![0; value.len()], at + name.len() as u64)?;
        }
        at += entry.len() as u64 + 1;
    }
    Ok(())
}
