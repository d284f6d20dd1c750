//! Why a sleep ended: the answer that every kind of wait gives.

/// The reason why a sleep ended.
///
/// There are exactly these three, so a `match` on it needs no catch-all arm. `{:?}` is good enough for a log; its words are no
/// promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a sleep that ended by shutdown must not be taken for one that elapsed"]
pub enum Wake {
    /// The time was up.
    Elapsed,
    /// [`SleepGate::wake_all`](crate::SleepGate::wake_all) cut the sleep short; the gate is still open.
    Kicked,
    /// The gate was shut down, before or during the sleep. Every later sleep ends like this at once.
    Shutdown,
}
