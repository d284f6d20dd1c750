//! Reads every byte of a store and determines the next safe step. Changes nothing.

use std::fmt;
use std::path::Path;

use crate::blob;
use crate::chain;
use crate::dir::Dir;
use crate::error::Result;
use crate::file_builder::{read_meta, read_phase};
use crate::frame::{Tail, without_zeros};
use crate::id::Seq;
use crate::load::LoadPurpose;
use crate::lock;
use crate::name::{FileName, QUARANTINE};
use crate::reader::newest;
use crate::replay::Needed;
use crate::report::Skipped;

/// The result of verifying a store.
///
/// Its `Display` is for people: a line for each file, then the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verification {
    /// The phases and journals, sorted by name.
    pub files: Vec<File>,
    /// The number of blobs. They have no checksum, so only their names are checked.
    pub blobs: usize,
    /// The number of damaged files that earlier writers set aside.
    pub set_aside: usize,
    /// The next safe step.
    pub next: NextAction,
}

/// One file of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct File {
    /// Its name in the store's directory.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// The first and the last save that can be read from it, if any.
    pub saves: Option<(Seq, Seq)>,
    /// The condition of the file.
    pub condition: FileCondition,
}

impl File {
    /// Returns a file of no bytes and no saves, for programs that test their output.
    #[doc(hidden)] // only `rlm` tests its output
    pub fn new(name: impl Into<String>, condition: FileCondition) -> Self {
        Self {
            name: name.into(),
            bytes: 0,
            saves: None,
            condition,
        }
    }
}

/// The condition of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileCondition {
    /// Every byte is as it was written.
    Valid,
    /// It ends in an incomplete save, which was never acknowledged. Nothing is lost.
    Torn {
        /// The number of bytes of that save.
        bytes: u64,
    },
    /// An acknowledged save is damaged.
    Damaged {
        /// The place of the damage, in bytes from the start of the file.
        offset: u64,
        /// The problem.
        reason: String,
    },
    /// A newer program wrote it, or it cannot be read; the text has the reason.
    Unreadable(String),
}

/// The next safe step.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NextAction {
    /// Start: nothing was saved yet.
    Start,
    /// Resume: the newest state is valid.
    Resume {
        /// The newest save.
        seq: Seq,
    },
    /// Resuming is safe, but continues from an older state and sets the damaged files aside. Copy the directory first if the files may be worth a
    /// repair.
    ResumeOlder {
        /// The newest save that can be read.
        seq: Seq,
    },
    /// Verify again when the writer has closed the store: while the writer is live, a save may be only partly on disk.
    Wait,
    /// Use a newer program, or restore a copy: there are files, but this program can read no state from them; the text has the reason. Removing the
    /// files would lose their contents.
    Restore(String),
}

/// Reads every byte of the store in `dir`, without a lock, and changes nothing.
///
/// # Errors
/// [`is_not_found`](crate::Error::is_not_found) if there is no directory, and others if a file or the directory cannot be read. Damage is not an error.
pub fn verify(dir: impl AsRef<Path>) -> Result<Verification> {
    verify_in(&Dir::open(dir.as_ref())?)
}

/// Does the same as [`verify`](fn@verify), for a directory of any disk; error messages show `dir`.
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub fn verify_on(disk: Box<dyn crate::disk::Directory>, dir: &Path) -> Result<Verification> {
    verify_in(&Dir::on(disk, dir)?)
}

fn verify_in(dir: &Dir) -> Result<Verification> {
    let locked = lock::is_held(dir)?;
    let mut files = Vec::new();
    for file in dir.own()? {
        if matches!(file, FileName::Phase { .. } | FileName::Progress { .. }) {
            files.extend(check(dir, file)?);
        }
    }
    let next = match newest(dir, LoadPurpose::Anything) {
        Ok(loaded) if loaded.report.used.is_none() => NextAction::Start,
        Ok(loaded) if loaded.report.is_undamaged() => NextAction::Resume {
            seq: Seq::new(loaded.seq),
        },
        Ok(loaded) => NextAction::ResumeOlder {
            seq: Seq::new(loaded.seq),
        },
        Err(err) if err.is_about_files() => return Err(err),
        Err(err) => NextAction::Restore(err.to_string()),
    };
    let aside = match dir.sub(QUARANTINE, false) {
        Err(err) if err.is_not_found() => 0,
        aside => aside?.names()?.len(),
    };
    Ok(Verification {
        files,
        blobs: blob::names(dir)?.len(),
        set_aside: aside,
        next: if locked { NextAction::Wait } else { next },
    })
}

/// Reads one file; returns `None` if its writer removed it since the listing.
fn check(dir: &Dir, file: FileName) -> Result<Option<File>> {
    let name = file.to_string();
    let bytes = match dir.read(&name) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(None),
        Err(err) if err.is_about_files() => return Err(err),
        // A pipe, a link or a huge file must not hide the other files.
        Err(err) => {
            let condition = FileCondition::Unreadable(err.to_string());
            return Ok(Some(File::new(name, condition)));
        }
    };
    let len = bytes.len() as u64;
    let (saves, condition) = match inspect(dir, file, bytes) {
        Ok(Ok(found)) => found,
        Ok(Err(Skipped { offset, reason, .. })) => {
            (None, FileCondition::Damaged { offset, reason })
        }
        Err(err) if err.is_about_files() => return Err(err),
        Err(newer) => (None, FileCondition::Unreadable(newer.to_string())),
    };
    Ok(Some(File {
        bytes: len,
        saves,
        ..File::new(name, condition)
    }))
}

type Found = (Option<(Seq, Seq)>, FileCondition);

fn inspect(
    dir: &Dir,
    file: FileName,
    bytes: Vec<u8>,
) -> Result<std::result::Result<Found, Skipped>> {
    let name = file.to_string();
    let meta = match read_meta(&bytes) {
        Ok(meta) => meta,
        Err(fault) => return Skipped::damaged(dir, &name, fault).map(Err),
    };
    if !meta.is_named(file) {
        let reason = "its name does not match its contents".into();
        return Ok(Ok((None, FileCondition::Damaged { offset: 0, reason })));
    }
    if meta.phase.is_some() {
        let seq = Seq::new(meta.seq);
        return match read_phase(&bytes, Needed::Everything) {
            Ok(_) => Ok(Ok((Some((seq, seq)), FileCondition::Valid))),
            Err(fault) => Skipped::damaged(dir, &name, fault).map(Err),
        };
    }
    let journal = match chain::read(dir, &name, &meta, bytes, u64::MAX, Needed::Everything)? {
        Ok(journal) => journal,
        Err(bad) => return Ok(Err(bad)),
    };
    let bytes = journal.parts.last().map_or(&[][..], |part| &part.bytes);
    let seqs = journal.replay.seqs();
    let saves = seqs.first().zip(seqs.last());
    let saves = saves.map(|(&first, &last)| (Seq::new(first), Seq::new(last)));
    let end = bytes.len();
    let damaged = |offset: usize, reason: &str| FileCondition::Damaged {
        offset: offset as u64,
        reason: reason.into(),
    };
    let is_short = journal.replay.seq < meta.carried;
    let condition = match journal.tail {
        Tail::Damaged { offset, reason } => damaged(offset, reason),
        Tail::Torn { offset } if is_short => damaged(offset, "its first saves are incomplete"),
        Tail::Clean if is_short => damaged(end, "its first saves are incomplete"),
        Tail::Torn { offset } => FileCondition::Torn {
            bytes: (without_zeros(bytes, offset) - offset) as u64,
        },
        Tail::Clean => FileCondition::Valid,
    };
    Ok(Ok((saves, condition)))
}

impl fmt::Display for FileCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Valid => f.write_str("valid"),
            Self::Torn { bytes } => {
                write!(f, "valid, then {bytes} bytes of an incomplete save")
            }
            Self::Damaged { offset, reason } => write!(f, "damaged: {reason} at byte {offset}"),
            Self::Unreadable(why) => write!(f, "unreadable: {why}"),
        }
    }
}

impl fmt::Display for NextAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("nothing was saved yet: it is safe to start"),
            Self::Resume { seq } => write!(f, "it is safe to resume from save {seq}"),
            Self::ResumeOlder { seq } => write!(
                f,
                "it is safe to resume, but only from the older save {seq}; resuming sets the damaged files \
                 aside, so copy the directory first if they may be worth a repair"
            ),
            Self::Wait => f.write_str("a writer has the store open; verify again later"),
            Self::Restore(why) => write!(
                f,
                "no state can be read ({why}); restore a copy or use a newer program, and until then \
                 remove nothing"
            ),
        }
    }
}

impl fmt::Display for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for file in &self.files {
            write!(f, "{} ({} bytes", file.name, file.bytes)?;
            if let Some((first, last)) = file.saves {
                write!(f, ", saves {first} to {last}")?;
            }
            writeln!(f, "): {}", file.condition)?;
        }
        writeln!(
            f,
            "{} blobs, {} files set aside",
            self.blobs, self.set_aside
        )?;
        writeln!(f, "{}", self.next)
    }
}
