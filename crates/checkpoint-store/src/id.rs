//! What saves and phases are known by: numbers within a store, ids that outlive copies.

use std::fmt;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// Numbers the saves of a store, from 1 on. Zero is the state before the first save.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Seq(u64);

impl Seq {
    /// The state before the first save: no head, no events.
    pub const ZERO: Self = Self(0);

    /// Wraps a number that [`get`](Self::get) returned.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the plain number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifies one sealed phase for ever, over copies and moves. A UUID of version 7.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PhaseId(uuid::Uuid);

impl PhaseId {
    pub(crate) fn new(now: SystemTime, random: [u64; 2]) -> Self {
        let since = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&random[0].to_le_bytes());
        bytes[8..].copy_from_slice(&random[1].to_le_bytes()[..2]);
        Self(uuid::Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid())
    }
}

impl fmt::Display for PhaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for PhaseId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for PhaseId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}
