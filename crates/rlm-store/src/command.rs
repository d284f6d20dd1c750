//! Which command of the loop is meant, in events and in the timeline.

use serde::{Deserialize, Serialize};

/// A command of the loop's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Command {
    /// The gate with this index.
    Gate(u32),
    /// The check.
    Check,
}
