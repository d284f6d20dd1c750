//! What each way to keep a transcript can do.

use std::time::Duration;

use crate::harness::Result;
use crate::transcript::Delta;

/// One way, with a store of its own.
pub(crate) trait Keeper {
    /// Adds `delta`, durably as far as this way goes, and says how long that took.
    fn save(&mut self, delta: &Delta) -> Result<Duration>;

    /// The process that does the work.
    fn process(&self) -> u32 {
        std::process::id()
    }
}

pub(super) fn cbor(value: &impl serde::Serialize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes)?;
    Ok(bytes)
}
