//! The metadata in the first frame of each file, and the parts of it that callers see or add.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::disk::Directory;
use crate::id::{PhaseId, Seq};
use crate::name::FileName;
use crate::options::Options;

/// Metadata that the caller adds to a finished phase. A reader gets it without reading the state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhaseMeta {
    /// Whether the work is complete, so that there is nothing to resume. A later save makes the store resumable again.
    pub finished: bool,
    /// Facts of the caller, for people and tools, such as a commit; at most 1 MiB together with the other metadata.
    pub extra: BTreeMap<String, String>,
}

/// The description of one finished phase.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PhaseInfo {
    /// The permanent id of the phase.
    pub id: PhaseId,
    /// The name that the caller gave.
    pub phase: String,
    /// The save at which the phase was written.
    pub seq: Seq,
    /// The time when it was written, by the clock of the machine that wrote it. It may be in the future on another machine.
    pub created: SystemTime,
    /// The state of another store that this one was forked from.
    pub parent: Option<ParentSave>,
    /// The metadata that the caller added.
    pub meta: PhaseMeta,
}

/// The origin of a forked store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ParentSave {
    /// The file from which the state was read: a finished phase, or the progress after one.
    pub id: PhaseId,
    /// The save in it.
    pub seq: Seq,
}

/// The phase that a journal continues.
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
    /// The sequence number of the phase; in a journal, that of the save after which the journal begins.
    pub(crate) seq: u64,
    pub(crate) epoch: u64,
    #[serde(default)]
    pub(crate) base: Option<Base>,
    /// Sequence number up to which a journal repeats the journal before it, or continues it. If the good prefix of the journal ends earlier, a part of its first
    /// contents is damaged.
    #[serde(default)]
    pub(crate) carried: u64,
    /// Set in a record only: the oldest save to which its writer can return. A store with this record needs no older heads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) oldest: Option<u64>,
    /// Milliseconds since 1970 in UTC.
    pub(crate) created_ms: u64,
    pub(crate) schema: String,
    pub(crate) schema_version: u32,
    /// Zero means `schema_version`.
    #[serde(default)]
    pub(crate) min_reader: u32,
    pub(crate) writer: String,
    #[serde(default)]
    pub(crate) parent: Option<ParentSave>,
    #[serde(default)]
    pub(crate) meta: PhaseMeta,
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
            oldest: None,
            created_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            schema: options.schema.clone(),
            schema_version: options.schema_version,
            min_reader: options.min_reader_version,
            parent: None,
            writer: concat!("checkpoint-store ", env!("CARGO_PKG_VERSION")).into(),
            meta: PhaseMeta::default(),
        }
    }

    /// Returns whether this metadata fits the name of its file.
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
