//! The archive of a run: a compressed tar file with its manifest first.
//!
//! An archive may come from anybody: the reader accepts only the files of the manifest, in its order, with exactly its sizes.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use tar::{EntryType, Header};

use super::manifest::{self, ArchiveEntry, MAX_BYTES, Manifest};
use super::progress::{Cancel, TransferProgress};
use crate::{Error, state_dir};

/// The size of a copied piece.
const PIECE: usize = 128 << 10;
/// The largest number of bytes of padding after the last file.
const MAX_PADDING: u64 = 64 << 10;
/// The largest memory of the decompressor, as a power of two; larger than any level of this program needs.
const WINDOW: u32 = 24;
const LEVEL: i32 = 3;
/// The beginning of a git bundle, the text after its header, and the largest number of bytes of the header.
const BUNDLES: [&[u8]; 2] = [b"# v2 git bundle\n", b"# v3 git bundle\n"];
const PACK: &[u8] = b"\n\nPACK";
const MAX_HEADER: usize = 64 << 10;

/// Writes an archive. `find` returns the path of each of its files, `path` is the archive's name in messages.
pub(super) fn write<W: Write>(
    to: W,
    manifest: &Manifest,
    find: impl Fn(&ArchiveEntry) -> PathBuf,
    cancel: &Cancel,
    progress: &TransferProgress,
    path: &Path,
) -> Result<W, Error> {
    let fail = |e| Error::io("can't write", path, e);
    let mut packer = zstd::Encoder::new(to, LEVEL).map_err(fail)?;
    packer.include_checksum(true).map_err(fail)?;
    let mut tar = tar::Builder::new(packer);
    let text = serde_json::to_vec(manifest).expect("a manifest serializes");
    let header = |name: &str, bytes: u64| -> io::Result<Header> {
        let mut header = Header::new_ustar();
        header.set_path(name)?;
        header.set_size(bytes);
        header.set_mode(0o600);
        header.set_mtime(manifest.created.as_millis() / 1000);
        header.set_entry_type(EntryType::Regular);
        header.set_cksum();
        Ok(header)
    };
    let first = header(manifest::NAME, text.len() as u64).map_err(fail)?;
    tar.append(&first, text.as_slice()).map_err(fail)?;
    // From here on the first bytes mark the file as an archive, under any name.
    tar.get_mut().flush().map_err(fail)?;
    for entry in &manifest.files {
        let path = find(entry);
        let file = state_dir::open(&path).map_err(|e| Error::io("can't read", &path, e))?;
        let header = header(&entry.name, entry.bytes).map_err(fail)?;
        let mut from = CheckedReader::new(file.take(entry.bytes), cancel, progress);
        tar.append(&header, &mut from)
            .map_err(|e| cancel.check().err().unwrap_or_else(|| fail(e)))?;
        if (from.bytes, from.crc) != (entry.bytes, entry.crc32c) {
            let changed = io::Error::other("the file changed meanwhile");
            return Err(Error::io("can't export", &path, changed));
        }
    }
    let packer = tar.into_inner().map_err(fail)?;
    packer.finish().map_err(fail)
}

/// Returns the archive entry of a file.
pub(super) fn entry(name: String, path: &Path, cancel: &Cancel) -> Result<ArchiveEntry, Error> {
    let fail = |e| {
        cancel
            .check()
            .err()
            .unwrap_or_else(|| Error::io("can't read", path, e))
    };
    let progress = TransferProgress::default();
    let mut from = CheckedReader::new(
        state_dir::open_bounded(path, manifest::max_bytes(&name)).map_err(fail)?,
        cancel,
        &progress,
    );
    io::copy(&mut from, &mut io::sink()).map_err(fail)?;
    Ok(ArchiveEntry {
        name,
        bytes: from.bytes,
        crc32c: from.crc,
    })
}

/// Unpacks an archive into a directory with the layout of a run. `room` returns an error if this disk has not enough space.
///
/// The inner error is a problem of the archive.
pub(super) fn read(
    from: impl Read,
    into: &Path,
    room: impl FnOnce(&Manifest) -> Result<(), Error>,
    cancel: &Cancel,
    progress: &TransferProgress,
) -> Result<Result<Manifest, String>, Error> {
    let broken = |e: io::Error| match e.kind() {
        io::ErrorKind::UnexpectedEof => "the archive is truncated; fetch it again".to_owned(),
        _ => format!("can't unpack the archive: {e}; fetch it again"),
    };
    macro_rules! good {
        ($result:expr) => {
            match $result {
                Ok(good) => good,
                Err(why) => {
                    cancel.check()?;
                    return Ok(Err(why));
                }
            }
        };
    }
    let mut unpacker = good!(zstd::Decoder::new(from).map_err(broken));
    good!(unpacker.window_log_max(WINDOW).map_err(broken));
    let mut tar = tar::Archive::new(unpacker);
    // Read raw entries. Otherwise `tar` would read a long name or another extension into memory, whatever its length. No export writes such an entry.
    let mut entries = good!(tar.entries().map_err(broken)).raw(true);
    let first = good!(
        entries
            .next()
            .ok_or_else(|| "the archive is empty".to_owned())
    );
    let mut first = good!(first.map_err(broken));
    if !is_file(&first, manifest::NAME) || first.size() > MAX_BYTES {
        return Ok(Err("not an exported run".into()));
    }
    let mut text = Vec::new();
    good!(first.read_to_end(&mut text).map_err(broken));
    let manifest = good!(Manifest::parse(&text));
    room(&manifest)?;
    for expected in &manifest.files {
        let shown = &expected.name;
        let next = good!(
            entries
                .next()
                .ok_or_else(|| format!("the archive lacks `{shown}`"))
        );
        let next = good!(next.map_err(broken));
        if !is_file(&next, shown) || next.size() != expected.bytes {
            return Ok(Err(format!(
                "the archive has another entry in place of `{shown}`"
            )));
        }
        let mut from = CheckedReader::new(next, cancel, progress);
        let path = manifest::path_in_run(shown).expect("the manifest is checked");
        let path = into.join(path);
        let mut beginning = Vec::new();
        if shown == manifest::BUNDLE {
            good!(begin_bundle(&mut from, &mut beginning));
        }
        let copied = make_folders(into, &path)
            .map_err(Failed::Write)
            .and_then(|()| copy(&beginning, &mut from, &path));
        cancel.check()?;
        match copied {
            Ok(()) => {}
            Err(Failed::Read(e)) => return Ok(Err(broken(e))),
            Err(Failed::Write(e)) => return Err(Error::io("can't write", &path, e)),
        }
        if (from.bytes, from.crc) != (expected.bytes, expected.crc32c) {
            return Ok(Err(format!(
                "`{shown}` in the archive is damaged (wrong checksum); fetch it again"
            )));
        }
    }
    if let Some(more) = entries.next() {
        good!(more.map_err(broken));
        return Ok(Err("the archive has more entries than its manifest".into()));
    }
    let mut rest = tar.into_inner().take(MAX_PADDING);
    let mut padding = Vec::new();
    let read = good!(rest.read_to_end(&mut padding).map_err(broken));
    if read as u64 == MAX_PADDING || padding.iter().any(|byte| *byte != 0) {
        return Ok(Err("the archive has more entries than its manifest".into()));
    }
    Ok(Ok(manifest))
}

fn is_file<R: Read>(entry: &tar::Entry<'_, R>, name: &str) -> bool {
    let header = entry.header();
    header.entry_type() == EntryType::Regular && *header.path_bytes() == *name.as_bytes()
}

enum Failed {
    Read(io::Error),
    Write(io::Error),
}

/// Reads enough of a bundle to recognise it, so that no other file reaches git or fills the disk.
fn begin_bundle(from: &mut impl Read, beginning: &mut Vec<u8>) -> Result<(), String> {
    let bad = || {
        format!(
            "`{}` in the archive is not a git bundle; fetch it again",
            manifest::BUNDLE
        )
    };
    let mut piece = vec![0; 4096];
    loop {
        let read = from.read(&mut piece).map_err(|_| bad())?;
        beginning.extend_from_slice(&piece[..read]);
        let name = BUNDLES.iter().any(|name| {
            let both = name.len().min(beginning.len());
            beginning[..both] == name[..both]
        });
        if !name
            || read == 0
            || beginning.contains(&0) && !has_pack(beginning)
            || beginning.len() > MAX_HEADER
        {
            return Err(bad());
        }
        if has_pack(beginning) {
            return Ok(());
        }
    }
}

fn has_pack(beginning: &[u8]) -> bool {
    beginning.windows(PACK.len()).any(|it| it == PACK)
}

/// Makes the directories between `into` and a file below it.
fn make_folders(into: &Path, path: &Path) -> io::Result<()> {
    let folders = path
        .ancestors()
        .skip(1)
        .take_while(|folder| *folder != into);
    let mut folders: Vec<&Path> = folders.collect();
    folders.reverse();
    folders
        .into_iter()
        .try_for_each(state_dir::make_private_directory)
}

/// Writes a private file durably: its beginning, which was already read, and the rest.
fn copy(beginning: &[u8], from: &mut impl Read, path: &Path) -> Result<(), Failed> {
    let mut file = state_dir::create_new(path).map_err(Failed::Write)?;
    file.write_all(beginning).map_err(Failed::Write)?;
    let mut piece = vec![0; PIECE];
    loop {
        match from.read(&mut piece) {
            Ok(0) => break,
            Ok(n) => file.write_all(&piece[..n]).map_err(Failed::Write)?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Failed::Read(e)),
        }
    }
    file.sync_all().map_err(Failed::Write)
}

/// A reader that counts its bytes, computes their checksum, and fails after a cancellation.
struct CheckedReader<'a, R> {
    from: R,
    cancel: &'a Cancel,
    progress: &'a TransferProgress,
    bytes: u64,
    crc: u32,
}

impl<'a, R> CheckedReader<'a, R> {
    fn new(from: R, cancel: &'a Cancel, progress: &'a TransferProgress) -> Self {
        Self {
            from,
            cancel,
            progress,
            bytes: 0,
            crc: 0,
        }
    }
}

impl<R: Read> Read for CheckedReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.check().is_err() {
            return Err(io::Error::other("stopped"));
        }
        let read = self.from.read(buffer)?;
        self.bytes += read as u64;
        self.crc = crc32c::crc32c_append(self.crc, &buffer[..read]);
        self.progress.add(read as u64);
        Ok(read)
    }
}
