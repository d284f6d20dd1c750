//! The name of a process. It is separate from the identity of a process, because errors and reports have names, and the identity has errors.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Names a process for people: by pid and command name. The command line is left out because it can contain secrets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessName {
    /// The process id.
    pub pid: u32,
    /// The command name in the system (at most 15 bytes on Linux), `?` if unknown.
    pub name: String,
}

impl fmt::Display for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A process chooses its own name, so escape characters that could move the cursor.
        write!(f, "{} {}", self.pid, self.name.escape_debug())
    }
}
