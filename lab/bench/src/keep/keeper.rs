//! The interface of the ways to save a transcript.

use std::time::Duration;

use crate::harness::Result;
use crate::transcript::Delta;

/// One way, with a store of its own.
pub(crate) trait Keeper {
    /// Adds `delta`, as durably as this way does, and returns the time that this took.
    fn save(&mut self, delta: &Delta) -> Result<Duration>;

    /// Returns the id of the process that does the work.
    fn process(&self) -> u32 {
        std::process::id()
    }
}

pub(super) fn cbor(value: &impl serde::Serialize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes)?;
    Ok(bytes)
}
