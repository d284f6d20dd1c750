//! The fuzz targets, which continue D8 where D8 is not exhaustive.
//!
//! The reader rejects a wrong checksum at once, so random bytes test nothing behind the checksum. So all targets but one make the checksums right.
//! Nothing may panic, a load may take only a limited amount of memory, and the same bytes load the same way twice.

use std::path::Path;

use checkpoint_store::verify::{File, FileCondition, NextAction, verify_on};
use checkpoint_store::{Error, Migrations, Options, Record, Seq, reader};

use crate::bytes::{Golden, goldens};
use crate::computer::Computer;
use crate::counting;
use crate::disk::Disk;
use crate::memory::Memory;
use crate::reference::{Event, Head, State, text};
use crate::replica::{self, program::rebuilt};
use crate::rng::Rng;
use crate::session::DIR;
use crate::sim_disk::Shared;

/// Length of a file header and of a frame header.
const HEADER: usize = 32;
const MAGIC: &[u8] = b"CKF1";
/// Limit of the input; these bytes are enough to reach all limits of the reader.
const MOST_BYTES: usize = 16 << 10;
/// Memory limit for a load of such an input. The input unpacks to at most 1,000 times its size, and an event of two bytes takes some dozens of bytes
/// in memory.
const MOST: usize = 512 << 20;

/// A function that tries some bytes, and panics if a promise is broken.
pub type Target = fn(&[u8]);

/// All targets.
pub const TARGETS: [(&str, Target); 5] = [
    ("header", header),
    ("frames", frames),
    ("load", load),
    ("migrations", migrations),
    ("records", records),
];

fn bounded<T>(act: impl FnOnce() -> T) -> T {
    let (result, most) = counting::most(act);
    assert!(most < MOST, "a load took {most} bytes");
    result
}

fn newest(files: &Memory) -> Result<String, String> {
    let load = || reader::load_on::<Head, Event>(Box::new(files.clone()), Path::new(DIR));
    let shown = |loaded: Result<_, Error>| {
        loaded
            .map(|loaded| format!("{loaded:?}"))
            .map_err(|err| err.to_string())
    };
    let loaded = bounded(load);
    if let Ok(loaded) = &loaded
        && loaded.report.is_undamaged()
    {
        let head = reader::head_on::<Head>(Box::new(files.clone()), Path::new(DIR));
        let head = head.expect("a state that can be loaded has a head");
        assert_eq!(
            (&head.head, head.seq, &head.report),
            (&loaded.head, loaded.seq, &loaded.report)
        );
    }
    let first = shown(loaded);
    assert_eq!(
        first,
        shown(load()),
        "the same bytes must load the same way twice"
    );
    first
}

/// Returns a journal of a golden store with other frames after its first frame, the metadata.
fn journal(golden: &Golden, data: &[u8]) -> Memory {
    let bytes = golden.bytes();
    let second = bytes[HEADER + 1..]
        .windows(MAGIC.len())
        .position(|window| window == MAGIC);
    let end = HEADER + 1 + second.expect("the journal has several frames");
    let mut file = bytes[..end].to_vec();
    let salt: [u8; 8] = file[16..24].try_into().expect("eight bytes were sliced");
    let mut seq = u64::from_le_bytes(
        file[HEADER + 16..HEADER + 24]
            .try_into()
            .expect("eight bytes were sliced"),
    );
    let mut rest = &data[..data.len().min(MOST_BYTES)];
    while let [kind, flags, raw, head, gap, len, ..] = *rest {
        let len = usize::from(len) * 8;
        let payload = &rest[6..(6 + len).min(rest.len())];
        rest = &rest[6 + payload.len()..];
        // Mostly the next number, as in a journal of a writer.
        seq = seq.wrapping_add(if gap < 250 { 1 } else { u64::from(gap) });
        let stored = payload.len() as u32;
        let plain = flags & 1 == 0;
        let raw = match plain && raw < 250 {
            true => stored,
            false => stored.saturating_mul(u32::from(raw) * 5),
        };
        let head = raw.min(u32::from(head));
        let start = file.len();
        file.extend_from_slice(MAGIC);
        file.extend_from_slice(&[kind, flags, 0, 0]);
        file.extend_from_slice(&stored.to_le_bytes());
        file.extend_from_slice(&raw.to_le_bytes());
        file.extend_from_slice(&seq.to_le_bytes());
        file.extend_from_slice(&head.to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&salt), &file[start..]);
        let crc = crc32c::crc32c_append(crc, payload);
        file.extend_from_slice(&crc.to_le_bytes());
        file.extend_from_slice(payload);
    }
    golden.with(&file)
}

/// Tries other bytes as a file's header, with a right checksum if the first byte is even.
///
/// # Panics
/// If a promise is broken.
pub fn header(data: &[u8]) {
    let [first, data @ ..] = data else { return };
    for golden in goldens() {
        let mut file = golden.bytes().to_vec();
        let len = data.len().min(HEADER);
        file[..len].copy_from_slice(&data[..len]);
        if first % 2 == 0 {
            let crc = crc32c::crc32c(&file[..28]);
            file[28..HEADER].copy_from_slice(&crc.to_le_bytes());
        }
        let files = golden.with(&file);
        drop(newest(&files));
        let loaded = reader::load_on::<Head, Event>(Box::new(files), Path::new(DIR));
        if let Ok(loaded) = loaded {
            let state = State::loaded(&loaded).expect("the loaded texts were saved");
            assert!(
                golden.knows(&state),
                "the loaded state was never saved: {state:?}"
            );
        }
    }
}

/// Tries frames of any kind and contents, with right checksums, after a journal's first frame.
///
/// # Panics
/// If a promise is broken.
pub fn frames(data: &[u8]) {
    for golden in goldens().iter().filter(|golden| golden.is_journal()) {
        drop(newest(&journal(golden, data)));
    }
}

/// Returns whether these frames contain a save that a load returns.
pub fn loads(data: &[u8]) -> bool {
    let golden = &goldens()[0];
    let files = Box::new(journal(golden, data));
    reader::load_on::<Head, Event>(files, Path::new(DIR)).is_ok_and(|loaded| loaded.head.is_some())
}

/// Tries any bytes as files with any of the store's names.
///
/// # Panics
/// If a promise is broken.
pub fn load(data: &[u8]) {
    const NAMES: [&str; 4] = [
        "phase-0000000000000002.ckpt",
        "progress-00000001-0000000000000000.ckj",
        "progress-00000002-0000000000000002.ckj",
        "epoch-00000002",
    ];
    let mut files = Memory::default();
    let mut rest = &data[..data.len().min(MOST_BYTES)];
    while let [name, low, high, ..] = *rest {
        let len = usize::from(low) | usize::from(high) << 8;
        let bytes = &rest[3..(3 + len).min(rest.len())];
        rest = &rest[3 + bytes.len()..];
        let name = NAMES[usize::from(name) % NAMES.len()];
        files = files.with(name, bytes);
    }
    drop(newest(&files));
}

/// Tries frames as in [`frames`], read as frames of an older version of the schema.
///
/// # Panics
/// If a promise is broken.
pub fn migrations(data: &[u8]) {
    let migrations = Migrations::default()
        .head(1, |(number, text): Head| Ok((number, text, 0_u64)))
        .head(2, |(number, text, _): (u32, String, u64)| {
            (number < 1 << 31)
                .then_some((number, text))
                .ok_or_else(|| "the number is too large".to_owned())
        })
        .event(1, |(number, text): Event| Ok((number, text + "!")));
    let options = Options {
        schema_version: 3,
        migrations,
        ..Options::default()
    };
    for golden in goldens().iter().filter(|golden| golden.is_journal()) {
        let files = journal(golden, data);
        for seq in 0..8 {
            let load = || {
                let disk = Box::new(files.clone());
                reader::load_at_on::<Head, Event>(disk, Path::new(DIR), Seq::new(seq), &options)
            };
            drop(bounded(load));
        }
    }
}

/// Tries the records of a replica with other bytes and in another order, with right checksums.
///
/// # Panics
/// If a promise is broken.
pub fn records(data: &[u8]) {
    drop(rebuilt_from(data));
}

/// Changes records and rebuilds a store from them; returns its newest save.
///
/// # Errors
/// If a record is refused.
///
/// # Panics
/// If a promise is broken.
pub fn rebuilt_from(data: &[u8]) -> Result<Seq, Error> {
    let workload = "512/0/0/a1:20,a1:20,u1,p,a1:20".parse();
    let workload = workload.expect("these are steps of a workload");
    let records = replica::records(&workload).expect("nothing fails in this workload");
    let mut all: Vec<Vec<u8>> = records.iter().map(|it| it.as_bytes().to_vec()).collect();
    let mut rest = &data[..data.len().min(MOST_BYTES)];
    while let [record, low, high, value, ..] = *rest {
        rest = &rest[4..];
        let (record, count) = (usize::from(record) % all.len(), all.len());
        match all[record].get_mut(usize::from(low) | usize::from(high) << 8) {
            Some(byte) => *byte = value,
            None => all.swap(record, usize::from(value) % count),
        }
    }
    all.iter_mut().for_each(|bytes| fix_checksums(bytes));
    let parse = |bytes: Vec<u8>| bounded(|| Record::parse(bytes, "record"));
    let records: Vec<Record> = all.into_iter().map(parse).collect::<Result<_, _>>()?;
    let shared = Shared::new(Computer::new(Disk::new(512), 1));
    let rebuilt = bounded(|| rebuilt(&shared, DIR, &records));
    // The values may have other types now, so this reads the store without its types.
    let found = verify_on(shared.directory(DIR), Path::new(DIR));
    let found = found.expect("a rebuilt store can be read");
    let is_valid = |file: &File| file.condition == FileCondition::Valid;
    assert!(found.files.iter().all(is_valid), "{found}");
    match (&rebuilt, &found.next) {
        (Ok(seq), NextAction::Resume { seq: newest }) => assert_eq!(seq, newest),
        (Err(_), NextAction::Start | NextAction::Resume { .. }) => {}
        _ => panic!("a rebuild leaves a store that does not load: {found}"),
    }
    rebuilt
}

/// Makes the checksums of a file and of its frames right.
fn fix_checksums(file: &mut [u8]) {
    let crc = crc32c::crc32c(&file[..28]);
    file[28..HEADER].copy_from_slice(&crc.to_le_bytes());
    let salt = crc32c::crc32c(&file[16..24]);
    let mut at = HEADER;
    while let Some(stored) = file.get(at + 8..at + 12) {
        let stored: [u8; 4] = stored.try_into().expect("four bytes were sliced");
        let payload = at + HEADER;
        let end = payload.saturating_add(u32::from_le_bytes(stored) as usize);
        if end > file.len() {
            return;
        }
        let crc = crc32c::crc32c_append(salt, &file[at..at + 28]);
        let crc = crc32c::crc32c_append(crc, &file[payload..end]);
        file[at + 28..payload].copy_from_slice(&crc.to_le_bytes());
        at = end;
    }
}

/// Returns the first inputs of a target: whole stores, and inputs that fit the target.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    let mut rng = Rng::new(1);
    let mut seeds = Vec::new();
    for golden in goldens() {
        let bytes = golden.bytes();
        match target {
            "header" => seeds.push([&[0], &bytes[..HEADER]].concat()),
            // A change of the first byte to its present value.
            "records" => seeds.push([rng.below(5) as u8, 0, 0, bytes[0]].to_vec()),
            "load" => {
                let len = (bytes.len() as u16).to_le_bytes();
                seeds.push([&[rng.below(4) as u8], &len[..], bytes].concat());
            }
            _ => {
                // A save: a head and a list of one event, both short texts.
                let text = text(rng.draw() as u32, 5);
                let mut save = vec![0x82, 7, 0x65];
                save.extend_from_slice(text.as_bytes());
                let head = save.len() as u8;
                save.extend_from_slice(b"\x81\x82\x08\x64more");
                seeds.push([&[2, 0, 0, head, 0, 2][..], &save].concat());
            }
        }
    }
    seeds
}
