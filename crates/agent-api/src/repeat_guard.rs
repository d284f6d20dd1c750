//! Detects a model that repeats the same call.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::history::ToolCall;

/// Counts identical tool calls in a row: the same tool with the same text of arguments.
///
/// ```
/// use agent_api::{Arguments, JsonObject, RepeatGuard, Repetition, ToolCall};
///
/// let call = ToolCall {
///     id: "call_1".into(),
///     name: "read".into(),
///     arguments: Arguments::Object(JsonObject::parse(r#"{"path":"a"}"#)?),
/// };
/// let mut guard = RepeatGuard::new();
/// let seen: Vec<_> = (0..5).map(|_| guard.record(&call)).collect();
/// use Repetition::{Harmless, Stuck, Warn};
/// assert_eq!(seen, [Harmless, Harmless, Warn(3), Warn(4), Stuck(5)]);
/// # Ok::<(), agent_api::NotAnObject>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepeatGuard {
    last: u64,
    count: u32,
}

/// The verdict of a [`RepeatGuard`] on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// Fewer than three identical calls came in a row.
    Harmless,
    /// This number of identical calls came in a row: the result should warn the model.
    Warn(u32),
    /// This number of identical calls came in a row: the turn should end.
    Stuck(u32),
}

/// The number of identical calls from which the model is warned.
const WARN: u32 = 3;

/// The number of identical calls from which the turn ends.
const STUCK: u32 = 5;

impl RepeatGuard {
    /// Creates a guard that has seen no call. A new turn needs a new guard.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a call.
    pub fn record(&mut self, call: &ToolCall) -> Repetition {
        let mut hasher = DefaultHasher::new();
        (&call.name, call.raw_arguments()).hash(&mut hasher);
        let hash = hasher.finish();
        self.count = match self.count {
            0 => 1,
            count if self.last == hash => count.saturating_add(1),
            _ => 1,
        };
        self.last = hash;
        match self.count {
            count @ STUCK.. => Repetition::Stuck(count),
            count @ WARN.. => Repetition::Warn(count),
            _ => Repetition::Harmless,
        }
    }
}
