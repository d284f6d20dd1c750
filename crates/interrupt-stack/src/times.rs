//! The time limits of a press and of a shutdown, in one place, so that they can be compared.

use std::time::Duration;

/// The default time that a press stays counted after its notice was dropped without an answer.
pub(crate) const COOLDOWN: Duration = Duration::from_secs(2);
/// The default time after a press in which a further press counts as the same press.
pub(crate) const DEBOUNCE: Duration = Duration::from_millis(30);
/// The default time that a handler may leave a notice untaken before the handler below gets it.
pub(crate) const TAKE: Duration = Duration::from_secs(1);
/// The default time after a press at the terminal in which the same signal from a process is part of that press.
pub(crate) const FORWARDED: Duration = Duration::from_millis(500);
/// The time that the hook before a hard exit may take.
pub(crate) const LAST_HOOK: Duration = Duration::from_secs(2);
