//! One file that holds a run: a tar archive, packed, its manifest first.
//!
//! What is read is believed to come from anybody: nothing is taken but what the manifest announces, in its order, to the byte.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use tar::{EntryType, Header};

use super::manifest::{self, Entry, MAX_BYTES, Manifest};
use super::work::{Halt, Meter};
use crate::{Error, state_dir};

/// How much is copied at a time.
const PIECE: usize = 128 << 10;
/// How much of nothing may stand behind the last file.
const MAX_PADDING: u64 = 64 << 10;
/// The largest memory of an unpacker, as a power of two; more than any level of this program asks for.
const WINDOW: u32 = 24;
const LEVEL: i32 = 3;
/// How a bundle of git begins, what stands behind its header, and the most bytes of that.
const BUNDLES: [&[u8]; 2] = [b"# v2 git bundle\n", b"# v3 git bundle\n"];
const PACK: &[u8] = b"\n\nPACK";
const MAX_HEADER: usize = 64 << 10;

/// Writes an archive. `find` says where each of its files lies, `path` what messages call it.
pub(super) fn write<W: Write>(
    to: W,
    manifest: &Manifest,
    find: impl Fn(&Entry) -> PathBuf,
    halt: &Halt,
    meter: &Meter,
    path: &Path,
) -> Result<W, Error> {
    let fail = |e| Error::io("can't write", path, e);
    let mut packer = zstd::Encoder::new(to, LEVEL).map_err(fail)?;
    packer.include_checksum(true).map_err(fail)?;
    let mut tar = tar::Builder::new(packer);
    let text = serde_json::to_vec(manifest).expect("a manifest is plain data");
    let header = |name: &str, bytes: u64| -> io::Result<Header> {
        let mut header = Header::new_ustar();
        header.set_path(name)?;
        header.set_size(bytes);
        header.set_mode(0o600);
        header.set_mtime(manifest.created.0 / 1000);
        header.set_entry_type(EntryType::Regular);
        header.set_cksum();
        Ok(header)
    };
    let first = header(manifest::NAME, text.len() as u64).map_err(fail)?;
    tar.append(&first, text.as_slice()).map_err(fail)?;
    // From here on the file is known for an archive by how it begins, under whatever name.
    tar.get_mut().flush().map_err(fail)?;
    for entry in &manifest.files {
        let path = find(entry);
        let file = state_dir::open(&path).map_err(|e| Error::io("can't read", &path, e))?;
        let header = header(&entry.name, entry.bytes).map_err(fail)?;
        let mut from = Checked::new(file.take(entry.bytes), halt, meter);
        tar.append(&header, &mut from)
            .map_err(|e| halt.check().err().unwrap_or_else(|| fail(e)))?;
        if (from.bytes, from.crc) != (entry.bytes, entry.crc32c) {
            let changed = io::Error::other("somebody changed it meanwhile");
            return Err(Error::io("can't take along", &path, changed));
        }
    }
    let packer = tar.into_inner().map_err(fail)?;
    packer.finish().map_err(fail)
}

/// Looks at a file that is to be in an archive.
pub(super) fn entry(name: String, path: &Path, halt: &Halt) -> Result<Entry, Error> {
    let fail = |e| {
        halt.check()
            .err()
            .unwrap_or_else(|| Error::io("can't read", path, e))
    };
    let meter = Meter::default();
    let mut from = Checked::new(
        state_dir::open_bounded(path, MAX_BYTES).map_err(fail)?,
        halt,
        &meter,
    );
    io::copy(&mut from, &mut io::sink()).map_err(fail)?;
    Ok(Entry {
        name,
        bytes: from.bytes,
        crc32c: from.crc,
    })
}

/// Unpacks an archive into a directory that is laid out as that of a run. `room` refuses what has no place on this disk.
///
/// The inner error is what is wrong with the archive.
pub(super) fn read(
    from: impl Read,
    into: &Path,
    room: impl FnOnce(&Manifest) -> Result<(), Error>,
    halt: &Halt,
    meter: &Meter,
) -> Result<Result<Manifest, String>, Error> {
    let cut = |e: io::Error| match e.kind() {
        io::ErrorKind::UnexpectedEof => "it is cut off; fetch it again".to_owned(),
        _ => format!("it can't be unpacked: {e}; fetch it again"),
    };
    macro_rules! good {
        ($result:expr) => {
            match $result {
                Ok(good) => good,
                Err(why) => {
                    halt.check()?;
                    return Ok(Err(why));
                }
            }
        };
    }
    let mut unpacker = good!(zstd::Decoder::new(from).map_err(cut));
    good!(unpacker.window_log_max(WINDOW).map_err(cut));
    let mut tar = tar::Archive::new(unpacker);
    // Raw: a long name or other extension would be read into memory, however long it says it is. No export writes any.
    let mut entries = good!(tar.entries().map_err(cut)).raw(true);
    let first = good!(entries.next().ok_or_else(|| "nothing is in it".to_owned()));
    let mut first = good!(first.map_err(cut));
    if !is_file(&first, manifest::NAME) || first.size() > MAX_BYTES {
        return Ok(Err("it is no run that was exported".into()));
    }
    let mut text = Vec::new();
    good!(first.read_to_end(&mut text).map_err(cut));
    let manifest = good!(Manifest::parse(&text));
    room(&manifest)?;
    for expected in &manifest.files {
        let shown = &expected.name;
        let next = good!(
            entries
                .next()
                .ok_or_else(|| format!("`{shown}` is missing in it"))
        );
        let next = good!(next.map_err(cut));
        if !is_file(&next, shown) || next.size() != expected.bytes {
            return Ok(Err(format!(
                "something else is in it where `{shown}` should be"
            )));
        }
        let mut from = Checked::new(next, halt, meter);
        let path = manifest::place(shown).expect("the manifest was checked");
        let path = into.join(path);
        let mut beginning = Vec::new();
        if shown == manifest::BUNDLE {
            good!(begin_bundle(&mut from, &mut beginning));
        }
        let copied = copy(&beginning, &mut from, &path);
        halt.check()?;
        match copied {
            Ok(()) => {}
            Err(Failed::Read(e)) => return Ok(Err(cut(e))),
            Err(Failed::Write(e)) => return Err(Error::io("can't write", &path, e)),
        }
        if (from.bytes, from.crc) != (expected.bytes, expected.crc32c) {
            return Ok(Err(format!(
                "`{shown}` in it is damaged (wrong checksum); fetch it again"
            )));
        }
    }
    if let Some(more) = entries.next() {
        good!(more.map_err(cut));
        return Ok(Err("more is in it than it announces".into()));
    }
    let mut rest = tar.into_inner().take(MAX_PADDING);
    let mut padding = Vec::new();
    let read = good!(rest.read_to_end(&mut padding).map_err(cut));
    if read as u64 == MAX_PADDING || padding.iter().any(|byte| *byte != 0) {
        return Ok(Err("more is in it than it announces".into()));
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

/// Reads as much of a bundle as shows that it is one, so that git and the disk are spared what is none.
fn begin_bundle(from: &mut impl Read, beginning: &mut Vec<u8>) -> Result<(), String> {
    let bad = || {
        format!(
            "`{}` in it is no bundle of git; fetch it again",
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

/// Writes a private file, durably: its beginning, which was read before, and the rest.
fn copy(beginning: &[u8], from: &mut impl Read, path: &Path) -> Result<(), Failed> {
    if let Some(folder) = path.parent() {
        state_dir::make_private_directory(folder).map_err(Failed::Write)?;
    }
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

/// Counts and sums up what is read through it, until it is halted.
struct Checked<'a, R> {
    from: R,
    halt: &'a Halt,
    meter: &'a Meter,
    bytes: u64,
    crc: u32,
}

impl<'a, R> Checked<'a, R> {
    fn new(from: R, halt: &'a Halt, meter: &'a Meter) -> Self {
        Self {
            from,
            halt,
            meter,
            bytes: 0,
            crc: 0,
        }
    }
}

impl<R: Read> Read for Checked<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.halt.check().is_err() {
            return Err(io::Error::other("it was stopped"));
        }
        let read = self.from.read(buffer)?;
        self.bytes += read as u64;
        self.crc = crc32c::crc32c_append(self.crc, &buffer[..read]);
        self.meter.add(read as u64);
        Ok(read)
    }
}
