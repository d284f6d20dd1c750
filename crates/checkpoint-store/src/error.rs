//! The reasons why a call failed: all messages in one place, and the predicates on which callers branch.

use std::io;
use std::path::{Path, PathBuf};

use crate::frame::FrameFault;

/// A specialised result for the calls of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a call failed, and the file that it concerns.
///
/// The text names the next step if there is one. Callers branch on the predicates; the kinds are private so that they can grow.
#[derive(Debug)]
pub struct Error {
    path: PathBuf,
    kind: Kind,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Kind {
    #[error("cannot {doing}: {source}")]
    Io {
        doing: &'static str,
        source: io::Error,
    },
    #[error(
        "the disk is full, at least {bytes} bytes are needed; free that much and save again (earlier saves are intact)"
    )]
    Full { bytes: u64 },
    #[error("no such {0}")]
    NotFound(&'static str),
    #[error("is in use by another writer ({holder}); stop it, or choose another directory")]
    Locked { holder: String },
    #[error("is damaged: {reason}; no file was changed")]
    Corrupt { reason: String },
    #[error(
        "was written as {what} version {found}, this program reads up to {supported}; use a newer program"
    )]
    UnsupportedVersion {
        what: String,
        found: u32,
        supported: u32,
    },
    #[error("holds schema `{found}`, not `{expected}`; choose another directory")]
    OtherSchema { found: String, expected: String },
    #[error(
        "has checkpoints of other phases only ({found}), none of `{wanted}`; choose one of those"
    )]
    OtherPhase { found: String, wanted: String },
    #[error("{}", fenced(*own, *by))]
    Fenced { own: u64, by: u64 },
    #[error(
        "writer {by} continues the replica of this store; this writer can save nothing more, so rebuild the store from the records in another directory"
    )]
    ReplicaFenced { by: u64 },
    #[error(
        "may have a save that its replica does not have ({reason}); rebuild the store from the records in another directory"
    )]
    Unreplicated { reason: String },
    #[error(
        "ends at save {own}, but its replica ends at save {replica}; rebuild the store from the records in another directory"
    )]
    OtherSaves { own: u64, replica: u64 },
    #[error("is not a valid record: {reason}; get the record from the replica again")]
    BadRecord { reason: String },
    #[error(
        "is the record after save {previous}, but the store ends at save {newest}; add the records after save {newest} in their order"
    )]
    OutOfOrder { previous: u64, newest: u64 },
    #[error("was removed while it was open; find out what removes it, then open it again")]
    Vanished,
    #[error(
        "was replaced by another directory while it was open; find out what replaces it, then open it again"
    )]
    Replaced,
    #[error(
        "cannot save durably: {first}; a second try with a new file failed too: {then}; acknowledged saves may still be on disk"
    )]
    Lost {
        first: String,
        then: String,
        vanished: bool,
    },
    #[error(
        "an earlier save failed ({first}); open the store again to continue from the saves on disk"
    )]
    Poisoned { first: String },
    #[error("is not safe to use: {0}")]
    Unsafe(&'static str),
    #[error("is not a regular file, so the store did not make it; move it away")]
    Foreign,
    #[error(
        "the highest writer epoch, {:x}, is taken, so no writer can open the store; no writer reaches \
         this number by counting: find out where the files with this epoch come from and move them away, or fork the store",
        u64::MAX
    )]
    NoEpoch,
    #[error("`{name}` is not a valid {what}: {reason}")]
    Name {
        what: &'static str,
        name: String,
        reason: &'static str,
    },
    #[error("the value cannot be encoded as CBOR: {0}")]
    Encode(String),
    #[error(
        "cannot read {what} as the requested type: {reason}; load it as the types that it was saved with, or add a migration"
    )]
    Decode { what: &'static str, reason: String },
    #[error("cannot migrate schema version {from} to the next: {reason}; no file was changed")]
    Migrate { from: u32, reason: String },
    #[error("too large: {what} takes {bytes} bytes, the limit is {limit}; make it smaller")]
    TooLarge {
        what: &'static str,
        bytes: u64,
        limit: u64,
    },
    #[error("already holds a store; choose another directory")]
    Taken,
    #[error("exists with other contents; blobs never change, so choose another name")]
    Conflict,
    #[error(
        "cannot return to save {requested}: it was undone, it is too old, or a phase was finished after it"
    )]
    UnknownSeq { requested: u64 },
    #[cfg(not(feature = "zstd"))]
    #[error(
        "contains a compressed frame; build checkpoint-store with its `zstd` feature to read it"
    )]
    NoZstd,
}

impl Error {
    pub(crate) fn new(path: impl Into<PathBuf>, kind: Kind) -> Self {
        Self {
            path: path.into(),
            kind,
        }
    }

    pub(crate) fn io(
        path: impl Into<PathBuf>,
        doing: &'static str,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::new(
            path,
            Kind::Io {
                doing,
                source: source.into(),
            },
        )
    }

    /// Creates the error of a failed write or sync of `bytes`.
    pub(crate) fn write(
        path: impl Into<PathBuf>,
        doing: &'static str,
        source: io::Error,
        bytes: usize,
    ) -> Self {
        if is_full(&source) {
            let bytes = bytes as u64;
            return Self::new(path, Kind::Full { bytes });
        }
        Self::io(path, doing, source)
    }

    /// Adds `rest`, the bytes that were still to be written, to the bytes that a full disk lacks.
    pub(crate) fn with_needed_bytes(mut self, rest: u64) -> Self {
        if let Kind::Full { bytes } = &mut self.kind {
            *bytes += rest;
        }
        self
    }

    /// Returns whether the same call may succeed with other files.
    pub(crate) fn is_about_files(&self) -> bool {
        matches!(
            self.kind,
            Kind::Io { .. } | Kind::Full { .. } | Kind::Vanished | Kind::Replaced
        )
    }

    /// Returns whether the error is that a file or directory disappeared.
    pub(crate) fn is_about_removal(&self) -> bool {
        match &self.kind {
            Kind::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
            kind => matches!(kind, Kind::Vanished | Kind::Replaced | Kind::NotFound(_)),
        }
    }

    /// Converts a fault to an error, where no older state can be used instead.
    pub(crate) fn fault(path: impl Into<PathBuf>, fault: FrameFault) -> Self {
        let kind = match fault {
            FrameFault::Damaged { offset, reason } => Kind::Corrupt {
                reason: format!("{reason} at byte {offset}"),
            },
            FrameFault::TooLarge {
                offset,
                bytes,
                limit,
            } => Kind::Corrupt {
                reason: format!(
                    "the frame at byte {offset} unpacks to {bytes} bytes, but no writer makes a frame of more than \
                     {limit} bytes; restore the file from a copy"
                ),
            },
            FrameFault::NewerContainer { found } => Kind::UnsupportedVersion {
                what: "container".into(),
                found: found.into(),
                supported: crate::frame::MAJOR.into(),
            },
            FrameFault::NewerFrame { kind } => Kind::UnsupportedVersion {
                what: "frame kind".into(),
                found: kind.into(),
                supported: crate::frame::LAST_KIND.into(),
            },
            FrameFault::NewerPacking { found } => Kind::UnsupportedVersion {
                what: "frame packing".into(),
                found: found.into(),
                supported: crate::frame::ZSTD.into(),
            },
            #[cfg(not(feature = "zstd"))]
            FrameFault::NoZstd => Kind::NoZstd,
        };
        Self::new(path, kind)
    }

    /// Converts a fault in a record to an error; `from` names the record.
    pub(crate) fn record(from: &Path, fault: FrameFault) -> Self {
        let reason = match fault {
            FrameFault::Damaged { offset, reason } => format!("{reason} at byte {offset}"),
            FrameFault::TooLarge { bytes, limit, .. } => format!(
                "it unpacks to {bytes} bytes, but no writer makes a frame of more than {limit} bytes"
            ),
            newer => return Self::fault(from, newer),
        };
        Self::new(from, Kind::BadRecord { reason })
    }

    /// Returns the file, directory or record that the error is about.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether another live writer holds the store.
    pub fn is_locked(&self) -> bool {
        matches!(self.kind, Kind::Locked { .. })
    }

    /// Returns whether files exist but contain no valid state, or a record is damaged.
    pub fn is_corrupt(&self) -> bool {
        matches!(self.kind, Kind::Corrupt { .. } | Kind::BadRecord { .. })
    }

    /// Returns whether a newer program wrote the store.
    pub fn is_unsupported_version(&self) -> bool {
        matches!(self.kind, Kind::UnsupportedVersion { .. })
    }

    /// Returns whether a newer writer took the store or its replica over. A save that failed with this error was not acknowledged.
    pub fn is_fenced(&self) -> bool {
        matches!(self.kind, Kind::Fenced { .. } | Kind::ReplicaFenced { .. })
    }

    /// Returns whether the store and its replica have different saves, or may have. To continue, [`rebuild`](crate::rebuild()) the store from the
    /// records, in another directory. A save that failed with this error was not acknowledged, but the replica may have it.
    pub fn is_unreplicated(&self) -> bool {
        matches!(
            self.kind,
            Kind::Unreplicated { .. } | Kind::OtherSaves { .. }
        )
    }

    /// Returns whether the store, blob or checkpoint does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self.kind, Kind::NotFound(_))
    }

    /// Returns whether there are checkpoints, but only of other phases than the requested one.
    pub fn is_other_phase(&self) -> bool {
        matches!(self.kind, Kind::OtherPhase { .. })
    }

    /// Returns whether the store was removed from disk while it was open, and could not be restored.
    pub fn is_vanished(&self) -> bool {
        matches!(
            self.kind,
            Kind::Vanished | Kind::Replaced | Kind::Lost { vanished: true, .. }
        )
    }

    /// Returns whether this writer can save nothing more: a write failed, and writing everything to a new file failed too.
    ///
    /// A writer that is [fenced](Self::is_fenced) or [unreplicated](Self::is_unreplicated) can save nothing more either.
    pub fn is_poisoned(&self) -> bool {
        matches!(self.kind, Kind::Poisoned { .. } | Kind::Lost { .. })
    }

    /// Returns whether the store cannot be written, because the file system is read-only or the user has no permission.
    pub fn is_read_only(&self) -> bool {
        matches!(&self.kind, Kind::Io { source, .. } if matches!(
            source.kind(),
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied
        ))
    }

    /// Returns whether the disk or the quota is full. The writer stays usable: once there is room again, the same save succeeds. The message states
    /// at least how many bytes are needed, including those of the earlier saves that the writer must write again. A phase is written after these
    /// saves, so a second error may report the bytes of the phase.
    pub fn is_full(&self) -> bool {
        match &self.kind {
            Kind::Full { .. } => true,
            Kind::Io { source, .. } => is_full(source),
            _ => false,
        }
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.kind)
    }
}

/// Returns whether the error means a full disk or quota.
pub(crate) fn is_full(err: &io::Error) -> bool {
    matches!(
        err.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

// The text already contains the cause; a source would print it twice.
impl std::error::Error for Error {}

/// Returns the message for a fenced writer. A writer that takes a store over always has a higher epoch, so files of another writer with the same or a
/// lower epoch came from elsewhere.
fn fenced(own: u64, by: u64) -> String {
    match by > own {
        true => format!(
            "was taken over by writer epoch {by} (this writer has epoch {own}); open it again to continue"
        ),
        false => "contains the files of another writer, for example because a copy or a backup was put in its place; \
                  find out where they come from, move them away, then open it again"
            .into(),
    }
}

pub(crate) fn within(
    what: &'static str,
    bytes: usize,
    limit: usize,
) -> std::result::Result<(), Kind> {
    let (bytes, limit) = (bytes as u64, limit as u64);
    if bytes > limit {
        Err(Kind::TooLarge { what, bytes, limit })
    } else {
        Ok(())
    }
}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
