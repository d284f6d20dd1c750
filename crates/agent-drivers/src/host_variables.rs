//! The variables of this process, as its agents inherit them. The value of a variable can be erased from the environment, so that no other program
//! inherits it and `/proc` doesn't show it. The agents that get all variables of the user then get this one explicitly.

use std::ffi::{OsStr, OsString};

use agent_subprocess::TreeCommand;

/// Returns the value of a variable, also after it was erased.
pub(crate) fn value(name: impl AsRef<OsStr>) -> Option<OsString> {
    let name = name.as_ref();
    // The lock comes first: an erasure changes the environment and the list together.
    let erased = erased::all();
    let value = std::env::var_os(name)?;
    match value.is_empty() {
        true => Some(erased.get(name).cloned().unwrap_or(value)),
        false => Some(value),
    }
}

/// Returns whether a variable has a value that was erased from the environment.
pub(crate) fn is_erased(name: &str) -> bool {
    let erased = erased::all();
    erased.contains_key(OsStr::new(name)) && std::env::var_os(name).is_some_and(|it| it.is_empty())
}

/// Returns all variables with their values, also those that were erased.
pub(crate) fn all() -> Vec<(OsString, OsString)> {
    let erased = erased::all();
    let mut variables: Vec<_> = std::env::vars_os().collect();
    for (name, value) in &mut variables {
        if let (true, Some(old)) = (value.is_empty(), erased.get(name)) {
            value.clone_from(old);
        }
    }
    variables
}

/// Sets the erased variables for a program that inherits all others.
pub(crate) fn restored(command: TreeCommand) -> TreeCommand {
    let erased = erased::all();
    let is_erased = |name: &OsString| std::env::var_os(name).is_some_and(|it| it.is_empty());
    { erased.iter().filter(|(name, _)| is_erased(name)) }
        .fold(command, |command, (name, value)| command.env(name, value))
}

#[cfg(feature = "api")]
pub(crate) use erased::erase;

#[cfg(feature = "api")]
mod erased {
    use std::collections::BTreeMap;
    use std::ffi::OsString;
    use std::io;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// The values that are not in the environment any more, by variable. The environment is that of the whole process, and so are they.
    static ERASED: Mutex<BTreeMap<OsString, OsString>> = Mutex::new(BTreeMap::new());

    pub(super) fn all() -> MutexGuard<'static, BTreeMap<OsString, OsString>> {
        ERASED.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Erases the value of a variable from the environment. [`value`](super::value) still returns it.
    ///
    /// # Errors
    ///
    /// Fails if the value is still in the environment: `/proc` can't be written, or this process set the variable itself.
    pub(crate) fn erase(name: &str) -> io::Result<()> {
        let value = || std::env::var_os(name).filter(|value| !value.is_empty());
        let mut erased = all();
        let Some(old) = value() else {
            return Ok(());
        };
        overwrite(name)?;
        match value() {
            None => drop(erased.insert(name.into(), old)),
            Some(_) => return Err(io::Error::other("this process set the variable itself")),
        }
        Ok(())
    }

    /// Overwrites the value of a variable with zeros, in the memory that the system gave to this process with its environment. The variable is empty
    /// then.
    ///
    /// A file is the way to this memory: the bytes are changed as by a debugger, while no code of this program holds a reference to them. A thread that
    /// copies the environment at this moment gets a shorter value.
    #[cfg(target_os = "linux")]
    fn overwrite(name: &str) -> io::Result<()> {
        use std::os::unix::fs::FileExt as _;

        /// The position of `env_start` among the fields after the name of the program, which can contain spaces: field 50, and the first one is 3.
        const ENV_START: usize = 50 - 3;

        let stat = std::fs::read_to_string("/proc/self/stat")?;
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        let start =
            { fields.split(' ').nth(ENV_START) }.and_then(|start| start.parse::<u64>().ok());
        let start = start.ok_or(io::ErrorKind::InvalidData)?;
        let block = std::fs::read("/proc/self/environ")?;
        let name = format!("{name}=");
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

    #[cfg(not(target_os = "linux"))]
    fn overwrite(_: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Without the agent that erases its key, nothing is erased.
#[cfg(not(feature = "api"))]
mod erased {
    use std::collections::BTreeMap;
    use std::ffi::OsString;

    pub(super) fn all() -> BTreeMap<OsString, OsString> {
        BTreeMap::new()
    }
}
