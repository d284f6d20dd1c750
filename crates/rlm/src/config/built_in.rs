//! Defaults that are built in.

use std::time::Duration;

pub(crate) const DEFAULT_ITERATIONS: u32 = 100;
pub(crate) const DEFAULT_ITERATION_TIMEOUT: Duration = Duration::from_secs(3600);
pub(crate) const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(900);
pub(crate) const DEFAULT_PROMPT: &str = "PROMPT.md";
pub(crate) const DEFAULT_SHUTDOWN: Duration = Duration::from_secs(8);
/// How long a press that nobody answered stays counted.
pub(crate) const DEFAULT_COOLDOWN: Duration = Duration::from_secs(2);
