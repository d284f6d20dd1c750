//! Why a call failed: all messages in one place, and the predicates that callers branch on.

use std::io;
use std::path::{Path, PathBuf};

use crate::frame::Fault;

/// A specialised result for the store's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Describes why a call failed and which file it concerns.
///
/// The text says what to do next where there is something to do. Callers branch
/// on the predicates; the kinds themselves are private so that they can grow.
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
        "the disk is full, at least {bytes} bytes are needed; make room and save again, what was saved before is intact"
    )]
    Full { bytes: u64 },
    #[error("no such {0}")]
    NotFound(&'static str),
    #[error("is in use by another writer ({holder}); stop it, or choose another directory")]
    Locked { holder: String },
    #[error("is damaged: {reason}; no file was touched")]
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
        "holds checkpoints of other phases only ({found}), none of `{wanted}`; take one of those"
    )]
    OtherPhase { found: String, wanted: String },
    #[error("{}", fenced(*own, *by))]
    Fenced { own: u64, by: u64 },
    #[error("was removed while it was open; see who removes it, then open it again")]
    Vanished,
    #[error(
        "was replaced by another directory while it was open; see who replaces it, then open it again"
    )]
    Replaced,
    #[error(
        "durability lost: {first}; then, with a new file: {then}; what was acknowledged before may still be on disk"
    )]
    Lost {
        first: String,
        then: String,
        vanished: bool,
    },
    #[error("an earlier save failed ({first}); open the store again to go on from what is on disk")]
    Poisoned { first: String },
    #[error("is not a safe place: {0}")]
    Unsafe(&'static str),
    #[error("is not a regular file, so the store did not make it; move it away")]
    Foreign,
    #[error(
        "the last writer number there is, {:x}, is taken, so nobody can take the store over; no writer counts that far: look whose the files of that number are and move them away, or fork the store",
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
        "cannot read {what} as the asked type: {reason}; load it as the types that it was saved with, or name a migration"
    )]
    Decode { what: &'static str, reason: String },
    #[error("cannot bring schema version {from} to the next: {reason}; no file was touched")]
    Migrate { from: u32, reason: String },
    #[error("{what} takes {bytes} bytes, the limit is {limit}; make it smaller")]
    TooLarge {
        what: &'static str,
        bytes: u64,
        limit: u64,
    },
    #[error("holds a store already; choose another directory")]
    Taken,
    #[error("exists with other contents; blobs never change, choose another name")]
    Conflict,
    #[error(
        "save {asked} cannot be returned to: it was undone, it is too old, or a phase was sealed after it"
    )]
    UnknownSeq { asked: u64 },
    #[cfg(not(feature = "zstd"))]
    #[error("holds a compressed frame; build checkpoint-store with its `zstd` feature to read it")]
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

    /// Describes a write or sync of `bytes` that failed.
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

    /// Adds to the bytes that a full disk lacks those which were still to come.
    pub(crate) fn with_room_for(mut self, rest: u64) -> Self {
        if let Kind::Full { bytes } = &mut self.kind {
            *bytes += rest;
        }
        self
    }

    /// Tells whether the same call may succeed with other files.
    pub(crate) fn is_about_files(&self) -> bool {
        matches!(
            self.kind,
            Kind::Io { .. } | Kind::Full { .. } | Kind::Vanished | Kind::Replaced
        )
    }

    /// Tells whether a file or directory was not there that had been a moment before.
    pub(crate) fn is_about_removal(&self) -> bool {
        match &self.kind {
            Kind::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
            kind => matches!(kind, Kind::Vanished | Kind::Replaced | Kind::NotFound(_)),
        }
    }

    /// Turns a fault that no older state can make up for into an error.
    pub(crate) fn fault(path: impl Into<PathBuf>, fault: Fault) -> Self {
        let kind = match fault {
            Fault::Damaged { offset, reason } => Kind::Corrupt {
                reason: format!("{reason} at byte {offset}"),
            },
            Fault::TooLarge {
                offset,
                bytes,
                limit,
            } => Kind::Corrupt {
                reason: format!(
                    "the frame at byte {offset} unpacks to {bytes} bytes, and no writer makes one of more than {limit}; restore the file from a copy"
                ),
            },
            Fault::NewerContainer { found } => Kind::UnsupportedVersion {
                what: "container".into(),
                found: found.into(),
                supported: crate::frame::MAJOR.into(),
            },
            Fault::NewerFrame { kind } => Kind::UnsupportedVersion {
                what: "frame kind".into(),
                found: kind.into(),
                supported: crate::frame::LAST_KIND.into(),
            },
            Fault::NewerPacking { found } => Kind::UnsupportedVersion {
                what: "frame packing".into(),
                found: found.into(),
                supported: crate::frame::ZSTD.into(),
            },
            #[cfg(not(feature = "zstd"))]
            Fault::NoZstd => Kind::NoZstd,
        };
        Self::new(path, kind)
    }

    /// Returns the file or directory that the error is about.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tells whether another live writer holds the store.
    pub fn is_locked(&self) -> bool {
        matches!(self.kind, Kind::Locked { .. })
    }

    /// Tells whether files exist but no valid state is left in them.
    pub fn is_corrupt(&self) -> bool {
        matches!(self.kind, Kind::Corrupt { .. })
    }

    /// Tells whether a newer program wrote the store.
    pub fn is_unsupported_version(&self) -> bool {
        matches!(self.kind, Kind::UnsupportedVersion { .. })
    }

    /// Tells whether a newer writer took the store over. Nothing that failed
    /// with this was acknowledged.
    pub fn is_fenced(&self) -> bool {
        matches!(self.kind, Kind::Fenced { .. })
    }

    /// Tells whether the store, blob or checkpoint does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self.kind, Kind::NotFound(_))
    }

    /// Tells whether checkpoints exist, but of other phases than the asked one.
    pub fn is_other_phase(&self) -> bool {
        matches!(self.kind, Kind::OtherPhase { .. })
    }

    /// Tells whether the store was removed from disk while it was open, and could not be
    /// put back.
    pub fn is_vanished(&self) -> bool {
        matches!(
            self.kind,
            Kind::Vanished | Kind::Replaced | Kind::Lost { vanished: true, .. }
        )
    }

    /// Tells whether this writer can save nothing more: a write failed, and writing
    /// everything to a new file failed as well.
    pub fn is_poisoned(&self) -> bool {
        matches!(self.kind, Kind::Poisoned { .. } | Kind::Lost { .. })
    }

    /// Tells whether the store cannot be written for lack of permission.
    pub fn is_read_only(&self) -> bool {
        matches!(&self.kind, Kind::Io { source, .. } if matches!(
            source.kind(),
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied
        ))
    }

    /// Tells whether the disk or the quota is full. The writer stays usable: once there is
    /// room again, the same save succeeds. The text says how many bytes are needed at least,
    /// those that have to be written anew included. A phase is written after them, so what it
    /// needs itself may be told by a second error.
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

/// Tells whether the disk or the quota has no room left.
pub(crate) fn is_full(err: &io::Error) -> bool {
    matches!(
        err.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

// The text already contains the cause, so there is no source to print twice.
impl std::error::Error for Error {}

/// Each writer that takes a store over has a higher epoch, so that files of no higher one came from elsewhere.
fn fenced(own: u64, by: u64) -> String {
    match by > own {
        true => format!(
            "was taken over by writer epoch {by} (this writer has epoch {own}); open it again to go on"
        ),
        false => "has the files of another writer, as a copy or a backup in its place has; see who put it there, move it away, then open it again"
            .into(),
    }
}

/// Checks a length against a limit.
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
