//! The items that a program saved in the current iteration.

use std::collections::BTreeMap;
use std::fmt;

use loop_state::Head;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The largest size of all items of an iteration together, in bytes: their keys, and their values as JSON.
pub const MAX_ITEMS: usize = 256 << 10;
/// The longest key of an item, in bytes.
const MAX_KEY: usize = 200;

/// The items that a program saved in one iteration. Each save of the run contains them all, so they are small: names and counts of finished work,
/// not the work itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedItems {
    #[serde(flatten)]
    of: Option<IterationKey>,
    values: BTreeMap<String, Value>,
}

/// An iteration of a run. After a return to it, an iteration has another `first_attempt`, and so another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct IterationKey {
    phase: u32,
    iteration: u32,
    first_attempt: u32,
}

impl IterationKey {
    fn of(head: &Head) -> Self {
        Self {
            phase: head.phase,
            iteration: head.iteration,
            first_attempt: head.first_attempt,
        }
    }
}

/// The reason why an item was not saved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ItemError {
    /// The key is empty or too long.
    Key,
    /// All items of the iteration together would be larger than [`MAX_ITEMS`].
    Full,
    /// No iteration is in progress.
    NoIteration,
    /// The run is stopping or has ended.
    Ended,
}

impl fmt::Display for ItemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key => write!(f, "the key of an item must have 1 to {MAX_KEY} bytes"),
            Self::Full => write!(
                f,
                "the items of an iteration may have {} KiB together: save large results in files, and the names of the files as items",
                MAX_ITEMS >> 10
            ),
            Self::NoIteration => f.write_str("no iteration is in progress"),
            Self::Ended => f.write_str("the run is stopping or has ended"),
        }
    }
}

impl std::error::Error for ItemError {}

impl SavedItems {
    /// Returns the items by their keys.
    #[must_use]
    pub fn values(&self) -> &BTreeMap<String, Value> {
        &self.values
    }

    /// Returns whether there are no items.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Sets an item of the current iteration. The caller saves the run.
    pub(crate) fn set(&mut self, head: &Head, key: String, value: Value) -> Result<(), ItemError> {
        if head.iteration == 0 || head.step.is_resting() {
            return Err(ItemError::NoIteration);
        }
        if key.is_empty() || key.len() > MAX_KEY {
            return Err(ItemError::Key);
        }
        self.clear_unless_of(head);
        let others = self.values.iter().filter(|(other, _)| **other != key);
        let size: usize = others.map(|(key, value)| size(key, value)).sum();
        if size + self::size(&key, &value) > MAX_ITEMS {
            return Err(ItemError::Full);
        }
        self.of = Some(IterationKey::of(head));
        self.values.insert(key, value);
        Ok(())
    }

    /// Removes the items if they belong to another iteration.
    pub(crate) fn clear_unless_of(&mut self, head: &Head) {
        if self.of != Some(IterationKey::of(head)) {
            *self = Self::default();
        }
    }

    /// Returns whether the items have a size that [`set`](Self::set) accepts.
    pub(crate) fn is_valid(&self) -> bool {
        let size: usize = self.values.iter().map(|(key, it)| size(key, it)).sum();
        let is_key = |key: &String| !key.is_empty() && key.len() <= MAX_KEY;
        size <= MAX_ITEMS && self.values.keys().all(is_key)
    }
}

fn size(key: &str, value: &Value) -> usize {
    key.len() + value.to_string().len()
}
