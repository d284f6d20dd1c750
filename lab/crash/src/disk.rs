//! A disk that promises only what POSIX promises. This module has no clock and no files.
//!
//! Programs see the *live* side. A sync of a file makes its bytes and its length durable, and a sync of a directory makes its names durable. Nothing
//! else is durable, whatever the order of the writes was. [`choice`](crate::choice) lists the possible outcomes of a power cut.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::Arc;

/// The number of a file or directory.
pub type Ino = usize;
/// The top directory.
pub const ROOT: Ino = 0;

pub(crate) const EIO: i32 = 5;
const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const ENOTEMPTY: i32 = 39;

pub(crate) fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

/// The contents of a disk, with the writes that a power cut may still lose.
#[derive(Debug, Clone)]
pub struct Disk {
    pub(crate) nodes: Vec<Arc<Node>>,
    /// Changes of names that no sync made durable, oldest first.
    pub(crate) ops: Vec<NameOp>,
    /// Number of bytes that a power cut keeps or loses together.
    pub(crate) sector: usize,
    next_op: u64,
}

#[derive(Debug, Clone)]
pub(crate) enum Node {
    Dir {
        live: BTreeMap<Arc<str>, Ino>,
        durable: BTreeMap<Arc<str>, Ino>,
    },
    File(File),
}

/// A name that was set to a file, or removed.
#[derive(Debug, Clone)]
pub(crate) struct NameOp {
    id: u64,
    pub(crate) dir: Ino,
    pub(crate) name: Arc<str>,
    pub(crate) target: Option<Ino>,
    /// The other half of a rename: the old name never disappears before the new one is there.
    needs: Option<u64>,
    /// Whether a sync failed while this change was pending, so that the next sync does not write the change.
    orphan: bool,
}

/// Writes that are not yet durable.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pending {
    pub(crate) sizes: Vec<usize>,
    /// The versions that each sector had, oldest first.
    pub(crate) sectors: BTreeMap<usize, Vec<Arc<[u8]>>>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct File {
    pub(crate) live: Arc<Vec<u8>>,
    pub(crate) durable: Arc<Vec<u8>>,
    pub(crate) dirty: Pending,
    /// Writes of a failed sync: programs see them, and later syncs treat them as clean.
    pub(crate) orphans: Pending,
}

impl File {
    fn note_size(&mut self) {
        let len = self.live.len();
        if self.dirty.sizes.last().copied() != Some(len)
            && (len != self.durable.len() || !self.dirty.sizes.is_empty())
        {
            self.dirty.sizes.push(len);
        }
    }

    /// Records the current contents of the sectors that contain the bytes `from..to`.
    fn note_sectors(&mut self, from: usize, to: usize, sector: usize) {
        for number in from / sector..to.div_ceil(sector) {
            let start = (number * sector).min(self.live.len());
            let end = ((number + 1) * sector).min(self.live.len());
            let version = self.live[start..end].into();
            self.dirty.sectors.entry(number).or_default().push(version);
        }
    }
}

impl Disk {
    /// Makes an empty disk with sectors of `sector` bytes.
    pub fn new(sector: usize) -> Self {
        Self {
            nodes: vec![Arc::new(directory())],
            ops: Vec::new(),
            sector,
            next_op: 0,
        }
    }

    fn dir(&self, ino: Ino) -> io::Result<&BTreeMap<Arc<str>, Ino>> {
        match &*self.nodes[ino] {
            Node::Dir { live, .. } => Ok(live),
            Node::File(_) => Err(errno(ENOTDIR)),
        }
    }

    pub(crate) fn file(&self, ino: Ino) -> io::Result<&File> {
        match &*self.nodes[ino] {
            Node::File(file) => Ok(file),
            Node::Dir { .. } => Err(errno(EISDIR)),
        }
    }

    fn file_mut(&mut self, ino: Ino) -> io::Result<&mut File> {
        match Arc::make_mut(&mut self.nodes[ino]) {
            Node::File(file) => Ok(file),
            Node::Dir { .. } => Err(errno(EISDIR)),
        }
    }

    /// Returns the file or directory with a name.
    pub fn lookup(&self, dir: Ino, name: &str) -> Option<Ino> {
        self.dir(dir).ok()?.get(name).copied()
    }

    /// Returns whether it is a directory.
    pub fn is_dir(&self, ino: Ino) -> bool {
        matches!(&*self.nodes[ino], Node::Dir { .. })
    }

    /// Returns all names of a directory, sorted.
    ///
    /// # Errors
    /// If it is not a directory.
    pub fn names(&self, dir: Ino) -> io::Result<impl Iterator<Item = &str>> {
        Ok(self.dir(dir)?.keys().map(|name| &**name))
    }

    /// Returns the contents of a file.
    ///
    /// # Errors
    /// If it is not a file.
    pub fn read(&self, ino: Ino) -> io::Result<&[u8]> {
        Ok(&self.file(ino)?.live)
    }

    /// Makes an empty file, or a directory, under a free name.
    ///
    /// # Errors
    /// If the name is taken.
    pub fn create(&mut self, dir: Ino, name: &str, is_dir: bool) -> io::Result<Ino> {
        if self.dir(dir)?.contains_key(name) {
            return Err(errno(EEXIST));
        }
        let node = if is_dir {
            directory()
        } else {
            Node::File(File::default())
        };
        self.nodes.push(Arc::new(node));
        let ino = self.nodes.len() - 1;
        self.set(dir, name.into(), Some(ino), None);
        Ok(ino)
    }

    /// Renames a file to a free name; returns false if the name is taken.
    ///
    /// # Errors
    /// If there is no such file.
    pub fn rename_new(&mut self, dir: Ino, from: &str, to: Ino, name: &str) -> io::Result<bool> {
        let ino = self.lookup(dir, from).ok_or_else(|| errno(ENOENT))?;
        if self.dir(to)?.contains_key(name) {
            return Ok(false);
        }
        self.rename(dir, from, ino, to, name);
        Ok(true)
    }

    /// Renames a file, and replaces any file that has the new name.
    ///
    /// # Errors
    /// If there is no such file.
    pub fn rename_over(&mut self, dir: Ino, from: &str, to: Ino, name: &str) -> io::Result<()> {
        let ino = self.lookup(dir, from).ok_or_else(|| errno(ENOENT))?;
        self.rename(dir, from, ino, to, name);
        Ok(())
    }

    fn rename(&mut self, dir: Ino, from: &str, ino: Ino, to: Ino, name: &str) {
        let added = self.set(to, name.into(), Some(ino), None);
        self.set(dir, from.into(), None, Some(added));
    }

    /// Removes the name of a file, or an empty directory.
    ///
    /// # Errors
    /// If there is no such name, or the directory is not empty.
    pub fn unlink(&mut self, dir: Ino, name: &str) -> io::Result<()> {
        let ino = self.lookup(dir, name).ok_or_else(|| errno(ENOENT))?;
        if self.dir(ino).is_ok_and(|names| !names.is_empty()) {
            return Err(errno(ENOTEMPTY));
        }
        self.set(dir, name.into(), None, None);
        Ok(())
    }

    fn set(&mut self, dir: Ino, name: Arc<str>, target: Option<Ino>, needs: Option<u64>) -> u64 {
        let Node::Dir { live, .. } = Arc::make_mut(&mut self.nodes[dir]) else {
            unreachable!("the callers have looked up a name in this directory");
        };
        match target {
            Some(ino) => live.insert(name.clone(), ino),
            None => live.remove(&name),
        };
        self.next_op += 1;
        let id = self.next_op;
        self.ops.push(NameOp {
            id,
            dir,
            name,
            target,
            needs,
            orphan: false,
        });
        id
    }

    /// Writes bytes, and makes the file longer if needed.
    ///
    /// # Errors
    /// If it is not a file.
    pub fn write(&mut self, ino: Ino, at: usize, bytes: &[u8]) -> io::Result<()> {
        let sector = self.sector;
        let file = self.file_mut(ino)?;
        let end = at + bytes.len();
        let live = Arc::make_mut(&mut file.live);
        let first = at.min(live.len());
        if live.len() < end {
            live.resize(end, 0);
        }
        live[at..end].copy_from_slice(bytes);
        file.note_sectors(first, end, sector);
        file.note_size();
        Ok(())
    }

    /// Truncates a file, or extends it with zeros.
    ///
    /// # Errors
    /// If it is not a file.
    pub fn set_len(&mut self, ino: Ino, len: usize) -> io::Result<()> {
        let sector = self.sector;
        let file = self.file_mut(ino)?;
        let before = file.live.len();
        Arc::make_mut(&mut file.live).resize(len, 0);
        if len < before {
            // Bytes that are truncated and extended again read as zeros, so the last sector changes too.
            file.note_sectors(
                len,
                len.next_multiple_of(sector).min(before).max(len),
                sector,
            );
        } else {
            file.note_sectors(before, len, sector);
        }
        file.note_size();
        Ok(())
    }

    /// Makes the bytes and the length of a file durable.
    ///
    /// # Errors
    /// If it is not a file.
    pub fn sync_file(&mut self, ino: Ino) -> io::Result<()> {
        let sector = self.sector;
        let file = self.file_mut(ino)?;
        let dirty = std::mem::take(&mut file.dirty);
        if file.orphans.sectors.is_empty() && file.orphans.sizes.is_empty() {
            file.durable = file.live.clone();
            return Ok(());
        }
        let durable = Arc::make_mut(&mut file.durable);
        if let Some(&len) = dirty.sizes.last() {
            durable.resize(len, 0);
            file.orphans.sizes.clear();
        }
        for (number, versions) in dirty.sectors {
            file.orphans.sectors.remove(&number);
            put(
                durable,
                number * sector,
                versions.last().map_or(&[][..], |last| last),
            );
        }
        Ok(())
    }

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// If it is not a directory.
    pub fn sync_dir(&mut self, dir: Ino) -> io::Result<()> {
        self.dir(dir)?;
        let ops = std::mem::take(&mut self.ops);
        // The names of a directory share blocks: if one more name changes, a sync writes all of them again.
        let is_dirty = ops.iter().any(|op| op.dir == dir && !op.orphan);
        let synced: Vec<u64> = ops
            .iter()
            .filter(|op| op.dir == dir && is_dirty)
            .flat_map(|op| [Some(op.id), op.needs])
            .flatten()
            .collect();
        for op in ops {
            if synced.contains(&op.id) {
                self.settle(&op);
            } else {
                self.ops.push(op);
            }
        }
        Ok(())
    }

    fn settle(&mut self, op: &NameOp) {
        if let Node::Dir { durable, .. } = Arc::make_mut(&mut self.nodes[op.dir]) {
            match op.target {
                Some(ino) => durable.insert(op.name.clone(), ino),
                None => durable.remove(&op.name),
            };
        }
    }

    /// Fails a sync the way Linux does: the pending writes stay visible and count as clean, so a later sync succeeds without writing them.
    pub fn fail_sync(&mut self, ino: Ino) {
        match Arc::make_mut(&mut self.nodes[ino]) {
            Node::File(file) => {
                let dirty = std::mem::take(&mut file.dirty);
                file.orphans.sizes.extend(dirty.sizes);
                for (number, versions) in dirty.sectors {
                    file.orphans
                        .sectors
                        .entry(number)
                        .or_default()
                        .extend(versions);
                }
            }
            Node::Dir { .. } => {
                let pending = self.ops.iter_mut().filter(|op| op.dir == ino);
                pending.for_each(|op| op.orphan = true);
            }
        }
    }

    /// Applies the changes of names that a power cut keeps.
    pub(crate) fn keep_names(&mut self, kept: impl Fn(usize) -> bool) {
        let ops = std::mem::take(&mut self.ops);
        let mut done: Vec<u64> = Vec::new();
        for (index, op) in ops.iter().enumerate() {
            let pending = |id| ops.iter().any(|other| other.id == id);
            if kept(index) && op.needs.is_none_or(|id| done.contains(&id) || !pending(id)) {
                self.settle(op);
                done.push(op.id);
            }
        }
    }

    /// Returns the disk with only the durable contents, as a machine finds it after a start.
    pub(crate) fn rebooted(&self) -> Self {
        let mut disk = Self::new(self.sector);
        let mut seen = BTreeMap::new();
        disk.nodes.clear();
        self.copy(ROOT, &mut disk, &mut seen);
        disk
    }

    fn copy(&self, ino: Ino, to: &mut Self, seen: &mut BTreeMap<Ino, Ino>) -> Ino {
        if let Some(&new) = seen.get(&ino) {
            return new;
        }
        let new = to.nodes.len();
        seen.insert(ino, new);
        match &*self.nodes[ino] {
            Node::File(file) => {
                let (live, durable) = (file.durable.clone(), file.durable.clone());
                let file = File {
                    live,
                    durable,
                    ..File::default()
                };
                to.nodes.push(Arc::new(Node::File(file)));
            }
            Node::Dir { durable, .. } => {
                to.nodes.push(Arc::new(directory()));
                let names: BTreeMap<_, _> = durable
                    .iter()
                    .map(|(name, &ino)| (name.clone(), self.copy(ino, to, seen)))
                    .collect();
                to.nodes[new] = Arc::new(Node::Dir {
                    live: names.clone(),
                    durable: names,
                });
            }
        }
        new
    }

    /// Returns a number that is equal for equal live names and contents.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.digest(ROOT, &mut hasher);
        hasher.finish()
    }

    fn digest(&self, ino: Ino, hasher: &mut DefaultHasher) {
        match &*self.nodes[ino] {
            Node::File(file) => file.live.hash(hasher),
            Node::Dir { live, .. } => {
                live.len().hash(hasher);
                for (name, &ino) in live {
                    name.hash(hasher);
                    self.digest(ino, hasher);
                }
            }
        }
    }
}

fn directory() -> Node {
    Node::Dir {
        live: BTreeMap::new(),
        durable: BTreeMap::new(),
    }
}

/// Copies as many bytes into a buffer as fit.
pub(crate) fn put(buffer: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(room) = buffer.get_mut(at..) {
        let len = bytes.len().min(room.len());
        room[..len].copy_from_slice(&bytes[..len]);
    }
}
