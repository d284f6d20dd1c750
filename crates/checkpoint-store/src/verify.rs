//! Reads every byte of a store and says what is safe to do next. Changes nothing.

use std::fmt;
use std::path::Path;

use crate::blob;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::frame::{Fault, Tail, without_zeros};
use crate::id::Seq;
use crate::image::{read_journal, read_meta, read_phase};
use crate::load::Want;
use crate::lock;
use crate::name::{FileName, QUARANTINE};
use crate::reader::newest;

/// What was found in a store.
///
/// Its `Display` is for people: a line for each file, then what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verification {
    /// The phases and journals, sorted by name.
    pub files: Vec<File>,
    /// How many blobs there are. They carry no checksum, so only their names are known.
    pub blobs: usize,
    /// How many damaged files earlier writers set aside.
    pub set_aside: usize,
    /// What is safe to do next.
    pub next: Next,
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
    /// How well it is.
    pub condition: Condition,
}

impl File {
    /// Returns a file of no bytes and no saves, for programs that test how they show one.
    pub fn new(name: impl Into<String>, condition: Condition) -> Self {
        Self {
            name: name.into(),
            bytes: 0,
            saves: None,
            condition,
        }
    }
}

/// How well a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Condition {
    /// Every byte is as it was written.
    Whole,
    /// It ends in a save that was cut before it was acknowledged. Nothing is lost.
    Torn {
        /// How many bytes of that save there are.
        bytes: u64,
    },
    /// Something that was acknowledged is damaged.
    Damaged {
        /// Where, in bytes from its start.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// A newer program wrote it, or it cannot be read; the text says which.
    Unreadable(String),
}

/// What is safe to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next {
    /// Start: nothing was saved yet.
    Start,
    /// Resume: the newest state is whole.
    Resume {
        /// The newest save.
        seq: Seq,
    },
    /// Resuming is safe, but goes on from an older state. The damaged files are set aside
    /// then; copy the directory before if they may be worth mending.
    ResumeOlder {
        /// The newest save that can be read.
        seq: Seq,
    },
    /// Look again when the writer is done: it is at work, and only the beginning of what it
    /// is writing may be on disk.
    Wait,
    /// Use a newer program, or bring a copy back: there are files, but this program can read
    /// no state from them; the text says why. Removing them would lose what is in them.
    Restore(String),
}

/// Reads every byte of the store in `dir`, without a lock, and changes nothing.
///
/// # Errors
/// [`is_not_found`](Error::is_not_found) if there is no directory, and others if a file or
/// the directory cannot be read. Damage is no error.
pub fn verify(dir: impl AsRef<Path>) -> Result<Verification> {
    verify_in(&Dir::open(dir.as_ref())?)
}

/// [`verify`] for a directory of any disk; messages call it `dir`.
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
    let next = match newest(dir, Want::Anything) {
        Ok(loaded) if loaded.report.used.is_none() => Next::Start,
        Ok(loaded) if loaded.report.is_sound() => Next::Resume {
            seq: Seq::new(loaded.seq),
        },
        Ok(loaded) => Next::ResumeOlder {
            seq: Seq::new(loaded.seq),
        },
        Err(err) if err.is_about_files() => return Err(err),
        Err(err) => Next::Restore(err.to_string()),
    };
    let aside = match dir.sub(QUARANTINE, false) {
        Err(err) if err.is_not_found() => 0,
        aside => aside?.names()?.len(),
    };
    Ok(Verification {
        files,
        blobs: blob::names(dir)?.len(),
        set_aside: aside,
        next: if locked { Next::Wait } else { next },
    })
}

/// Reads one file; none if its writer removed it meanwhile.
fn check(dir: &Dir, file: FileName) -> Result<Option<File>> {
    let name = file.to_string();
    let bytes = match dir.read(&name) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(None),
        Err(err) if err.is_about_files() => return Err(err),
        // A pipe, a link, a giant: no reason to say nothing of the others.
        Err(err) => {
            let condition = Condition::Unreadable(err.to_string());
            return Ok(Some(File::new(name, condition)));
        }
    };
    let len = bytes.len() as u64;
    let (saves, condition) = match inspect(file, bytes) {
        Ok(found) => found,
        Err(Fault::Damaged { offset, reason }) => {
            let (offset, reason) = (offset as u64, reason.into());
            (None, Condition::Damaged { offset, reason })
        }
        Err(newer) => {
            let text = Error::fault(dir.path().join(&name), newer).to_string();
            (None, Condition::Unreadable(text))
        }
    };
    Ok(Some(File {
        bytes: len,
        saves,
        ..File::new(name, condition)
    }))
}

type Found = (Option<(Seq, Seq)>, Condition);

fn inspect(file: FileName, bytes: Vec<u8>) -> std::result::Result<Found, Fault> {
    let meta = read_meta(&bytes)?;
    if !meta.is_named(file) {
        let reason = "its name does not fit its contents".into();
        return Ok((None, Condition::Damaged { offset: 0, reason }));
    }
    if meta.phase.is_some() {
        read_phase(&bytes)?;
        let seq = Seq::new(meta.seq);
        return Ok((Some((seq, seq)), Condition::Whole));
    }
    let journal = read_journal(bytes, &meta, u64::MAX)?;
    let seqs = journal.replay.seqs();
    let saves = seqs.first().zip(seqs.last());
    let saves = saves.map(|(&first, &last)| (Seq::new(first), Seq::new(last)));
    let end = journal.bytes.len();
    let damaged = |offset: usize, reason: &str| Condition::Damaged {
        offset: offset as u64,
        reason: reason.into(),
    };
    let is_short = journal.replay.seq < meta.carried;
    let condition = match journal.tail {
        Tail::Damaged { offset, reason } => damaged(offset, reason),
        Tail::Torn { offset } if is_short => damaged(offset, "it ends before what it began with"),
        Tail::Clean if is_short => damaged(end, "it ends before what it began with"),
        Tail::Torn { offset } => Condition::Torn {
            bytes: (without_zeros(&journal.bytes, offset) - offset) as u64,
        },
        Tail::Clean => Condition::Whole,
    };
    Ok((saves, condition))
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("whole"),
            Self::Torn { bytes } => {
                write!(f, "whole, then {bytes} bytes of a save that was cut")
            }
            Self::Damaged { offset, reason } => write!(f, "damaged: {reason} at byte {offset}"),
            Self::Unreadable(why) => write!(f, "unreadable: {why}"),
        }
    }
}

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("nothing was saved yet; it is safe to start"),
            Self::Resume { seq } => write!(f, "it is safe to resume, from save {seq}"),
            Self::ResumeOlder { seq } => write!(
                f,
                "it is safe to resume, from the older save {seq}; damaged files are set aside \
                 then, so copy the directory first if they may be worth mending"
            ),
            Self::Wait => f.write_str("a writer is at work; look again when it is done"),
            Self::Restore(why) => write!(
                f,
                "no state can be read; bring a copy back or use a newer program, and remove \
                 nothing before ({why})"
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
