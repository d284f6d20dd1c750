//! What each file says of itself in its first frame, and what of it a caller sees or adds.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::disk::Directory;
use crate::id::{PhaseId, Seq};
use crate::name::FileName;
use crate::options::Options;

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
    /// Whether the work is done, so that nothing is left to resume. A later save resumes it.
    pub finished: bool,
    /// Anything else, for people and tools.
    pub extra: BTreeMap<String, String>,
}

/// Describes one sealed phase.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PhaseInfo {
    /// Identifies it for ever.
    pub id: PhaseId,
    /// The name that the caller gave.
    pub phase: String,
    /// Its place among the saves.
    pub seq: Seq,
    /// When it was written, by the clock of that machine. May lie in the future of another.
    pub created: SystemTime,
    /// The state of another store that this one was forked from.
    pub parent: Option<Parent>,
    /// What the caller had to say.
    pub meta: Meta,
}

/// Where a forked store comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The file that the state was read from: a sealed phase, or the progress after one.
    pub id: PhaseId,
    /// The save in it.
    pub seq: Seq,
}

/// The phase that a journal stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Base {
    pub(crate) id: PhaseId,
    pub(crate) seq: u64,
}

impl Base {
    pub(crate) fn file_name(self) -> String {
        FileName::Phase { seq: self.seq }.to_string()
    }
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
    /// Zero stands for `schema_version`.
    #[serde(default)]
    pub(crate) min_reader: u32,
    pub(crate) writer: String,
    #[serde(default)]
    pub(crate) parent: Option<Parent>,
    #[serde(default)]
    pub(crate) meta: Meta,
}

impl FileMeta {
    pub(crate) fn new(options: &Options, epoch: u64, disk: &dyn Directory) -> Self {
        let now = disk.now();
        let since = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            id: PhaseId::new(now, [disk.random(), disk.random()]),
            phase: None,
            seq: 0,
            epoch,
            base: None,
            carried: 0,
            created_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            schema: options.schema.clone(),
            schema_version: options.schema_version,
            min_reader: options.min_reader_version,
            parent: None,
            writer: concat!("checkpoint-store ", env!("CARGO_PKG_VERSION")).into(),
            meta: Meta::default(),
        }
    }

    /// Tells whether a name fits what it is the name of.
    pub(crate) fn is_named(&self, file: FileName) -> bool {
        match file {
            FileName::Phase { seq } => self.phase.is_some() && self.seq == seq,
            FileName::Progress { epoch, base } => {
                self.phase.is_none() && self.epoch == epoch && self.seq == base
            }
            FileName::Marker { .. } | FileName::Temp { .. } => false,
        }
    }

    pub(crate) fn created(&self) -> SystemTime {
        let since = Duration::from_millis(self.created_ms);
        let created = SystemTime::UNIX_EPOCH.checked_add(since);
        created.unwrap_or(SystemTime::UNIX_EPOCH)
    }

    pub(crate) fn phase_info(&self) -> Option<PhaseInfo> {
        Some(PhaseInfo {
            id: self.id,
            phase: self.phase.clone()?,
            seq: Seq::new(self.seq),
            created: self.created(),
            parent: self.parent,
            meta: self.meta.clone(),
        })
    }
}
