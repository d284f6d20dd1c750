use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

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
    pub(crate) fn now() -> Self {
        Self(uuid::Uuid::now_v7())
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

/// What the caller wants to have said about a sealed phase.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Meta {
    /// The commit that the work tree was at.
    pub git_commit: Option<String>,
    /// Whether the work tree had changes besides that commit.
    pub git_dirty: Option<bool>,
    /// What went wrong on the way, for people.
    pub errors: Vec<String>,
    /// Anything else, for people and tools.
    pub extra: BTreeMap<String, String>,
}

/// How a store is opened for writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Names the kind of value. A store that holds another kind is refused. Default: empty.
    pub schema: String,
    /// Version of that kind. A store with a newer one is refused; one with an older
    /// version is read as it is, so new fields need `#[serde(default)]`. Default: 1.
    pub schema_version: u32,
    /// Creates the directory, and those above it, if it is missing. Default: true.
    pub create: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            schema: String::new(),
            schema_version: 1,
            create: true,
        }
    }
}

/// Describes one sealed phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseInfo {
    /// Identifies it for ever.
    pub id: PhaseId,
    /// The name that the caller gave.
    pub phase: String,
    /// Its place among the saves.
    pub seq: Seq,
    /// When it was written, by the clock of that machine. May lie in the future of another.
    pub created: SystemTime,
    /// What the caller had to say.
    pub meta: Meta,
}

/// The phase that a journal stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Base {
    pub(crate) id: PhaseId,
    pub(crate) seq: u64,
}

/// Payload of the first frame of each file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileMeta {
    pub(crate) id: PhaseId,
    /// Set in a phase file only.
    #[serde(default)]
    pub(crate) phase: Option<String>,
    /// The phase's own sequence; of a journal, the one it begins after.
    pub(crate) seq: u64,
    pub(crate) epoch: u64,
    #[serde(default)]
    pub(crate) base: Option<Base>,
    /// Sequence up to which a journal repeats the one before it; a good prefix that
    /// ends earlier is less than what its writer began with.
    #[serde(default)]
    pub(crate) carried: u64,
    /// Milliseconds since 1970 in UTC.
    pub(crate) created_ms: u64,
    pub(crate) schema: String,
    pub(crate) schema_version: u32,
    pub(crate) writer: String,
    #[serde(default)]
    pub(crate) meta: Meta,
}

impl FileMeta {
    pub(crate) fn new(options: &Options, epoch: u64, now: SystemTime) -> Self {
        let since = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            id: PhaseId::now(),
            phase: None,
            seq: 0,
            epoch,
            base: None,
            carried: 0,
            created_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            schema: options.schema.clone(),
            schema_version: options.schema_version,
            writer: concat!("checkpoint-store ", env!("CARGO_PKG_VERSION")).into(),
            meta: Meta::default(),
        }
    }

    pub(crate) fn phase_info(&self) -> Option<PhaseInfo> {
        let created = Duration::from_millis(self.created_ms);
        Some(PhaseInfo {
            id: self.id,
            phase: self.phase.clone()?,
            seq: Seq(self.seq),
            created: SystemTime::UNIX_EPOCH
                .checked_add(created)
                .unwrap_or(SystemTime::UNIX_EPOCH),
            meta: self.meta.clone(),
        })
    }
}
