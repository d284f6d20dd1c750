//! A journal together with the journals that it continues: reads them, and decides what the next journal continues.
//!
//! A new writer doesn't copy a long journal. Its own journal begins with a *link*: the epoch and the id of an older journal, and an offset `end` in that
//! file. The saves of the older file before `end` are the first saves of the new journal. The older file may itself begin with a link, so the journals
//! form a chain. The new journal has copies of the saves after `end`. All bytes after `end` in the older file are meaningless from then on.
//!
//! # Why a link is as safe as a copy
//!
//! The last save in a journal may be one that was never acknowledged: its sync may have failed, and then the kernel shows bytes that are not on disk.
//! Therefore a link ends before the last save. The promises of a copy hold for a link too:
//!
//! - *The linked bytes are durable.* A writer writes a save only after the sync of the save before it. So every save but the last one was synced.
//!   The saves next to the last one, at least [`least_copied`] bytes, are copied too, because the failed write of the last save may have touched
//!   their disk blocks.
//! - *The name of the linked file is durable.* A link leads only into a journal whose writer appended a save. The writer appended it after it had
//!   synced the directory. If the latest journal has only copied saves, the new journal links to the file that the latest journal links to.
//! - *A fenced writer can't change the linked bytes.* A writer writes only after its last acknowledged save. The new writer reads the file after it
//!   took its epoch, so the last save that it sees is the last acknowledged one, or the one after it. The link ends before both.
//! - *No linked file disappears.* A writer never removes a file that its own journal, or the journal before that, links to. Before each
//!   acknowledgement it checks the names of all files of its chain. If one is gone, it writes all saves to a new file, as after every other failure.
//! - *An older program can't misread the file.* The link is a frame of a kind that a reader must know to read the file.
//!
//! A damaged store, or one with values of an older version, is copied as a whole. A chain has at most [`MAX_LINKED`] older
//! files. If one more would exceed this, or if the linked part of a file would be smaller than the copied part, the new journal copies that file and links
//! to an older one.

use serde::{Deserialize, Serialize};

use crate::codec::{self, CompressionEffort};
use crate::compact::JournalWeight;
use crate::dir::{Dir, MAX_FILE};
use crate::disk::{Directory, OpenMode};
use crate::error::{Error, Kind, Result};
use crate::file_builder::read_meta;
use crate::frame::{
    self, CRITICAL, Frame, FrameFault, LINK, META, Tail, damaged, decode_header, scan,
};
use crate::id::PhaseId;
use crate::meta::FileMeta;
use crate::name::FileName;
use crate::replay::{Needed, Replay, unpacked};
use crate::report::Skipped;
use crate::sabotage::{self, Sabotage};
use crate::saves::{JournalLocation, LinkedSaves, PackedFrame};

/// The largest number of files to which a new journal is linked, directly or through others.
const MAX_LINKED: usize = 8;
/// A reader accepts longer chains than a writer makes, but not endless ones.
pub(crate) const MAX_READ: usize = 8 * MAX_LINKED;

/// Returns the number of bytes before the last save that a new journal copies.
fn least_copied(disk: &dyn Directory) -> u64 {
    disk.stride() / 16
}

/// Payload of a link. The number of its frame is that of the last linked save.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Link {
    pub(crate) epoch: u64,
    id: PhaseId,
    /// The offset at which the linked saves end.
    pub(crate) end: u64,
}

impl Link {
    /// Returns the name of the linked file. `meta` is the metadata of the newest journal of the chain.
    pub(crate) fn target(&self, meta: &FileMeta) -> String {
        let (epoch, base) = (self.epoch, meta.seq);
        FileName::Progress { epoch, base }.to_string()
    }

    /// Returns whether a file has the metadata of the linked file. `meta` is that of the newest journal of the chain.
    pub(crate) fn leads_to(&self, file: &FileMeta, meta: &FileMeta) -> bool {
        (file.id, file.epoch) == (self.id, self.epoch)
            && (file.base, file.schema_version) == (meta.base, meta.schema_version)
    }
}

/// One file of a chain.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) meta: FileMeta,
    pub(crate) bytes: Vec<u8>,
    /// The saves of this file that belong to the chain.
    pub(crate) frames: Vec<Frame>,
}

impl Part {
    /// Returns the number of bytes of the first `count` saves.
    fn len(&self, count: usize) -> u64 {
        let frames = &self.frames[..count];
        let ends = frames.first().zip(frames.last());
        ends.map_or(0, |(first, last)| (last.end() - first.offset) as u64)
    }

    fn packed(&self, frame: Frame) -> PackedFrame {
        let stored = frame.stored(&self.bytes).to_vec();
        PackedFrame { frame, stored }
    }
}

/// A journal in memory, with the journals that it continues.
#[derive(Debug)]
pub(crate) struct Chain {
    /// The files, oldest first. The last one is the journal itself.
    pub(crate) parts: Vec<Part>,
    pub(crate) replay: Replay,
    /// The bytes after the good saves of the journal itself.
    pub(crate) tail: Tail,
}

/// Reads a journal with all journals that it continues, up to its first bad frame, and replays them up to the save `until`, as far as it is needed.
/// `bytes` are those of the journal itself.
///
/// # Errors
/// As for a single file. Damage before the first save that the journal itself has makes the journal useless, and is described in the inner error.
pub(crate) fn read(
    dir: &Dir,
    name: &str,
    meta: &FileMeta,
    bytes: Vec<u8>,
    until: u64,
    needed: Needed,
) -> Result<std::result::Result<Chain, Skipped>> {
    let bad = |fault| Skipped::damaged(dir, name, fault).map(Err);
    let (part, mut link, mut tail) = match scanned(name, meta.clone(), bytes) {
        Ok(scanned) => scanned,
        Err(fault) => return bad(fault),
    };
    let mut parts = vec![part];
    let mut total = 0;
    while let Some((seq, to)) = link {
        let from = &parts[0].meta;
        let target = to.target(meta);
        let unusable = |reason: &str| {
            Ok(Err(Skipped {
                file: name.into(),
                reason: format!("the journal {target} that it continues is {reason}"),
                offset: 0,
            }))
        };
        total += to.end;
        if to.epoch >= from.epoch {
            return unusable("not older than itself");
        }
        if total > MAX_FILE || parts.len() > MAX_READ {
            return unusable("part of a chain that is too long");
        }
        let bytes = match dir.read_up_to(&target, to.end) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return unusable("missing"),
            Err(err) if matches!(err.kind(), Kind::Foreign) => return unusable("no regular file"),
            Err(err) => return Err(err),
        };
        let read = read_meta(&bytes).and_then(|meta| scanned(&target, meta, bytes));
        let (part, next, tail) = match read {
            Ok(read) => read,
            Err(FrameFault::Damaged { .. }) => return unusable("damaged"),
            Err(newer) => return Err(Error::fault(dir.path().join(&target), newer)),
        };
        let is_same = to.leads_to(&part.meta, meta);
        let ends = part.frames.last();
        let ends = ends.is_some_and(|last| (last.seq, last.end() as u64) == (seq, to.end));
        if !is_same || !ends || tail != Tail::Clean {
            return unusable("damaged");
        }
        parts.insert(0, part);
        link = next;
    }
    let mut replay = Replay::new(meta.seq);
    let last = parts.len() - 1;
    for (index, part) in parts.iter_mut().enumerate() {
        let wanted = part.frames.partition_point(|frame| frame.seq <= until);
        part.frames.truncate(wanted);
        let raws = unpacked(&part.bytes, &part.frames, needed);
        let steps = part.frames.iter().zip(raws);
        let step = |(frame, raw): (&Frame, std::result::Result<Vec<u8>, FrameFault>)| {
            raw.and_then(|raw| replay.step(frame, raw))
        };
        let mut faults = steps.map(step).enumerate();
        let fault = faults.find_map(|(at, step)| step.err().map(|fault| (at, fault)));
        match fault {
            None => {}
            Some((at, FrameFault::Damaged { offset, reason })) if index == last => {
                tail = Tail::Damaged { offset, reason };
                part.frames.truncate(at);
            }
            Some((_, fault)) => return Skipped::damaged(dir, &part.name, fault).map(Err),
        }
    }
    if needed == Needed::NewestHead {
        let files = parts
            .iter()
            .rev()
            .map(|part| (&part.bytes[..], &part.frames[..]));
        if let Err(fault) = replay.fetch_head(files) {
            return bad(fault);
        }
    }
    Ok(Ok(Chain {
        parts,
        replay,
        tail,
    }))
}

type Scanned = (Part, Option<(u64, Link)>, Tail);

/// Reads the frames of one file.
fn scanned(name: &str, meta: FileMeta, bytes: Vec<u8>) -> std::result::Result<Scanned, FrameFault> {
    let (mut frames, tail) = scan(&bytes, decode_header(&bytes)?)?;
    if frames.first().is_none_or(|first| first.kind != META) {
        return Err(damaged(frame::HEADER, "the metadata is missing"));
    }
    frames.remove(0);
    let mut link = None;
    if let Some(first) = frames.first().copied().filter(|first| first.kind == LINK) {
        let stored = first.stored(&bytes);
        let raw = codec::unpack(first.flags, stored, first.raw_len, first.offset)?;
        let unreadable = |_| damaged(first.offset, "the link cannot be read");
        link = Some((first.seq, codec::decode(&raw).map_err(unreadable)?));
        frames.remove(0);
    }
    let name = name.into();
    let part = Part {
        name,
        meta,
        bytes,
        frames,
    };
    Ok((part, link, tail))
}

/// The part of a chain that the next journal continues without a copy.
#[derive(Debug)]
pub(crate) struct Continued {
    pub(crate) saves: Vec<LinkedSaves>,
    pub(crate) weight: JournalWeight,
    pub(crate) link: PackedFrame,
    /// The number of bytes of all linked saves.
    pub(crate) bytes: u64,
}

/// Returns how many of the files the next journal continues, and how many saves of the last one of them.
fn split(parts: &[Part], least: u64) -> (usize, usize) {
    let Some((newest, older)) = parts.split_last() else {
        return (0, 0);
    };
    let frames = &newest.frames;
    let sabotaged = sabotage::is_on(Sabotage::LinkLastSave);
    // Copy the last save and at least `least` bytes before it; link the others.
    let mut linked = frames.len().saturating_sub(1);
    while linked > 0 && newest.len(frames.len() - 1) - newest.len(linked) < least {
        linked -= 1;
    }
    if sabotaged {
        linked = frames.len();
    }
    let mut copied = newest.len(frames.len()) - newest.len(linked);
    let took_saves = frames
        .last()
        .is_some_and(|last| last.seq > newest.meta.carried);
    let worth = |files, len, copied| files <= MAX_LINKED && len > copied;
    if (took_saves || sabotaged) && worth(parts.len(), newest.len(linked), copied) {
        return (parts.len(), linked);
    }
    copied = newest.len(frames.len());
    for (index, part) in older.iter().enumerate().rev() {
        let len = part.len(part.frames.len());
        if worth(index + 1, len, copied) {
            return (index + 1, part.frames.len());
        }
        copied += len;
    }
    (0, 0)
}

/// Plans the next journal after a chain without damage: returns the part that it continues, and the saves that it copies.
pub(crate) fn plan(
    dir: &Dir,
    parts: &[Part],
    may_link: bool,
) -> Result<(Option<Continued>, impl Iterator<Item = PackedFrame>)> {
    let (files, count) = match may_link {
        true => split(parts, least_copied(dir.disk())),
        false => (0, 0),
    };
    let linked = move |index: usize| match files.checked_sub(index + 1) {
        None => 0,
        Some(0) => count,
        Some(_) => parts[index].frames.len(),
    };
    let continued = match files.checked_sub(1) {
        None => None,
        Some(last) => {
            let mut saves = Vec::new();
            let mut weight = JournalWeight::default();
            let mut bytes = 0;
            for (index, part) in parts[..files].iter().enumerate() {
                let file = dir.open_file(&part.name, OpenMode::Read)?;
                let vanished = || Error::new(dir.path().join(&part.name), Kind::Vanished);
                let frames = &part.frames[..linked(index)];
                let corrupt = |fault| Error::fault(dir.path().join(&part.name), fault);
                let location = JournalLocation {
                    file: file.ok_or_else(vanished)?.into(),
                    name: part.name.clone(),
                    salt: decode_header(&part.bytes).map_err(corrupt)?,
                    from: frames.first().map_or(0, |first| first.offset as u64),
                };
                let len = part.len(frames.len());
                bytes += len;
                saves.push(LinkedSaves { location, len });
                frames.iter().for_each(|frame| weight.add_frame(frame));
            }
            let (part, frame) = (&parts[last], parts[last].frames[count - 1]);
            let link = Link {
                epoch: part.meta.epoch,
                id: part.meta.id,
                end: frame.end() as u64,
            };
            let link = pack(&link, frame.seq).map_err(|kind| Error::new(dir.path(), kind))?;
            Some(Continued {
                saves,
                weight,
                link,
                bytes,
            })
        }
    };
    let copied = parts.iter().enumerate().flat_map(move |(index, part)| {
        let frames = part.frames[linked(index)..].iter();
        frames.map(|&frame| part.packed(frame))
    });
    Ok((continued, copied))
}

fn pack(link: &Link, seq: u64) -> std::result::Result<PackedFrame, Kind> {
    let mut raw = Vec::new();
    codec::encode(&mut raw, link).map_err(Kind::Encode)?;
    let mut packed = PackedFrame::pack(LINK, seq, 0, raw, CompressionEffort::Save)?;
    packed.frame.flags |= CRITICAL;
    Ok(packed)
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
